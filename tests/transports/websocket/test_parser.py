"""What a reader makes of bytes: our table of vectors, section by section as the Autobahn suite has them."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_websocket import MASK, close_frame, frame, text

from ferrule.budgets.bounds import FRAMES_A_TURN
from ferrule.transports.websocket.deflate import Deflate
from ferrule.transports.websocket.frames import (
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUATION,
    FIN,
    MASKED,
    PING,
    PONG,
    TEXT,
    Closing,
    frame_head,
)
from ferrule.transports.websocket.parser import (
    MAX_FRAGMENTS,
    MOST_IN_A_TEXT,
    Binary,
    Control,
    Event,
    FrameReader,
    ReadingRules,
    RuleBreach,
    split_messages,
)

EURO = "€".encode()
GREEK = "κόσμε".encode()
LIMIT = 1000


def read(*data: bytes, masked: bool = True, deflate: bool = False, **rules: object) -> list[Event]:
    reader = FrameReader(ReadingRules(masked=masked, **rules), Deflate() if deflate else None)  # type: ignore[arg-type]
    return list(itertools.chain.from_iterable(feed_all(reader, part) for part in data))


def feed_all(reader: FrameReader, data: bytes) -> list[Event]:
    """Feed data, and ask for more until all of it was taken apart."""
    events = reader.feed(data)
    while reader.more:
        events += reader.feed(b"")
    return events


def outcome(*data: bytes, **rules: object) -> list[object]:
    """The events, with a violation by its code alone."""
    return [event.code if isinstance(event, RuleBreach) else event for event in read(*data, **rules)]  # type: ignore[arg-type]


VECTORS: dict[str, tuple[bytes, list[object]]] = {
    # 1: framing
    "1.1.1 empty text": (text(b""), [b""]),
    "1.1.2 125 bytes": (text(b"*" * 125), [b"*" * 125]),
    "1.1.3 126 bytes": (text(b"*" * 126), [b"*" * 126]),
    "1.1.4 127 bytes": (text(b"*" * 127), [b"*" * 127]),
    "1.1.5 128 bytes": (text(b"*" * 128), [b"*" * 128]),
    "1.1.6 65535 bytes": (text(b"*" * 65535), [b"*" * 65535]),
    "1.1.7 65536 bytes": (text(b"*" * 65536), [b"*" * 65536]),
    "1.2 binary": (frame(FIN | BINARY, b"\x00"), [1003]),
    "1.3 a length not in its shortest form": (b"\x81\xfe\x00\x7d" + MASK + b"*" * 125, [1002]),
    "1.3 a long length not in its shortest form": (b"\x81\xff" + (65535).to_bytes(8) + MASK, [1002]),
    # 2: pings and pongs
    "2.1 ping without payload": (frame(FIN | PING), [Control(PING, b"")]),
    "2.2 ping with payload": (frame(FIN | PING, b"hi"), [Control(PING, b"hi")]),
    "2.3 ping with binary payload": (frame(FIN | PING, b"\x00\xff\xfe"), [Control(PING, b"\x00\xff\xfe")]),
    "2.4 ping of 125 bytes": (frame(FIN | PING, b"\xfe" * 125), [Control(PING, b"\xfe" * 125)]),
    "2.5 ping of 126 bytes": (frame(FIN | PING, b"\xfe" * 126), [1002]),
    "2.7 pong nobody asked for": (frame(FIN | PONG) + text(b"x"), [Control(PONG, b""), b"x"]),
    "2.10 ten pings": (
        b"".join(frame(FIN | PING, b"%d" % number) for number in range(10)),
        [Control(PING, b"%d" % number) for number in range(10)],
    ),
    # 3: reserved bits
    "3.1 reserved bit 3": (frame(FIN | 0x10 | TEXT, b"x"), [1002]),
    "3.2 reserved bit 2, after a text": (text(b"x") + frame(FIN | 0x20 | TEXT, b"y") + text(b"z"), [b"x", 1002]),
    "3.4 reserved bit 1 without compression": (frame(FIN | COMPRESSED | TEXT, b"x"), [1002]),
    "3.5 reserved bits of a ping": (frame(FIN | 0x50 | PING, b"x"), [1002]),
    "3.7 reserved bits of a close": (frame(FIN | 0x70 | CLOSE), [1002]),
    # 4: opcodes
    **{f"4.1 reserved opcode {opcode}": (frame(FIN | opcode, b"x"), [1002]) for opcode in range(3, 8)},
    **{f"4.2 reserved control opcode {opcode}": (frame(FIN | opcode), [1002]) for opcode in range(11, 16)},
    # 5: fragments
    "5.1 a ping in two parts": (frame(PING, b"a") + frame(FIN | CONTINUATION, b"b"), [1002]),
    "5.2 a pong in two parts": (frame(PONG, b"a") + frame(FIN | CONTINUATION, b"b"), [1002]),
    "5.3 a text in two parts": (frame(TEXT, b"a") + frame(FIN | CONTINUATION, b"b"), [b"ab"]),
    "5.6 a ping between the parts": (
        frame(TEXT, b"a") + frame(FIN | PING, b"p") + frame(FIN | CONTINUATION, b"b"),
        [Control(PING, b"p"), b"ab"],
    ),
    "5.9 a continuation of nothing": (frame(FIN | CONTINUATION, b"x") + text(b"y"), [1002]),
    "5.10 an unfinished continuation of nothing": (frame(CONTINUATION, b"x") + text(b"y"), [1002]),
    "5.15 a continuation after the end": (
        frame(TEXT, b"a") + frame(FIN | CONTINUATION, b"b") + frame(CONTINUATION, b"c"),
        [b"ab", 1002],
    ),
    "5.18 a text inside a text": (frame(TEXT, b"a") + text(b"b"), [1002]),
    "5.19 two unfinished texts with pings": (
        frame(TEXT, b"a") + frame(CONTINUATION, b"b") + frame(FIN | PING, b"p") + frame(FIN | CONTINUATION, b"c"),
        [Control(PING, b"p"), b"abc"],
    ),
    "5.20 empty parts": (frame(TEXT) + frame(CONTINUATION) + frame(FIN | CONTINUATION), [b""]),
    # 6: UTF-8
    "6.2 a character cut by the frames": (
        frame(TEXT, EURO[:1]) + frame(CONTINUATION, EURO[1:2]) + frame(FIN | CONTINUATION, EURO[2:]),
        [EURO],
    ),
    "6.3 a surrogate": (text(GREEK + b"\xed\xa0\x80edited"), [1007]),
    "6.4 wrong in the second part, before the last": (
        frame(TEXT, GREEK) + frame(CONTINUATION, b"\xf4\x90\x80\x80") + frame(FIN | CONTINUATION, b"x"),
        [1007],
    ),
    "6.5 valid Greek": (text(GREEK), [GREEK]),
    "6.6 cut before its end": (text(GREEK[:-1]), [1007]),
    "6.6 cut before its end, in parts": (frame(TEXT, GREEK[:-1]) + frame(FIN | CONTINUATION), [1007]),
    "6.7 one NUL": (text(b"\x00"), [b"\x00"]),
    "6.9 the last code point": (text(b"\xf4\x8f\xbf\xbf"), [b"\xf4\x8f\xbf\xbf"]),
    "6.10 beyond the last code point": (text(b"\xf4\x90\x80\x80"), [1007]),
    "6.11 five bytes": (text(b"\xf8\x88\x80\x80\x80"), [1007]),
    "6.13 a lonely continuation": (text(b"\x80"), [1007]),
    "6.15 an overlong slash": (text(b"\xc0\xaf"), [1007]),
    "6.22 a non-character": (text(b"\xef\xbf\xbe"), [b"\xef\xbf\xbe"]),
    "6.23 the replacement character": (text(b"\xef\xbf\xbd"), [b"\xef\xbf\xbd"]),
    # 7: close
    "7.1.3 a ping after the close": (close_frame(1000) + frame(FIN | PING), [Closing(1000)]),
    "7.1.5 a close inside a message": (frame(TEXT, b"a") + close_frame(1000), [Closing(1000)]),
    "7.3.1 an empty close": (frame(FIN | CLOSE), [Closing(1005)]),
    "7.3.2 a close of one byte": (frame(FIN | CLOSE, b"\x03"), [1002]),
    "7.3.4 a close with words": (close_frame(1000, b"bye"), [Closing(1000, "bye")]),
    "7.3.5 the longest words": (close_frame(1000, b"*" * 123), [Closing(1000, "*" * 123)]),
    "7.3.6 too many words": (close_frame(1000, b"*" * 124), [1002]),
    "7.5.1 words that are not UTF-8": (close_frame(1000, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xed\xa0\x80"), [1007]),
    **{
        f"7.7 close {code}": (close_frame(code), [Closing(code)])
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    },
    **{
        f"7.9 close {code}": (close_frame(code), [1002])
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)
    },
    # masks
    "unmasked": (frame(FIN | TEXT, b"x", mask=None), [1002]),
    # 9: limits
    "9 a message of just the limit": (text(b"*" * LIMIT), [b"*" * LIMIT]),
    "9 one byte over the limit, on offer": (frame_head(FIN | TEXT, LIMIT + 1, MASKED), [1009]),
    "9 2^62 bytes on offer": (frame_head(FIN | TEXT, 1 << 62, MASKED), [1009]),
    "9 2^63 bytes on offer": (frame_head(FIN | TEXT, 1 << 63, MASKED), [1009]),
    "9 parts over the limit together": (
        frame(TEXT, b"*" * LIMIT) + frame_head(FIN | CONTINUATION, 1, MASKED),
        [1009],
    ),
}
LIMITED = {name for name in VECTORS if name.startswith("9")}


def rules_for(name: str) -> dict[str, object]:
    return {"max_size": LIMIT} if name in LIMITED else {}


@pytest.mark.parametrize("name", VECTORS)
def test_wsk_01_a_vector_is_read_as_the_standard_says(name: str) -> None:
    """WEBS-04, WEBS-09, WEBS-12, WEBS-13: the sections of the Autobahn suite, on the reader itself."""
    data, expected = VECTORS[name]
    assert outcome(data, **rules_for(name)) == expected


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_cut_into_single_bytes_is_read_the_same(name: str) -> None:
    data, expected = VECTORS[name]
    data = data[:600] if len(data) > 60_000 else data
    expected = [] if len(data) == 600 else expected
    parts = [data[at : at + 1] for at in range(len(data))]
    assert outcome(*parts, **rules_for(name)) == expected


@pytest.mark.parametrize("name", [name for name in VECTORS if name != "unmasked"])
def test_wsk_01_a_client_reads_the_same_from_a_server(name: str) -> None:
    """A server's frames are the same without masks."""
    data, expected = VECTORS[name]
    assert outcome(unmasked(data), masked=False, **rules_for(name)) == expected


