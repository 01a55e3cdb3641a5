"""What a connection of HTTP/2 decides by its clock and its counts, to the second and to the byte."""

from __future__ import annotations

import logging
from collections.abc import Callable
from unittest import mock

import pytest
from h2.errors import ErrorCodes
from h2.events import InformationalResponseReceived
from h2.settings import SettingCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    WindowUpdateFrame,
)

from ferrule.transports.http.engine.connection import BURST, LINGER_BYTES, LINGER_TIME
from ferrule.transports.http.engine.http2 import connection as connection_module
from ferrule.transports.http.engine.http2.connection import CLOSED, LINGER
from ferrule.transports.http.engine.http2.limits import FRAME_BURST, STREAM_BURST
from ferrule.transports.http.engine.http2.stream import Stream
from http2_memory import MemoryPeer, in_memory
from http2_peer import request_fields

POST = request_fields("POST", "/")
PING = PingFrame(0).serialize()


# -- time


def test_who_says_nothing_is_let_go_without_a_word() -> None:
    with in_memory(says=False) as peer:
        peer.at(109.9)
        assert not peer.wire.closed
        peer.at(110)
        assert peer.wire.closed
        assert peer.goaway is None


def test_a_connection_without_a_stream_is_idle_and_one_with_a_stream_is_not() -> None:
    with in_memory() as peer:
        peer.at(174.9)
        peer.get("/wait")
        peer.at(1000)
        assert not peer.wire.closed
        peer.owed[0].reply(200, b"")
        peer.at(1074.9)
        assert not peer.wire.closed
        peer.at(1075)
        assert peer.wire.closed
        assert peer.goaway is not None
        assert (peer.goaway.error_code, peer.goaway.last_stream_id) == (ErrorCodes.NO_ERROR, 1)
    with in_memory() as silent:
        cancelled(silent)
        silent.at(174.9)
        assert not silent.wire.closed
        silent.at(175)
        assert silent.wire.closed
        assert silent.goaway is not None


def assert_calm(peer: MemoryPeer) -> None:
    """The connection has ended with ENHANCE_YOUR_CALM."""
    assert peer.connection.state == LINGER
    assert peer.goaway is not None
    assert peer.goaway.error_code == ErrorCodes.ENHANCE_YOUR_CALM
    assert peer.wire.calls == ["write_eof"]


def test_a_frame_that_has_begun_must_be_whole_in_time_however_often_more_of_it_comes() -> None:
    with in_memory() as peer:
        peer.say(PING[:10])
        peer.at(109)
        peer.say(PING[10:], PING[:10])
        peer.at(118.9)
        peer.say(PING[10:12])
        assert peer.goaway is None
        peer.at(119)
        assert_calm(peer)


def test_a_head_in_pieces_must_be_whole_in_time_however_often_more_of_it_comes() -> None:
    with in_memory() as peer:
        peer.say(HeadersFrame(1, b"\x82"))
        peer.at(109)
        peer.say(ContinuationFrame(1, b"\x86"))
        peer.at(109.9)
        assert peer.goaway is None
        peer.at(110)
        assert_calm(peer)


def test_whole_frames_leave_no_deadline_behind() -> None:
    with in_memory() as peer:
        for moment in range(101, 140):
            peer.say(PING[10:] if moment > 101 else b"", PING, PING[:10])
            peer.at(moment)
        peer.say(PING[10:])
        peer.at(170)
        assert peer.goaway is None


@pytest.mark.parametrize(
    ("moment", "said", "end"),
    [
        pytest.param(100, b"", 120, id="nothing"),
        pytest.param(119, DataFrame(1, bytes(10)).serialize(), 130, id="ten seconds earned"),
        pytest.param(119, DataFrame(1, bytes(80)).serialize()[:59], 139, id="a frame that comes"),
        pytest.param(119, DataFrame(1, bytes(200)).serialize(), 139, id="more than earned"),
        pytest.param(138, DataFrame(1, bytes(200)).serialize(), 150, id="however fast"),
    ],
)
def test_a_body_must_move_and_be_whole_in_time(moment: float, said: bytes, end: float) -> None:
    with in_memory(min_body_rate=1, max_body_time=50.0) as peer:
        number = peer.ask(POST, ends=False)
        if moment > 120:
            peer.at(119)
            peer.say(DataFrame(1, bytes(200)))
        peer.at(moment)
        peer.say(said)
        peer.at(end - 0.1)
        assert not peer.answers[number].whole
        peer.at(end)
        assert peer.answers[number].status == 408
        assert peer.goaway is None
        assert peer.requests == []


def test_a_request_that_came_whole_has_no_deadline() -> None:
    with in_memory() as peer:
        number = peer.ask(POST, b"hello")
        assert peer.owed[0].body == b""
        peer.at(1000)
        peer.owed[0].reply(200, b"")
        peer.listen()
        assert peer.answers[number].status == 200


