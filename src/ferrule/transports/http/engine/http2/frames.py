"""The frames of an HTTP/2 connection (RFC 9113 §4.1), cut from the bytes that come.

Rule: a frame is judged by its first nine bytes; one that is too long is refused before the rest of it is held.
"""

from __future__ import annotations

from typing import NamedTuple

from h2.errors import ErrorCodes

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client says first, RFC 9113 §3.4."""
FRAME_HEAD = 9
LONGEST_FRAME = 16_384
"""The longest payload of a frame, in both directions: what RFC 9113 §6.5.2 lets every peer send."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
"""The types of frames, RFC 9113 §6."""

END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
SETTING = 6
"""Bytes of one setting, RFC 9113 §6.5.1."""
LAST_SETTING = 8
"""The highest number of a setting that h2 knows: SETTINGS_ENABLE_CONNECT_PROTOCOL, RFC 8441 §3."""
MOST_SETTINGS = 32
_STREAM_BITS = 0x7FFF_FFFF


class ConnectionFailed(Exception):
    """Something after which the whole connection ends, with GOAWAY (RFC 9113 §5.4.1)."""

    def __init__(self, code: ErrorCodes, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    """One frame as it came."""

    kind: int
    flags: int
    stream: int
    raw: bytes

    @property
    def size(self) -> int:
        """The length of the payload, without padding where it is DATA."""
        size = len(self.raw) - FRAME_HEAD
        if self.kind == DATA and self.flags & PADDED and size:
            return max(0, size - 1 - self.raw[FRAME_HEAD])
        return size

    @property
    def ends_stream(self) -> bool:
        """Whether it is the last its sender has to say on the stream."""
        return bool(self.flags & END_STREAM)


def without_unknown_settings(frame: Frame) -> Frame:
    """Return SETTINGS without those nobody here knows (RFC 9113 §6.5.2), since h2 would keep each of them.

    Raises ConnectionFailed where there are too many.
    """
    entries = frame.raw[FRAME_HEAD:]
    if len(entries) > MOST_SETTINGS * SETTING:
        raise ConnectionFailed(ErrorCodes.ENHANCE_YOUR_CALM, f"more than {MOST_SETTINGS} settings in one frame")
    known = b""
    for at in range(0, len(entries), SETTING):
        entry = entries[at : at + SETTING]
        if len(entry) < SETTING or int.from_bytes(entry[:2], "big") <= LAST_SETTING:
            known += entry
    return frame._replace(raw=len(known).to_bytes(3, "big") + frame.raw[3:FRAME_HEAD] + known)


class FrameReader:
    """The bytes of one connection that are not handled yet."""

    __slots__ = ("_at", "_buffer", "_preface")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._preface = PREFACE
        """What is still to come of the preface."""

    @property
    def pending(self) -> int:
        """How many bytes wait."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def next(self) -> Frame | None:
        """Return the next frame if it has come whole; raises ConnectionFailed."""
        if self._preface and not self._skip_preface():
            return None
        at = self._at
        buffer = self._buffer
        if len(buffer) - at < FRAME_HEAD:
            return None
        end = at + FRAME_HEAD + int.from_bytes(buffer[at : at + 3], "big")
        if end - at - FRAME_HEAD > LONGEST_FRAME:
            raise ConnectionFailed(ErrorCodes.FRAME_SIZE_ERROR, f"a frame is longer than {LONGEST_FRAME} bytes")
        if len(buffer) < end:
            return None
        self._at = end
        return Frame(buffer[at + 3], buffer[at + 4], self._stream_at(at), bytes(buffer[at:end]))

    def begun_data(self) -> int:
        """Return the stream of the DATA frame that has begun to come and is not whole; 0 where there is none."""
        at = self._at
        if self._preface or self.pending < FRAME_HEAD or self._buffer[at + 3] != DATA:
            return 0
        return self._stream_at(at)

    def _stream_at(self, at: int) -> int:
        return int.from_bytes(self._buffer[at + 5 : at + FRAME_HEAD], "big") & _STREAM_BITS

    def _skip_preface(self) -> bool:
        """Read over the preface. Return whether it has come whole."""
        size = min(len(self._preface), self.pending)
        if not self._preface.startswith(self._buffer[self._at : self._at + size]):
            raise ConnectionFailed(ErrorCodes.PROTOCOL_ERROR, "this is not the preface of HTTP/2")
        self._at += size
        self._preface = self._preface[size:]
        return not self._preface