def unmasked(data: bytes) -> bytes:
    """The same frames, as a server sends them."""
    written = b""
    while data:
        size, start = data[1] & 127, 2
        if size >= 126:
            start += 2 if size == 126 else 8
            size = int.from_bytes(data[2:start])
        payload = data[start + 4 : start + 4 + size]
        plain = bytes(byte ^ data[start + at % 4] for at, byte in enumerate(payload))
        written += bytes((data[0], data[1] & 127)) + data[2:start] + plain
        data = data[start + 4 + size :]
    return written


def test_a_masked_frame_of_a_server_is_refused() -> None:
    assert outcome(text(b"x"), masked=False) == [1002]


parts_of_messages = st.lists(
    st.one_of(
        st.text(max_size=200).map(text),
        st.lists(st.binary(max_size=40), min_size=1, max_size=4).map(
            lambda parts: b"".join(
                frame((TEXT if not at else CONTINUATION) | (FIN if at == len(parts) - 1 else 0), part)
                for at, part in enumerate(parts)
            )
        ),
        st.binary(max_size=125).map(lambda payload: frame(FIN | PING, payload)),
        st.integers(0, 5100).map(close_frame),
        st.binary(max_size=12),
        st.just(text(b"x" * 300)),
    ),
    max_size=8,
).map(b"".join)


