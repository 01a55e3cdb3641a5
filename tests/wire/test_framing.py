"""The framers give the same frames however the bytes arrive, and hold no more than their limit."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest
from byte_streams import HEADER_STREAMS, LINE_STREAMS, PLACES, block, cut, one_by_one, read
from hypothesis import given
from hypothesis import strategies as st

from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.framing import Framer, FramingLost, LineFramer, Oversize
from ferrule.wire.header_block import MAX_HEADER_SIZE, AutoFramer, HeaderFramer
from ferrule.wire.messages import HEAD_SIZE

MIB = 1024 * 1024


class TestLines:
    def test_two_lines_are_two_frames(self) -> None:
        """FRAM-01: one message per line."""
        assert LineFramer().feed(b'{"a":1}\n{"b":2}\n') == [b'{"a":1}', b'{"b":2}']

    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
    def test_lf_crlf_and_cr_end_a_line(self, end: bytes) -> None:
        """FRAM-03: each of the three line ends is understood."""
        assert LineFramer().feed(b"{}" + end + b"[]" + end) == [b"{}", b"[]"]

    def test_a_crlf_cut_between_two_reads_gives_no_empty_frame(self) -> None:
        """FRAM-03: the CR ends the line, the LF that follows ends nothing."""
        framer = LineFramer()
        assert framer.feed(b"{}\r") == [b"{}"]
        assert framer.feed(b"\n[]\r\n") == [b"[]"]

    def test_the_rest_of_a_read_waits_for_the_next(self) -> None:
        """FRAM-03: what is not ended is kept."""
        framer = LineFramer()
        assert framer.feed(b'{}\n{"a"') == [b"{}"]
        assert framer.pending == 4
        assert framer.feed(b":1}\n") == [b'{"a":1}']
        assert framer.pending == 0

    @pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r", b" \t \n", b"\n \n"])
    def test_blank_lines_give_nothing(self, blank: bytes) -> None:
        """FRAM-04: blank lines produce no message and line ends are trimmed."""
        assert LineFramer().feed(blank + b"{}\r\n" + blank) == [b"{}"]
        assert LineFramer(max_size=2).feed(b"\n{}\n\n") == [b"{}"]

    def test_a_blank_rest_at_the_end_gives_nothing(self) -> None:
        framer = LineFramer()
        assert framer.feed(b"{}\n  ") == [b"{}"]
        assert framer.eof() == []

    def test_unicode_line_breaks_end_no_line(self) -> None:
        line = '"\u2028\u2029\u0085\v\f"'.encode()
        assert LineFramer().feed(line + b"\n") == [line]

    def test_a_last_line_without_line_end_is_a_frame(self) -> None:
        framer = LineFramer()
        assert framer.feed(b"{}\n[]") == [b"{}"]
        assert framer.eof() == [b"[]"]
        assert framer.pending == 0
        assert framer.eof() == []

    def test_frames_are_bytes_even_when_put_together_from_parts(self) -> None:
        framer = LineFramer()
        frames = [*framer.feed(b"ab"), *framer.feed(b"cd\nef\n"), *framer.feed(b"gh"), *framer.eof()]
        assert [type(frame) for frame in frames] == [bytes, bytes, bytes]
        assert frames == [b"abcd", b"ef", b"gh"]

    @given(LINE_STREAMS)
    def test_the_frames_are_the_lines_that_are_not_blank(self, stream: bytes) -> None:
        """FRAM-04: the reference is a plain split of the whole stream."""
        lines = stream.replace(b"\r", b"\n").split(b"\n")
        assert read(LineFramer(), [stream]) == [line for line in lines if line.strip()]


class TestEverySplit:
    @given(LINE_STREAMS, PLACES, st.integers(1, 12))
    def test_every_split_of_lines_gives_the_same_frames(self, stream: bytes, places: list[int], limit: int) -> None:
        """JRPC-19: leftovers are kept, several frames come from one read; with and without oversized lines."""
        for size in (limit, MAX_MESSAGE_SIZE):
            whole = read(LineFramer(size), [stream])
            assert read(LineFramer(size), cut(stream, places)) == whole
            assert read(LineFramer(size), one_by_one(stream)) == whole

    @given(HEADER_STREAMS, PLACES, st.integers(1, 12))
    def test_every_split_of_header_blocks_gives_the_same_frames(
        self, stream: bytes, places: list[int], limit: int
    ) -> None:
        """FRAM-07: header or body split across reads, several messages in one read, good frames before a bad one."""
        for size in (limit, MAX_MESSAGE_SIZE):
            whole = read(HeaderFramer(size), [stream])
            assert read(HeaderFramer(size), cut(stream, places)) == whole
            assert read(HeaderFramer(size), one_by_one(stream)) == whole

    @given(st.one_of(LINE_STREAMS, HEADER_STREAMS), PLACES, st.integers(1, 12))
    def test_every_split_is_recognised_alike(self, stream: bytes, places: list[int], limit: int) -> None:
        whole = read(AutoFramer(limit), [stream])
        assert read(AutoFramer(limit), cut(stream, places)) == whole
        assert read(AutoFramer(limit), one_by_one(stream)) == whole

    @given(st.lists(st.binary(min_size=1, max_size=50), max_size=10), PLACES)
    def test_what_was_framed_with_headers_comes_out_again(self, bodies: list[bytes], places: list[int]) -> None:
        """FRAM-07: bodies may hold anything, line ends and header look-alikes too."""
        assert read(HeaderFramer(), cut(b"".join(map(block, bodies)), places)) == bodies

    def test_three_messages_one_byte_at_a_time_and_in_one_read(self) -> None:
        """JRPC-19: the same three messages."""
        stream = b'{"id":1}\n{"id":2}\r\n{"id":3}\n'
        expected = [b'{"id":1}', b'{"id":2}', b'{"id":3}']
        assert LineFramer().feed(stream) == expected
        assert read(LineFramer(), one_by_one(stream)) == expected

    def test_a_megabyte_of_lines_at_once_and_one_byte_at_a_time(self) -> None:
        """JRPC-19: a big read is cut the same way as many small ones."""
        stream = b"".join(b'{"number":%d}\n' % number for number in range(80_000))
        assert len(stream) > MIB
        framer = LineFramer()
        at_once = framer.feed(stream)
        assert len(at_once) == 80_000
        assert read(LineFramer(), one_by_one(stream)) == at_once


class TestLimits:
    def test_the_default_limit_is_16_mib_exactly(self) -> None:
        """SIZE-01: 16 MiB pass, one byte more is refused."""
        assert MAX_MESSAGE_SIZE == 16 * MIB == LineFramer().max_size == HeaderFramer().max_size == AutoFramer().max_size
        line = b"x" * (16 * MIB)
        assert LineFramer().feed(line + b"\n") == [line]
        assert LineFramer().feed(line + b"x\n") == [Oversize(16 * MIB, line[:HEAD_SIZE])]

    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b""])
    @pytest.mark.parametrize("step", [1, 7, 5000])
    def test_a_line_of_the_limit_passes_and_one_byte_more_is_refused(self, end: bytes, step: int) -> None:
        """SIZE-03: the limit is set per framer; line ends do not count."""
        for size, expected in ((1024, [b"x" * 1024]), (1025, [Oversize(1024, b"x" * 1024)])):
            stream = b"x" * size + end
            chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
            assert read(LineFramer(1024), chunks) == expected

    def test_a_body_of_the_limit_passes_and_one_byte_more_is_refused(self) -> None:
        """SIZE-03: the same limit for Content-Length framing."""
        assert HeaderFramer(1024).feed(block(b"x" * 1024)) == [b"x" * 1024]
        assert HeaderFramer(1024).feed(block(b"x" * 1025)) == [Oversize(1024)]

    def test_many_lines_in_one_read_may_together_pass_the_limit(self) -> None:
        assert LineFramer(4).feed(b"abcd\nefgh\nij\n") == [b"abcd", b"efgh", b"ij"]

    def test_after_an_oversized_line_the_next_line_is_read(self) -> None:
        """SIZE-05: the over-long line is refused once, framing goes on."""
        framer = LineFramer(4)
        assert framer.feed(b"ab\n123") == [b"ab"]
        assert framer.feed(b"45") == [Oversize(4, b"1234")], "told as soon as the limit is passed"
        assert framer.feed(b"6" * 100) == []
        assert framer.feed(b"7\ncd\n") == [b"cd"]
        assert framer.feed(b"123456\nef\n123456\n\ngh\n") == [Oversize(4, b"1234"), b"ef", Oversize(4, b"1234"), b"gh"]

    def test_the_head_of_an_oversized_line_is_told(self) -> None:
        """SIZE-06: enough of it to find its id, however the reads fall."""
        line = b'{"jsonrpc":"2.0","id":5,"result":"' + b"x" * 5000
        for step in (1, 700, 10_000):
            framer = LineFramer(3000)
            frames = [frame for at in range(0, len(line), step) for frame in framer.feed(line[at : at + step])]
            assert frames == [Oversize(3000, line[:HEAD_SIZE])]

    def test_an_oversized_last_line_is_told_once(self) -> None:
        """SIZE-05: the end of the stream adds nothing to a refusal."""
        framer = LineFramer(4)
        assert framer.feed(b"12345") == [Oversize(4, b"1234")]
        assert framer.eof() == []

    def test_after_an_oversized_body_the_next_block_is_read(self) -> None:
        """SIZE-05: refused when the header is read, skipped by its length."""
        framer = HeaderFramer(4)
        assert framer.feed(b"Content-Length: 10\r\n\r\n") == [Oversize(4)]
        assert framer.feed(b"Content-Le") == []
        assert framer.pending == 0
        assert framer.feed(block(b"ok")) == [b"ok"]

    @pytest.mark.parametrize(
        ("make", "opening"),
        [
            (LineFramer, b"{"),
            (AutoFramer, b"{"),
            (HeaderFramer, b"Content-Length: 999999999999\r\n\r\n"),
            (AutoFramer, b"Content-Length: 999999999999\r\n\r\n"),
        ],
    )
    def test_96_mib_without_an_end_are_not_held(self, make: Callable[[int], Framer], opening: bytes) -> None:
        """SIZE-10: a stream without delimiter never grows the buffer past the limit."""
        framer, chunk = make(MIB), b"x" * 65_536
        frames = framer.feed(opening)
        for _ in range(96 * MIB // len(chunk)):
            frames += framer.feed(chunk)
            assert framer.pending <= MIB
        assert [type(frame) for frame in frames] == [Oversize]
        assert framer.pending == 0

    def test_an_endless_header_line_is_not_held(self) -> None:
        """SIZE-10: the header block has a bound of its own."""
        framer = HeaderFramer()
        framer.feed(b"X: ")
        for _ in range(MAX_HEADER_SIZE - 3):
            framer.feed(b"y")
        assert framer.pending == MAX_HEADER_SIZE
        with pytest.raises(FramingLost):
            framer.feed(b"y")
        assert framer.pending == 0

    def test_a_long_line_in_single_bytes_is_held_in_its_own_size(self) -> None:
        """SIZE-10: tiny reads do not multiply what is held."""
        framer = LineFramer(MIB)
        tracemalloc.start()
        try:
            for _ in range(100_000):
                framer.feed(b"abc")
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert framer.pending == 300_000
        assert held < 2 * 300_000

    def test_a_line_in_single_bytes_takes_time_in_proportion(self) -> None:
        """SIZE-10: a megabyte byte by byte is linear work."""

        def seconds(size: int) -> float:
            framer = LineFramer()
            start = time.process_time()
            for _ in range(size):
                framer.feed(b"x")
            assert framer.feed(b"\n") == [b"x" * size]
            return time.process_time() - start

        small = min(seconds(MIB // 8) for _ in range(3))
        assert min(seconds(MIB) for _ in range(2)) < 8 * small * 4


@pytest.mark.parametrize("framer", [LineFramer, HeaderFramer, AutoFramer])
@pytest.mark.parametrize("decided", [True, False])
def test_what_is_cleared_is_held_no_more(framer: Callable[[], LineFramer | AutoFramer], decided: bool) -> None:
    reading = framer()
    if decided:
        whole = block(b"{}") if framer is HeaderFramer else b"{}\n"
        assert reading.feed(whole) == [b"{}"]
    reading.feed(b"Content")
    assert reading.pending == 7
    reading.clear()
    assert (reading.pending, reading.eof()) == (0, [])
