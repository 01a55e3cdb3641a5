"""Many connections over TCP: nothing is left of those that went, little is held for those that stay."""

from __future__ import annotations

import asyncio
import gc
import operator
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from pace import LONG, prompt
from tcp_workshop import INITIALIZE, INITIALIZED, PROGRAM, Process, line, serving

from ferrule import Client, Server
from ferrule.transports.tcp.connections import ServedChannel
from ferrule.transports.tcp.listener import Tcp, Unix
from many_files import many_files

KIB = 1024
RESET = struct.pack("ii", 1, 0)


def make_app() -> Server:
    app = Server("cycles", version="1.0.0")

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


def visit(address: Any, said: bytes, *, rude: bool) -> None:
    """Connect, say something, and leave."""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as sock:
        sock.connect(address)
        sock.sendall(said)
        if rude:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def cycle(number: int, address: Any, target: str, **options: Any) -> None:
    """Come and go in one of several ways."""
    if number % 4 == 0:
        async with Client(target, mode="handshake" if number % 8 else "stateless", **options) as client:
            assert (await client.call_tool("add", {"a": number, "b": 1})).data == number + 1
    else:
        words = (b"", line(INITIALIZE), b'{"jsonrpc":"2.0","i')[number % 3]
        visit(address, words, rude=number % 8 > 4)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("run", "carrier"),
    [(asyncio.run, "tcp"), (uvloop.run, "tcp"), (asyncio.run, "unix"), (uvloop.run, "unix"), (asyncio.run, "tls")],
)
def test_a_thousand_connects_and_disconnects_leave_no_task_socket_or_place(
    run: Callable[[Coroutine[Any, Any, None]], None], carrier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TCPT-17, LIMT-02: by FIN, by RST, before, in the middle of and after the handshake; of TLS too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "transports"))
    from certificates import write_certificate

    certificate, key = write_certificate(tmp_path)
    secured = {"certificate": certificate, "private_key": key} if carrier == "tls" else {}
    trusting: dict[str, Any] = {"tcp": {"ca": certificate}} if secured else {}

    async def main() -> None:
        app = make_app()
        listener: Tcp | Unix = Unix(path=str(tmp_path / "s")) if carrier == "unix" else Tcp(port=0, **secured)
        ready = asyncio.Event()
        await app.enter()
        serve = asyncio.ensure_future(listener.serve(app.host, ready.set))
        await ready.wait()
        address: Any = str(tmp_path / "s") if isinstance(listener, Unix) else listener.address
        target = f"unix:{address}" if isinstance(listener, Unix) else f"{carrier}://localhost:{address[1]}"

        async def settle(most: tuple[int, ...] = ()) -> tuple[int, ...]:
            """Count what there is once everybody is gone, and no more of it than there was before."""
            deadline = time.monotonic() + 60
            while True:
                await asyncio.sleep(0.05)
                gc.collect()
                alive = sum(isinstance(each, ServedChannel) for each in gc.get_objects())
                found = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), alive
                gone = not listener.occupancy.current and all(map(operator.le, found, most))
                if gone or time.monotonic() > deadline:
                    return found

        for number in range(20):
            await cycle(number, address, target, **trusting)
        before = await settle()
        for number in range(1000):
            await cycle(number, address, target, **trusting)
        after = await settle(before)
        assert all(map(operator.le, after, before)), (before, after)
        assert (listener.occupancy.current, listener.occupancy.refused, len(app.host.links)) == (0, 0, 0)
        await listener.close(1.0)
        await serve
        await app.leave()
        assert len(asyncio.all_tasks()) == 1

    run(main())


def open_many(server: Process, number: int, *, greeted: bool) -> list[socket.socket]:
    """Open connections, and let them make the handshake."""
    peers = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(number)]
    if greeted:
        for peer in peers:
            peer.sendall(line(INITIALIZE))
        for peer in peers:
            assert peer.recv(65536).endswith(b"\n")
            peer.sendall(line(INITIALIZED))
    return peers


