"""Streams of bytes to cut into frames, however their reads fall."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from ferrule.wire.framing import Framer, FramingLost, Oversize


def read(framer: Framer, chunks: Sequence[bytes]) -> list[bytes | Oversize | str]:
    """Everything a framer gives for these reads and the end of the stream; a loss shows as its text."""
    frames: list[bytes | Oversize | str] = []
    try:
        for chunk in chunks:
            frames += framer.feed(chunk)
        frames += framer.eof()
    except FramingLost as lost:
        frames += lost.frames
        frames.append(str(lost))
    return frames


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """The stream in pieces, cut at these places."""
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[left:right] for left, right in pairwise(edges)]


def one_by_one(stream: bytes) -> list[bytes]:
    return [stream[index : index + 1] for index in range(len(stream))]


def block(body: bytes, extra: bytes = b"") -> bytes:
    return extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


LINE_STREAMS = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b"\t", b"{}", b'{"a":1}', b"abcdefgh", b"\xe2\x80\xa8", b"\x85"]),
    max_size=40,
).map(b"".join)

HEADER_STREAMS = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=14).map(block),
        st.sampled_from(
            [b"\r\n", b"\n", b"Content-Type: x\r\n", b"content-length:2\n\n{}", b"junk\r\n", b"X: y\r\n\r\n"]
        ),
    ),
    max_size=12,
).map(b"".join)

PLACES = st.lists(st.integers(0, 10_000), max_size=20)
