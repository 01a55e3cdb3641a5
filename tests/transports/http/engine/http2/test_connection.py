"""Requests over HTTP/2: many at once on one connection, each answered as over HTTP/1.1."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from certificates import write_certificate
from h2.errors import ErrorCodes
from h2.events import InformationalResponseReceived
from hpack import Encoder
from hyperframe.frame import (
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from ferrule.budgets import process
from ferrule.errors import SetupError
from ferrule.telemetry.observer import ObservedExchange, Observer, Observers
from ferrule.transports.backpressure import backlog as unread
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.engine.http2 import connection as connection_module
from ferrule.transports.http.engine.http2.connection import Http2Connection
from ferrule.transports.http.engine.http2.frames import TABLE_SIZE
from ferrule.transports.http.engine.http2.stream import HIGH_WATER
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.settings import EngineSettings, Http2Settings
from http2_peer import PREFACE, Answer, Http2Peer, new_client, request_fields

PATIENCE = 60.0
Run = Callable[[Awaitable[None]], None]
POST = request_fields("POST", "/")


class House:
    """An engine whose handler answers some paths by itself and leaves the others to the test."""

    def __init__(self, max_body_size: int = 100_000, **options: Any) -> None:
        self.requests: list[HttpRequest] = []
        self.owed: list[Responder] = []
        self.lost = 0
        observer = options.pop("observer", None)
        settings = EngineSettings(port=0, **options)
        self.engine = Engine(self.handle, settings, max_body_size=max_body_size, observer=observer)
        self.engine_state = self.engine._engine_state

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        self.requests.append(request)
        if request.path == "/fail":
            raise LookupError("no such thing")
        if request.path == "/empty":
            responder.reply(204, b"")
        elif request.path == "/large":
            responder.reply(200, b"", bytes(int(request.query)))
        elif request.path.startswith("/wait"):
            responder.watch(self.lose)
            self.owed.append(responder)
        else:
            responder.reply(200, b"content-type: text/plain\r\n", request.path.encode() + b" " + request.body[:100])

    def lose(self) -> None:
        self.lost += 1

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.005)

    @property
    def connections(self) -> list[Http2Connection]:
        return [each for each in self.engine_state.connections if isinstance(each, Http2Connection)]


@asynccontextmanager
async def house(**options: Any) -> AsyncIterator[House]:
    """Run an engine; afterwards nothing is held or owed any more."""
    opened = House(**options)
    await opened.engine.start()
    try:
        yield opened
    finally:
        await opened.engine.drain(2.0)
    assert not opened.engine_state.connections
    assert opened.engine_state.requests.held == 0
    assert len(unread) == 0


@asynccontextmanager
async def speaking(opened: House, **settings: int) -> AsyncIterator[Http2Peer]:
    async with await Http2Peer.open(opened.engine.address, **settings) as peer:
        yield peer


# -- requests and answers


def test_a_request_is_handed_on_and_answered(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            number = peer.ask([*request_fields("POST", "/a?b=c"), ("cookie", "x=1"), ("cookie", "y=2")], b"hello")
            answer = await peer.answer(number)
            assert (answer.status, answer.body) == (200, b"/a hello")
            assert answer.headers["content-length"] == "8"
            assert "date" in answer.headers
            request = opened.requests[0]
            assert (request.method, request.path, request.query, request.body) == ("POST", "/a", "b=c", b"hello")
            assert request.headers == {b"host": b"a", b"cookie": b"x=1; y=2"}
            assert request.address == "127.0.0.1"
            assert not request.secure

    run(main())


def test_the_preface_may_come_in_pieces_and_with_a_request(run: Run) -> None:
    async def main() -> None:
        async with house() as opened:
            for step in (1, 5, 17, 1000):
                client = new_client()
                client.send_headers(1, request_fields(), end_stream=True)
                said = client.data_to_send()
                reader, writer = await asyncio.open_connection(*opened.engine.address)
                async with Http2Peer(reader, writer, client) as peer:
                    peer.answers[1] = Answer()
                    for at in range(0, len(said), step):
                        peer.say(said[at : at + step])
                        await asyncio.sleep(0)
                    assert (await peer.answer(1)).body == b"/ "

    run(main())


def test_an_answer_may_be_a_head_alone_or_empty(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            head = await peer.answer(peer.ask(request_fields("HEAD", "/large?500")))
            assert (head.headers["content-length"], head.body) == ("500", b"")
            empty = await peer.answer(peer.get("/empty"))
            assert (empty.status, empty.body) == (204, b"")
            assert "content-length" not in empty.headers

    run(main())


def test_a_handler_that_fails_is_answered_with_500(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            assert (await peer.answer(peer.get("/fail"))).status == 500
            assert (await peer.answer(peer.get("/"))).status == 200

    run(main())
    assert "failed on GET /fail" in caplog.text


def test_100_streams_are_answered_at_once_on_one_connection(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            numbers = [peer.get(f"/wait/{index}") for index in range(100)]
            await opened.until(lambda: len(opened.owed) == 100)
            assert len(opened.engine_state.connections) == 1
            for responder in opened.owed:
                responder.begin(200, b"content-type: text/event-stream\r\n")
            for event in range(3):
                for index, responder in enumerate(opened.owed):
                    responder.write(b"data: %d of %d\n\n" % (event, index))
            for responder in reversed(opened.owed):
                responder.finish()
            for index, number in enumerate(numbers):
                answer = await peer.answer(number)
                assert answer.body == b"".join(b"data: %d of %d\n\n" % (event, index) for event in range(3))
            assert opened.connections[0]._streams == {}
            assert opened.lost == 0

    run(main())


def test_one_stream_too_many_is_refused_and_may_be_sent_again(run: Run) -> None:
    async def main() -> None:
        async with house(http2={"max_streams": 2}) as opened, speaking(opened) as peer:
            peer.get("/wait")
            last = peer.get("/wait")
            await opened.until(lambda: len(opened.owed) == 2)
            # The peer does not know our settings, so that its own rules do not stop it.
            refused = await peer.answer(peer.get("/"))
            assert refused.reset == ErrorCodes.REFUSED_STREAM
            assert [request.path for request in opened.requests] == ["/wait", "/wait"]
            opened.owed[1].reply(200, b"")
            await peer.answer(last)
            assert (await peer.answer(peer.get("/"))).status == 200

    run(main())


def test_a_request_that_is_cancelled_is_lost_to_its_handler(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            peer.client.reset_stream(number, ErrorCodes.CANCEL)
            peer.flush()
            await opened.until(lambda: opened.lost)
            assert opened.owed[0].gone
            opened.owed[0].reply(200, b"")
            # A late word about it, and about a stream that was answered, changes nothing.
            done = peer.get("/")
            await peer.answer(done)
            peer.say(RstStreamFrame(number), RstStreamFrame(done), WindowUpdateFrame(done, window_increment=1))
            assert (await peer.answer(peer.get("/"))).status == 200

    run(main())


def test_what_is_lost_with_the_connection_is_lost_to_its_handlers(run: Run) -> None:
    async def main() -> None:
        async with house() as opened:
            async with speaking(opened) as peer:
                for _ in range(3):
                    peer.get("/wait")
                await opened.until(lambda: len(opened.owed) == 3)
            await opened.until(lambda: opened.lost == 3)
            assert all(responder.gone for responder in opened.owed)

    run(main())


def test_an_aborted_answer_ends_its_stream_alone(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            opened.owed[0].begin(200, b"")
            opened.owed[0].abort()
            assert (await peer.answer(number)).reset == ErrorCodes.CANCEL
            assert opened.lost == 0
            assert (await peer.answer(peer.get("/"))).status == 200

    run(main())


def test_who_has_answered_is_not_told_of_a_peer_that_goes_before_it_has_read_it(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened, INITIAL_WINDOW_SIZE=0) as peer:
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            opened.owed[0].reply(200, b"", b"hello")
            assert opened.owed[0].gone
            assert opened.owed[0].backlog == 5
            opened.owed[0].abort()
            await peer.until(lambda: peer.answers[number].headers)
            peer.client.reset_stream(number)
            peer.flush()
            await opened.until(lambda: not opened.connections[0]._streams)
            await asyncio.sleep(0.01)
            assert opened.lost == 0
            assert opened.owed[0].backlog == 0

    run(main())


# -- bodies


def test_a_body_of_many_windows_comes_whole(run: Run) -> None:
    async def main() -> None:
        async with house(max_body_size=1_000_000) as opened, speaking(opened) as peer:
            number = peer.ask(request_fields("POST", "/a"), b"", ends=False)
            left = 300_000
            while left:
                size = min(left, peer.client.local_flow_control_window(number), 16384)
                if not size:
                    await peer.read()
                    continue
                left -= size
                peer.client.send_data(number, b"x" * size, end_stream=not left)
                peer.flush()
            assert (await peer.answer(number)).status == 200
            assert opened.requests[0].body == b"x" * 300_000

    run(main())


def test_a_body_that_is_too_long_is_refused_and_the_connection_stays(run: Run) -> None:
    async def main() -> None:
        async with house(max_body_size=1000) as opened, speaking(opened) as peer:
            said = await peer.answer(peer.ask([*POST, ("content-length", "1001")], ends=False))
            assert said.status == 413
            grown = peer.ask(POST, bytes(900), ends=False)
            peer.client.send_data(grown, bytes(101))
            peer.flush()
            assert (await peer.answer(grown)).status == 413
            assert (await peer.answer(peer.ask(POST, bytes(1000)))).status == 200
            assert len(opened.requests) == 1

    run(main())


@pytest.mark.parametrize("length", ["4", "6", "0"])
@pytest.mark.parametrize("way", ["data", "no data", "trailers"])
def test_a_body_that_is_not_as_long_as_it_says_is_never_handed_on(run: Run, length: str, way: str) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            fields = [*POST, ("content-length", length)]
            if way == "no data":
                number = peer.ask(fields)
            else:
                number = peer.ask(fields, b"hello", ends=way == "data")
            if way == "trailers":
                peer.client.send_headers(number, [("x", "y")], end_stream=True)
                peer.flush()
            if way == "no data" and length == "0":
                assert (await peer.answer(number)).status == 200
                return
            await peer.until(lambda: peer.goaway is not None or peer.answers[number].headers)
            if peer.goaway is None:
                assert peer.answers[number].status == 400
            else:
                assert peer.goaway.error_code == ErrorCodes.PROTOCOL_ERROR
            assert opened.requests == []

    run(main())


def test_trailers_are_dropped(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            for trailers, status in (([("x-checksum", "1")], 200), ([(":path", "/hidden")], 400)):
                number = peer.ask(POST, b"hello", ends=False)
                peer.client.send_headers(number, trailers, end_stream=True)
                peer.flush()
                assert (await peer.answer(number)).status == status
            assert [request.headers for request in opened.requests] == [{b"host": b"a"}]

    run(main())


def test_a_peer_that_waits_for_100_is_told_to_go_on(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            number = peer.ask([*POST, ("expect", "100-continue")], ends=False)
            await peer.until(lambda: any(isinstance(each, InformationalResponseReceived) for each in peer.events))
            peer.client.send_data(number, b"hello", end_stream=True)
            peer.flush()
            assert (await peer.answer(number)).body == b"/ hello"
            assert len(opened.requests) == 1

    run(main())


def test_unfinished_requests_of_all_streams_share_one_account(run: Run) -> None:
    async def main() -> None:
        async with house(max_buffered=40_000) as opened, speaking(opened) as peer:
            large = peer.ask(POST, bytes(16_000), ends=False)
            peer.client.send_data(large, bytes(16_000))
            small = peer.ask(POST, bytes(15_000), ends=False)
            assert (await peer.answer(large)).status == 503
            assert opened.engine_state.requests.held > 15_000
            peer.client.end_stream(small)
            peer.flush()
            assert (await peer.answer(small)).status == 200
            assert opened.engine_state.requests.held == 0

    run(main())


# -- heads


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (("connection", "close"), 400),
        (("Upper", "x"), 400),
        (("x", "a\r\nb: c"), 400),
        (("host", "other"), 400),
        (("x", "a" * 17_000), 431),
    ],
)
def test_a_malformed_request_is_answered_and_the_connection_stays(run: Run, more: tuple[str, str], status: int) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            assert (await peer.answer(peer.get("/hidden", more))).status == status
            assert (await peer.answer(peer.get("/open"))).status == 200
            assert [request.path for request in opened.requests] == ["/open"]

    run(main())


def test_a_head_in_two_frames_is_one(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            assert (await peer.answer(peer.get("/a", ("x", "~{}|" * 3900)))).status == 200
            assert len(opened.requests[0].headers[b"x"]) == 15_600

    run(main())


def test_a_long_connection_keeps_little_of_what_is_over(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened, HEADER_TABLE_SIZE=1_000_000) as peer:
            for _ in range(12):
                numbers = [peer.get("/empty") for _ in range(100)]
                for number in numbers:
                    assert (await peer.answer(number)).status == 204
            protocol = opened.connections[0]._h2
            assert protocol.encoder.header_table_size == TABLE_SIZE
            assert len(protocol._closed_streams) == 1000
            assert len(protocol.streams) <= 100

    run(main())


# -- flow control


def test_an_answer_waits_for_the_window_of_its_stream(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened, INITIAL_WINDOW_SIZE=1000) as peer:
            peer.acknowledge = False
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            opened.owed[0].begin(200, b"")
            opened.owed[0].write(b"x" * 5000)
            await peer.until(lambda: len(peer.answers[number].body) == 1000)
            assert opened.owed[0].backlog == 4000
            assert process.answers.held == 4000
            # Another stream has a window of its own.
            assert len((await peer.answer(peer.get("/large?900"))).body) == 900
            peer.client.increment_flow_control_window(4000, number)
            peer.flush()
            await peer.until(lambda: len(peer.answers[number].body) == 5000)
            await opened.until(lambda: not opened.owed[0].backlog)
            assert process.answers.held == 0
            opened.owed[0].finish()
            assert (await peer.answer(number)).whole

    run(main())


def test_streams_take_turns_at_the_window_of_the_connection(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened, INITIAL_WINDOW_SIZE=1_000_000) as peer:
            peer.acknowledge = False
            first = peer.get("/large?200000")
            await peer.until(lambda: len(peer.answers[first].body) == 65_535)
            second = peer.get("/large?200000")
            await peer.until(lambda: peer.answers[second].headers)
            peer.client.increment_flow_control_window(65_536)
            peer.flush()
            await peer.until(lambda: len(peer.answers[second].body) == 32_768)
            assert len(peer.answers[first].body) == 65_535 + 32_768

    run(main())


def test_whoever_writes_waits_for_a_slow_reader(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened, INITIAL_WINDOW_SIZE=0) as peer:
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            responder = opened.owed[0]
            responder.begin(200, b"")
            responder.write(bytes(HIGH_WATER))
            await asyncio.wait_for(responder.wait_writable(), 1)
            responder.write(b"x")
            waiting = asyncio.ensure_future(responder.wait_writable())
            await asyncio.sleep(0.02)
            assert not waiting.done()
            peer.client.increment_flow_control_window(HIGH_WATER, number)
            peer.flush()
            await peer.until(lambda: waiting.done() or peer.answers[number].body)
            await asyncio.wait_for(waiting, PATIENCE)
            # One that waits is also woken when its reader goes.
            responder.write(bytes(2 * HIGH_WATER))
            waiting = asyncio.ensure_future(responder.wait_writable())
            peer.client.reset_stream(number)
            peer.flush()
            await asyncio.wait_for(waiting, PATIENCE)
            assert responder.gone

    run(main())


def test_a_window_that_stays_shut_ends_its_stream_alone(run: Run) -> None:
    async def main() -> None:
        async with house(write_timeout=0.3) as opened, speaking(opened, INITIAL_WINDOW_SIZE=0) as peer:
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            opened.owed[0].begin(200, b"")
            opened.owed[0].write(b"hello")
            assert (await peer.answer(number)).reset == ErrorCodes.ENHANCE_YOUR_CALM
            await opened.until(lambda: opened.lost)
            assert (await peer.answer(peer.get("/empty"))).status == 204

    run(main())


def test_a_window_of_the_connection_that_stays_shut_ends_its_streams(run: Run) -> None:
    async def main() -> None:
        async with house(write_timeout=0.3) as opened, speaking(opened, INITIAL_WINDOW_SIZE=1_000_000) as peer:
            peer.acknowledge = False
            numbers = [peer.get("/large?100000") for _ in range(2)]
            for number in numbers:
                assert (await peer.answer(number)).reset == ErrorCodes.ENHANCE_YOUR_CALM

    run(main())


def test_a_peer_that_reads_nothing_is_cut_and_starts_no_more_requests(run: Run) -> None:
    async def main() -> None:
        async with house(write_timeout=0.5) as opened:
            windows = {"INITIAL_WINDOW_SIZE": 2**31 - 1}
            async with speaking(opened, **windows) as peer:
                peer.client.increment_flow_control_window(2**31 - 1 - 65_535)
                peer.get("/large?30000000")
                await opened.until(lambda: opened.requests)
                peer.get("/late")
                await opened.until(lambda: not opened.connections)
                assert [request.path for request in opened.requests] == ["/large"]

    run(main())


# -- time


def test_an_idle_connection_ends_with_goaway(run: Run) -> None:
    async def main() -> None:
        async with house(idle_timeout=0.3) as opened, speaking(opened) as peer:
            await peer.answer(peer.get("/"))
            peer.say(PingFrame(0))
            await peer.until_closed()
            assert peer.goaway is not None
            assert (peer.goaway.error_code, peer.goaway.last_stream_id) == (ErrorCodes.NO_ERROR, 1)

    run(main())


@pytest.mark.parametrize("said", [b"", PREFACE[:20], PREFACE, new_client().data_to_send() + b"\0\0\x08\x06"])
def test_who_does_not_go_on_is_let_go(run: Run, said: bytes) -> None:
    async def main() -> None:
        async with house(head_timeout=0.3) as opened:
            reader, writer = await asyncio.open_connection(*opened.engine.address)
            writer.write(said)
            async with asyncio.timeout(PATIENCE):
                await reader.read()
            writer.close()

    run(main())


def test_a_head_that_never_ends_ends_the_connection(run: Run) -> None:
    async def main() -> None:
        async with house(head_timeout=0.3) as opened, speaking(opened) as peer:
            await peer.answer(peer.get("/"))
            peer.say(HeadersFrame(3, b"\x82"))
            await peer.until_closed()
            assert peer.goaway is not None
            assert peer.goaway.error_code == ErrorCodes.ENHANCE_YOUR_CALM

    run(main())


def test_a_body_that_stands_still_is_refused_and_the_connection_stays(run: Run) -> None:
    async def main() -> None:
        async with house(body_timeout=0.3) as opened, speaking(opened) as peer:
            number = peer.ask(POST, b"hel", ends=False)
            assert (await peer.answer(number)).status == 408
            assert (await peer.answer(peer.get("/"))).status == 200
            assert len(opened.requests) == 1

    run(main())


# -- the end


def test_draining_answers_what_has_begun_and_refuses_what_is_new(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer, speaking(opened) as idle:
            await idle.answer(idle.get("/"))
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            opened.engine.stop()
            await idle.until_closed()
            assert idle.goaway is not None
            assert peer.goaway is None
            late = await peer.answer(peer.get("/"))
            assert late.reset == ErrorCodes.REFUSED_STREAM
            await peer.until(lambda: peer.goaway)
            opened.owed[0].reply(200, b"", b"done")
            assert (await peer.answer(number)).body == b"done"
            await peer.until_closed()
            assert peer.goaway is not None
            assert (peer.goaway.error_code, peer.goaway.last_stream_id) == (ErrorCodes.NO_ERROR, number)

    run(main())


def test_leaving_ends_a_connection_with_its_next_answer(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            await peer.answer(peer.get("/"))
            opened.engine.end_after_answers()
            assert (await peer.answer(peer.get("/"))).status == 200
            await peer.until_closed()
            assert peer.goaway is not None
            async with speaking(opened) as after:
                assert (await after.answer(after.get("/"))).status == 200
                await after.until_closed()

    run(main())


def test_a_peer_that_leaves_still_gets_its_answers(run: Run) -> None:
    async def main() -> None:
        async with house() as opened, speaking(opened) as peer:
            number = peer.get("/wait")
            await opened.until(lambda: opened.owed)
            peer.say(GoAwayFrame(0, last_stream_id=0, error_code=0))
            await peer.until(lambda: opened.connections[0].state)
            opened.owed[0].reply(200, b"", b"done")
            assert (await peer.answer(number)).body == b"done"
            await peer.until_closed()

    run(main())


NOT_HTTP2 = {
    "no preface": (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", ErrorCodes.PROTOCOL_ERROR),
    "no settings": (PREFACE + PingFrame(0).serialize(), ErrorCodes.PROTOCOL_ERROR),
    "too long a frame": (new_client().data_to_send() + b"\xff\xff\xff" + bytes(6), ErrorCodes.FRAME_SIZE_ERROR),
    "bad compression": (
        new_client().data_to_send() + b"\0\0\1\1\5\0\0\0\1\xff",
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "ping in a head": (
        new_client().data_to_send() + HeadersFrame(1, b"\x82").serialize() + PingFrame(0).serialize(),
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "even stream": (new_client().data_to_send() + b"\0\0\1\1\5\0\0\0\2\x82", ErrorCodes.PROTOCOL_ERROR),
    "short goaway": (new_client().data_to_send() + b"\0\0\7\7\0\0\0\0\0" + bytes(7), ErrorCodes.PROTOCOL_ERROR),
    "goaway on a stream": (new_client().data_to_send() + b"\0\0\x08\7\0\0\0\0\1" + bytes(8), ErrorCodes.PROTOCOL_ERROR),
    "goaway in a head": (
        new_client().data_to_send() + HeadersFrame(1, b"\x82").serialize() + GoAwayFrame(0).serialize(),
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "window of no stream": (
        new_client().data_to_send() + WindowUpdateFrame(1, window_increment=1).serialize(),
        ErrorCodes.PROTOCOL_ERROR,
    ),
    # A whole request, but for the size of the table that changes three times before it.
    "too many sizes": (
        new_client().data_to_send() + b"\0\0\x09\1\5\0\0\0\1\x20\x20\x20\x82\x86\x84\x41\x01a",
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "data on no stream": (
        new_client().data_to_send() + DataFrame(5, b"x").serialize(),
        ErrorCodes.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("shape", NOT_HTTP2)
def test_what_breaks_the_protocol_ends_the_connection_with_goaway(run: Run, shape: str) -> None:
    async def main() -> None:
        said, code = NOT_HTTP2[shape]
        async with house() as opened:
            reader, writer = await asyncio.open_connection(*opened.engine.address)
            async with Http2Peer(reader, writer, new_client()) as peer:
                peer.say(said)
                await peer.until_closed()
                assert peer.goaway is not None
                assert (peer.goaway.error_code, peer.goaway.last_stream_id) == (code, 0)
                assert peer.goaway.additional_data
            assert opened.requests == []

    run(main())


FRAMES = st.one_of(
    st.builds(lambda stream, data: DataFrame(stream, data).serialize(), st.integers(1, 5), st.binary(max_size=20)),
    st.builds(
        lambda stream, fields, flags: HeadersFrame(stream, Encoder().encode(fields), flags=flags).serialize(),
        st.integers(1, 7),
        st.sampled_from([request_fields(), POST, request_fields("GET", "/wait"), [("x", "y")], []]),
        st.sampled_from([("END_HEADERS",), ("END_HEADERS", "END_STREAM"), ("END_STREAM",), ()]),
    ),
    st.builds(lambda stream, code: RstStreamFrame(stream, code).serialize(), st.integers(1, 7), st.integers(0, 20)),
    st.builds(
        lambda stream, size: WindowUpdateFrame(stream, size).serialize(), st.integers(0, 5), st.integers(1, 2**31 - 1)
    ),
    st.builds(
        lambda name, value: SettingsFrame(0, settings={name: value}).serialize(),
        st.integers(0, 10),
        st.sampled_from([0, 1, 100, 16_384, 65_535, 2**31]),
    ),
    st.builds(
        lambda kind, flags, stream, body: len(body).to_bytes(3, "big") + bytes([kind, flags, 0, 0, 0, stream]) + body,
        st.integers(0, 12),
        st.integers(0, 255),
        st.integers(0, 5),
        st.binary(max_size=20),
    ),
)


class Wire(asyncio.Transport):
    """A transport that takes everything."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


