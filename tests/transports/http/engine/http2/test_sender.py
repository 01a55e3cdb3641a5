"""Answers go out as fast as the peer's windows and its socket let them, and no slower peer is waited for too long."""

from __future__ import annotations

from h2.errors import ErrorCodes
from hyperframe.frame import SettingsFrame, WindowUpdateFrame

from ferrule.budgets import process
from ferrule.transports.backpressure import backlog as unread
from ferrule.transports.http.engine.http2.connection import LINGER, OPEN
from ferrule.transports.http.engine.http2.limits import FRAME_BURST
from ferrule.transports.http.engine.http2.stream import Stream
from http2_memory import MemoryPeer, in_memory

SHUT = {"INITIAL_WINDOW_SIZE": 0}
WIDE = {"INITIAL_WINDOW_SIZE": 1_000_000}
WINDOW = 65_535
"""Of a connection, as it begins."""


def begun(peer: MemoryPeer, data: bytes = b"") -> Stream:
    """Ask for something, and begin to answer."""
    peer.get("/")
    stream = peer.owed[-1]
    stream.begin(200, b"")
    stream.write(data)
    peer.listen()
    return stream


def widen(peer: MemoryPeer, size: int, stream: Stream | None = None) -> None:
    """Open a window of the client, of a stream or of the connection."""
    peer.client.increment_flow_control_window(size, stream.number if stream is not None else None)
    peer.flush()


def reset(peer: MemoryPeer, stream: Stream) -> int | None:
    return peer.answers[stream.number].reset


# -- windows


def test_a_window_of_one_byte_lets_one_byte_go() -> None:
    with in_memory(client=SHUT) as peer:
        peer.acknowledge = False
        stream = begun(peer, b"hello")
        for count in range(1, 4):
            widen(peer, 1, stream)
            assert peer.answers[stream.number].body == b"hello"[:count]
            assert stream.backlog == process.answers.held == 5 - count


def test_settings_that_open_all_windows_let_everything_go() -> None:
    with in_memory(client=SHUT) as peer:
        streams = [begun(peer, b"hello"), begun(peer, b"hello")]
        peer.client.update_settings({4: 100})
        peer.flush()
        assert [peer.answers[stream.number].body for stream in streams] == [b"hello", b"hello"]
        assert process.answers.held == 0


def test_what_was_sent_for_the_window_of_the_connection_is_held_no_more() -> None:
    with in_memory(client=WIDE) as peer:
        peer.acknowledge = False
        stream = begun(peer, bytes(WINDOW + 1000))
        assert process.answers.held == stream.backlog == 1000
        widen(peer, 400)
        assert process.answers.held == stream.backlog == 600
        stream.finish()
        widen(peer, 600)
        assert peer.answers[stream.number].whole
        assert process.answers.held == 0


def test_the_updates_that_answer_whole_frames_are_free() -> None:
    with in_memory(client=WIDE) as peer:
        stream = begun(peer)
        updates = WindowUpdateFrame(0, window_increment=100).serialize()
        updates += WindowUpdateFrame(stream.number, window_increment=100).serialize()
        for _ in range(FRAME_BURST):
            stream.write(b"x" * 100)
            peer.connection.data_received(updates)
        assert peer.connection.state == OPEN


def test_the_updates_of_a_window_that_cuts_frames_short_are_not() -> None:
    with in_memory(client=SHUT) as peer:
        stream = begun(peer, b"x" * 2 * FRAME_BURST)
        update = WindowUpdateFrame(stream.number, window_increment=1).serialize()
        for _ in range(FRAME_BURST):
            peer.connection.data_received(update)
        assert peer.connection.state == LINGER


def test_who_writes_is_woken_when_the_window_of_the_connection_lets_all_of_it_go() -> None:
    with in_memory(client=WIDE) as peer:
        peer.acknowledge = False
        stream = begun(peer, bytes(WINDOW + 100_000))
        waiting = peer.loop.create_task(stream.wait_writable())
        peer.turn()
        assert not waiting.done()
        widen(peer, 200_000)
        peer.turn()
        assert waiting.done()
        assert process.answers.held == 0


# -- time


def test_a_stream_whose_window_stays_shut_is_cut_in_time() -> None:
    with in_memory(client=SHUT) as peer:
        stream = begun(peer, b"hello")
        peer.at(109.9)
        assert reset(peer, stream) is None
        peer.at(110)
        assert reset(peer, stream) == ErrorCodes.ENHANCE_YOUR_CALM
        peer.turn()
        assert peer.lost == 1
        assert peer.goaway is None


