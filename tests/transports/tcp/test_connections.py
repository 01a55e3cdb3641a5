"""Connections from the door to the end: places given back, peers that fall silent, peers that do not read."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import write_certificate
from tcp_desk import INITIALIZE, PING, Notes, Peer, Run, call, line, make_app, serving, until

from ferrule import Client, Server
from ferrule.budgets import process
from ferrule.testing import run_in_virtual_time
from ferrule.transports.tcp import connections as reception
from ferrule.transports.tcp.connections import LONGEST_PERIOD, Reception, ServedChannel, look_period
from ferrule.transports.tcp.listener import Tcp, Unix
from ferrule.transports.tcp.settings import SocketSettings


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")


def refused(*_: Any, **__: Any) -> Any:
    raise OSError("broken on purpose")


def break_prepare(patch: pytest.MonkeyPatch, app: Server, fail: Callable[..., Any]) -> None:
    patch.setattr(reception, "prepare", fail)


def break_link(patch: pytest.MonkeyPatch, app: Server, fail: Callable[..., Any]) -> None:
    patch.setattr(app.host, "link", fail)


def break_framer(patch: pytest.MonkeyPatch, app: Server, fail: Callable[..., Any]) -> None:
    patch.setattr(SocketSettings, "framer", fail)


def break_opening(patch: pytest.MonkeyPatch, app: Server, fail: Callable[..., Any]) -> None:
    class Refusing(Notes):
        def channel_opened(self, channel: Any) -> None:
            fail()

    patch.setattr(app.host, "link", lambda origin: Refusing())


def break_attaching(patch: pytest.MonkeyPatch, app: Server, fail: Callable[..., Any]) -> None:
    class Loop:
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self._loop = loop
            self.connect_accepted_socket = fail

        def __getattr__(self, name: str) -> Any:
            return getattr(self._loop, name)

    made = Reception.__init__

    def make(self: Reception, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self._loop = Loop(self._loop)

    patch.setattr(Reception, "__init__", make)


@pytest.mark.parametrize("fail", [broken, refused])
@pytest.mark.parametrize("step", [break_prepare, break_attaching, break_link, break_framer, break_opening])
def test_limt_02_a_place_is_given_back_whatever_fails_while_a_peer_comes_in(
    run: Run, step: Any, fail: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """LIMT-02, SUPV-05: the peer is let go, and the listener serves the next one."""

    async def test() -> None:
        app = make_app()
        with pytest.MonkeyPatch.context() as patch:
            listener = Tcp(port=0, max_connections=2)
            if step is break_attaching:
                step(patch, app, fail)
            async with serving(app, listener):
                if step is not break_attaching:
                    step(patch, app, fail)
                for _ in range(5):
                    peer = await Peer.reach(listener)
                    assert await asyncio.wait_for(peer.reader.read(), 60) == b""
                    await peer.close()
                    await until(lambda: listener.occupancy.current == 0)
                assert listener.occupancy.refused == 0
                patch.undo()
                if step is not break_attaching:
                    async with Client(f"tcp://127.0.0.1:{listener.address[1]}") as client:
                        await client.ping()

    with caplog.at_level(logging.CRITICAL):
        run(test())


def test_tcpt_17_a_peer_that_leaves_in_any_way_frees_its_place(run: Run) -> None:
    """TCPT-17, TCPT-24: FIN, RST, and in the middle of a call or of a line."""

    async def test() -> None:
        listener = Tcp(port=0)
        app = make_app()
        async with serving(app, listener):
            for said in (b"", line(INITIALIZE), line(INITIALIZE, call(1, "wait", seconds=60)), b'{"jsonrpc":'):
                for rude in (False, True):
                    peer = socket.create_connection(listener.address)
                    peer.sendall(said)
                    await until(lambda: listener.occupancy.current == 1)
                    await asyncio.sleep(0.01)
                    if rude:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    peer.close()
                    if b"wait" in said and not rude:
                        # A half-close cannot be told from a close: the answer is still owed.
                        for served in list(listener._reception.served):
                            served.abort()
                    await until(lambda: listener.occupancy.current == 0)
                    assert len(app.host.links) == 0

    run(test())


# -- time


def test_tcpt_09_a_peer_that_sends_nothing_for_five_minutes_is_closed() -> None:
    """TCPT-09: to a tenth of the limit; what it sends counts, be it a single byte."""

    async def test() -> None:
        app = make_app(keepalive_interval=None, init_timeout=None)
        listener = Tcp(port=0)
        loop = asyncio.get_running_loop()
        async with serving(app, listener):
            silent, chatty = await Peer.reach(listener), await Peer.reach(listener)
            await until(lambda: listener.occupancy.current == 2)
            began = loop.time()
            for _ in range(20):
                chatty.writer.write(b" ")
                await asyncio.sleep(60)
                if listener.occupancy.current == 1:
                    break
            assert await silent.reader.read() == b""
            assert 300 - 0.01 <= loop.time() - began <= 360 + 60
            await asyncio.sleep(600)
            assert listener.occupancy.current == 0
            assert await chatty.reader.read() == b""
            for peer in (silent, chatty):
                await peer.close()

    run_in_virtual_time(test())


def test_tcpt_09_pongs_count_as_something_said() -> None:
    """TCPT-09: with the server's own pings a living peer is never idle."""

    async def test() -> None:
        listener = Tcp(port=0, idle_timeout=60)
        async with serving(make_app(keepalive_interval=30.0), listener):
            client = Client(f"tcp://127.0.0.1:{listener.address[1]}", mode="handshake")
            await client.connect()
            await asyncio.sleep(1000)
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            await client.close()

    run_in_virtual_time(test())