def test_a_frame_of_a_body_nobody_wants_must_be_whole_in_time() -> None:
    with in_memory(client={"INITIAL_WINDOW_SIZE": 0}, max_body_size=1000) as peer:
        number = peer.ask([*POST, ("content-length", "1001")], ends=False)
        assert peer.answers[number].status == 413
        peer.say(DataFrame(number, bytes(500)).serialize()[:100])
        peer.at(109.9)
        assert peer.goaway is None
        peer.at(110)
        assert_calm(peer)


# -- floods


def refused(peer: MemoryPeer) -> None:
    # The client would keep to the limit by itself.
    peer.client.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 1000
    peer.client.remote_settings.acknowledge()
    peer.get("/")


def malformed(peer: MemoryPeer) -> None:
    peer.get("/", ("connection", "close"))


def malformed_and_unfinished(peer: MemoryPeer) -> None:
    peer.ask([*POST, ("connection", "close")], ends=False)


def too_long(peer: MemoryPeer) -> None:
    peer.ask(POST, bytes(1001), ends=False)


def of_another_length(peer: MemoryPeer) -> None:
    peer.ask([*POST, ("content-length", "5")])


def with_bad_trailers(peer: MemoryPeer) -> None:
    number = peer.ask(POST, bytes(100), ends=False)
    peer.client.send_headers(number, [(":path", "/")], end_stream=True)
    peer.flush()


def cancelled(peer: MemoryPeer) -> None:
    number = peer.get("/")
    peer.client.reset_stream(number)
    peer.flush()


def cancelled_by_h2(peer: MemoryPeer) -> None:
    peer.say(WindowUpdateFrame(peer.get("/"), window_increment=2**31 - 1))


def cancelled_by_us(peer: MemoryPeer) -> None:
    peer.get("/")
    peer.owed[-1].abort()
    peer.listen()


def answered_early(peer: MemoryPeer) -> None:
    number = peer.ask(POST, ends=False)
    peer.connection._streams[number].reply(200, b"")
    peer.listen()


WASTED = {
    refused: STREAM_BURST,
    malformed: STREAM_BURST,
    # These are refused, and then cancelled because the rest is not wanted.
    malformed_and_unfinished: STREAM_BURST // 2,
    too_long: STREAM_BURST,
    of_another_length: STREAM_BURST,
    with_bad_trailers: STREAM_BURST,
    cancelled: STREAM_BURST,
    cancelled_by_h2: STREAM_BURST,
    cancelled_by_us: STREAM_BURST,
    answered_early: STREAM_BURST,
}


@pytest.mark.parametrize("waste", WASTED, ids=lambda waste: waste.__name__)
def test_streams_that_come_to_nothing_are_counted(waste: Callable[[MemoryPeer], None]) -> None:
    with in_memory(max_body_size=1000, max_streams=1) as peer:
        if waste is refused:
            peer.get("/wait")
        count = 0
        while peer.goaway is None and count < 1000:
            waste(peer)
            count += 1
        assert_calm(peer)
        assert count == WASTED[waste] + 1


def test_streams_that_are_refused_because_we_leave_are_counted_and_goaway_is_said_once() -> None:
    with in_memory() as peer:
        peer.get("/wait")
        peer.connection.drain()
        for _ in range(STREAM_BURST):
            peer.get("/")
        assert peer.goaways == 1
        assert peer.goaway is not None
        assert (peer.goaway.error_code, peer.goaway.last_stream_id) == (ErrorCodes.NO_ERROR, 1)
        peer.get("/")
        assert_calm(peer)
        assert len(peer.requests) == 1


def test_requests_that_are_answered_are_not_counted() -> None:
    with in_memory() as peer:
        for _ in range(2 * STREAM_BURST):
            number = peer.ask(POST, b"hello")
            peer.owed.pop().reply(200, b"")
            peer.listen()
            assert peer.answers[number].whole
            assert peer.answers[number].reset is None


def test_data_on_the_first_and_last_stream_that_is_over_is_counted() -> None:
    with in_memory() as peer:
        number = peer.ask(POST, b"hello")
        peer.owed[0].reply(200, b"")
        peer.listen()
        late = DataFrame(number, bytes(64)).serialize()
        # Its settings, and the acknowledgement of ours, were counted as well.
        for _ in range(FRAME_BURST - 2):
            peer.connection.data_received(late)
        assert peer.connection.state < LINGER
        peer.connection.data_received(late)
        assert peer.connection.state == LINGER


# -- heads


