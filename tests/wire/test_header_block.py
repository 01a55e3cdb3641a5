"""Header blocks before messages are read, and streams are known by how they begin."""

from __future__ import annotations

import time

import pytest
from byte_streams import block, one_by_one, read

from ferrule.errors import FerruleError
from ferrule.wire.framing import FramingLost, LineFramer
from ferrule.wire.header_block import MAX_HEADER_NAME_SIZE, MAX_HEADER_SIZE, AutoFramer, HeaderFramer


class TestHeaders:
    def test_a_content_length_block_is_one_frame(self) -> None:
        """FRAM-06: header, CRLF CRLF, then N bytes."""
        assert HeaderFramer().feed(b'Content-Length: 7\r\n\r\n{"a":1}') == [b'{"a":1}']

    @pytest.mark.parametrize(
        "head",
        [
            b"content-length: 2\r\n\r\n",
            b"CONTENT-LENGTH:2\r\n\r\n",
            b"Content-Length: \t 2 \r\n\r\n",
            b"Content-Length: 2\n\n",
            b"Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n",
            b"Content-Length: 2\r\nX-Trace: a:b: c\r\nX-Empty:\r\n\r\n",
            b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n",
            b"\r\n\nContent-Length: 02\r\n\r\n",
        ],
    )
    def test_other_headers_case_and_spacing_do_not_matter(self, head: bytes) -> None:
        """FRAM-06: only the length counts."""
        assert HeaderFramer().feed(head + b"{}" + head + b"[]") == [b"{}", b"[]"]

    @pytest.mark.parametrize(
        "line",
        [
            *(b"Host: 127.0.0.1:5000", b"Origin: https://evil.example", b"Cookie: a=b", b"User-Agent: Mozilla/5.0"),
            *(b"Sec-Fetch-Site: cross-site", b"Referer: https://evil.example/", b"Accept: */*", b"ACCEPT-LANGUAGE: de"),
            *(b"Connection: keep-alive", b"Upgrade: websocket", b"Transfer-Encoding: chunked"),
            *(b"Content-Type: text/plain", b"Content-Type: application/x-www-form-urlencoded", b"Content-Type:"),
            *(b"Content-Type: multipart/form-data; boundary=json", b"POST / HTTP/1.1", b"GET http://a/:x HTTP/1.1"),
        ],
    )
    def test_a_block_of_http_is_none_of_ours(self, line: bytes) -> None:
        """Wherever the line stands in the block, and whether the framing was told or found: nothing of it is read."""
        length = b"Content-Length: 2"
        for framer, head in (
            (HeaderFramer(), length + b"\r\n" + line),
            (HeaderFramer(), line + b"\r\n" + length),
            (AutoFramer(), length + b"\r\n" + line),
        ):
            found = read(framer, [head + b"\r\n\r\n{}", block(b"{}")])
            assert len(found) == 1
            assert str(found[0]).startswith("framing lost")

    @pytest.mark.parametrize(
        "head",
        [
            b'{"jsonrpc":"2.0"}\r\n',
            b"Content-Length: -1\r\n",
            b"Content-Length: 1e3\r\n",
            b"Content-Length:\r\n",
            b"Content-Length: +2\r\n",
            b"Content-Length: 2 2\r\n",
            b"Content-Length: " + b"9" * 19 + b"\r\n",
            b"Content-Length: 2\r\nContent-Length: 3\r\n",
            b"Content-Length 2\r\n",
            b": 2\r\n",
            b"Content-Length : 2\r\n",
            b"Content-Type: x\r\n\r\n",
            b"X: " + b"y" * MAX_HEADER_SIZE,
            b"X: y\r\n" * (MAX_HEADER_SIZE // 6 + 1),
        ],
    )
    def test_a_malformed_header_loses_the_framing(self, head: bytes) -> None:
        framer = HeaderFramer()
        with pytest.raises(FramingLost) as lost:
            framer.feed(block(b"ok") + head)
        assert lost.value.frames == [b"ok"], "what was read before is still told"
        assert isinstance(lost.value, FerruleError)
        with pytest.raises(FramingLost):
            framer.feed(block(b"ok"))
        assert framer.pending == 0

    def test_an_empty_body_is_no_frame(self) -> None:
        assert HeaderFramer().feed(block(b"") + block(b"{}")) == [b"{}"]

    def test_a_body_cut_off_by_the_end_is_no_frame(self) -> None:
        framer = HeaderFramer()
        assert framer.feed(block(b"{}")[:-1]) == []
        assert framer.pending == 1
        assert framer.eof() == []
        assert framer.pending == 0

    @pytest.mark.parametrize("begun", [b"Content-Len", b"Content-Length: 5\r\n", b"Content-Length: 5\r\n\r\n12"])
    def test_after_the_end_nothing_of_the_stream_is_left(self, begun: bytes) -> None:
        framer = HeaderFramer(10)
        for opening in (begun, b"Content-Length: 50\r\n\r\n12"):
            framer.feed(opening)
            assert framer.eof() == []
            assert framer.pending == 0
            assert framer.feed(b"Content-Length: 2\r\n\r\nabContent-Length: 1\r\n\r\nc") == [b"ab", b"c"]

    def test_bodies_put_together_from_parts_are_bytes(self) -> None:
        framer = HeaderFramer()
        frames = [*framer.feed(block(b"abcd")[:-2]), *framer.feed(b"cd" + block(b"ef"))]
        assert frames == [b"abcd", b"ef"]
        assert [type(frame) for frame in frames] == [bytes, bytes]

    def test_many_small_blocks_in_one_read_take_time_in_proportion(self) -> None:
        def seconds(count: int) -> float:
            stream = block(b"{}") * count
            start = time.process_time()
            assert len(HeaderFramer().feed(stream)) == count
            return time.process_time() - start

        small = min(seconds(4_000) for _ in range(3))
        assert min(seconds(32_000) for _ in range(3)) < 8 * small * 4


class TestAuto:
    @pytest.mark.parametrize(
        "stream",
        [b"{}\n[]\n", b"\n \r\n{}\n[]\n", b"[]\n{}", b'"x"\n', b"nonsense\n{}\n", b"x y: z\n", b"\xef\xbb\xbf{}\n"],
    )
    def test_anything_but_a_header_is_read_as_lines(self, stream: bytes) -> None:
        assert read(AutoFramer(), [stream]) == read(LineFramer(), [stream.lstrip()])

    @pytest.mark.parametrize("extra", [b"", b"\r\n\r\n", b"Content-Type: application/json\r\n", b"x-trace: 1\r\n"])
    def test_a_header_of_any_name_is_read_as_a_block(self, extra: bytes) -> None:
        """FRAM-06: Content-Length framing is found by its first bytes."""
        stream = block(b"{}", extra) + block(b"[]")
        assert read(AutoFramer(), [stream]) == [b"{}", b"[]"]
        assert read(AutoFramer(), one_by_one(stream)) == [b"{}", b"[]"]

    def test_what_a_stream_turned_out_to_be_is_told(self) -> None:
        for opening, kind in ((b"{}", LineFramer), (b"Content-Length: 1\r\n", HeaderFramer)):
            framer = AutoFramer()
            assert framer.framer is None
            framer.feed(opening)
            assert type(framer.framer) is kind

    def test_the_choice_is_made_once(self) -> None:
        framer = AutoFramer()
        assert framer.feed(b"{}\n") == [b"{}"]
        assert framer.feed(b"Content-Length: 2\n") == [b"Content-Length: 2"]

    def test_an_undecided_rest_is_a_line(self) -> None:
        framer = AutoFramer()
        assert framer.feed(b"  Conte") == []
        assert framer.pending == 5
        assert framer.eof() == [b"Conte"]

    @pytest.mark.parametrize("size", [MAX_HEADER_NAME_SIZE - 1, MAX_HEADER_NAME_SIZE, MAX_HEADER_NAME_SIZE + 1])
    def test_an_endless_name_is_a_line(self, size: int) -> None:
        stream = b"x" * size + b": 1\n"
        expected: list[object] = [stream[:-1]] if size > MAX_HEADER_NAME_SIZE else []
        assert read(AutoFramer(), [stream]) == expected
        assert read(AutoFramer(), one_by_one(stream)) == expected

    def test_nothing_at_all_gives_nothing(self) -> None:
        framer = AutoFramer()
        assert framer.feed(b"") == framer.feed(b"\r\n \n") == framer.eof() == []
        assert framer.pending == 0


def test_a_stream_that_begins_with_a_colon_has_lines() -> None:
    framer = AutoFramer()
    assert framer.feed(b": 1\n") == [b": 1"]
    assert isinstance(framer.framer, LineFramer)


NAMED = b"n" * MAX_HEADER_NAME_SIZE
OPENINGS = (
    (b":", LineFramer),
    (b"1: 2", LineFramer),
    (b"a", None),
    (b"a:", HeaderFramer),
    (b"a ", LineFramer),
    (NAMED, None),
    (NAMED + b":", HeaderFramer),
    (NAMED + b"n", LineFramer),
    (NAMED + b"n:", LineFramer),
)


@pytest.mark.parametrize(("opening", "kind"), OPENINGS)
def test_a_stream_opens_with_a_header_or_with_a_line(opening: bytes, kind: type | None) -> None:
    """Open as long as it may become the name of a header."""
    framer = AutoFramer()
    framer.feed(opening)
    assert (None if framer.framer is None else type(framer.framer)) is kind


@pytest.mark.parametrize("blank", [b"\n", b"\r\n"])
def test_a_blank_line_may_stand_between_two_blocks(blank: bytes) -> None:
    framer = HeaderFramer()
    for _ in range(2):
        assert framer.feed(blank + b"Content-Length: 2\r\n\r\n{}") == [b"{}"]
