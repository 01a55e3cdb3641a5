"""Probes of what one HTTP/1.1 connection to a server may bring, hold and take."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from http_bench import BOTH, Peer, answer, new_engine, serving, stands, stop, turns
from lasting import tls
from table import no_bound, period, probe

from http2_memory import MemoryPeer
from http2_peer import request_fields

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports"))


from ferrule import Server
from ferrule.transports.http.asgi import app as asgi
from ferrule.transports.http.endpoint import guard as guarding
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.engine import body as bodies
from ferrule.transports.http.engine import connection as connections
from ferrule.transports.http.engine.body import FREE_CHUNKS, SMALLEST_MEAN_CHUNK, ChunkedBody
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.engine.head_parser import Unacceptable
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import EndpointSettings, EngineSettings
from ferrule.transports.sockets.bind import listen

no_bound("EngineSettings(port=…)", "the number of a port")
no_bound("ferrule.transports.sockets.accept.REST", "our own pause before we accept again")
no_bound("EndpointSettings(drain_delay=…)", "our own pause before we stop; a peer can neither lengthen nor use it up")

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
SWEPT_OFTEN = 0.08
"""Where a timeout is as short as this, deadlines are looked at every 20 ms."""


def pieces(data: bytes, *cuts: int) -> list[bytes]:
    """Cut bytes at places counted from their end."""
    places = [0, *sorted(len(data) - cut for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


# -- connections


@probe("EngineSettings(backlog=…)", lowered=8)
async def not_accepted(limit: int, size: int) -> bool:
    """Linux holds one more than it is told: the one that it would hand out next."""
    if sys.platform != "linux":
        pytest.skip("another system may hold another number")
    (listening,) = await listen(EngineSettings(port=0, backlog=limit))
    opened = []
    try:
        for _ in range(min(size, 2 * limit) + 1):
            each = socket.socket()
            opened.append(each)
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        connecting = select.poll()
        for each in opened:
            connecting.register(each, select.POLLOUT)
        await asyncio.sleep(0.02)
        return len(connecting.poll(0)) == len(opened)
    finally:
        for each in [listening, *opened]:
            each.close()


@probe("EngineSettings(max_connections=…)", lowered=5)
async def open_at_once(limit: int, size: int) -> bool:
    engine = Engine(answer, EngineSettings(port=0, max_connections=limit))
    await engine.start()
    opened = []
    try:
        for _ in range(size):
            reader, writer = await asyncio.open_connection(*engine.address)
            opened.append(writer)
            writer.write(GET)
            status = (await reader.readline()).split(b" ")[1]
            assert status in (b"200", b"503")
            if status == b"503":
                return False
        return True
    finally:
        for writer in opened:
            writer.close()
        await engine.close()


# -- the head of a request


async def status_of(*data: bytes, **options: int) -> int:
    """Return the status a request is answered with that comes in pieces."""
    engine = new_engine(answer, **options)
    try:
        peer = Peer(engine)
        for piece in data:
            peer.feed(piece)
        return peer.status
    finally:
        stop(engine)


async def http2_status(fields: list[tuple[str, str]], **options: int) -> int:
    """Return the status a request over HTTP/2 is answered with; 0 where its connection ends."""
    peer = MemoryPeer(asyncio.get_running_loop(), **options)
    peer.handler = lambda stream: stream.reply(200, b"")
    try:
        found = peer.ask(fields)
        peer.listen()
        return 0 if peer.goaway is not None else peer.answers[found].status
    finally:
        peer.connection.connection_lost(None)


@probe("EngineSettings(max_head_size=…)", lowered=2000)
async def head_size(limit: int, size: int) -> bool:
    head = b"GET / HTTP/1.1\r\nHost: a\r\nx: %b\r\n\r\n"
    head %= b"x" * (size - len(head) + 2)
    whole = await status_of(head, max_head_size=limit)
    cut = await status_of(*pieces(head, 1, 2, 3, 4, 50), max_head_size=limit)
    # A field counts 32 bytes more there, RFC 9113 §6.5.2.
    fields = request_fields("GET", "/", ("x", ""))
    # Compressing is slow at the peer's side, so the thousandfold is less there.
    missing = min(size, 10 * limit) - sum(len(name) + len(value) + 32 for name, value in fields)
    over_http2 = await http2_status([*fields[:-1], ("x", "x" * missing)], max_head_size=limit)
    assert {whole, cut} == {200} == {over_http2} or ({whole, cut} == {431} and over_http2 in (431, 0))
    return whole == 200


@probe("ferrule.transports.http.engine.head_parser.LONGEST_REQUEST_LINE")
async def request_line(limit: int, size: int) -> bool:
    line = b"GET /%b HTTP/1.1" % (b"a" * (size - len(b"GET / HTTP/1.1")))
    rest = b"\r\nHost: a\r\n\r\n"
    whole = await status_of(line + rest)
    cut = await status_of(line + rest[:1], rest[1:])
    assert whole == cut
    return whole == 200


@probe("EngineSettings(max_headers=…)", lowered=10)
async def headers(limit: int, size: int) -> bool:
    lines = b"".join(b"x%d:\r\n" % number for number in range(size - 1))
    options = {"max_headers": limit, "max_head_size": 10**9}
    found = {await status_of(b"GET / HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n", **options)}
    if size < 100 * limit:  # the others are refused for what they weigh
        fields = [(f"x{number}", "") for number in range(size)]
        found.add(await http2_status([*request_fields(), *fields], **options))
        without_authority = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "a")]
        found.add(await http2_status([*without_authority, *fields[1:]], **options))
    assert len(found) == 1
    return found == {200}


# -- what is read of headers


@probe("ferrule.transports.http.endpoint.guard.MOST_REMEMBERED", lowered=50, clamps=True)
async def remembered(limit: int, size: int) -> bool:
    with mock.patch.object(guarding, "MOST_REMEMBERED", limit):
        guard = Guard(EndpointSettings(), "127.0.0.1")
        kinds = guard.is_json, guard.takes_both, guard.takes_events
        for number in range(size):
            for kind in kinds:
                kind[b"application/x%d" % number]
            guard.judge(HttpRequest("GET", "/", "", {b"host": b"a%d" % number}))
        kept = {len(kind) == size for kind in (*kinds, guard._verdicts)}
        assert len(kept) == 1
        return True in kept


@probe("ferrule.transports.http.endpoint.guard.LONGEST_ACCEPT", clamps=True)
async def accept(limit: int, size: int) -> bool:
    guard = Guard(EndpointSettings(), "127.0.0.1")
    return guard.takes_both[BOTH.rjust(size).encode()]


async def is_allowed(name: str, *others: str) -> bool:
    """Whether a browser may send a header that it asks for after others."""
    names = ",".join([*others, name])
    async with serving(allowed_origins=["*"], engine={"max_head_size": 2**20}) as site:
        peer = site.peer()
        assert peer.ask("OPTIONS", "/mcp", origin="https://a.example", access_control_request_headers=names) == 204
        return name in peer.header("access-control-allow-headers")


@probe("ferrule.transports.http.endpoint.guard.MOST_PREFLIGHT", clamps=True)
async def preflight(limit: int, size: int) -> bool:
    return await is_allowed("mcp-param-last", *["x"] * (size - 1))


@probe("ferrule.transports.http.endpoint.guard.MOST_MIRRORED", clamps=True)
async def mirrored(limit: int, size: int) -> bool:
    return await is_allowed("mcp-param-last", *["mcp-param-a"] * (size - 1))


# -- bodies


def chunked(*sizes: int) -> bool:
    """Return whether a body in chunks of these sizes is taken."""
    body = ChunkedBody(2**30)
    try:
        for size in sizes:
            body.feed(b"%x\r\n%b\r\n" % (size, b"x" * size), 0)
        body.feed(b"0\r\n\r\n", 0)
    except Unacceptable:
        return False
    return body.done


@probe("ferrule.transports.http.engine.body.FREE_CHUNKS")
async def free_chunks(limit: int, size: int) -> bool:
    with mock.patch.object(bodies, "SMALLEST_MEAN_CHUNK", 2**30):
        return chunked(*[1] * size)


@probe("ferrule.transports.http.engine.body.SMALLEST_MEAN_CHUNK", lowered=100)
async def mean_chunk(limit: int, size: int) -> bool:
    """The limit is how many chunks beyond the free ones a body may have that holds the mean for each of them."""
    small = FREE_CHUNKS + limit - 2  # what has come when the last of them begins
    first = limit * SMALLEST_MEAN_CHUNK - small
    return chunked(first, *[1] * (FREE_CHUNKS + size - 1))


@probe("ferrule.transports.http.asgi.app.MAX_READING", lowered=10_000)
async def asgi_bodies(limit: int, size: int) -> bool:
    with mock.patch.object(asgi, "MAX_READING", limit):
        app = Server("probed").asgi(max_body_size=100 * 2**20)
        await app.start()
    held = asyncio.Event()

    async def first() -> dict[str, object]:
        if held.is_set():
            await asyncio.Event().wait()
        held.set()
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    statuses = []
    parts = [b"x" * (size - 2000), b"x" * 1000]

    async def second() -> dict[str, object]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(event: dict[str, object]) -> None:
        statuses.append(event.get("status"))

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"a")]}
    reading = asyncio.create_task(app(scope, first, send))
    await held.wait()
    await turns()
    await app(scope, second, send)
    reading.cancel()
    await asyncio.wait([reading])
    await app.stop()
    assert statuses[0] in (415, 503)
    return statuses[0] == 415


@probe("ferrule.transports.http.engine.connection.UNCOUNTED", clamps=True)
async def uncounted(limit: int, size: int) -> bool:
    engine = new_engine()
    peer = Peer(engine)
    peer.feed(POST % (size + 1))
    peer.feed(b"x" * size)
    counted = engine._engine_state.requests.held
    stop(engine)
    return counted == 0


@probe("ferrule.transports.http.engine.connection.PIECE", lowered=1000, clamps=True)
async def piece(limit: int, size: int) -> bool:
    with mock.patch.object(connections, "PIECE", limit):
        engine = new_engine()
        peer = Peer(engine)
        peer.connection.write(b"x" * size)
        stop(engine)
        return peer.wire.largest == size


@probe("ferrule.transports.http.engine.connection.MAX_WAITING")
async def waiting(limit: int, size: int) -> bool:
    engine = new_engine()
    peer = Peer(engine)
    peer.feed(GET)
    peer.feed(b"x" * size)
    reads_on = peer.wire.reading
    stop(engine)
    return reads_on


@probe("ferrule.transports.http.engine.connection.BURST", clamps=True)
async def burst(limit: int, size: int) -> bool:
    engine = new_engine(answer)
    peer = Peer(engine)
    peer.feed(GET * size)
    answered = peer.wire.sent.count(b"HTTP/1.1 200")
    stop(engine)
    return answered == size


@probe("ferrule.transports.http.engine.connection.LINGER_BYTES")
async def dropped(limit: int, size: int) -> bool:
    engine = new_engine()
    peer = Peer(engine)
    peer.feed(b"no HTTP\r\n\r\n")
    assert peer.status == 400
    while size and not peer.wire.ended:
        part = min(size, limit)
        peer.feed(b"x" * part)
        size -= part
    ended = peer.wire.ended
    stop(engine)
    return not ended


# -- times


async def lasts_so_long(data: bytes, lasts: float, passes: float, **options: float) -> bool:
    """Whether a connection is not refused or closed when such a time has passed after something was said on it."""
    engine = new_engine(answer, **options)
    peer = Peer(engine)
    peer.feed(data)
    said = peer.wire.sent
    stood = await stands(lambda: peer.wire.sent == said and not peer.wire.ended, lasts, passes)
    stop(engine)
    return stood


@period("EngineSettings(head_timeout=…)", lowered=10.0)
async def head_time(lasts: float, passes: float) -> bool:
    options = {"head_timeout": lasts, "write_timeout": SWEPT_OFTEN}
    stood = {
        await lasts_so_long(b"", lasts, passes, **options),
        await lasts_so_long(GET[:-2], lasts, passes, **options),
        await lasts_so_long(GET + GET[:-2], lasts, passes, **options),
        await tls_handshake(lasts, passes),
    }
    assert len(stood) == 1
    return True in stood


async def tls_handshake(lasts: float, passes: float) -> bool:
    """Whether a connection on which no TLS handshake begins is open after such a time."""
    with tls() as (files, _):
        engine = Engine(answer, EngineSettings(port=0, head_timeout=lasts, **files))
    await engine.start()
    reader, writer = await asyncio.open_connection(*engine.address)
    try:
        async with asyncio.timeout(passes):
            await reader.read()
        return False
    except TimeoutError:
        return True
    finally:
        writer.close()
        await engine.close()


@period("EngineSettings(body_timeout=…)", lowered=20.0)
async def body_time(lasts: float, passes: float) -> bool:
    return await lasts_so_long(POST % 10, lasts, passes, body_timeout=lasts, write_timeout=SWEPT_OFTEN)


async def moves(part: bytes, lasts: float, passes: float, first: bytes = b"", **options: float) -> bool:
    """Whether a body is still read after such a time of which some comes each second."""
    engine = new_engine(answer, write_timeout=SWEPT_OFTEN, **options)
    peer = Peer(engine)
    peer.feed(POST % (100 * 2**20))
    peer.feed(first)

    async def send() -> None:
        while True:
            peer.feed(part)
            await asyncio.sleep(1.0)

    sending = asyncio.create_task(send())
    stood = await stands(lambda: peer.status == 0, lasts, passes)
    sending.cancel()
    stop(engine)
    return stood


@period("EngineSettings(max_body_time=…)", lowered=120.0)
async def whole_body_time(lasts: float, passes: float) -> bool:
    return await moves(b"x" * 1024, lasts, passes, max_body_time=lasts)


@period("EngineSettings(min_body_rate=…)", lowered=60.0)
async def body_rate(lasts: float, passes: float) -> bool:
    """A third of the time is what any body may stand still, the rest what its bytes give it."""
    stands_still = lasts / 3
    first = b"x" * round(512 * (lasts - stands_still))
    return await moves(b"x", lasts, passes, first, body_timeout=stands_still, min_body_rate=512)


@period("EngineSettings(idle_timeout=…)", lowered=75.0)
async def idle(lasts: float, passes: float) -> bool:
    return await lasts_so_long(GET, lasts, passes, idle_timeout=lasts, write_timeout=SWEPT_OFTEN)


@period("EngineSettings(write_timeout=…)", lowered=10.0)
async def not_taken(lasts: float, passes: float) -> bool:
    engine = new_engine(write_timeout=lasts, body_timeout=SWEPT_OFTEN)
    peer = Peer(engine)
    peer.feed(GET)
    peer.connection.write(b"x")
    peer.wire.held = 1
    stood = await stands(lambda: not peer.wire.ended, lasts, passes)
    stop(engine)
    return stood


@period("ferrule.transports.http.engine.answer.DOUBT_AFTER")
async def doubt(lasts: float, passes: float) -> bool:
    """What is sent to a client that has ended its side tells whether it is gone."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        engine = new_engine()
        peer = Peer(engine, ours)
        peer.feed(GET)
        peer.connection.eof_received()
        stood = await stands(lambda: not peer.wire.sent, lasts, passes)
        stop(engine)
        return stood


@period("ferrule.transports.http.engine.connection.LINGER_TIME")
async def lingers(lasts: float, passes: float) -> bool:
    return await lasts_so_long(b"no HTTP\r\n\r\n", lasts, passes, write_timeout=SWEPT_OFTEN)
