"""Bytes become frames, however they are cut, and none is held that is too long."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.http.engine.http2.frames import (
    DATA,
    HEADERS,
    LONGEST_FRAME,
    MOST_SETTINGS,
    PADDED,
    PING,
    PREFACE,
    SETTINGS,
    TABLE_SIZE,
    ConnectionFailed,
    Frame,
    FrameReader,
    usable_settings,
)


def data_frame(size: int, stream: int = 1, pad: int = 0) -> bytes:
    frame = DataFrame(stream, bytes(size), pad_length=pad)
    if pad:
        frame.flags.add("PADDED")
    return frame.serialize()


def read_all(reader: FrameReader) -> list[Frame]:
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
    return found


@given(st.lists(st.integers(1, 40), max_size=20))
def test_frames_are_found_however_the_bytes_are_cut(cuts: list[int]) -> None:
    said = PREFACE + HeadersFrame(1, b"abc").serialize() + data_frame(20) + PingFrame(0).serialize()
    reader = FrameReader()
    found: list[Frame] = []
    at = 0
    for size in [*cuts, len(said)]:
        reader.feed(said[at : at + size])
        at += size
        found += read_all(reader)
    assert [(frame.kind, frame.stream, frame.size) for frame in found] == [(HEADERS, 1, 3), (DATA, 1, 20), (PING, 0, 8)]
    assert b"".join(frame.raw for frame in found) == said[len(PREFACE) :]
    assert reader.pending == 0


def test_what_does_not_begin_with_the_preface_is_refused_at_its_first_wrong_byte() -> None:
    reader = FrameReader()
    reader.feed(PREFACE[:10])
    assert reader.next() is None
    reader.feed(b"x")
    with pytest.raises(ConnectionFailed) as caught:
        reader.next()
    assert caught.value.code == ErrorCodes.PROTOCOL_ERROR


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    reader = FrameReader()
    reader.feed(PREFACE + data_frame(LONGEST_FRAME))
    assert len(read_all(reader)) == 1
    reader.feed(data_frame(LONGEST_FRAME + 1)[:9])
    with pytest.raises(ConnectionFailed) as caught:
        reader.next()
    assert caught.value.code == ErrorCodes.FRAME_SIZE_ERROR


def test_padding_is_no_content() -> None:
    reader = FrameReader()
    reader.feed(PREFACE + data_frame(5, pad=200))
    frame = reader.next()
    assert frame is not None
    assert frame.size == 5
    assert len(frame.raw) == 9 + 1 + 5 + 200
    # More padding than there is in the frame is refused by h2; until then it carries nothing.
    assert Frame(DATA, PADDED, 1, bytes(9) + b"\xc8x").size == 0


def test_settings_nobody_knows_are_left_out() -> None:
    raw = SettingsFrame(0, settings={4: 1000, 8: 0, 9: 5, 0xFFFF: 7, 1: 100}).serialize()
    kept = usable_settings(Frame(SETTINGS, 0, 0, raw))
    assert kept.raw == SettingsFrame(0, settings={4: 1000, 8: 0, 1: 100}).serialize()
    acknowledged = Frame(SETTINGS, 1, 0, SettingsFrame(0, flags=("ACK",)).serialize())
    assert usable_settings(acknowledged) == acknowledged
    # One that is cut short is left for h2 to refuse.
    short = Frame(SETTINGS, 0, 0, raw[:-1])
    assert usable_settings(short).raw.endswith(raw[-6:-1])


def test_the_table_of_the_compressor_stays_small() -> None:
    for said, used in ((100, 100), (TABLE_SIZE, TABLE_SIZE), (TABLE_SIZE + 1, TABLE_SIZE), (2**32 - 1, TABLE_SIZE)):
        frame = Frame(SETTINGS, 0, 0, SettingsFrame(0, settings={1: said, 3: 5}).serialize())
        assert usable_settings(frame).raw == SettingsFrame(0, settings={1: used, 3: 5}).serialize()


def test_too_many_settings_are_refused() -> None:
    for count in (MOST_SETTINGS, MOST_SETTINGS + 1):
        frame = Frame(SETTINGS, 0, 0, bytes(9) + bytes(6 * count))
        if count == MOST_SETTINGS:
            assert usable_settings(frame).size == 6 * count
        else:
            with pytest.raises(ConnectionFailed):
                usable_settings(frame)


def test_the_stream_of_data_that_has_begun_to_come_is_known() -> None:
    reader = FrameReader()
    reader.feed(PREFACE + data_frame(100, stream=7)[:8])
    assert reader.next() is None
    assert reader.begun_data() == 0
    reader.feed(b"\x07")
    assert reader.begun_data() == 7
    reader.feed(bytes(100))
    assert reader.next() is not None
    assert reader.begun_data() == 0
    last = DataFrame(5, bytes(100), flags=("END_STREAM",))
    reader.feed(last.serialize()[:20])
    assert reader.begun_data() == 5
    reader.feed(last.serialize()[20:])
    assert reader.next() is not None
    reader.feed(HeadersFrame(5, bytes(100)).serialize()[:20])
    assert reader.next() is None
    assert reader.begun_data() == 0


def test_a_frame_may_have_no_payload() -> None:
    reader = FrameReader()
    reader.feed(PREFACE + SettingsFrame(0).serialize())
    assert [frame.kind for frame in read_all(reader)] == [SETTINGS]