def test_a_head_that_is_too_long_is_refused_and_one_that_is_far_too_long_ends_the_connection() -> None:
    wide = "~{}|" * 440  # longer when it is compressed
    with in_memory(max_head_size=2000) as peer:
        assert peer.answers[peer.get("/", ("x", wide + "a" * 300))].status == 431
        assert peer.answers[peer.get("/", ("x", "a" * 3800))].status == 431
        assert peer.goaway is None
        peer.get("/", ("x", "a" * 4000))
        assert_calm(peer)
    with in_memory(max_head_size=2000) as peer:
        peer.get("/", ("x", wide + wide))
        assert_calm(peer)


# -- bodies


def test_a_body_may_be_as_long_as_the_limit() -> None:
    with in_memory(max_body_size=1000) as peer:
        peer.ask([*POST, ("content-length", "1000")], bytes(1000))
        peer.ask(POST, bytes(1000))
        assert [len(request.body) for request in peer.requests] == [1000, 1000]


def test_the_rest_of_a_request_is_cancelled_only_where_there_is_one() -> None:
    with in_memory(max_body_size=1000) as peer:
        whole = peer.ask(POST, bytes(1001))
        half = peer.ask(POST, bytes(1001), ends=False)
        assert peer.answers[whole].status == peer.answers[half].status == 413
        assert peer.answers[whole].reset is None
        assert peer.answers[half].reset == ErrorCodes.NO_ERROR


def test_what_is_refused_is_let_go_at_once_though_its_reader_is_slow() -> None:
    with in_memory(max_body_size=1000, client={"INITIAL_WINDOW_SIZE": 0}) as peer:
        number = peer.ask(POST, bytes(900), ends=False)
        stream = peer.connection._streams[number]
        assert peer.engine_state.requests.held > 900
        peer.client.send_data(number, bytes(101))
        peer.flush()
        assert peer.answers[number].status == 413
        assert peer.engine_state.requests.held == 0
        assert stream.body == b""
        peer.client.send_data(number, bytes(500))
        peer.flush()
        assert stream.body == b""


def test_only_who_waits_for_100_and_has_room_is_told_to_go_on() -> None:
    with in_memory(max_buffered=10_000) as peer:
        peer.ask(POST, bytes(3000), ends=False)
        waiting = peer.ask([*POST, ("expect", "100-continue")], ends=False)
        refused = peer.ask([*POST, ("expect", "100-continue"), ("x", "a" * 9000)], ends=False)
        told = [event.stream_id for event in peer.events if isinstance(event, InformationalResponseReceived)]
        assert told == [waiting]
        assert peer.answers[refused].status == 503
        assert peer.goaway is None


def test_what_is_shed_while_a_request_comes_may_end_the_connection_and_nothing_is_kept_or_said_behind() -> None:
    with in_memory(max_buffered=40_000) as peer:
        large = peer.ask(POST, bytes(16_000), ends=False)
        peer.client.send_data(large, bytes(16_000))
        peer.flush()
        for _ in range(STREAM_BURST):
            malformed(peer)
        assert peer.goaway is None
        peer.ask([*POST, ("expect", "100-continue"), ("x", "a" * 9000)], ends=False)
        assert_calm(peer)
        assert peer.engine_state.requests.held == 0


# -- reading


def test_nothing_is_read_while_frames_wait_for_their_turn() -> None:
    with in_memory() as peer:
        peer.wire.calls.clear()
        peer.connection.data_received(PING * (BURST - 1))
        assert peer.wire.calls == []
        peer.connection.data_received(PING * (2 * BURST + 1))
        assert peer.wire.calls == ["pause_reading"]
        peer.connection.data_received(PING)
        before = peer.wire.size
        peer.turn()
        assert peer.wire.size == before + BURST * len(PING)
        assert peer.wire.calls == ["pause_reading"]
        peer.turn()
        assert peer.wire.calls == ["pause_reading", "resume_reading"]


def test_the_first_bytes_may_be_more_than_one_turn_has() -> None:
    with in_memory(says=False) as peer:
        peer.connection.data_received(peer.client.data_to_send() + PING * BURST)
        assert peer.wire.calls == ["pause_reading"]
        peer.turn()
        assert peer.wire.calls == ["pause_reading", "resume_reading"]


def test_a_connection_that_failed_reads_a_bounded_rest(caplog: pytest.LogCaptureFixture) -> None:
    with in_memory() as peer, caplog.at_level(logging.INFO):
        peer.connection.data_received(PING * BURST + b"\xff\xff\xff" + bytes(6))
        peer.turn()
        assert peer.goaway is not None
        assert peer.goaway.additional_data == b"a frame is longer than 16384 bytes"
        assert peer.wire.calls == ["pause_reading", "resume_reading", "write_eof"]
        assert peer.connection._frames.pending == 0
        peer.connection.data_received(bytes(LINGER_BYTES))
        peer.at(100 + LINGER_TIME - 0.1)
        assert not peer.wire.closed
        peer.connection.data_received(b"x")
        assert peer.wire.closed
        assert peer.goaways == 1
    assert "ends: a frame is longer" in caplog.text