@given(st.lists(FRAMES, max_size=12), st.booleans())
def test_whatever_frames_come_nothing_breaks_and_nothing_is_kept(frames: list[bytes], window: bool) -> None:
    opened = House()
    engine_state = opened.engine_state
    engine_state.tick(100.0)
    loop = asyncio.new_event_loop()
    try:
        connection = Http2Connection(engine_state, Http2Settings(), loop)
        with mock.patch.object(connection_module.logger, "exception") as failed:
            connection.connection_made(Wire())
            settings = {4: 0} if window else {}
            connection.data_received(PREFACE + SettingsFrame(0, settings=settings).serialize())
            for frame in frames:
                connection.data_received(frame)
                for responder in opened.owed:
                    responder.reply(200, b"", b"late")
            connection.sweep(100.0)
            connection.connection_lost(None)
        assert failed.mock_calls == []
        assert engine_state.requests.held == 0
        assert len(unread) == 0
        assert connection._streams == {}
    finally:
        loop.close()


# -- around


def test_http_2_is_chosen_in_the_tls_handshake(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = write_certificate(tmp_path)

    async def main() -> None:
        trusting = ssl.create_default_context(cafile=certificate)
        trusting.set_alpn_protocols(["h2", "http/1.1"])
        async with house(certificate=certificate, private_key=key) as opened:
            async with await Http2Peer.open(opened.engine.address, trusting) as peer:
                assert peer.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
                answer = await peer.answer(peer.ask(POST, b"x" * 16_000))
                assert answer.status == 200
                assert opened.requests[0].secure
                peer.say(b"rubbish" * 100)
                await peer.until(lambda: peer.goaway)
            trusting.set_alpn_protocols(["http/1.1"])
            reader, writer = await asyncio.open_connection(
                *opened.engine.address, ssl=trusting, server_hostname="localhost"
            )
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert caplog.records == []


def test_http_2_can_be_off(run: Run) -> None:
    async def main() -> None:
        async with house(http2=False) as opened:
            reader, writer = await asyncio.open_connection(*opened.engine.address)
            writer.write(PREFACE)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 505")
            writer.close()

    run(main())


def test_the_preface_is_no_request_among_others(run: Run) -> None:
    async def main() -> None:
        async with house() as opened:
            reader, writer = await asyncio.open_connection(*opened.engine.address)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + PREFACE)
            said = await reader.read()
            assert said.startswith(b"HTTP/1.1 200")
            assert b"HTTP/1.1 505" in said
            writer.close()

    run(main())


