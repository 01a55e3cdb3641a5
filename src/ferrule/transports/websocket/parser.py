"""A stream of bytes taken apart into messages and control frames, however the reads happen to fall.

Rule 1: pure; the same bytes give the same events, wherever they are cut.
Rule 2: a length is judged before anything of that length is kept.
Rule 3: after a violation (RFC 6455 §7.1.7) or a close frame (§5.5.1) nothing more is read.
Rule 4: no more is taken apart at once than one turn's share, in frames and in what they unfold to; the rest is held
until somebody asks for more.
"""

from __future__ import annotations

import codecs

from msgspec import Raw, Struct
from msgspec import json as msgspec_json

from ferrule.budgets.bounds import BYTES_A_TURN, FRAMES_A_TURN
from ferrule.transports.websocket.deflate import Deflate, Undeflatable
from ferrule.transports.websocket.frames import (
    BAD_DATA,
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUATION,
    FIN,
    LONGEST_CONTROL,
    MASKED,
    NO_CODE,
    PONG,
    PROTOCOL_ERROR,
    SENDABLE,
    TEXT,
    TOO_BIG,
    UNSUPPORTED,
    Closing,
    apply_mask,
)
from ferrule.wire.codec import MAX_MESSAGE_SIZE

MAX_FRAGMENTS = 100_000
"""How many parts a message may come in: tiny ones cost more to read than they bring."""

LENGTHS = {126: (2, 126), 127: (8, 65536)}
"""How many bytes of a length follow, and the least that may be written so (RFC 6455 §5.2)."""

LAST_TEXT = FIN | TEXT
_utf8 = codecs.getincrementaldecoder("utf-8")


class Binary(bytes):
    """The bytes of a message that was sent as binary, where that is accepted."""

    __slots__ = ()


class Line(bytes):
    """One of several messages that came as the lines of one text."""

    __slots__ = ()


class Control(Struct, frozen=True):
    """A ping or a pong."""

    opcode: int
    payload: bytes


class RuleBreach(Struct, frozen=True):
    """The peer broke the rules: with what to close, and in which words."""

    code: int
    reason: str


Event = bytes | Binary | Line | Control | Closing | RuleBreach
"""What was read: a text message, a binary one, a line of a text, a ping or pong, the peer's close, or a breach."""


