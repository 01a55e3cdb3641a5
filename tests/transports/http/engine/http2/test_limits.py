"""What costs us more than its sender is counted, and too much of it ends the connection."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    ExtensionFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hyperframe.frame import Frame as AnyFrame

from ferrule.transports.http.engine.http2.frames import ConnectionFailed, Frame
from ferrule.transports.http.engine.http2.limits import (
    FRAME_BURST,
    FRAME_RATE,
    MOST_PIECES,
    SMALLEST_DATA,
    STREAM_BURST,
    FloodLimits,
)


def as_read(frame: AnyFrame) -> Frame:
    raw = frame.serialize()
    return Frame(raw[3], raw[4], frame.stream_id, raw)


def ended(frame: AnyFrame) -> AnyFrame:
    frame.flags.add("END_STREAM")
    return frame


def how_many(frame: AnyFrame, *, known: bool = False, over: bool = False, most: int = 5000) -> int:
    """Return how many such frames pass at one moment, up to a number."""
    limits = FloodLimits(1000)
    read = as_read(frame)
    for passed in range(most):
        try:
            limits.judge(read, 0.0, known=known, over=over)
        except ConnectionFailed as error:
            return passed if error.code == ErrorCodes.ENHANCE_YOUR_CALM else -1
    return most


CARRYING_NOTHING = {
    "ping": PingFrame(0),
    "settings": SettingsFrame(0),
    "priority": PriorityFrame(3),
    "window update": WindowUpdateFrame(0, window_increment=1),
    "empty data": DataFrame(1),
    "tiny data": DataFrame(1, bytes(SMALLEST_DATA - 1)),
    "unknown": ExtensionFrame(type=0xEE, stream_id=0, body=b"x"),
}


@pytest.mark.parametrize("kind", CARRYING_NOTHING)
def test_frames_that_carry_nothing_are_limited(kind: str) -> None:
    assert how_many(CARRYING_NOTHING[kind], known=True) == FRAME_BURST


def test_they_may_come_at_a_steady_rate_for_ever() -> None:
    limits = FloodLimits(1000)
    ping = as_read(PingFrame(0))
    for moment in range(5 * FRAME_BURST):
        limits.judge(ping, moment / FRAME_RATE, known=False, over=False)
    assert how_many(PingFrame(0)) == FRAME_BURST


def test_streams_that_come_to_nothing_are_limited() -> None:
    assert how_many(RstStreamFrame(1), known=True) == STREAM_BURST
    headers = HeadersFrame(1, b"x")
    headers.flags.add("END_HEADERS")
    assert how_many(headers, over=True) == STREAM_BURST


def test_requests_and_their_bodies_are_not_limited() -> None:
    headers = HeadersFrame(1, b"x")
    headers.flags.add("END_HEADERS")
    assert how_many(headers) == 5000
    assert how_many(DataFrame(1, bytes(SMALLEST_DATA)), known=True) == 5000
    assert how_many(ended(DataFrame(1)), known=True) == 5000


def test_frames_on_streams_that_are_over_are_limited() -> None:
    assert how_many(DataFrame(1, bytes(1000)), over=True) == FRAME_BURST
    assert how_many(RstStreamFrame(1), over=True) == FRAME_BURST


def test_a_peer_may_acknowledge_what_it_was_sent() -> None:
    limits = FloodLimits(1000)
    update = as_read(WindowUpdateFrame(1, window_increment=100))
    for _ in range(5000):
        limits.data_sent()
        for _ in range(2):
            limits.judge(update, 0.0, known=True, over=False)
    for _ in range(5000):
        limits.data_sent()
    for _ in range(1000 + FRAME_BURST):
        limits.judge(update, 0.0, known=True, over=False)
    with pytest.raises(ConnectionFailed):
        limits.judge(update, 0.0, known=True, over=False)


def test_a_header_block_has_few_pieces() -> None:
    limits = FloodLimits(1000)
    limits.judge(as_read(HeadersFrame(1, b"x")), 0.0, known=False, over=False)
    assert limits.in_block
    piece = as_read(ContinuationFrame(1, b"x"))
    for _ in range(MOST_PIECES - 1):
        limits.judge(piece, 0.0, known=False, over=False)
    with pytest.raises(ConnectionFailed):
        limits.judge(piece, 0.0, known=False, over=False)


def test_a_header_block_has_few_bytes() -> None:
    limits = FloodLimits(1000)
    limits.judge(as_read(HeadersFrame(1, bytes(600))), 0.0, known=False, over=False)
    last = ContinuationFrame(1, bytes(400))
    last.flags.add("END_HEADERS")
    limits.judge(as_read(last), 0.0, known=False, over=False)
    assert not limits.in_block
    next_one = HeadersFrame(3, bytes(1000), flags=("END_HEADERS",))
    limits.judge(as_read(next_one), 0.0, known=False, over=False)
    with pytest.raises(ConnectionFailed):
        limits.judge(as_read(HeadersFrame(3, bytes(1001))), 0.0, known=False, over=False)
