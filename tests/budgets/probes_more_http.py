"""Probes of what an HTTP connection remembers, of what a client takes from a server, and of requests between nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from h2.connection import H2Connection
from hyperframe.frame import PingFrame, WindowUpdateFrame
from table import no_bound, period, probe

from ferrule.errors import AuthorizationFailed
from ferrule.stores.stores import Stores
from ferrule.transports.contract import Authorization
from ferrule.transports.http.client.credentials import Claim, Gate
from ferrule.transports.http.client.dial import Tunnel
from ferrule.transports.http.client.request import HttpExchange
from ferrule.transports.http.client.url import place
from ferrule.transports.http.cluster import forwarder as forwarding
from ferrule.transports.http.cluster import outbox, remote_responder
from ferrule.transports.http.cluster import sessions as cluster_sessions
from ferrule.transports.http.cluster.forwarder import Asked, Forwarder, Outcome
from ferrule.transports.http.cluster.frames import CUT, PART, PIECE, Frame
from ferrule.transports.http.cluster.outbox import Outbox
from ferrule.transports.http.cluster.remote_responder import RemoteResponder
from ferrule.transports.http.cluster.sessions import ClusterSessions
from ferrule.transports.http.engine import head_parser
from ferrule.transports.http.engine.head_parser import RecentHeads, Unacceptable
from ferrule.transports.http.engine.http2 import connection as http2_connection
from ferrule.transports.http.engine.http2.frames import PREFACE, ConnectionFailed
from ferrule.transports.http.engine.http2.frames import Frame as Http2Frame
from ferrule.transports.http.engine.http2.limits import FloodLimits
from ferrule.transports.http.engine.request_reader import RequestReader
from ferrule.transports.http.engine.state import EngineState
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.settings import EngineSettings, Http2Settings


def ignore(request: HttpRequest, responder: Responder) -> None: ...


def incoming(data: bytes) -> RequestReader:
    """Return what is read of a connection on which this has come."""
    opened = RequestReader(EngineState(ignore, EngineSettings(max_head_size=2**24), 2**20))
    opened._buffer = data
    return opened


def head(size: int) -> bytes:
    """Return the head of a request of so many bytes."""
    begin = b"GET /mcp HTTP/1.1\r\nHost: a\r\nX-Long: "
    return begin + b"x" * (size - len(begin) - 4) + b"\r\n\r\n"


@probe("ferrule.transports.http.engine.request_reader.MAX_BLANK_LINES")
async def blank_lines(limit: int, size: int) -> bool:
    try:
        return incoming(b"\r\n" * size + head(100))._read_head() is not None
    except Unacceptable:
        return False


@probe("ferrule.transports.http.engine.request_reader.MAX_KEPT_HEAD", clamps=True)
async def the_last_head(limit: int, size: int) -> bool:
    connection = incoming(head(size))
    found = connection._read_head()
    assert found is not None
    connection._keep(found)
    return connection._kept is found


@probe("ferrule.transports.http.engine.head_parser.LONGEST_RECENT", clamps=True)
async def a_long_head(limit: int, size: int) -> bool:
    heads = RecentHeads(100)
    heads.parse(head(size))
    return len(heads) == 1


@probe("ferrule.transports.http.engine.head_parser.MOST_RECENT", lowered=10, clamps=True)
async def recent_heads(limit: int, size: int) -> bool:
    heads = RecentHeads(100)
    with mock.patch.object(head_parser, "MOST_RECENT", limit):
        for number in range(size):
            heads.parse(head(100 + number % 900).replace(b"/mcp", b"/%d" % number))
            assert len(heads) <= limit
    return len(heads) == size


@probe("ferrule.transports.http.engine.http2.limits.MOST_UPDATES")
async def window_updates(limit: int, size: int) -> bool:
    """So many of them after more DATA than can be acknowledged, from a peer that has spent its other frames."""
    limits = FloodLimits(1000)
    for _ in range(2 * limit):
        limits.data_sent()
    ping, update = [
        Http2Frame(raw[3], raw[4], 0, raw)
        for raw in (PingFrame(0).serialize(), WindowUpdateFrame(0, window_increment=1).serialize())
    ]
    try:
        while True:
            limits.judge(ping, 0.0, known=False, over=False)
    except ConnectionFailed:
        pass
    try:
        for _ in range(size):
            limits.judge(update, 0.0, known=False, over=False)
    except ConnectionFailed:
        return False
    return True


@probe("ferrule.transports.http.engine.http2.connection.MAX_CLOSED_STREAMS", lowered=10, clamps=True)
async def ended_streams_of_http2(limit: int, size: int) -> bool:
    client = H2Connection()
    client.initiate_connection()
    with mock.patch.object(http2_connection.Frames, "MAX_CLOSED_STREAMS", limit):
        server = http2_connection._new_protocol(Http2Settings(), 16_384)
    server.receive_data(client.data_to_send().removeprefix(PREFACE))
    fields = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a")]
    for number in range(1, 2 * min(size, 3 * limit) + 1, 2):
        client.send_headers(number, fields, end_stream=True)
        server.receive_data(client.data_to_send())
        server.send_headers(number, [(b":status", b"200")], end_stream=True)
        client.receive_data(server.data_to_send())
    assert server.open_inbound_streams == 0
    return len(server._closed_streams) == size


# -- a client


@probe("ferrule.transports.http.client.dial.MAX_TUNNEL_ANSWER")
async def an_answer_to_connect(limit: int, size: int) -> bool:
    """In one piece, and byte for byte where that is short."""
    begin = b"HTTP/1.1 200 OK\r\nX-Long: "
    answer = begin + b"x" * (size - len(begin) - 4) + b"\r\n\r\n"
    pieces = [answer] if size > 2 * limit else [answer[:100], answer[100:]]
    taken = set()
    for read in ([answer], pieces):
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        tunnel = Tunnel(answered)
        for piece in read:
            tunnel.data_received(piece)
        taken.add(answered.exception() is None)
        tunnel.data_received(b"y" * size)
        assert len(tunnel._read) <= limit
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.transports.http.client.request.MAX_PAGE", clamps=True)
async def an_error_page(limit: int, size: int) -> bool:
    exchange = HttpExchange(b"", "shared", 2**20)  # type: ignore[arg-type]
    exchange.head_received(502, {b"content-type": b"text/html"})
    for at in range(0, size, 1000):
        exchange.body_received(b"x" * min(1000, size - at))
    kept = sum(map(len, exchange._parts))
    assert kept <= limit
    exchange.let_go()
    return kept == size


class Shown:
    """Credentials that are always worth another try, and ready after they were prepared so many times."""

    def __init__(self, ready_after: int = 0) -> None:
        self.left = ready_after

    def authorize(self, method: str, url: str) -> Authorization | None:
        return None if self.left > 0 else Authorization(b"", 1)

    async def prepare(self) -> None:
        self.left -= 1

    async def refused(self, refusal: object) -> bool:
        return True


@probe("ferrule.transports.http.client.credentials.MAX_REFUSALS")
async def refusals(limit: int, size: int) -> bool:
    gate = Gate(Shown())
    claim = Claim()
    for _ in range(size):
        if not await gate.answer(claim, 401, {}, "tools/call"):
            return False
    return True


@probe("ferrule.transports.http.client.credentials.MAX_ATTEMPTS")
async def tokens_that_had_expired(limit: int, size: int) -> bool:
    try:
        await Gate(Shown(ready_after=size)).lines(Claim(), "POST", place("http://127.0.0.1/mcp"))
    except AuthorizationFailed:
        return False
    return True


# -- routes on a port of their own


async def status(site: Site, request: bytes) -> tuple[int, asyncio.StreamWriter]:
    """Return the status of the answer to a request, and the connection, which is still open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(request)
    line = await reader.readline()
    return int(line.split(b" ")[1]), writer