def test_a_connection_that_failed_lingers_for_a_while() -> None:
    with in_memory() as peer:
        peer.wire.half_closes = False
        peer.say(b"\xff\xff\xff" + bytes(6))
        assert peer.wire.calls == []
        peer.at(100 + LINGER_TIME - 0.1)
        assert not peer.wire.closed
        peer.at(100 + LINGER_TIME)
        assert peer.wire.closed
        assert peer.goaways == 1


def test_a_mistake_of_ours_ends_the_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with in_memory() as peer:
        with mock.patch.object(peer.connection._h2, "receive_data", side_effect=LookupError("no such thing")):
            peer.say(PING)
        assert peer.goaway is not None
        assert peer.goaway.error_code == ErrorCodes.INTERNAL_ERROR
        assert peer.goaway.additional_data == b"internal error"
    assert "failed on a frame of HTTP/2" in caplog.text


# -- the peer reads slowly


def test_requests_wait_while_the_peer_does_not_read() -> None:
    with in_memory() as peer:
        peer.connection.pause_writing()
        for path in ("/a", "/b", "/c"):
            peer.get(path)
        cancelled = peer.get("/cancelled")
        peer.client.reset_stream(cancelled)
        peer.flush()
        assert peer.requests == []

        def pause(stream: Stream) -> None:
            peer.connection.pause_writing()

        peer.handler = pause
        peer.connection.resume_writing()
        assert [request.path for request in peer.requests] == ["/a"]
        peer.handler = lambda stream: None
        peer.connection.resume_writing()
        assert [request.path for request in peer.requests] == ["/a", "/b", "/c"]


def test_an_answer_waits_while_the_peer_does_not_read() -> None:
    with in_memory() as peer:
        number = peer.get("/a")
        peer.connection.pause_writing()
        peer.owed[0].reply(200, b"", b"hello")
        peer.listen()
        assert peer.answers[number].body == b""
        peer.connection.resume_writing()
        peer.listen()
        assert peer.answers[number].body == b"hello"


# -- handlers


def test_a_handler_that_fails_in_the_middle_of_its_answer_cancels_it() -> None:
    def fail(stream: Stream) -> None:
        stream.begin(200, b"")
        raise LookupError("no such thing")

    with in_memory() as peer, mock.patch.object(connection_module.logger, "exception"):
        peer.handler = fail
        number = peer.get("/")
        assert peer.answers[number].reset == ErrorCodes.CANCEL


# -- the end


def test_a_connection_that_is_made_while_the_server_drains_ends_at_once() -> None:
    with in_memory(says=False, draining=True) as peer:
        assert peer.goaway is not None
        assert peer.goaway.error_code == ErrorCodes.NO_ERROR
        assert peer.wire.closed


def test_a_connection_that_drains_ends_when_its_last_stream_is_cancelled() -> None:
    with in_memory() as peer:
        number = peer.get("/wait")
        peer.connection.drain()
        assert not peer.wire.closed
        peer.client.reset_stream(number)
        peer.flush()
        assert peer.wire.closed
        assert peer.goaways == 1


def test_a_peer_that_leaves_without_a_stream_is_let_go() -> None:
    with in_memory() as peer:
        peer.say(GoAwayFrame(0))
        assert peer.wire.closed
        assert peer.goaways == 1


def test_what_comes_to_a_connection_that_is_closed_is_not_handled() -> None:
    with in_memory() as peer:
        peer.connection.drain()
        peer.listen()
        assert peer.wire.calls == ["close"]
        peer.connection.data_received(PING)
        peer.connection.drain()
        peer.at(1000)
        assert peer.wire.calls == ["close"]
        assert peer.wire.written == b""
        assert peer.connection.state == CLOSED


def test_nothing_is_said_on_a_connection_that_is_lost() -> None:
    with in_memory() as peer:
        peer.get("/wait")
        peer.connection.drain()
        said = peer.wire.size
        peer.connection.connection_lost(None)
        assert (peer.wire.size, peer.wire.calls) == (said, [])
        peer.turn()
        assert peer.lost == 1


def test_a_frame_on_an_old_stream_is_late_and_no_mistake() -> None:
    with in_memory() as peer:
        number = peer.get("/a")
        peer.owed[0].reply(200, b"")
        peer.get("/b")
        peer.say(RstStreamFrame(number), WindowUpdateFrame(number, window_increment=2**31 - 1))
        peer.say(PING)
        assert peer.goaway is None
        assert len(peer.connection._streams) == 1
