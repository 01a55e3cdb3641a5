"""Count the bytecode instructions of an operation: what a timing cannot show on a noisy machine.

    python -m bench.instructions [--before CHECKOUT] [--json]

Counts are the same in every run of one Python version, so a change of one per cent is a change of the code. They say
nothing about work inside C: sockets, JSON, memory. The client of a socket runs in a thread of its own, uncounted, and
the server of stdio in a process of its own. What another checkout does not have yet is left out there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import ferrule
from ferrule import Client, Http, Server, SetupError, Stdio, Tcp, WebSocket
from ferrule.errors import FerruleError
from ferrule.transports.contract import Listener

CALLS = 40
WARM_UP = 30
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "instructions", "version": "1"},
    },
}

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
}
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "instructions", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Counter:
    """Counts the instructions of the thread it is switched on in."""

    def __init__(self) -> None:
        self.instructions = 0

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self.instructions += 1
        else:
            frame.f_trace_opcodes = True
        return self._trace

    def on(self) -> None:
        """Begin to count, in what is called from now on."""
        sys.settrace(self._trace)

    def off(self) -> None:
        """Count no more."""
        sys.settrace(None)


def new_server(**options: Any) -> Server:
    """Make a server with one small tool and one small text."""
    app = Server("instructions", **options)

    @app.resource("text://small")
    async def text() -> str:
        return "small"

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


async def call(client: Client, times: int) -> None:
    """Call the tool so many times, one after another."""
    for _ in range(times):
        await client.call_tool("add", {"a": 1, "b": 2})


async def read(client: Client, times: int) -> None:
    """Read the text so many times, one after another."""
    for _ in range(times):
        await client.read_resource("text://small")


async def count_in_memory(servers: int = 1, ask: Callable[[Client, int], Coroutine[Any, Any, None]] = call) -> float:
    """Count a call, or what else is asked, with client and server in one process; of several servers, one is asked."""
    counter = Counter()
    target: Any = new_server()
    if servers > 1:
        target = [new_server() for _ in range(servers)]
    async with Client(target) as client:
        await ask(client, WARM_UP)
        counter.on()
        await asyncio.create_task(ask(client, CALLS))
        counter.off()
    return counter.instructions / CALLS


class Switch:
    """Switches the counter of a server's thread from the client's."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._loop = asyncio.get_running_loop()

    def __call__(self, *, on: bool) -> None:
        done = threading.Event()

        def switch() -> None:
            if on:
                self._counter.on()
            else:
                self._counter.off()
            done.set()

        self._loop.call_soon_threadsafe(switch)
        done.wait()


async def count_served(listener: Any, drive: Callable[[int, Switch], None], **options: Any) -> float:
    """Count what a server with these options does for one operation of a client in another thread."""
    app = new_server(**options)
    ready = asyncio.Event()
    serving = asyncio.ensure_future(_serve(app, listener, ready))
    await ready.wait()
    counter = Counter()
    await asyncio.to_thread(drive, listener.address[1], Switch(counter))
    await app.stop()
    await serving
    return counter.instructions / CALLS


async def _serve(app: Server, listener: Listener, ready: asyncio.Event) -> None:
    await app.serve(listener, ready=ready.set)


def calls_to(url: str) -> Callable[[int, Switch], None]:
    """Return what calls the tool at a URL, once its port is known."""

    async def drive(port: int, switch: Switch) -> None:
        async with Client(url.format(port=port)) as client:
            await call(client, WARM_UP)
            switch(on=True)
            await call(client, CALLS)
            switch(on=False)

    return lambda port, switch: asyncio.run(drive(port, switch))


async def count_over_stdio() -> float:
    """Count a call over stdio; the server is a child that counts itself."""
    source = Path(ferrule.__file__).parents[1]  # a child does not inherit this process's PYTHONPATH
    command = ["env", f"PYTHONPATH={source}", sys.executable, str(Path(__file__).resolve()), "--serve-stdio"]
    async with Client(command) as client:
        await call(client, WARM_UP)
        await client.call_tool("count")
        await call(client, CALLS)
        counted = await client.call_tool("counted")
    return float(counted.structured_content["result"]) / CALLS


async def serve_stdio() -> None:
    """Serve over stdio, with tools that switch the counter."""
    app = new_server()
    counter = Counter()

    @app.tool
    async def count() -> None:
        counter.on()

    @app.tool
    async def counted() -> int:
        counter.off()
        return counter.instructions

    await app.serve(Stdio())