def test_each_answer_is_reported_and_each_connection_once(run: Run) -> None:
    seen: list[ObservedExchange] = []
    connections: list[str] = []

    class Watching(Observer):
        def exchange_finished(self, exchange: ObservedExchange) -> None:
            seen.append(exchange)

        def connection_opened(self, connection: Any) -> None:
            connections.append(f"opened {connection.transport}")

        def connection_closed(self, connection: Any) -> None:
            connections.append(f"closed {connection.transport}")

    async def main() -> None:
        async with house(observer=Observers([Watching()])) as opened, speaking(opened) as peer:
            await peer.answer(peer.ask(request_fields("POST", "/a"), b"hello"))
            await peer.answer(peer.get("/b", ("connection", "close")))
            peer.get("/wait")
            await opened.until(lambda: opened.owed)
            assert connections == ["opened http"]

    run(main())
    assert [(each.method, each.path, each.status, each.received) for each in seen] == [
        ("POST", "/a", 200, 5),
        ("", "", 400, 0),
        ("GET", "/wait", 0, 0),
    ]
    assert (seen[0].sent > 50, seen[2].sent) == (True, 0)
    assert 0 <= seen[0].ended - seen[0].began < PATIENCE
    assert connections == ["opened http", "closed http"]


def test_http_2_that_is_asked_for_and_missing_is_a_mistake_of_the_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h2", None)
    with pytest.raises(SetupError, match=r"pip install 'ferrule\[http2\]'"):
        House(http2=True)
    assert House().engine_state.http2 is None