def test_whenever_something_goes_the_time_begins_anew() -> None:
    with in_memory(client=SHUT) as peer:
        peer.acknowledge = False
        stream = begun(peer, b"hello")
        peer.at(105)
        widen(peer, 2, stream)
        peer.at(114.9)
        assert reset(peer, stream) is None
        widen(peer, 3, stream)
        peer.at(1000)
        assert reset(peer, stream) is None
        stream.write(b"again")
        peer.at(1009.9)
        assert reset(peer, stream) is None
        peer.at(1010)
        assert reset(peer, stream) == ErrorCodes.ENHANCE_YOUR_CALM


def test_a_stream_with_a_shut_window_is_cut_though_others_move() -> None:
    with in_memory(client=SHUT) as peer:
        peer.acknowledge = False
        shut = begun(peer, b"hello")
        moving = begun(peer, b"hello")
        peer.at(109)
        widen(peer, 1, moving)
        peer.at(110)
        assert reset(peer, shut) == ErrorCodes.ENHANCE_YOUR_CALM
        assert reset(peer, moving) is None


def test_who_waits_for_the_window_of_the_connection_has_time_while_that_moves() -> None:
    with in_memory(client={"INITIAL_WINDOW_SIZE": 101}) as peer:
        peer.acknowledge = False
        waiting = begun(peer, bytes(100))
        large = begun(peer)
        widen(peer, 100_000, large)
        large.write(bytes(100_000))
        # One byte of its own window is left, and none of the connection's.
        waiting.write(b"hello")
        peer.at(105)
        widen(peer, 10)
        assert waiting.backlog == 5
        peer.at(110)
        peer.at(114.9)
        assert reset(peer, waiting) is reset(peer, large) is None
        peer.at(115)
        assert reset(peer, waiting) == reset(peer, large) == ErrorCodes.ENHANCE_YOUR_CALM


def test_no_stream_is_cut_for_a_socket_that_is_full() -> None:
    with in_memory() as peer:
        stream = begun(peer)
        peer.connection.pause_writing()
        stream.write(b"hello")
        peer.at(1000)
        assert reset(peer, stream) is None
        assert peer.wire.calls == []


# -- the socket


def test_a_peer_that_takes_nothing_is_cut_though_more_is_written() -> None:
    with in_memory() as peer:
        peer.wire.held = peer.wire.size
        peer.at(100)
        assert process.answers.held == peer.connection.out.backlog == peer.wire.size
        peer.connection.out.go_away(0, 0, "more")
        peer.wire.held = peer.wire.size
        peer.at(109.9)
        assert peer.wire.calls == []
        peer.at(110)
        assert peer.wire.calls == ["abort"]


def test_a_peer_that_takes_something_has_its_time_anew() -> None:
    with in_memory() as peer:
        peer.wire.held = 20
        peer.at(100)
        peer.wire.held = 19
        peer.at(109)
        peer.at(118.9)
        assert peer.wire.calls == []
        peer.wire.held = 0
        peer.at(119)
        assert peer.wire.calls == []
        assert len(unread) == 0
        peer.wire.held = 10
        peer.at(150)
        peer.at(160)
        assert peer.wire.calls == ["abort"]


def test_what_a_socket_holds_is_counted_until_it_has_caught_up() -> None:
    with in_memory() as peer:
        peer.wire.held = 20
        peer.at(100)
        assert process.answers.held == 20
        peer.connection.resume_writing()
        assert process.answers.held == 0
        peer.at(101)
        assert process.answers.held == 20


def test_a_connection_is_cut_where_all_together_hold_too_much() -> None:
    with in_memory() as peer:
        peer.connection.out.abort()
        assert peer.wire.calls == ["abort"]


# -- the end


def test_the_reason_of_goaway_is_cut_short() -> None:
    with in_memory() as peer:
        peer.connection.out.go_away(7, ErrorCodes.PROTOCOL_ERROR, "x" * 300)
        peer.listen()
        assert peer.goaway is not None
        assert (peer.goaway.last_stream_id, peer.goaway.additional_data) == (7, b"x" * 200)
        assert peer.goaway.stream_id == 0


def test_nothing_is_written_once_it_is_stopped() -> None:
    with in_memory() as peer:
        size = peer.wire.size
        peer.connection.out.stop()
        peer.say(SettingsFrame(0))
        peer.connection.out.go_away(0, 0, "")
        assert peer.wire.size == size