def test_a_peer_that_waits_for_its_answer_is_not_idle() -> None:
    async def test() -> None:
        listener = Tcp(port=0, idle_timeout=60)
        async with serving(make_app(keepalive_interval=None), listener):
            peer = await (await Peer.reach(listener)).open()
            answer = await peer.ask(call(1, "wait", seconds=1000))
            assert answer["result"]["structuredContent"] == {"result": "waited"}
            await peer.close()

    run_in_virtual_time(test())


def test_without_an_idle_timeout_nobody_is_closed() -> None:
    async def test() -> None:
        listener = Tcp(port=0, idle_timeout=None)
        async with serving(make_app(init_timeout=None), listener):
            peer = await Peer.reach(listener)
            await asyncio.sleep(100_000)
            await peer.open()
            await peer.close()

    run_in_virtual_time(test())


@pytest.mark.parametrize(("timeout", "period"), [(300.0, 30.0), (10.0, 1.0), (0.01, 0.02), (None, LONGEST_PERIOD)])
def test_connections_are_looked_after_often_enough(timeout: float | None, period: float) -> None:
    assert look_period(timeout) == period


def test_a_peer_that_does_not_take_our_last_words_is_cut() -> None:
    """An oversize message closes the channel; the peer reads nothing, so only an abort ends it."""

    async def test() -> None:
        app = make_app(init_timeout=None)

        @app.tool
        async def much() -> str:
            return "x" * 400_000

        listener = Tcp(port=0, max_message_size=1_000_000)
        async with serving(app, listener):
            deaf = socket.create_connection(listener.address)
            deaf.sendall(line(INITIALIZE, call(1, "much")))
            await until(lambda: any(s.bytes_out > 800_000 for s in listener._reception.served))
            (served,) = listener._reception.served
            served.close()
            assert listener.occupancy.current == 1
            await asyncio.sleep(61)
            assert listener.occupancy.current == 0
            deaf.close()

    run_in_virtual_time(test())