class Broken(Exception):
    """What was read breaks a rule."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.violation = RuleBreach(code, reason)


class ReadingRules(Struct, frozen=True, kw_only=True):
    """What a reader accepts."""

    masked: bool
    """Whether frames must be masked, as a client's are, or must not, as a server's are not."""
    max_size: int = MAX_MESSAGE_SIZE
    validate_utf8: bool = True
    accept_binary: bool = False


class FrameReader:
    """Reads what one peer sends."""

    __slots__ = (
        "_deflate",
        "_first",
        "_fragments",
        "_held",
        "_key",
        "_key_size",
        "_kind",
        "_masked",
        "_max_size",
        "_missing",
        "_over",
        "_parts",
        "_payload",
        "_rules",
        "_text",
        "_unfolded",
        "more",
        "unfinished",
    )

    def __init__(self, rules: ReadingRules, deflate: Deflate | None = None) -> None:
        self._rules = rules
        self._masked = rules.masked
        self._key_size = 4 * rules.masked
        self._max_size = rules.max_size
        self._deflate = deflate
        self._held = b""
        self._first = 0
        self._key = b""
        self._payload = bytearray()
        self._missing = 0
        self._kind = 0
        """The first byte of the message whose parts are coming, 0 where none is."""
        self._parts = bytearray()
        self._fragments = 0
        self._text = _utf8()
        self._over = False
        self._unfolded = 0
        """How many bytes of messages in parts, or packed, were put together since the last feed."""
        self.more = False
        """Whether frames that have come are left for the next feed: feed nothing to have them."""
        self.unfinished = 0
        """Counts up when a message in parts begins; negative while its last part has not come."""

    @property
    def inside_frame(self) -> bool:
        """Whether the payload of a frame has come in part."""
        return self._missing > 0

    @property
    def pending(self) -> int:
        """How many bytes are held for what is not complete."""
        return len(self._held) + len(self._payload) + len(self._parts)

    def feed(self, data: bytes) -> list[Event]:
        """Take what was read and return what it completes, up to one turn's share."""
        events: list[Event] = []
        if self._over:
            return events
        self.more = False
        self._unfolded = 0
        if self._held:
            data = self._held + data
            self._held = b""
        try:
            at = 0
            if self._missing:
                at = self._read_on(data, events)
                if self._turn_over:
                    self._keep_rest(data[at:], more=True)
                    return events
            self._read(data, at, events)
        except Broken as broken:
            events.append(broken.violation)
            self.stop()
        return events

    def keep(self, data: bytes) -> None:
        """Hold what was read until more is asked for."""
        if not self._over:
            self._held += data
            self.more = True

    def stop(self) -> None:
        """Read nothing more, and hold nothing."""
        self._over = True
        self.more = False
        self._held = b""
        self._missing = 0
        self._payload = bytearray()
        self._parts = bytearray()

    def _read(self, data: bytes, at: int, events: list[Event]) -> None:
        """Read frames from a place on; what is left of the data is held."""
        end = len(data)
        masked = self._masked
        key_size = self._key_size
        left = FRAMES_A_TURN
        while end - at >= 2 and left:
            left -= 1
            first = data[at]
            size = data[at + 1]
            # A short whole text is what nearly every frame is: what cannot be wrong with it is not asked.
            usual = first == LAST_TEXT and not self._kind
            if not usual or (size >= MASKED) is not masked:
                self._judge(first, size)
            size &= 127
            start = at + 2
            least = 0
            if size > LONGEST_CONTROL:
                width, least = LENGTHS[size]
                start += width
                if end < start:
                    break
                size = int.from_bytes(data[start - width : start])
            if size > self._max_size or size < least or (not usual and size + len(self._parts) > self._max_size):
                self._judge_size(first, size, least)
            start += key_size
            if end < start:
                break
            stop = start + size
            if stop > end:
                self._first = first
                self._key = data[start - 4 : start]
                self._missing = stop - end
                self._payload += data[start:]
                return
            payload = data[start:stop]
            if masked:
                payload = apply_mask(payload, data[start - 4 : start])
            at = stop
            if usual and payload.isascii():
                events.append(payload)
                continue
            self._take(first, payload, events)
            if self._turn_over:
                left = 0
        if at < end:
            self._keep_rest(data[at:], more=not left)

    @property
    def _turn_over(self) -> bool:
        """Whether nothing more is taken apart now: that was the end, or as much as one turn may unfold."""
        return self._over or self._unfolded > BYTES_A_TURN

    def _keep_rest(self, rest: bytes, *, more: bool) -> None:
        """Hold what is left of a read; `more` where frames in it wait for the next feed."""
        if not self._over:
            self._held = rest
            self.more = more and len(rest) >= 2

    def _read_on(self, data: bytes, events: list[Event]) -> int:
        """Add to the payload of a frame that came in several reads. Return where the next begins."""
        taken = min(self._missing, len(data))
        self._payload += data[:taken]
        self._missing -= taken
        if not self._missing:
            payload = bytes(self._payload)
            self._payload = bytearray()
            if self._rules.masked:
                payload = apply_mask(payload, self._key)
            self._take(self._first, payload, events)
        return taken

    def _judge(self, first: int, second: int) -> None:
        """Look at the first two bytes of a frame."""
        if (second & MASKED != 0) != self._rules.masked:
            # RFC 6455 §5.1.
            if self._rules.masked:
                whose = "a client's frames must be masked"
            else:
                whose = "a server's frames must not be masked"
            raise Broken(PROTOCOL_ERROR, whose)
        opcode = first & 15
        reserved = first & 0x70
        # RFC 6455 §5.2; RSV1 marks the first frame of a compressed message (RFC 7692 §6).
        if reserved and (reserved != COMPRESSED or self._deflate is None or opcode not in (TEXT, BINARY)):
            raise Broken(PROTOCOL_ERROR, "a reserved bit is set")
        if opcode >= CLOSE:
            if opcode > PONG:
                raise Broken(PROTOCOL_ERROR, "unknown opcode")
            # RFC 6455 §5.5.
            if not first & FIN or second & 127 > LONGEST_CONTROL:
                raise Broken(PROTOCOL_ERROR, "a control frame must be whole and short")
        elif opcode > BINARY:
            raise Broken(PROTOCOL_ERROR, "unknown opcode")
        elif (opcode == CONTINUATION) != bool(self._kind):
            # RFC 6455 §5.4: the parts of one message come in order, and no other's between them.
            raise Broken(PROTOCOL_ERROR, "a part of a message is out of place")
        elif opcode == BINARY and not self._rules.accept_binary:
            raise Broken(UNSUPPORTED, "only text is understood")

    def _judge_size(self, first: int, size: int, least: int) -> None:
        """Refuse a length that could be written in fewer bytes (RFC 6455 §5.2), and a message over the limit."""
        if size < least:
            raise Broken(PROTOCOL_ERROR, "a length is not in its shortest form")
        if first & 15 < CLOSE:
            raise Broken(TOO_BIG, f"the limit is {self._rules.max_size} bytes")

    def _take(self, first: int, payload: bytes, events: list[Event]) -> None:
        """Take a whole frame whose head was judged."""
        if first == LAST_TEXT and not self._kind:
            if self._rules.validate_utf8 and not payload.isascii():
                _check_text(payload)
            events.append(payload)
        elif first & 15 >= CLOSE:
            self._control(first & 15, payload, events)
        else:
            self._part(first, payload, events)

    def _control(self, opcode: int, payload: bytes, events: list[Event]) -> None:
        if opcode == CLOSE:
            events.append(read_closing(payload))
            self.stop()
        else:
            events.append(Control(opcode, payload))

    def _part(self, first: int, payload: bytes, events: list[Event]) -> None:
        if not self._kind:
            self._kind = first
            self._fragments = 0
            self._text.reset()
            self.unfinished = -abs(self.unfinished) - 1
        self._fragments += 1
        if self._fragments > MAX_FRAGMENTS:
            raise Broken(TOO_BIG, f"more than {MAX_FRAGMENTS} parts")
        self._parts += payload
        last = bool(first & FIN)
        packed = self._kind & COMPRESSED
        if self._rules.validate_utf8 and not packed and self._kind & 15 == TEXT:
            try:
                self._text.decode(payload, last)
            except UnicodeDecodeError:
                raise Broken(BAD_DATA, "the text is not UTF-8") from None
        if last:
            message = bytes(self._parts)
            kind = self._kind & 15
            self._parts = bytearray()
            self._kind = 0
            self.unfinished = -self.unfinished
            if packed:
                message = self._unpack(message, kind)
            self._unfolded += len(message)
            events.append(message if kind == TEXT else Binary(message))

    def _unpack(self, packed: bytes, kind: int) -> bytes:
        assert self._deflate is not None
        try:
            message = self._deflate.inflate(packed, self._rules.max_size)
        except Undeflatable:
            raise Broken(BAD_DATA, "the compressed data is damaged") from None
        if message is None:
            raise Broken(TOO_BIG, f"the limit is {self._rules.max_size} bytes")
        if self._rules.validate_utf8 and kind == TEXT:
            _check_text(message)
        return message


