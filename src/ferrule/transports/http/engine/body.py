"""The body of a request while it comes in: of a known size (RFC 9112 §6.2), or in chunks (RFC 9112 §7.1)."""

from __future__ import annotations

import re
from typing import Protocol

from ferrule.transports.http.engine.head_parser import Unacceptable

MAX_FRAMING = 16 * 1024
"""How many bytes of chunk extensions (RFC 9112 §7.1.1), and of trailers (§7.1.2), one body may have."""
MAX_TRAILERS = 32
"""How many trailer fields one body may have (RFC 9112 §7.1.2)."""
FREE_CHUNKS = 256
SMALLEST_MEAN_CHUNK = 64
"""Chunks of a few bytes cost us more than the sender: past the first hundreds they must have this size on average."""

SIZE, DATA, DATA_END, TRAILER = range(4)
"""What a body in chunks waits for."""

# chunk-size and chunk-ext of RFC 9112 §7.1 and §7.1.1; a trailer is a field line, RFC 9112 §5.
_PLAIN_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t -~\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*")


class Body(Protocol):
    """What a body being read offers."""

    content: bytearray
    done: bool

    def feed(self, data: bytes, at: int) -> int:
        """Take what belongs to the body from `at` on. Return the place where it stopped."""


class SizedBody:
    """A body whose size the head names."""

    __slots__ = ("_length", "content", "done")

    def __init__(self, length: int) -> None:
        self._length = length
        self.content = bytearray()
        self.done = False

    def feed(self, data: bytes, at: int) -> int:
        """Take what belongs to the body from `at` on. Return the place where it stopped."""
        end = min(len(data), at + self._length - len(self.content))
        self.content += memoryview(data)[at:end]
        self.done = len(self.content) == self._length
        return end


class ChunkedBody:
    """A body that comes in chunks; extensions and trailers are checked and dropped."""

    __slots__ = ("_awaits", "_chunks", "_extra", "_left", "_limit", "_line", "_trailers", "content", "done")

    def __init__(self, limit: int) -> None:
        self.content = bytearray()
        self.done = False
        self._limit = limit
        self._awaits = SIZE
        self._left = 0
        self._line = b""
        self._chunks = 0
        self._extra = 0
        self._trailers = 0

    def feed(self, data: bytes, at: int) -> int:
        """Take what belongs to the body from `at` on. Return the place where it stopped."""
        while at < len(data) and not self.done:
            if self._awaits == DATA:
                at = self._take_data(data, at)
                continue
            size = None
            if self._awaits == SIZE and not self._line:
                size = _PLAIN_SIZE.match(data, at)
            if size is None:
                at = self._take_line(data, at)
            else:
                at = self._take_chunk(data, size.end(), size[1])
        return at

    def _take_chunk(self, data: bytes, at: int, size: bytes) -> int:
        """Take a chunk whose size has come in one piece and has no extensions, as nearly all do."""
        self._begin_chunk(size)
        end = at + self._left
        if self._left and data.startswith(b"\r\n", end):
            self.content += memoryview(data)[at:end]
            self._awaits = SIZE
            return end + 2
        return at

    def _take_data(self, data: bytes, at: int) -> int:
        end = min(len(data), at + self._left)
        self.content += memoryview(data)[at:end]
        self._left -= end - at
        if not self._left:
            self._awaits = DATA_END
        return end

    def _take_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at) + 1 or len(data)
        if len(self._line) + end - at > MAX_FRAMING:
            raise Unacceptable(400, "a line between the chunks is too long")
        line = self._line + data[at:end]
        if line.endswith(b"\n"):
            self._line = b""
            self._end_line(line)
        elif self._awaits == DATA_END and line != b"\r":
            raise Unacceptable(400, "a chunk is longer than its size")
        else:
            self._line = line
        return end

    def _end_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            # RFC 9112 §7.1 writes CRLF; the bare LF that §2.2 lets pass in a head has no place here.
            raise Unacceptable(400, "the lines between chunks end with CR LF")
        text = line[:-2]
        if self._awaits == SIZE:
            match = _SIZE.fullmatch(text)
            if match is None:
                raise Unacceptable(400, "the size of a chunk is not a hexadecimal number")
            self._count_extra(len(text) - len(match[1]))
            self._begin_chunk(match[1])
        elif self._awaits == TRAILER:
            self._end_trailer(text)
        elif text:
            raise Unacceptable(400, "a chunk is longer than its size")
        else:
            self._awaits = SIZE

    def _begin_chunk(self, size: bytes) -> None:
        self._left = int(size, 16)
        if len(self.content) + self._left > self._limit:
            raise Unacceptable(413, f"the body is longer than {self._limit} bytes")
        if not self._left:
            # The last chunk (RFC 9112 §7.1) holds nothing, and is not counted.
            self._awaits = TRAILER
            return
        self._chunks += 1
        if self._chunks > FREE_CHUNKS + len(self.content) // SMALLEST_MEAN_CHUNK:
            raise Unacceptable(400, "too many too small chunks")
        self._awaits = DATA

    def _end_trailer(self, text: bytes) -> None:
        if not text:
            self.done = True
            return
        self._count_extra(len(text) + 2)
        self._trailers += 1
        if self._trailers > MAX_TRAILERS:
            raise Unacceptable(400, f"more than {MAX_TRAILERS} trailers")
        if not _TRAILER.fullmatch(text):
            raise Unacceptable(400, "a trailer is malformed")

    def _count_extra(self, size: int) -> None:
        self._extra += size
        if self._extra > MAX_FRAMING:
            raise Unacceptable(400, f"more than {MAX_FRAMING} bytes of extensions and trailers")