def test_one_peer_that_cannot_be_looked_after_does_not_stop_the_looking(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_after = ServedChannel.look_after

    async def test() -> None:
        listener = Tcp(port=0, idle_timeout=10)
        async with serving(make_app(init_timeout=None), listener):
            peers = [await Peer.reach(listener) for _ in range(2)]
            await until(lambda: listener.occupancy.current == 2)
            bad, _ = listener._reception.served

            def look(channel: ServedChannel, *args: Any) -> None:
                if channel is bad:
                    broken(*args)
                look_after(channel, *args)

            monkeypatch.setattr(ServedChannel, "look_after", look)
            await asyncio.sleep(30)
            assert listener._reception.served == {bad}
            for peer in peers:
                await peer.close()

    run_in_virtual_time(test())
    assert "could not look after a connection" in caplog.text


# -- backpressure and order


def test_tcpt_08_a_peer_that_does_not_read_is_not_read_from_until_it_does(run: Run) -> None:
    """TCPT-08: its sending stalls, what waits for it is bounded, and afterwards all is answered in order."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            peer = socket.create_connection(listener.address)
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            requests = line(INITIALIZE) + b"".join(line(call(n, "echo", text="x" * 10_000)) for n in range(1, 2001))
            sent = 0
            stalled = 0
            while stalled < 100:
                try:
                    sent += peer.send(requests[sent : sent + 65536])
                    stalled = 0
                except BlockingIOError:
                    stalled += 1
                    await asyncio.sleep(0.002)
            assert sent < len(requests) / 4
            (served,) = listener._reception.served
            assert served._transport.get_write_buffer_size() < 4_000_000
            rest = asyncio.ensure_future(loop.sock_sendall(peer, requests[sent:]))
            pieces: list[bytes] = []
            answered = 0
            while answered < 2001:
                pieces.append(await loop.sock_recv(peer, 1 << 20))
                answered += pieces[-1].count(b"\n")
            await rest
            assert [json.loads(text)["id"] for text in b"".join(pieces).splitlines()] == list(range(2001))
            peer.close()

    run(test())


def test_tcpt_27_ten_thousand_messages_arrive_in_order_however_they_are_cut(run: Run) -> None:
    """TCPT-27."""
    chance = random.Random(27)

    async def test() -> None:
        listener = Tcp(port=0)
        notes = Notes()
        app = make_app()
        with pytest.MonkeyPatch.context() as patch:
            async with serving(app, listener):
                patch.setattr(app.host, "link", lambda origin: notes)
                peer = await Peer.reach(listener)
                stream = b"".join(b'{"n":%d}\n' % number for number in range(10_000))
                while stream:
                    cut = chance.choice([1, 2, 3, 7, 100, 1000, 5000])
                    peer.writer.write(stream[:cut])
                    stream = stream[cut:]
                    if chance.random() < 0.2:
                        await peer.writer.drain()
                        await asyncio.sleep(0)
                await until(lambda: len(notes.frames) == 10_000)
                await peer.close()
                assert [json.loads(frame)["n"] for frame in notes.frames] == list(range(10_000))

    run(test())


def test_a_peer_is_known_by_its_address(run: Run) -> None:
    async def test() -> None:
        app = make_app()
        listener = Tcp(port=0)
        async with serving(app, listener):
            peer = await (await Peer.reach(listener)).open()
            (link,) = app.host.links
            host, port = peer.writer.get_extra_info("sockname")
            assert (link.session.origin.carrier, link.session.origin.address) == ("tcp", f"{host}:{port}")
            assert link.session.origin.principal is None
            assert (await peer.ask(PING))["result"] == {}
            (served,) = listener._reception.served
            assert isinstance(served, ServedChannel)
            assert (served.messages_in, served.messages_out) == (2, 2)
            await peer.close()

    run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of a peer cannot be told from its last word")
def test_calls_of_a_unix_peer_that_is_gone_are_cancelled(run: Run, tmp_path: Path) -> None:
    """GUAR-03: nobody is left to take the answer, and nobody has to write one to find that out."""

    async def test() -> None:
        app = make_app()
        cancelled = asyncio.Event()

        @app.tool
        async def hold() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return ""

        listener = Unix(str(tmp_path / "s"))
        async with serving(app, listener):
            _, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(line(INITIALIZE, call(2, "hold")))
            await until(lambda: any(app.host.busy(link) for link in app.host.links))
            writer.close()
            await asyncio.wait_for(cancelled.wait(), 60)
            await until(lambda: listener.occupancy.current == 0)

    run(test())


def test_a_peer_that_reads_slowly_gets_all_of_our_last_words(run: Run) -> None:
    """It has said its own last word, so the channel closes with the answer still to be taken."""
    text = "x" * 2_000_000

    async def test() -> None:
        loop = asyncio.get_running_loop()
        listener = Tcp(port=0, idle_timeout=0.2)
        async with serving(make_app(), listener):
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
                slow.setblocking(False)
                await loop.sock_connect(slow, listener.address)
                await loop.sock_sendall(slow, line(INITIALIZE, call(1, "echo", text=text)))
                slow.shutdown(socket.SHUT_WR)
                await until(lambda: any(served._closing for served in listener._reception.served))
                await asyncio.sleep(10 * look_period(0.2))
                taken = bytearray()
                while data := await loop.sock_recv(slow, 1 << 20):
                    taken += data
            answers = [json.loads(each) for each in taken.splitlines()]
            assert answers[-1]["result"]["content"][0]["text"] == text

    run(test())


# -- peers that speak something else, say too much, or take nothing

POST = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1:5000\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)
STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def foreign(ran: str) -> dict[str, bytes]:
    """Make what a browser would send, with calls of a tool in both eras as the body."""
    modern = call(3, ran)
    modern["params"]["_meta"] = STATELESS
    messages = (INITIALIZE, call(2, ran), modern)
    lines = line(*messages)
    blocks = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(text), text) for text in lines.splitlines())
    return {
        "lines": POST % (len(lines), lines),
        "blocks": POST % (len(blocks), blocks),
        "a header first": b"Host: x\r\nContent-Length: 2\r\n\r\n" + blocks + lines,
        "a length first": b"Content-Length: %d\r\nHost: x\r\n\r\n%b" % (len(lines) - 1, lines),
        "blank lines before": b"\r\n\r\n" + POST % (len(lines), lines),
        "a method of its own": b"QUERY /x HTTP/1.1\r\n\r\n" + lines,
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\n" + lines,
    }


@pytest.mark.parametrize("carrier", ["tcp", "unix", "tls"])
@pytest.mark.parametrize("framing", ["line", "auto", "content-length"])
@pytest.mark.parametrize("what", foreign(""))
def test_a_peer_that_speaks_http_or_tls_is_closed_and_nothing_of_it_runs(
    run: Run, tmp_path: Path, carrier: str, framing: str, what: str
) -> None:
    """AUT-18: a web page can let a browser send a body of its choice to any port of this machine."""

    async def test() -> None:
        app, ran = make_app(), []

        @app.tool
        def wipe() -> str:
            ran.append(what)
            return "done"

        context = None
        if carrier == "unix":
            listener: Any = Unix(tmp_path / "s", framing=framing)
        elif carrier == "tls":
            certificate, key = write_certificate(tmp_path)
            listener = Tcp(port=0, framing=framing, certificate=certificate, private_key=key)
            context = ssl.create_default_context(cafile=certificate)
        else:
            listener = Tcp(port=0, framing=framing)
        async with serving(app, listener):
            if carrier == "unix":
                reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            else:
                name = "localhost" if context else None
                port = listener.address[1]
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
            writer.write(foreign("wipe")[what])
            said = b""
            with suppress(ConnectionError):
                said = await asyncio.wait_for(reader.read(), 10)
            assert ran == []
            assert b'"result"' not in said
            await until(lambda: listener.occupancy.current == 0)
            writer.close()

    run(test())


class Ticker:
    """Measures the processor's time of each turn of the loop, without a look of the collector at all other tests'."""

    def __init__(self) -> None:
        gc.disable()
        self.longest = 0.0
        self._loop = asyncio.get_running_loop()
        self._at = time.thread_time()
        self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest, self._at = max(self.longest, now - self._at), now
        self._handle = self._loop.call_soon(self._tick)

    def stop(self) -> float:
        """Stop, and return the time of the longest turn in seconds."""
        gc.enable()
        self._handle.cancel()
        return self.longest


@pytest.mark.parametrize("carrier", ["tcp", "unix"])
def test_a_read_of_very_many_messages_holds_nobody_up(run: Run, tmp_path: Path, carrier: str) -> None:
    """256 KiB of two bytes each took 0.6 s in one turn of the loop."""

    async def test() -> None:
        listener: Any = Tcp(port=0, buffer_size=None) if carrier == "tcp" else Unix(tmp_path / "s", buffer_size=None)
        async with serving(make_app(), listener):
            address = listener.address if carrier == "tcp" else str(tmp_path / "s")
            peer = socket.socket(socket.AF_INET if carrier == "tcp" else socket.AF_UNIX)
            peer.connect(address)
            peer.setblocking(False)
            flood = asyncio.ensure_future(asyncio.to_thread(send_all, peer, b"1\n" * 131_072))
            ticker = Ticker()
            loop = asyncio.get_running_loop()
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(2):
                    while await loop.sock_recv(peer, 1 << 20):
                        pass
            assert ticker.stop() < 0.1
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            await flood
            peer.close()

    run(test())


def send_all(peer: socket.socket, data: bytes) -> None:
    """Send what the other side takes, until it takes nothing more."""
    at = 0
    with suppress(OSError):
        while at < len(data) and select.select([], [peer], [], 2)[1]:
            at += peer.send(data[at : at + 65536])


def test_a_peer_that_takes_nothing_is_cut_in_time_and_gives_everything_back(run: Run) -> None:
    """A peer that never read held 7 MiB for a minute."""

    async def test() -> None:
        app, held = make_app(), process.answers.held

        @app.tool
        async def much() -> str:
            return "x" * 400_000

        listener = Tcp(port=0, write_timeout=0.5)
        async with serving(app, listener):
            deaf = socket.create_connection(listener.address)
            deaf.sendall(line(INITIALIZE, *[call(n, "much") for n in range(1, 11)]))
            await until(lambda: process.answers.held > held)
            (served,) = listener._reception.served
            await asyncio.wait_for(served.wait_lost(), 10)
            assert "does not read" in str(served.error)
            assert process.answers.held == held
            deaf.close()

    run(test())
