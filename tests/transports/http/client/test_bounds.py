"""What a hostile server's answers may cost a client over HTTP."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client
from ferrule.budgets import process
from ferrule.errors import InvalidAnswer
from ferrule.transports.http.client.connection import MAX_FRAMING, MAX_HEADERS, ConnectionCut, HttpConnection
from ferrule.transports.http.client.request import SLICE, HttpExchange
from ferrule.wire.sse import MAX_EVENT_ID, Event, SseParser

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site, text_result
from test_connection import Desk, Wire

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class PausingWire(Wire):
    """A transport that notes whether it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = 0

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.paused = 0


class Stream(HttpExchange):
    """Counts events, and how many of them came in one turn of the loop."""

    def __init__(self) -> None:
        super().__init__(b"request", "usual", 1 << 24)
        self.events_seen: list[Event] = []
        self.ends: list[Any] = []
        self.wire = PausingWire()
        self.link = self.connection = HttpConnection(self)  # type: ignore[arg-type]
        self.link.connection_made(self.wire)  # type: ignore[arg-type]
        self.link.send(b"request", self)

    def event_received(self, event: Event) -> None:
        self.events_seen.append(event)

    def answered(self) -> None:
        self.ends.append("answered")

    def failed(self, error: Exception) -> None:
        self.ends.append(error)

    def freed(self, connection: HttpConnection) -> None: ...

    def gone(self, connection: HttpConnection) -> None: ...


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_many_tiny_events_are_read_in_turns() -> None:
    """A read full of events holds the loop for a slice of them, and no more is read meanwhile."""
    stream = Stream()
    stream.link.data_received(HEAD)
    stream.link.data_received(chunk(b"data:1\n\n" * 32_768))
    assert len(stream.events_seen) <= SLICE // 8
    assert stream.wire.paused
    turns = 1
    while stream.wire.paused:
        before = len(stream.events_seen)
        await asyncio.sleep(0)
        assert len(stream.events_seen) - before <= 21 * SLICE // 8
        turns += 1
    assert turns > 1
    assert len(stream.events_seen) == 32_768


async def test_an_end_waits_for_the_events_before_it() -> None:
    stream = Stream()
    stream.link.data_received(HEAD)
    stream.link.data_received(chunk(b"data:1\n\n" * 10_000) + b"0\r\n\r\n")
    assert stream.ends == []
    assert not stream.wire.paused
    while not stream.ends:
        await asyncio.sleep(0)
    assert stream.ends == ["answered"]
    assert len(stream.events_seen) == 10_000


async def test_a_loss_waits_for_the_events_before_it() -> None:
    stream = Stream()
    stream.link.data_received(HEAD)
    stream.link.data_received(chunk(b"data:1\n\n" * 10_000))
    stream.link.connection_lost(None)
    while not stream.ends:
        await asyncio.sleep(0)
    assert isinstance(stream.ends[0], ConnectionCut)
    assert len(stream.events_seen) == 10_000


async def test_what_nobody_wants_is_not_read_to_the_end() -> None:
    stream = Stream()
    stream.link.data_received(HEAD)
    stream.link.data_received(chunk(b"data:1\n\n" * 10_000))
    stream.link.abort()
    seen = len(stream.events_seen)
    await asyncio.sleep(0)
    assert len(stream.events_seen) == seen


async def test_one_large_event_is_read_at_once() -> None:
    stream = Stream()
    stream.link.data_received(HEAD)
    stream.link.data_received(chunk(b"data:" + b"x" * 200_000 + b"\n\n"))
    assert len(stream.events_seen) == 1
    assert not stream.wire.paused


# -- what is held together