@pytest.mark.parametrize("greeted", [False, True])
def test_ovl_05_idle_connections_cost_at_most_six_kilobytes_each(greeted: bool) -> None:
    """TCPT-26, TCPT-21, PERF-14: 1,000 always, 10,000 with FERRULE_LONG; before and after the handshake."""
    number = 10_000 if LONG else 1000
    with (
        many_files(number + 200),
        serving({"keepalive_interval": None, "init_timeout": None}, max_connections=number + 100) as server,
    ):
        warm = open_many(server, 60, greeted=True)
        time.sleep(0.3)
        before = server.resident
        peers = open_many(server, number, greeted=greeted)
        time.sleep(0.3)
        each = (server.resident - before) / number
        print(f"{number} idle connections: {each / KIB:.1f} KiB each")
        assert each <= 6 * KIB
        used = server.cpu
        time.sleep(0.5)
        assert server.cpu - used < 0.3
        assert slow_arrival(server, warm) <= prompt(0.05)
        for sock in peers + warm:
            sock.close()
        deadline = time.monotonic() + 60
        while server.descriptors > 30:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def slow_arrival(server: Process, active: list[socket.socket]) -> float:
    """Return the time in which 99 of 100 newcomers are greeted while some others ask all the while."""
    times = []
    for number in range(100):
        asking = active[number % len(active)]
        asking.sendall(line({"jsonrpc": "2.0", "id": number + 1, "method": "ping"}))
        began = time.perf_counter()
        with server.peer() as peer:
            peer.open()
        times.append(time.perf_counter() - began)
        asking.recv(65536)
    return sorted(times)[98]


def call_line(number: int) -> bytes:
    """Write a call of `add`."""
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}\n' % number
    )


def pipeline(write: Callable[[bytes], Any], outlet: int, calls: int) -> int:
    """Keep 64 calls in flight until all are answered; gives how many were."""
    sent = answered = 0
    due = 64
    while answered < calls:
        if due and sent < calls:
            write(b"".join(map(call_line, range(sent, sent + due))))
            sent += due
        due = os.read(outlet, 1 << 20).count(b"\n")
        answered += due
    return answered


def processor_time(pid: int) -> float:
    """Return the seconds of processor time a process has used, finer than /proc/PID/stat does."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def test_a_pipelined_call_over_tcp_costs_about_what_it_costs_over_stdio() -> None:
    """Wanted: at most 1.3 times; the cheapest of five rounds of each, in turns. A busy machine reads smaller pieces."""
    with (
        subprocess.Popen([sys.executable, str(PROGRAM), "stdio"], stdin=-1, stdout=-1) as child,
        serving() as server,
        server.peer() as peer,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        inlet, outlet = child.stdin.fileno(), child.stdout.fileno()
        os.write(inlet, line(INITIALIZE))
        os.read(outlet, 65536)
        os.write(inlet, line(INITIALIZED))
        peer.open()
        peer.socket.setblocking(True)
        ways = {
            "stdio": (child.pid, lambda data: os.write(inlet, data), outlet),
            "tcp": (server.pid, peer.socket.sendall, peer.socket.fileno()),
        }
        cost: dict[str, list[float]] = {"stdio": [], "tcp": []}
        for _ in range(6):
            for name, (pid, write, source) in ways.items():
                began = processor_time(pid)
                answered = pipeline(write, source, 10_000)
                cost[name].append((processor_time(pid) - began) / answered * 1e6)
        stdio, tcp = (min(cost[name][1:]) for name in ("stdio", "tcp"))
        print(f"processor time a call: stdio {stdio:.1f} µs, TCP {tcp:.1f} µs, {tcp / stdio:.2f} times")
        assert tcp / stdio <= (1.3 if LONG else 2.6)
        child.stdin.close()
