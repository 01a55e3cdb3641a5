"""Probes of what a server may send to a client over HTTP, how long it may take, and what the client holds for it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from http_bench import stands, turns
from table import no_bound, period, probe

from ferrule.budgets import process
from ferrule.errors import ConnectFailed
from ferrule.schema.notices import INITIALIZED
from ferrule.transports.http.client import connection as connections
from ferrule.transports.http.client import request as requests
from ferrule.transports.http.client import resumption
from ferrule.transports.http.client.old_sse import SseTransport
from ferrule.transports.http.client.pool import Overflow, Pool
from ferrule.transports.http.client.request import JSON, SLICE, STREAM, HttpExchange, SingleExchange
from ferrule.transports.http.client.transport import HttpChannel, HttpTransport
from ferrule.wire.messages import Notification, Request
from ferrule.wire.sse import Event, EventTooLarge, SseParser

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports" / "http" / "client"))

from scripted import Script, Seen, Site

no_bound("ferrule.transports.http.client.pool.SHORT_FOR", "our own pause before we open another connection")
no_bound("HttpOptions(retry_delay=…)", "our own pause before an attempt")
no_bound("HttpOptions(jitter=…)", "the part of our own pause that is random")


class Receiver:
    """Notes what comes, and what fails."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.failures: list[Exception] = []
        self.lost = False
        self._news = asyncio.Event()

    def channel_opened(self, channel: object) -> None: ...

    def frame_received(self, frame: bytes, channel: object, origin: object = None) -> bool:
        self.frames.append(frame)
        self._news.set()
        return False

    def request_failed(self, identity: object, error: Exception, channel: object) -> None:
        # One that was answered does not wait any more.
        if identity not in {json.loads(frame).get("id") for frame in self.frames}:
            self.failures.append(error)
            self._news.set()

    def channel_lost(self, channel: object, error: Exception | None) -> None:
        self.lost = True
        self._news.set()

    async def outcome(self) -> bool:
        """Wait for the answer of a request, and return whether it came."""
        await self._news.wait()
        return bool(self.frames)


@asynccontextmanager
async def connected(
    era: str = "stateless", script: Script | None = None, **options: Any
) -> AsyncIterator[tuple[Site, HttpChannel, Receiver]]:
    """Reach a scripted server, which answers a tool call so."""
    async with Site(era) as site:
        if script is not None:
            site.on("tools/call", script)
        receiver = Receiver()
        transport = HttpTransport(site.url, **options)
        channel = await transport.connect(receiver)
        try:
            yield site, channel, receiver
        finally:
            await transport.close(0.0)


CALL = Request(1, "tools/call", {"name": "a"})


async def takes(script: Script, **options: Any) -> bool:
    """Whether a client takes the answer that a server gives so."""
    async with connected(script=script, **options) as (_, channel, receiver):
        channel.send(CALL)
        return await receiver.outcome()