@probe("ferrule.transports.http.routes.site.MAX_BODY_SIZE")
async def a_body(limit: int, size: int) -> bool:
    async with Site([]) as site:
        body = b"x" * size if size <= 2 * limit else b""
        answer, writer = await status(
            site, b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % size + body
        )
        writer.close()
    return answer != 413


@probe("ferrule.transports.http.routes.site.MAX_CONNECTIONS", lowered=3)
async def connections(limit: int, size: int) -> bool:
    open_ones = []
    answer = 404
    async with Site([], max_connections=limit) as site:
        for _ in range(size):
            answer, writer = await status(site, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            open_ones.append(writer)
            if answer != 404:
                break
        for writer in open_ones:
            writer.close()
    return answer == 404


# -- between nodes


class Noting:
    """Notes what is answered."""

    gone = False
    backlog = 0

    def __init__(self) -> None:
        self.said: list[int] = []
        self.is_cut = False

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        self.said.append(status)

    def write(self, data: bytes) -> None:
        self.backlog += len(data)

    def abort(self) -> None:
        self.is_cut = True

    def watch(self, lost: object) -> None: ...


class Forgetful:
    """What a server remembers of sessions: nothing."""

    def replay_frames(self, link: Any) -> list[bytes]:
        return []

    def written_values(self, link: Any) -> bytes:
        return b""

    def restore_session(self, link: Any, key: str, values: bytes | None) -> None: ...


@asynccontextmanager
async def node() -> AsyncIterator[ClusterSessions]:
    sessions = ClusterSessions(Stores.memory(), Forgetful())
    yield sessions
    await sessions.close()


REQUEST = HttpRequest("POST", "/mcp", "", {}, b"")


@probe("ferrule.transports.http.cluster.sessions.MOST_SOUGHT", lowered=5)
async def sought_sessions(limit: int, size: int) -> bool:
    """All come in one turn of the loop, and the store does not answer."""
    answered = Noting()
    with mock.patch.object(cluster_sessions, "MOST_SOUGHT", limit):
        async with node() as sessions:
            sessions._store = SimpleNamespace(get=lambda identity: asyncio.Event().wait())  # type: ignore[assignment]
            for number in range(size):
                sessions.look_for(mock.Mock(), f"{number}", REQUEST, answered, lambda: None)  # type: ignore[arg-type]
            refused = list(answered.said)
            await asyncio.sleep(0)
        assert sessions._sought == 0
    return 503 not in refused


@probe("ferrule.transports.http.cluster.sessions.MOST_SOUGHT_BYTES", lowered=20_000)
async def bodies_of_sought_sessions(limit: int, size: int) -> bool:
    answered = Noting()
    with mock.patch.object(cluster_sessions, "MOST_SOUGHT_BYTES", limit):
        async with node() as sessions:
            sessions._store = SimpleNamespace(get=lambda identity: asyncio.Event().wait())  # type: ignore[assignment]
            for length in (5000, size - 5000):
                request = HttpRequest("POST", "/mcp", "", {}, b"x" * length)
                sessions.look_for(mock.Mock(), "id", request, answered, lambda: None)  # type: ignore[arg-type]
            refused = list(answered.said)
        await asyncio.sleep(0)
        assert sessions._bodies.held == 0
    return 503 not in refused


@probe("ferrule.transports.http.cluster.sessions.MOST_ROUTES", lowered=10, clamps=True)
async def routes(limit: int, size: int) -> bool:
    with mock.patch.object(cluster_sessions, "MOST_ROUTES", limit):
        async with node() as sessions:
            for number in range(size):
                sessions._remember(f"{number}", "other")
            return len(sessions._routes) == size


@period("ferrule.transports.http.cluster.sessions.PATIENCE")
async def a_node_that_does_not_answer(lasts: float, seconds: float) -> bool:
    answered = Noting()
    async with node() as sessions:
        sessions._owner = mock.AsyncMock(return_value="other")  # type: ignore[method-assign]
        sessions.forwarder.forward = mock.AsyncMock(return_value=Outcome.LOST)  # type: ignore[method-assign]
        sessions.look_for(mock.Mock(), "id", REQUEST, answered, lambda: None)  # type: ignore[arg-type]
        await asyncio.sleep(seconds)
        return not answered.said


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[Forwarder, Noting]]:
    """A request that another node answers."""
    forwarder = Forwarder(Stores.memory(), lambda session: None)
    responder = Noting()
    forwarder._asked[1] = Asked("other", responder)  # type: ignore[arg-type]
    yield forwarder, responder
    await forwarder.close()