def _check_text(payload: bytes) -> None:
    """Refuse a text that is not UTF-8 (RFC 6455 §8.1)."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise Broken(BAD_DATA, "the text is not UTF-8") from None


def read_closing(payload: bytes) -> Closing:
    """Read the content of a close frame (RFC 6455 §5.5.1, §7.4); raises Broken."""
    if not payload:
        return Closing(NO_CODE)
    code = int.from_bytes(payload[:2])
    if len(payload) == 1 or (code not in SENDABLE and not 3000 <= code < 5000):
        raise Broken(PROTOCOL_ERROR, "a close frame has a code nobody may send")
    try:
        return Closing(code, payload[2:].decode())
    except UnicodeDecodeError:
        raise Broken(BAD_DATA, "the reason of the close is not UTF-8") from None


MOST_IN_A_TEXT = 1000
"""How many messages one text may hold; one with more is refused as a whole."""


def split_messages(text: bytes) -> list[bytes]:
    """Cut a text message into the JSON messages it holds: lines, unless all of it is one value spread over lines."""
    if text.find(b"\n", 0, -1) < 0:
        return [text[:-1] if text.endswith(b"\n") else text]
    try:
        msgspec_json.decode(text, type=Raw)
    except (ValueError, RecursionError):
        # Some end a line with CRLF, and a blank line is none; but a text of nothing else is not cut to find that out.
        if text.count(b"\n") + text.count(b"\r") > 4 * MOST_IN_A_TEXT:
            return [text]
        lines = []
        for line in text.replace(b"\r", b"\n").split(b"\n"):
            if line.strip():
                lines.append(line)
        if 0 < len(lines) <= MOST_IN_A_TEXT:
            return lines
        return [text]
    return [text]