@pytest.mark.parametrize("kind", ["json", "stream"])
async def test_answers_under_way_are_bounded_together(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.requests, "limit", 3_000_000)
    before = process.requests.held
    streams = [Stream() for _ in range(4)]
    for stream in streams:
        if kind == "json":
            stream.link.data_received(JSON_HEAD % 2_000_000 + b"x" * 1_000_000)
        else:
            stream.link.data_received(HEAD + b"ffffff\r\n" + b"data:" + b"x" * 1_000_000)
    refused = [stream for stream in streams if stream.ends]
    each = 1_000_000 if kind == "json" else 1_000_005
    assert len(refused) == 4 - (3_000_000 - before) // each
    assert all(isinstance(stream.ends[0], InvalidAnswer) for stream in refused)
    for stream in streams:
        stream.link.abort()
    assert process.requests.held == before


async def test_an_answer_that_came_is_credited() -> None:
    before = process.requests.held
    stream = Stream()
    stream.link.data_received(JSON_HEAD % 1_000_000 + b"x" * 999_999)
    assert process.requests.held == before + 999_999
    stream.link.data_received(b"x")
    assert stream.ends == ["answered"]
    assert process.requests.held == before


# -- heads, trailers and framing


def test_a_flood_of_one_header_is_cut_before_it_is_joined() -> None:
    desk = Desk()
    begun = time.process_time()
    desk.connection.data_received(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 50_000)
    assert time.process_time() - begun < 0.5
    assert isinstance(desk.ends[0], ConnectionCut)


def test_trailers_are_counted_and_left_out() -> None:
    desk = Desk()
    desk.connection.data_received(HEAD + b"1\r\nx\r\n0\r\nContent-Type: other\r\n\r\n")
    assert desk.ends == ["ended"]
    assert desk.head is not None
    assert desk.head[1][b"content-type"] == b"text/event-stream"
    desk = Desk()
    desk.connection.data_received(HEAD + b"1\r\nx\r\n0\r\n")
    for _ in range(MAX_HEADERS):
        desk.connection.data_received(b"a: b\r\n")
    assert isinstance(desk.ends[0], ConnectionCut)


@pytest.mark.parametrize("flood", [b"a: " + b"x" * 1000, b"x" * 1000], ids=["a trailer", "the same line"])
def test_an_endless_trailer_is_cut(flood: bytes) -> None:
    desk = Desk()
    desk.connection.data_received(HEAD + b"1\r\nx\r\n0\r\na: ")
    for _ in range(2 * MAX_FRAMING // len(flood)):
        desk.connection.data_received(flood.replace(b"\r\n", b""))
        if desk.ends:
            break
    assert isinstance(desk.ends[0], ConnectionCut)


def test_chunks_that_are_mostly_framing_are_cut() -> None:
    desk = Desk()
    desk.connection.data_received(HEAD)
    for _ in range(200):
        desk.connection.data_received(b"1;" + b"e" * 1000 + b"\r\nx\r\n")
    assert isinstance(desk.ends[0], ConnectionCut)


def test_chunks_of_one_byte_are_read() -> None:
    desk = Desk()
    desk.connection.data_received(HEAD)
    for _ in range(1000):
        desk.connection.data_received(b"1\r\nx\r\n" * 100)
    assert not desk.ends
    assert len(desk.body) == 100_000


def test_an_id_too_long_for_a_header_is_ignored() -> None:
    parser = SseParser()
    parser.feed(b"id: 1\ndata: x\n\nid: " + b"y" * (MAX_EVENT_ID + 1) + b"\ndata: x\n\n")
    assert parser.last_id == "1"


# -- a whole client


async def test_a_client_lives_through_a_stream_of_trifles() -> None:
    """`data:1` a hundred thousand times before the answer: it comes, and nobody waited long meanwhile."""

    async def flood(seen: Seen) -> None:
        seen.stream()
        for _ in range(4):
            seen.chunk(b"data:1\n\n" * 10_000)
            await seen.flushed()
        seen.event_result(text_result("done"))
        seen.end()

    async with Site("stateless") as site:
        site.on("tools/call", flood)
        async with Client(site.url) as client:
            assert (await client.call_tool("t", timeout=60)).text == "done"