def result(size: int = 0) -> bytes:
    """Write the answer to the call, of so many bytes."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"x": ""}}
    answer["result"] = {"x": "x" * (size - len(json.dumps(answer)))}
    return json.dumps(answer).encode()


# -- connections


@period("HttpOptions(connect_timeout=…)", lowered=5.0)
async def connecting(lasts: float, passes: float) -> bool:
    """A server that accepts, and never answers the TLS handshake."""
    async with Site() as site:
        url = site.url.replace("http:", "https:")
        transport = HttpTransport(url, connect_timeout=lasts, verify=False)
        opening = asyncio.create_task(transport.connect(Receiver()))  # type: ignore[arg-type]
        stood = await stands(lambda: not opening.done(), lasts, passes)
        opening.cancel()
        with suppress(ConnectFailed, asyncio.CancelledError):
            await opening
        return stood


class Held:
    """Requests to a server that never answers them."""

    def __init__(self, channel: HttpChannel) -> None:
        self.channel = channel
        self.jobs: list[SingleExchange] = []

    def ask(self, lane: Any = "usual") -> None:
        """Send one more."""
        request = self.channel.heading.post(b"", b'{"jsonrpc":"2.0","id":1,"method":"x"}')
        self.jobs.append(SingleExchange(request, lane, 1000))
        self.channel.pool.submit(self.jobs[-1])


async def hold(seen: Seen) -> None:
    """Answer never."""
    await seen.gone()


@asynccontextmanager
async def holding(script: Script = hold, **options: Any) -> AsyncIterator[tuple[Site, Held, Pool]]:
    """Reach a server that answers nothing."""
    async with connected(**options) as (site, channel, _):
        site.on("x", script)
        yield site, Held(channel), channel.pool
        # What is being opened would be left behind.
        await site.heard("x", channel.pool.connections)


@probe("HttpOptions(pool_size=…)", lowered=3, clamps=True)
async def kept(limit: int, size: int) -> bool:
    async with holding(pool_size=limit, max_waiting=None) as (_, held, pool):
        for _ in range(size):
            held.ask()
        await turns()
        return pool.connections == size


@probe("HttpOptions(max_streams=…)", lowered=3, clamps=True)
async def besides(limit: int, size: int) -> bool:
    async with holding(pool_size=1, max_streams=limit, max_waiting=None) as (_, held, pool):
        held.ask()
        for _ in range(size):
            held.ask("urgent")
        await turns()
        return pool.connections == 1 + size


@probe("HttpOptions(max_waiting=…)", lowered=10)
async def waiting(limit: int, size: int) -> bool:
    async with holding(pool_size=1, max_streams=1, max_waiting=limit) as (_, held, _pool):
        taken = []
        for lane in ("usual", "urgent"):
            try:
                for _ in range(1 + size):
                    held.ask(lane)
            except Overflow:
                taken.append(False)
            else:
                taken.append(True)
        assert len(set(taken)) == 1
        return taken[0]


async def begin_stream(seen: Seen) -> None:
    """Begin a stream that never ends."""
    seen.stream()
    seen.event(b"{}")
    await seen.gone()


@period("ferrule.transports.http.client.pool.STAYS_AFTER")
async def stays(lasts: float, passes: float) -> bool:
    """A request waits behind a stream; every quarter of the time is looked whether it may have another connection."""
    async with holding(begin_stream, pool_size=1) as (site, held, pool):
        held.ask()
        await site.heard("x")
        await turns()
        (connection,) = pool._kept
        while not connection.streaming:
            await asyncio.sleep(0)
        await asyncio.sleep(lasts * 0.2505)
        held.ask()
        return await stands(lambda: len(site.seen) == 1, lasts, passes - lasts * 0.2505)


@period("ferrule.transports.http.client.connection.LONGEST_REST")
async def rest(lasts: float, passes: float) -> bool:
    async with connected() as (site, channel, receiver):
        channel.send(CALL)
        assert await receiver.outcome()
        await asyncio.sleep(passes)
        channel.send(Request(2, "tools/call", {"name": "a"}))
        await site.heard("tools/call", 2)
        return site.connections == 1


# -- repetitions


@probe("HttpOptions(max_retries=…)", lowered=3)
async def repetitions(limit: int, size: int) -> bool:
    """The server refuses so often, and then answers."""
    refused = 0

    def refuse(seen: Seen) -> None:
        nonlocal refused
        refused += 1
        if refused <= size:
            seen.status(503)
        else:
            seen.text("done")

    return await takes(refuse, max_retries=limit, retry_delay=0.0)


@period("HttpOptions(max_retry_delay=…)", lowered=100.0)
async def honoured(lasts: float, passes: float) -> bool:
    """The server wishes to be asked again after such a time."""

    def refuse(seen: Seen) -> None:
        if refused:
            seen.text("done")
        else:
            refused.append(seen)
            seen.status(503, retry_after=f"{passes:.0f}")

    refused: list[Seen] = []
    return await takes(refuse, max_retry_delay=lasts)


# -- the size of an answer


@probe("HttpOptions(max_message_size=…)", lowered=2000)
async def answer_size(limit: int, size: int) -> bool:
    def whole(seen: Seen) -> None:
        seen.status(200, result(size), content_type="application/json")

    def streamed(seen: Seen) -> None:
        seen.stream()
        seen.event(result(size))
        seen.end()

    taken = {await takes(script, max_message_size=limit, retry="never") for script in (whole, streamed)}
    assert len(taken) == 1
    return True in taken


ANSWER = result()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
SIZED = HEAD + b"content-length: %d\r\n" % len(ANSWER)
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(ANSWER), ANSWER)


async def takes_bytes(*pieces: bytes) -> bool:
    """Whether a client takes an answer of these bytes, read one piece after the other."""

    async def say(seen: Seen) -> None:
        for piece in pieces:
            seen.raw(piece)
            await seen.flushed()

    return await takes(say, retry="never")


@probe("ferrule.transports.http.client.connection.MAX_HEAD_SIZE", lowered=2000)
async def head_size(limit: int, size: int) -> bool:
    with mock.patch.object(connections, "MAX_HEAD_SIZE", limit):
        head = SIZED + b"x: %b\r\n\r\n" % (b"x" * (size - len(SIZED) - 7))
        early = b"HTTP/1.1 100 Continue\r\nx: %b\r\n\r\n" % (b"x" * (size - len(SIZED) - 32))
        taken = {
            await takes_bytes(head + ANSWER),
            await takes_bytes(head[:100], head[100:] + ANSWER),
            await takes_bytes(head[:-1], head[-1:] + ANSWER),
            await takes_bytes(early + SIZED + b"\r\n" + ANSWER),
            await takes_bytes(early, SIZED + b"\r\n" + ANSWER),
        }
        assert len(taken) == 1
        return True in taken


@probe("ferrule.transports.http.client.connection.MAX_HEADERS")
async def headers(limit: int, size: int) -> bool:
    given = HEAD.count(b"\r\n") - 1 + 1
    more = b"x:\r\n" * (size - given)
    in_head = await takes_bytes(SIZED + more + b"\r\n" + ANSWER)
    in_trailers = await takes_bytes(CHUNKED + b"0\r\n" + more + b"\r\n")
    assert in_head == in_trailers
    return in_head


async def framed(size: int) -> bool:
    """Whether an answer with so many bytes of framing is taken."""
    begun = len(b"%x\r\n\r\n" % len(ANSWER))
    last = b"0;%b\r\n\r\n" % (b"x" * (size - begun - len(b"0;\r\n\r\n")))
    taken = {await takes_bytes(CHUNKED + last), await takes_bytes(CHUNKED, last)}
    assert len(taken) == 1
    return True in taken


@probe("ferrule.transports.http.client.connection.MAX_FRAMING", lowered=2000)
async def framing(limit: int, size: int) -> bool:
    with mock.patch.object(connections, "MAX_FRAMING", limit):
        return await framed(size + connections.FRAMING_RATIO * len(ANSWER))


@probe("ferrule.transports.http.client.connection.FRAMING_RATIO")
async def framing_ratio(limit: int, size: int) -> bool:
    with mock.patch.object(connections, "MAX_FRAMING", 100):
        return await framed(100 + size * len(ANSWER))


# -- what is read of an answer


class Counting(HttpExchange):
    """Counts the events it reads."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        super().__init__(b"", "usual", 2**30)
        self.count = 0

    def event_received(self, event: Event) -> None:
        self.count += 1