def open_sessions(port: int, switch: Switch) -> None:
    """Open sessions over one connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        _repeat(lambda: _exchange(connection, _posted(INITIALIZE)), switch)


def live_sessions(port: int, switch: Switch) -> None:
    """Open sessions, each over a connection of its own, call the tool in it and end it."""

    def live() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            opened = _exchange(connection, _posted(INITIALIZE))
            found = re.search(rb"mcp-session-id: \S+\r\n", opened)
            assert found is not None, opened
            session = found.group().decode()
            for message in (INITIALIZED, CALL):
                _exchange(connection, _posted(message, session))
            _exchange(connection, f"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{session}\r\n".encode())

    _repeat(live, switch)


def connect_and_call(port: int, switch: Switch) -> None:
    """Call the tool in the stateless era, each time over a new connection."""
    lines = f"Mcp-Protocol-Version: {STATELESS}\r\nMcp-Method: tools/call\r\nMcp-Name: add\r\n"
    params = {**CALL["params"], "_meta": META}

    def call_once() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            _exchange(connection, _posted({**CALL, "params": params}, lines))

    _repeat(call_once, switch)


def _repeat(operation: Callable[[], object], switch: Switch) -> None:
    """Do something until it is known, and then so many times more while it is counted."""
    for _ in range(WARM_UP):
        operation()
    switch(on=True)
    for _ in range(CALLS):
        operation()
    switch(on=False)


def _posted(message: dict[str, Any], lines: str = "") -> bytes:
    body = json.dumps(message).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}Content-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request, and return the head of its answer once that is whole."""
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 20"), answer
    length = re.search(rb"content-length: (\d+)", head)
    while length is not None and len(rest) < int(length.group(1)):
        rest += connection.recv(65536)
    return head + b"\r\n"


def http(*, metrics: bool = False) -> Http:
    """Return a listener with metrics or without; checkouts from before metrics have none to switch off."""
    try:
        return Http(port=0, metrics=metrics)
    except SetupError:
        return Http(port=0)


OPERATIONS: dict[str, Callable[[], Awaitable[float]]] = {
    "call in memory": count_in_memory,
    "call in memory, to one of two servers": lambda: count_in_memory(2),
    "read in memory": lambda: count_in_memory(ask=read),
    "call over stdio": count_over_stdio,
    "call over TCP": lambda: count_served(Tcp(port=0), calls_to("tcp://127.0.0.1:{port}")),
    "call over TCP with metrics": lambda: count_served(Tcp(port=0), calls_to("tcp://127.0.0.1:{port}"), metrics=True),
    "call over WebSocket": lambda: count_served(WebSocket(port=0), calls_to("ws://127.0.0.1:{port}/mcp/ws")),
    "call over HTTP": lambda: count_served(http(), calls_to("http://127.0.0.1:{port}/mcp")),
    "call over HTTP with metrics": lambda: count_served(http(metrics=True), calls_to("http://127.0.0.1:{port}/mcp")),
    "session opened over HTTP": lambda: count_served(http(), open_sessions),
    "life of a session over HTTP": lambda: count_served(http(), live_sessions),
    "connection for one call over HTTP": lambda: count_served(http(), connect_and_call),
}


async def count_all() -> dict[str, float]:
    """Count every operation; one that this checkout does not have is left out."""
    counts = {}
    for name, count in OPERATIONS.items():
        try:
            counts[name] = await count()
        except FerruleError as error:
            print(f"{name}: {error}", file=sys.stderr)
    return counts


def counts_of(checkout: Path) -> dict[str, float]:
    """Count in another checkout of this project, run by the same Python."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    command = [sys.executable, str(Path(__file__).resolve()), "--json"]
    counted = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    counts: dict[str, float] = json.loads(counted.stdout)
    return counts


def main() -> None:
    """Print the counts, beside those of another checkout where one is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout of this project to compare with")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve-stdio", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve_stdio:
        asyncio.run(serve_stdio())
        return
    counts = asyncio.run(count_all())
    if chosen.json:
        print(json.dumps(counts))
        return
    before = counts_of(chosen.before) if chosen.before else {}
    print("| operation | before | now | now / before |\n|---|---|---|---|")
    for name, count in counts.items():
        if name in before:
            print(f"| {name} | {before[name]:,.0f} | {count:,.0f} | {count / before[name]:.3f} |")
        else:
            print(f"| {name} | - | {count:,.0f} | - |")


if __name__ == "__main__":
    main()