@given(parts_of_messages, st.lists(st.integers(0, 2000), max_size=12), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_events(data: bytes, cuts: list[int], deflate: bool) -> None:
    """Whole and broken conversations alike, wherever they are cut."""
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    parts = [data[start:stop] for start, stop in itertools.pairwise(edges)]
    assert read(*parts, deflate=deflate, max_size=250) == read(data, deflate=deflate, max_size=250)


@given(st.binary(max_size=400))
def test_garbage_never_raises_and_never_holds_more_than_it_was_given(data: bytes) -> None:
    reader = FrameReader(ReadingRules(masked=True))
    reader.feed(data)
    assert reader.pending <= len(data)


def test_after_a_violation_nothing_is_read_and_nothing_is_held() -> None:
    reader = FrameReader(ReadingRules(masked=True))
    assert len(reader.feed(frame(TEXT, b"a" * 500) + frame(FIN | TEXT, b"x") + text(b"y"))) == 1
    assert reader.feed(text(b"z")) == []
    assert reader.pending == 0


def test_a_length_is_refused_before_anything_of_it_is_held() -> None:
    """SIZE-08."""
    reader = FrameReader(ReadingRules(masked=True, max_size=LIMIT))
    assert isinstance(reader.feed(frame_head(FIN | TEXT, LIMIT + 1, MASKED) + b"x" * 500)[0], RuleBreach)
    assert reader.pending == 0


def test_endless_tiny_fragments_are_too_big() -> None:
    reader = FrameReader(ReadingRules(masked=True))
    assert feed_all(reader, frame(TEXT) + frame(CONTINUATION) * (MAX_FRAGMENTS - 1)) == []
    assert [event.code for event in reader.feed(frame(CONTINUATION)) if isinstance(event, RuleBreach)] == [1009]


def test_no_more_frames_are_taken_apart_at_once_than_a_turns_share() -> None:
    """Fragments and pings count too, though the former bring nothing."""
    for part in (text(b"1"), frame(FIN | PING)):
        reader = FrameReader(ReadingRules(masked=True))
        assert len(reader.feed(part * (FRAMES_A_TURN + 5))) == FRAMES_A_TURN
        assert (reader.more, reader.pending) == (True, 5 * len(part))
        assert len(reader.feed(b"")) == 5
        assert (reader.more, reader.pending) == (False, 0)
    reader = FrameReader(ReadingRules(masked=True))
    assert reader.feed(frame(TEXT, b"x") + frame(CONTINUATION) * 1000) == []
    assert reader.pending == 1 + (1001 - FRAMES_A_TURN) * len(frame(CONTINUATION))


def test_one_packed_message_that_unfolds_to_much_has_a_turn_of_its_own() -> None:
    deflate = Deflate()
    packed = frame(FIN | COMPRESSED | TEXT, deflate.deflate(b" " * 1_000_000))
    reader = FrameReader(ReadingRules(masked=True), deflate)
    assert [len(event) for event in reader.feed(packed * 3) if isinstance(event, bytes)] == [1_000_000]
    assert reader.more
    assert len(reader.feed(b"")) == 1
    assert len(reader.feed(b"")) == 1
    assert not reader.more


def test_what_comes_too_early_is_kept_in_order() -> None:
    reader = FrameReader(ReadingRules(masked=True))
    whole = text(b"x" * 300)
    assert reader.feed(text(b"1") + whole[:100]) == [b"1"]
    reader.keep(whole[100:])
    reader.keep(text(b"2"))
    assert reader.more
    assert reader.feed(text(b"3")) == [b"x" * 300, b"2", b"3"]
    assert not reader.more


def test_a_text_of_very_many_lines_is_not_cut() -> None:
    """Cutting it to count its lines would take 17 times its size."""
    lines = b"1\n" * 100_000
    assert split_messages(lines) == [lines]
    assert len(split_messages(b"1\r\n\r\n" * MOST_IN_A_TEXT)) == MOST_IN_A_TEXT


def test_binary_is_read_where_it_is_accepted() -> None:
    """WEBS-06."""
    events = read(frame(FIN | BINARY, b"\xff"), accept_binary=True)
    assert events == [b"\xff"]
    assert type(events[0]) is Binary


def test_text_is_not_looked_at_where_nobody_wants_that() -> None:
    """WEBS-09."""
    assert read(text(b"\xff"), validate_utf8=False) == [b"\xff"]


def test_a_message_under_way_is_seen_from_outside() -> None:
    """WEBS-12."""
    reader = FrameReader(ReadingRules(masked=True))
    reader.feed(frame(TEXT, b"a"))
    first = reader.unfinished
    assert first < 0
    reader.feed(frame(FIN | CONTINUATION, b"b"))
    assert reader.unfinished >= 0
    reader.feed(frame(TEXT, b"a"))
    assert reader.unfinished < 0
    assert reader.unfinished != first
    reader.feed(text(b"abc")[:-1])
    assert not reader.inside_frame, "a text inside a text is no frame"


def test_a_frame_under_way_is_seen_from_outside() -> None:
    reader = FrameReader(ReadingRules(masked=True))
    assert reader.feed(text(b"abc")[:-1]) == []
    assert reader.inside_frame
    assert reader.feed(text(b"abc")[-1:]) == [b"abc"]
    assert not reader.inside_frame


# -- compression


def packed(payload: bytes) -> bytes:
    return Deflate().deflate(payload)


COMPRESSED_VECTORS: dict[str, tuple[bytes, list[object]]] = {
    "12 one frame": (frame(FIN | COMPRESSED | TEXT, packed(b"hello" * 50)), [b"hello" * 50]),
    "12 in parts": (
        frame(COMPRESSED | TEXT, packed(b"hello" * 50)[:3]) + frame(FIN | CONTINUATION, packed(b"hello" * 50)[3:]),
        [b"hello" * 50],
    ),
    "12 not compressed among compressed": (
        text(b"a") + frame(FIN | COMPRESSED | TEXT, packed(b"b")) + text(b"c"),
        [b"a", b"b", b"c"],
    ),
    "12 the bit on a continuation": (
        frame(COMPRESSED | TEXT, b"a") + frame(FIN | COMPRESSED | CONTINUATION, b"b"),
        [1002],
    ),
    "12 the bit on a ping": (frame(FIN | COMPRESSED | PING), [1002]),
    "12 damaged": (frame(FIN | COMPRESSED | TEXT, b"\xff\xff\xff"), [1007]),
    "12 not UTF-8": (frame(FIN | COMPRESSED | TEXT, packed(b"\xff")), [1007]),
    "12 a character cut by the frames": (
        frame(COMPRESSED | TEXT, packed(EURO)[:1]) + frame(FIN | CONTINUATION, packed(EURO)[1:]),
        [EURO],
    ),
    "12 a bomb": (frame(FIN | COMPRESSED | TEXT, packed(b"0" * (LIMIT + 1))), [1009]),
    "12 just the limit": (frame(FIN | COMPRESSED | TEXT, packed(b"0" * LIMIT)), [b"0" * LIMIT]),
}


@pytest.mark.parametrize("name", COMPRESSED_VECTORS)
def test_wsk_01_a_compressed_vector_is_read_as_the_standard_says(name: str) -> None:
    """WEBS-16."""
    data, expected = COMPRESSED_VECTORS[name]
    assert outcome(data, deflate=True, max_size=LIMIT) == expected
    assert outcome(unmasked(data), deflate=True, max_size=LIMIT, masked=False) == expected


# -- several messages in one text


@pytest.mark.parametrize(
    ("payload", "messages"),
    [
        (b'{"a":1}', [b'{"a":1}']),
        (b'{"a":1}\n', [b'{"a":1}']),
        (b'{"a":1}\n{"b":2}\n{"c":3}\n', [b'{"a":1}', b'{"b":2}', b'{"c":3}']),
        (b'{"a":1}\r\n\r\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b"", [b""]),
        (b"\n", [b""]),
        (b"\n\n\n", [b"\n\n\n"]),
        (b"garbage\n{}", [b"garbage", b"{}"]),
    ],
)
def test_a_text_holds_one_or_more_messages(payload: bytes, messages: list[bytes]) -> None:
    """WEBS-05."""
    assert split_messages(payload) == messages


def test_one_message_spread_over_lines_stays_one() -> None:
    """WEBS-05: a peer may print its JSON prettily."""
    pretty = json.dumps({"a": {"b": [1, 2]}}, indent=2).encode()
    assert split_messages(pretty) == [pretty]


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers()), min_size=1, max_size=6))
def test_messages_joined_by_line_feeds_are_told_apart(messages: list[dict[str, int]]) -> None:
    lines = [json.dumps(message).encode() for message in messages]
    assert split_messages(b"\n".join(lines)) == lines
    assert split_messages(b"\n".join([*lines, b""])) == lines


def test_a_text_of_a_million_lines_is_one_message_that_cannot_be_read() -> None:
    """Answered line by line, it would keep everyone else waiting."""
    assert len(split_messages(b"x\n" * MOST_IN_A_TEXT)) == MOST_IN_A_TEXT
    assert len(split_messages(b"x\n" * 1_000_000)) == 1
