"""A peer that ended its side gets its answer, however long that takes; one that is gone holds nothing."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from ferrule.transports.http.engine import answer as engine_answer
from ferrule.transports.http.engine.connection import BURST
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.settings import EngineSettings

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT = b":\n\n"

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a peer that is gone from one that waits"
)


class Site:
    """An engine whose one request waits for the test, and a raw peer."""

    def __init__(self, **options: Any) -> None:
        self.engine = Engine(self.handle, EngineSettings(port=0, **options))
        self.peers: list[socket.socket] = []
        self.responders: list[Responder] = []
        self.lost = 0

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        if request.path == "/quick":
            responder.reply(200, b"", b"at once")
            return
        responder.watch(self._count)
        self.responders.append(responder)

    def _count(self) -> None:
        self.lost += 1

    async def ask(self, request: bytes = GET, count: int = 1) -> socket.socket:
        peer = socket.create_connection(self.engine.address)
        self.peers.append(peer)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(peer, request)
        if not count:
            return peer
        await until(lambda: len(self.responders) == count)
        return peer


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


async def read(peer: socket.socket, wanted: bytes | None = None) -> bytes:
    """Read until something was said, or until the end."""
    seen = b""
    while wanted is None or wanted not in seen:
        piece = await asyncio.get_running_loop().sock_recv(peer, 65536)
        if not piece:
            assert wanted is None, seen
            break
        seen += piece
    return seen


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(engine_answer, "DOUBT_AFTER", 0.05)

    def run(use: Callable[[Site], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            site = Site(**options)
            await site.engine.start()
            try:
                await asyncio.wait_for(use(site), 20)
            finally:
                for peer in site.peers:
                    peer.close()
                await site.engine.close()

        request.param(main())

    return run


def test_htp_13_a_half_closed_peer_gets_an_answer_that_takes_its_time(run: Callable[..., None]) -> None:
    """HTP-13: what it hears meanwhile is an interim answer, which every client of HTTP/1.1 reads over."""

    async def use(site: Site) -> None:
        peer = await site.ask()
        peer.shutdown(socket.SHUT_WR)
        assert await read(peer, CONTINUE) == CONTINUE
        await asyncio.sleep(0.3)
        assert not site.lost
        site.responders[0].reply(200, b"", b"at last")
        answer = await read(peer)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"connection: close\r\ncontent-length: 7\r\n\r\nat last")

    run(use)


def test_an_answer_that_comes_soon_is_all_a_half_closed_peer_gets(run: Callable[..., None]) -> None:
    async def use(site: Site) -> None:
        peer = await site.ask()
        peer.shutdown(socket.SHUT_WR)
        site.responders[0].reply(200, b"", b"soon")
        assert (await read(peer)).startswith(b"HTTP/1.1 200 OK\r\n")

    run(use)


def test_a_client_of_http_1_0_gets_no_interim_answer(run: Callable[..., None]) -> None:
    async def use(site: Site) -> None:
        peer = await site.ask(b"GET /a HTTP/1.0\r\n\r\n")
        peer.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.3)
        site.responders[0].reply(200, b"", b"old")
        answer = await read(peer)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"old")

    run(use)


def test_requests_that_came_before_the_end_are_all_answered(run: Callable[..., None]) -> None:
    async def use(site: Site) -> None:
        peer = await site.ask(GET * 3)
        peer.shutdown(socket.SHUT_WR)
        await read(peer, CONTINUE)
        for number in range(3):
            await until(lambda number=number: len(site.responders) == number + 1)  # type: ignore[misc]
            site.responders[number].reply(200, b"", b"number %d" % number)
        answers = await read(peer)
        assert [answers.count(b"number %d" % number) for number in range(3)] == [1, 1, 1]

    run(use)


@on_linux
def test_a_peer_that_closed_is_found_out_at_a_later_one_of_its_requests_too(run: Callable[..., None]) -> None:
    async def use(site: Site) -> None:
        peer = await site.ask(GET * 2)
        peer.shutdown(socket.SHUT_WR)
        await read(peer, CONTINUE)
        site.responders[0].reply(200, b"", b"first")
        await read(peer, b"first")
        await until(lambda: len(site.responders) == 2)
        peer.close()
        await until(lambda: site.lost == 1)

    run(use)


@on_linux
def test_a_peer_that_closed_with_many_requests_waiting_is_found_out_at_the_last(run: Callable[..., None]) -> None:
    """The end comes between two turns of them, when none is in hand."""
    quick = b"GET /quick HTTP/1.1\r\nHost: a\r\n\r\n"

    async def use(site: Site) -> None:
        peer = await site.ask(quick * 4 * BURST + GET, count=0)
        peer.shutdown(socket.SHUT_WR)
        await until(lambda: len(site.responders) == 1)
        peer.close()
        await until(lambda: site.lost == 1)

    run(use)


@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "streaming"])
@on_linux
def test_htp_13_a_peer_that_closed_is_found_out_and_its_place_is_free(begun: bool, run: Callable[..., None]) -> None:
    """HTP-13."""

    async def use(site: Site) -> None:
        for number in range(3):
            peer = await site.ask(count=number + 1)
            if begun:
                site.responders[-1].begin(200, b"", COMMENT)
                await read(peer, b"\r\n\r\n")
            peer.close()
        await until(lambda: site.lost == 3)
        # All three places are free again.
        for number in range(3, 6):
            (await site.ask(count=number + 1)).close()

    run(use, max_connections=3)


def test_a_stream_goes_on_for_a_reader_that_ended_its_side(run: Callable[..., None]) -> None:
    async def use(site: Site) -> None:
        peer = await site.ask()
        site.responders[0].begin(200, b"", COMMENT)
        peer.shutdown(socket.SHUT_WR)
        await read(peer, b"3\r\n:\n\n\r\n")
        site.responders[0].write(b"data: more\n\n")
        site.responders[0].finish()
        assert await read(peer) == b"c\r\ndata: more\n\n\r\n0\r\n\r\n"

    run(use)


@on_linux
def test_a_peer_that_closes_after_it_was_heard_from_is_found_out_with_the_next_part(run: Callable[..., None]) -> None:
    async def use(site: Site) -> None:
        peer = await site.ask()
        peer.shutdown(socket.SHUT_WR)
        await read(peer, CONTINUE)
        peer.close()
        site.responders[0].begin(200, b"")
        await until(lambda: site.lost == 1)

    run(use)


def test_the_system_probes_a_peer_that_ended_its_side(run: Callable[..., None]) -> None:
    """One that vanishes without a word is found out too, though nothing is sent to it."""

    async def use(site: Site) -> None:
        peer = await site.ask()
        [connection] = site.engine._engine_state.connections
        assert not connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        peer.shutdown(socket.SHUT_WR)
        await read(peer, CONTINUE)
        assert connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        peer.close()

    run(use)
