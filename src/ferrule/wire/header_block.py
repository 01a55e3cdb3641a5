"""Frames behind header blocks, as in the Language Server Protocol, and streams that begin with one or with a line.

The rules of `framing.py` hold here too.
"""

from __future__ import annotations

import re

from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.framing import Frames, FramingLost, LineFramer, Oversize

MAX_HEADER_SIZE = 8 * 1024
MAX_HEADER_NAME_SIZE = 256

HEADER_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9-]*")
HTTP_HEADER = re.compile(
    rb"accept|accept-.+|access-control-.+|connection|cookie|expect|host|origin|referer|sec-.+|te|transfer-encoding"
    rb"|upgrade|upgrade-.+|user-agent|via|x-forwarded-.+"
)
"""Headers of HTTP that no block before a message has: a browser, or a proxy, believes that we speak HTTP."""
LENGTH = re.compile(rb"[0-9]{1,18}")


class HeaderFramer:
    """Each frame follows a header block that tells its length: `Content-Length: N`."""

    __slots__ = ("_body", "_length", "_line", "_lost", "_missing", "_skipped", "_used", "max_size")

    def __init__(self, max_size: int = MAX_MESSAGE_SIZE) -> None:
        self.max_size = max_size
        self._line = bytearray()
        self._used = 0
        self._length: int | None = None
        self._body = bytearray()
        self._missing = 0
        self._skipped = 0
        self._lost = ""

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished header line or body are held."""
        return len(self._line) + len(self._body)

    def feed(self, data: bytes) -> Frames:
        """Take what was read. Return the bodies it completes; raises FramingLost."""
        frames: Frames = []
        at = 0
        while at < len(data) and not self._lost:
            if self._skipped:
                at = self._skip(data, at)
            elif self._missing:
                at = self._read_body(data, at, frames)
            else:
                at = self._read_header(data, at, frames)
        if self._lost:
            raise FramingLost(self._lost, frames)
        return frames

    def eof(self) -> Frames:
        """Return nothing: a body that was cut off is no frame."""
        self.clear()
        return []

    def clear(self) -> None:
        """Drop the unfinished header block or body."""
        self._line.clear()
        self._body.clear()
        self._start_header()
        self._missing = self._skipped = 0

    def _skip(self, data: bytes, at: int) -> int:
        count = min(self._skipped, len(data) - at)
        self._skipped -= count
        return at + count

    def _read_body(self, data: bytes, at: int, frames: Frames) -> int:
        piece = data[at : at + self._missing]
        self._missing -= len(piece)
        if self._missing:
            self._body += piece
        elif self._body:
            self._body += piece
            frames.append(bytes(self._body))
            self._body.clear()
        else:
            frames.append(piece)
        return at + len(piece)

    def _read_header(self, data: bytes, at: int, frames: Frames) -> int:
        line_end = data.find(b"\n", at)
        if line_end < 0:
            stop = len(data)
        else:
            stop = line_end + 1
        self._used += stop - at
        if self._used > MAX_HEADER_SIZE:
            self._lose(f"the header block is longer than {MAX_HEADER_SIZE} bytes")
            return stop
        self._line += data[at:stop]
        if line_end >= 0:
            line = bytes(self._line).rstrip(b"\r\n")
            self._line.clear()
            self._end_header_line(line, frames)
        return stop

    def _end_header_line(self, line: bytes, frames: Frames) -> None:
        if line:
            self._note_header(line)
        elif self._length is not None:
            self._start_body(self._length, frames)
        elif self._used > len(b"\r\n"):
            self._lose("the header block has no Content-Length")
        else:
            # A blank line before the block: some peers end the body before it with one.
            self._start_header()

    def _note_header(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if not colon or not HEADER_NAME.fullmatch(name):
            self._lose("a header line is not `Name: value`")
            return
        name = name.lower()
        if name == b"content-length":
            self._note_length(value.strip(b" \t"))
        elif HTTP_HEADER.fullmatch(name):
            self._lose("the header block is one of HTTP")
        elif name == b"content-type":
            media_type = value.partition(b";")[0].strip(b" \t").lower()
            # A web page may send text, forms and the like wherever it wants, but not JSON.
            if not (media_type.startswith(b"application/") and b"json" in media_type):
                self._lose("the Content-Type is not JSON")

    def _note_length(self, value: bytes) -> None:
        if not LENGTH.fullmatch(value):
            self._lose("the Content-Length is not a number")
        elif self._length not in (None, int(value)):
            self._lose("two Content-Length headers disagree")
        else:
            self._length = int(value)

    def _start_body(self, length: int, frames: Frames) -> None:
        self._start_header()
        if length > self.max_size:
            frames.append(Oversize(self.max_size))
            self._skipped = length
        else:
            self._missing = length

    def _start_header(self) -> None:
        self._used = 0
        self._length = None

    def _lose(self, why: str) -> None:
        self._lost = f"framing lost: {why}"
        self._line.clear()


class AutoFramer:
    """Reads lines or header blocks, whichever the first bytes that are not blank turn out to be."""

    __slots__ = ("_framer", "_opening", "max_size")

    def __init__(self, max_size: int = MAX_MESSAGE_SIZE) -> None:
        self.max_size = max_size
        self._framer: LineFramer | HeaderFramer | None = None
        self._opening = b""

    @property
    def pending(self) -> int:
        """How many bytes are held, undecided or unfinished."""
        if self._framer is None:
            return len(self._opening)
        return self._framer.pending

    @property
    def framer(self) -> LineFramer | HeaderFramer | None:
        """What the stream turned out to be, None while that is open."""
        return self._framer

    def feed(self, data: bytes) -> Frames:
        """Take what was read. Return the frames it completes; raises FramingLost."""
        if self._framer is not None:
            return self._framer.feed(data)
        opening = (self._opening + data).lstrip()
        self._framer = self._decide(opening)
        if self._framer is None:
            self._opening = opening
            return []
        self._opening = b""
        return self._framer.feed(opening)

    def eof(self) -> Frames:
        """Return what is left; an undecided rest is a line."""
        if self._framer is None:
            self._framer = LineFramer(self.max_size)
            return self._framer.feed(self._opening) + self._framer.eof()
        return self._framer.eof()

    def clear(self) -> None:
        """Drop what is held, undecided or unfinished."""
        self._opening = b""
        if self._framer is not None:
            self._framer.clear()

    def _decide(self, opening: bytes) -> LineFramer | HeaderFramer | None:
        name = HEADER_NAME.match(opening, 0, MAX_HEADER_NAME_SIZE + 1)
        end = name.end() if name else 0
        if end == len(opening) and end <= MAX_HEADER_NAME_SIZE:
            return None
        if 0 < end <= MAX_HEADER_NAME_SIZE and opening[end : end + 1] == b":":
            return HeaderFramer(self.max_size)
        return LineFramer(self.max_size)