@probe("ferrule.transports.http.cluster.forwarder.MOST_BACKLOG", lowered=1000)
async def a_slow_client(limit: int, size: int) -> bool:
    with mock.patch.object(forwarding, "MOST_BACKLOG", limit):
        async with asking() as (forwarder, responder):
            forwarder._take("other", Frame(PART, 1, b"x" * size))
            return not responder.is_cut


@probe("ferrule.transports.http.cluster.forwarder.MOST_PIECES", lowered=1000)
async def pieces(limit: int, size: int) -> bool:
    with mock.patch.object(forwarding, "MOST_PIECES", limit):
        async with asking() as (forwarder, _):
            for exchange in range(2):
                forwarder._take("other", Frame(PIECE, exchange, b"x" * (size // 2 + exchange * (size % 2))))
            assert forwarder._pieces_size <= limit
            return len(forwarder._pieces) == 2


@probe("ferrule.transports.http.cluster.forwarder.MOST_OUTBOXES", lowered=10, clamps=True)
async def ways_to_nodes(limit: int, size: int) -> bool:
    with mock.patch.object(forwarding, "MOST_OUTBOXES", limit):
        async with asking() as (forwarder, _):
            for number in range(size):
                forwarder._outbox(f"{number}")
            return len(forwarder._outboxes) == size


@probe("ferrule.transports.http.cluster.frames.LONGEST_CONTENT", lowered=1000)
async def an_answer(limit: int, size: int) -> bool:
    sender = mock.Mock()
    with mock.patch.object(remote_responder, "LONGEST_CONTENT", limit):
        RemoteResponder(sender, 1, lambda: None).write(b"x" * size)
    return sender.send.call_args.args[0] != CUT


class Deaf:
    """A bus on which nothing arrives."""

    async def deliver(self, node: str, topic: str, body: bytes) -> bool:
        await asyncio.Event().wait()
        return False


@probe("ferrule.transports.http.cluster.outbox.HIGH", lowered=1000)
async def unsent_answers(limit: int, size: int) -> bool:
    """May a stream be written on while so many bytes wait for another node?"""
    with mock.patch.object(outbox, "HIGH", limit):
        sending = Outbox(Deaf(), "other", lambda node: None)  # type: ignore[arg-type]
        sending._put(Frame(PART, 1, b"x" * (size - outbox.OVERHEAD)))
        assert sending.backlog == size
        writing = asyncio.ensure_future(sending.wait_writable())
        await asyncio.sleep(0)
        is_free = writing.done()
        writing.cancel()
    return is_free


no_bound("ferrule.transports.http.cluster.frames.LONGEST_FRAME", "in which pieces we speak to another node")
no_bound("ferrule.transports.http.cluster.frames.LONGEST_NOTICE", "how much we say to another node at once")
no_bound("ferrule.transports.http.cluster.sessions.TOGETHER", "how many sessions we write at once")