@probe("ferrule.transports.http.client.request.SLICE", clamps=True)
async def in_one_turn(limit: int, size: int) -> bool:
    assert limit == SLICE
    reading = Counting()
    reading.head_received(200, {b"content-type": STREAM})
    short = b"data:\n\n"
    events, rest = divmod(size, len(short))
    padded = b"data:" + b"x" * rest + b"\n\n"
    reading.body_received(short * (events - 1) + padded)
    read = reading.count
    reading.let_go()
    return read == events


@probe("ferrule.wire.sse.MAX_EVENT_ID")
async def event_id(limit: int, size: int) -> bool:
    parser = SseParser()
    parser.feed(b"id: %b\n\n" % (b"x" * size))
    return len(parser.last_id) == size


@probe("ferrule.wire.sse.EVENT_OVERHEAD")
async def unfinished_line(limit: int, size: int) -> bool:
    parser = SseParser(1000)
    try:
        parser.feed(b"x" * (1000 + size))
    except EventTooLarge:
        return False
    return True


@probe("ferrule.wire.sse.LONGEST_NUMBER", clamps=True)
async def digits(limit: int, size: int) -> bool:
    parser = SseParser()
    parser.feed(b"retry: %b\n\n" % (b"1" * size))
    return str(parser.retry) == "1" * size


@probe("ferrule.transports.http.client.request.SMALL", lowered=10_000, clamps=True)
async def uncounted(limit: int, size: int) -> bool:
    counted = set()
    with mock.patch.object(requests, "SMALL", limit):
        for kind in (JSON, STREAM):
            before = process.requests.held
            reading = Counting()
            reading.head_received(200, {b"content-type": kind})
            reading.body_received(b"x" * size)
            counted.add(process.requests.held != before)
            reading.let_go()
            assert process.requests.held == before
    assert len(counted) == 1
    return False in counted


# -- times of a conversation