def test_the_defaults_are_those_of_the_seeds() -> None:
    """OTHT-03: 100 streams, a window of 65,535 bytes; a call has 30 s and is sent again up to 3 times."""
    from ferrule.client.settings import ClientSettings
    from ferrule.transports.http.client.options import HttpOptions

    assert (Http2Settings().max_streams, Http2Settings().window) == (100, 65_535)
    assert (ClientSettings().tool_timeout, HttpOptions().max_retries) == (30.0, 3)


def test_the_settings_are_said_first(run: Run) -> None:
    async def main() -> None:
        async with house(http2={"max_streams": 7, "window": 100_000}) as opened, speaking(opened) as peer:
            await peer.until(lambda: peer.events)
            settings = peer.client.remote_settings
            assert settings.max_concurrent_streams == 7
            assert settings.initial_window_size == 100_000
            assert settings.max_header_list_size == 16_384
            assert settings.enable_push == 0
            assert peer.client.outbound_flow_control_window == 1024 * 1024
            assert not settings.enable_connect_protocol
            peer.writer.close()

    run(main())


@pytest.mark.parametrize("wrong", [{"max_streams": 0}, {"window": 1000}, {"window": 2**31}, {"unknown": 1}])
def test_wrong_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SetupError):
        House(http2=wrong)
