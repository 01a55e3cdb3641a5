"""The body of a request while it comes in."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.http.engine.body import (
    FREE_CHUNKS,
    MAX_FRAMING,
    MAX_TRAILERS,
    SMALLEST_MEAN_CHUNK,
    Body,
    ChunkedBody,
    SizedBody,
)
from ferrule.transports.http.engine.head_parser import Unacceptable

LIMIT = 1_000_000
CUTS = st.lists(st.integers(0, 300), max_size=8)


def feed_in_parts(body: Body, data: bytes, cuts: list[int]) -> int:
    """Feed data cut at places; gives how much of it was taken."""
    taken = 0
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    start = 0
    for end in ends:
        part = data[start:end]
        at = body.feed(part, 0)
        taken += at
        if at < len(part):
            break
        start = end
    return taken


@given(st.binary(max_size=100), st.binary(max_size=20), CUTS)
def test_a_sized_body_takes_its_size_and_no_more(content: bytes, rest: bytes, cuts: list[int]) -> None:
    body = SizedBody(len(content))
    if content:
        assert feed_in_parts(body, content + rest, cuts) == len(content)
        assert body.done
    assert bytes(body.content) == content


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.binary(max_size=20), CUTS)
def test_chunks_are_put_together_however_they_come(chunks: list[bytes], rest: bytes, cuts: list[int]) -> None:
    wire = b"".join(b"%x;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nX: a\r\n\r\n"
    body = ChunkedBody(LIMIT)
    assert feed_in_parts(body, wire + rest, cuts) == len(wire)
    assert body.done
    assert bytes(body.content) == b"".join(chunks)


@given(st.binary(max_size=60), CUTS)
def test_whatever_comes_is_taken_or_refused_alike_in_one_part_and_in_many(data: bytes, cuts: list[int]) -> None:
    found = []
    for places in ([], cuts, list(range(len(data)))):
        body = ChunkedBody(LIMIT)
        try:
            found.append((feed_in_parts(body, data, places), body.done, bytes(body.content)))
        except Unacceptable as error:
            found.append((error.status, False, b""))
    assert found[0] == found[1] == found[2]


def test_a_body_is_refused_by_the_size_of_the_chunk_that_would_pass_the_limit() -> None:
    body = ChunkedBody(10)
    body.feed(b"8\r\n12345678\r\n", 0)
    with pytest.raises(Unacceptable) as caught:
        body.feed(b"3\r\n", 0)
    assert caught.value.status == 413


def test_extensions_and_trailers_count_together() -> None:
    body = ChunkedBody(LIMIT)
    half = b"a" * (MAX_FRAMING // 2)
    body.feed(b"1;" + half + b"\r\nx\r\n0\r\nX: ", 0)
    with pytest.raises(Unacceptable, match="extensions and trailers"):
        body.feed(half + b"\r\n", 0)


def test_trailers_are_counted_and_their_line_ends_too() -> None:
    """BUD-16."""
    body = ChunkedBody(LIMIT)
    body.feed(b"0\r\n" + b"a:\r\n" * MAX_TRAILERS, 0)
    with pytest.raises(Unacceptable, match="trailers") as caught:
        body.feed(b"a:\r\n", 0)
    assert caught.value.status == 400
    lengthy = ChunkedBody(LIMIT)
    with pytest.raises(Unacceptable, match="extensions and trailers"):
        lengthy.feed(b"0\r\n" + (b"a:" + b"x" * (MAX_FRAMING // 8 - 3) + b"\r\n") * 8, 0)


def test_a_body_may_end_with_as_many_trailers_as_are_allowed() -> None:
    body = ChunkedBody(LIMIT)
    body.feed(b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * MAX_TRAILERS + b"\r\n", 0)
    assert (body.done, bytes(body.content)) == (True, b"x")


def test_a_chunk_costs_about_what_its_bytes_do() -> None:
    """The least the bounds allow: a few bytes each at first, then 64 on average."""
    wire = b"1\r\nx\r\n" * (FREE_CHUNKS - 1) + (b"40\r\n" + b"x" * SMALLEST_MEAN_CHUNK + b"\r\n") * 10_000
    spent = []
    for _ in range(5):
        body, began = ChunkedBody(LIMIT), time.process_time()
        body.feed(wire, 0)
        spent.append(time.process_time() - began)
    assert len(body.content) == FREE_CHUNKS - 1 + 10_000 * SMALLEST_MEAN_CHUNK
    assert min(spent) < 20 * (20e-6 + 20e-9 * len(wire)), "with room for the machine"


def test_small_chunks_are_taken_up_to_a_number_and_large_ones_for_ever() -> None:
    body = ChunkedBody(LIMIT)
    body.feed(b"1\r\nx\r\n" * FREE_CHUNKS, 0)
    with pytest.raises(Unacceptable, match="too small"):
        body.feed(b"1\r\nx\r\n" * 100, 0)
    large = ChunkedBody(LIMIT)
    large.feed((b"64\r\n" + b"x" * 100 + b"\r\n") * 9000, 0)
    assert len(large.content) == 900_000


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"1\nx", "end with CR LF"),
        (b"1\r\nxy", "longer than its size"),
        (b"1\r\nxy\r\n", "longer than its size"),
        (b"1\r\nx\rz\r\n", "longer than its size"),
        (b"g\r\n", "not a hexadecimal number"),
        (b"\r\n", "not a hexadecimal number"),
        (b"1234567890abcdef\r\n", "not a hexadecimal number"),
        (b"-1\r\n", "not a hexadecimal number"),
        (b"0\r\nno trailer\r\n", "trailer is malformed"),
        (b"0\r\nX: a\n", "end with CR LF"),
    ],
)
def test_what_is_no_chunk_is_refused(wire: bytes, words: str) -> None:
    """RFC 9112 section 7.1."""
    for cuts in ([], list(range(len(wire)))):
        with pytest.raises(Unacceptable, match=words) as caught:
            feed_in_parts(ChunkedBody(LIMIT), wire, cuts)
        assert caught.value.status == 400


def test_a_body_may_be_as_long_as_its_limit() -> None:
    body = ChunkedBody(10)
    body.feed(b"8\r\n12345678\r\n2\r\n90\r\n0\r\n\r\n", 0)
    assert body.done
    assert bytes(body.content) == b"1234567890"


def test_a_chunk_that_ends_with_the_data_is_waited_for() -> None:
    body = ChunkedBody(LIMIT)
    assert body.feed(b"2\r\nxy", 0) == 5
    assert not body.done
    assert body.feed(b"\r\n0\r\n\r\nrest", 0) == 7
    assert body.done


def test_a_line_between_chunks_has_its_limit_before_it_ends() -> None:
    assert MAX_FRAMING == 16 * 1024
    body = ChunkedBody(LIMIT)
    body.feed(b"1;" + b"a" * (MAX_FRAMING - 2), 0)
    with pytest.raises(Unacceptable, match="line between the chunks is too long") as caught:
        body.feed(b"a", 0)
    assert caught.value.status == 400


def test_extensions_have_their_limit_to_the_byte() -> None:
    def ended(size: int) -> ChunkedBody:
        body = ChunkedBody(LIMIT)
        body.feed(b"1;" + b"a" * 9999 + b"\r\nx\r\n0;" + b"a" * (size - 10_001) + b"\r\n\r\n", 0)
        return body

    assert ended(MAX_FRAMING).done
    with pytest.raises(Unacceptable, match="more than 16384 bytes") as caught:
        ended(MAX_FRAMING + 1)
    assert caught.value.status == 400


def test_trailers_have_their_limit_to_the_byte() -> None:
    def ended(size: int) -> ChunkedBody:
        body, line = ChunkedBody(LIMIT), b"X: " + b"a" * (MAX_FRAMING // 4 - 5) + b"\r\n"
        rest = size - 3 * len(line)
        body.feed(b"0\r\n" + line * 3 + b"Y: " + b"a" * (rest - 5) + b"\r\n\r\n", 0)
        return body

    assert ended(MAX_FRAMING).done
    with pytest.raises(Unacceptable, match="more than 16384 bytes"):
        ended(MAX_FRAMING + 1)


def test_so_many_chunks_of_one_byte_are_taken_and_no_more() -> None:
    """The first ones, and one more for each 64 bytes that have come."""
    most = 1
    while most + 1 <= FREE_CHUNKS + most // 64:
        most += 1
    body = ChunkedBody(LIMIT)
    body.feed(b"1\r\nx\r\n" * most, 0)
    assert len(body.content) == most
    with pytest.raises(Unacceptable, match="too small") as caught:
        body.feed(b"1\r\n", 0)
    assert caught.value.status == 400