async def greet(channel: HttpChannel, receiver: Receiver) -> None:
    """Make the handshake."""
    channel.send(Request(0, "initialize", {}))
    assert await receiver.outcome()
    channel.send(Notification(INITIALIZED))


@period("HttpOptions(renew_timeout=…)", lowered=10.0)
async def renewal(lasts: float, passes: float) -> bool:
    def forget(seen: Seen) -> None:
        seen.status(404)

    async with connected("handshake", forget, renew_timeout=lasts) as (site, channel, receiver):
        channel.hear_gaps(lambda gap: None)
        await greet(channel, receiver)
        await site.heard("GET")
        channel.send(CALL)
        await site.heard("tools/call")
        return await stands(lambda: not receiver.lost, lasts, passes)


@period("ferrule.transports.http.client.transport.STREAM_PATIENCE")
async def stream_patience(lasts: float, passes: float) -> bool:
    async with connected("handshake") as (site, channel, receiver):
        site.on("GET", hold)
        await greet(channel, receiver)
        channel.send(CALL)
        await site.heard("GET")
        return await stands(lambda: not site.got("tools/call"), lasts, passes)


@period("ferrule.transports.http.client.transport.FAREWELL")
async def farewell(lasts: float, passes: float) -> bool:
    async with connected("handshake") as (site, channel, receiver):
        site.on("DELETE", hold)
        await greet(channel, receiver)
        await site.heard("GET")
        channel.close()
        return await stands(lambda: not receiver.lost, lasts, passes)


@period("ferrule.transports.http.client.post.LINGER")
async def a_stream_that_does_not_end(lasts: float, passes: float) -> bool:
    ended = asyncio.Event()

    async def answer(seen: Seen) -> None:
        seen.stream()
        seen.event_result({"content": []})
        await seen.gone()
        ended.set()

    async with connected(script=answer) as (_, channel, receiver):
        channel.send(CALL)
        assert await receiver.outcome()
        return await stands(lambda: not ended.is_set(), lasts, passes)


@period("ferrule.transports.http.client.old_sse.PATIENCE")
async def where_to_post(lasts: float, passes: float) -> bool:
    async def silent(seen: Seen) -> None:
        seen.stream()
        await seen.gone()

    async with Site() as site:
        site.on("GET", silent)
        transport = SseTransport(site.url)
        opening = asyncio.create_task(transport.connect(Receiver()))  # type: ignore[arg-type]
        await site.heard("GET")
        stood = await stands(lambda: not opening.done(), lasts, passes)
        opening.cancel()
        with suppress(ConnectFailed, asyncio.CancelledError):
            await opening
        return stood


# -- streams that are resumed


def cut_stream(retry: int) -> Script:
    """Return what begins a stream, says when to come back, and ends it without an answer."""

    def begin(seen: Seen) -> None:
        seen.stream()
        seen.event(b"", mark="1", retry=retry)
        seen.end()

    return begin


@asynccontextmanager
async def resuming(retry: int, **options: Any) -> AsyncIterator[tuple[Site, Receiver, Callable[[], int]]]:
    """Call a tool whose stream was cut, at a server that wishes a pause; what is asked for then brings nothing."""

    def nothing(seen: Seen) -> None:
        seen.stream()
        seen.end()

    async with connected("handshake", cut_stream(retry), **options) as (site, channel, receiver):
        await greet(channel, receiver)
        await site.heard("GET")
        await turns()
        site.on("GET", nothing)
        channel.send(CALL)
        await site.heard("tools/call")
        yield site, receiver, lambda: len(site.got("GET")) - 1


@probe("ferrule.transports.http.client.resumption.MAX_FRUITLESS", clamps=True)
async def fruitless(limit: int, size: int) -> bool:
    """Whether as many attempts are made."""
    with mock.patch.object(resumption, "SHORTEST_PAUSE", 0.0):
        async with resuming(0, retry_delay=0.0) as (_, receiver, attempts):
            while not receiver.failures:
                await asyncio.sleep(0.001)
            return attempts() >= size


@period("ferrule.transports.http.client.resumption.SHORTEST_PAUSE")
async def shortest_pause(lasts: float, passes: float) -> bool:
    async with resuming(0) as (_, _receiver, attempts):
        return await stands(lambda: attempts() == 0, lasts, passes)


@period("ferrule.transports.http.client.resumption.LONGEST_PAUSE")
async def longest_pause(lasts: float, passes: float) -> bool:
    async with resuming(10**9) as (_, _receiver, attempts):
        return await stands(lambda: attempts() == 0, lasts, passes)
