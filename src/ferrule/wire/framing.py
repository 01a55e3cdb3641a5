"""A stream of bytes cut into frames, however the reads happen to fall.

Rule 1: pure; a framer keeps only what it cannot hand out yet, and never more than the limit.
Rule 2: bytes are compared as bytes; U+2028 and its like end no line.
Rule 3: a frame over the limit is dropped and reported once; whether to go on is the transport's decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from ferrule.errors import FerruleError
from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.messages import HEAD_SIZE

PIECE = 16 * 1024
"""A read of more bytes is mostly one part of a long message."""


class Oversize(Struct, frozen=True):
    """Stands for a frame that was longer than the limit and was thrown away."""

    max_size: int
    head: bytes = b""
    """How it began, where that was read at all."""


Frames = list[bytes | Oversize]

_strip = bytes.strip


class FramingLost(FerruleError):
    """Nobody can say where the next frame begins; `frames` are those read before."""

    def __init__(self, message: str, frames: Sequence[bytes | Oversize] = ()) -> None:
        super().__init__(message)
        self.frames = list(frames)


class Framer(Protocol):
    """Cuts a stream of bytes into frames."""

    max_size: int

    def feed(self, data: bytes) -> Frames:
        """Take what was read. Return the frames it completes."""

    def eof(self) -> Frames:
        """Called when nothing more comes. Return what is left."""

    def clear(self) -> None:
        """Drop what is held of a frame that is not complete: nothing more will be read."""

    @property
    def pending(self) -> int:
        """How many bytes are held back for a frame that is not complete."""


class LineFramer:
    """One frame a line (MCP 2025-11-25 basic/transports, stdio), ended by LF, CRLF or CR; blank lines are nothing."""

    __slots__ = ("_held", "_room", "_skipping", "max_size")

    def __init__(self, max_size: int = MAX_MESSAGE_SIZE) -> None:
        self.max_size = max_size
        self._held = bytearray()
        self._skipping = False
        self._room = max_size
        """How many bytes more fit the limit, whatever lines they are; none while the rest of a line is skipped."""

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line are held."""
        return len(self._held)

    def feed(self, data: bytes) -> Frames:
        """Take what was read. Return the lines it completes."""
        if data.find(b"\r") >= 0:  # `in` would make an exception: it asks first whether this is a number
            # CRLF becomes a line end and a blank line, which is nothing: so no state is needed between CR and LF.
            data = data.replace(b"\r", b"\n")
        if len(data) > PIECE and data.find(b"\n") < 0:  # a part of a long line: faster than to split it
            lines = [data]
        else:
            lines = data.split(b"\n")
        if len(data) > self._room:
            return self._measure(lines)
        tail = lines.pop()
        held = self._held
        if held and lines:
            held += lines[0]
            lines[0] = bytes(held)
            held.clear()
            self._room = self.max_size
        if tail:
            held += tail
            self._room = self.max_size - len(held)
        return [*filter(_strip, lines)]

    def eof(self) -> Frames:
        """Return the last line, which need not have a line end."""
        frames: Frames = []
        self._end_line(frames)
        self._room = self.max_size
        return frames

    def clear(self) -> None:
        """Drop the unfinished line."""
        self._held.clear()
        if not self._skipping:
            self._room = self.max_size

    def _measure(self, lines: list[bytes]) -> Frames:
        frames: Frames = []
        tail = lines.pop()
        for line in lines:
            self._grow(line, frames)
            self._end_line(frames)
        self._grow(tail, frames)
        if self._skipping:
            self._room = -1
        else:
            self._room = self.max_size - len(self._held)
        return frames

    def _grow(self, piece: bytes, frames: Frames) -> None:
        if self._skipping:
            return
        if len(self._held) + len(piece) > self.max_size:
            # No more than the limit, which is the same however the reads fall.
            size = min(HEAD_SIZE, self.max_size)
            head = (bytes(self._held[:size]) + piece[:size])[:size]
            self._held.clear()
            self._skipping = True
            frames.append(Oversize(self.max_size, head))
        else:
            self._held += piece

    def _end_line(self, frames: Frames) -> None:
        if self._held and not self._held.isspace():
            frames.append(bytes(self._held))
        self._held.clear()
        self._skipping = False
