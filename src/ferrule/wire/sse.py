"""Server-sent events: write one, parse a stream, by WHATWG HTML §9.2.

Rule: an event counts when its blank line has come; what a cut stream left unfinished is forgotten (§9.2.6).
"""

from __future__ import annotations

from msgspec import Struct

from ferrule.wire.codec import MAX_MESSAGE_SIZE

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

EVENT_OVERHEAD = 1024
"""How much longer than its message the line that carries it may be: field name, id and the like."""

MAX_EVENT_ID = 1024
"""Bytes of an event's id that is kept: it is sent back in a header. A longer one is ignored; a name is cut."""

LONGEST_NUMBER = 18
"""Digits of a `retry` we read; a longer one means the same as the largest: whoever waits has a limit of its own."""


class Event(Struct, frozen=True, gc=False):
    """One event that is complete; `id` is the newest the stream has named, on this event or an earlier one."""

    data: bytes
    name: str = "message"
    id: str = ""


class EventTooLarge(Exception):
    """A stream brought an event longer than the limit; nothing after it can be trusted to be its own."""

    def __init__(self, max_size: int) -> None:
        super().__init__(f"an event is longer than the limit of {max_size} bytes")
        self.max_size = max_size


def event(
    data: bytes,
    id: str | None = None,  # noqa: A002 - the wire's word
    name: str | None = None,
    retry: int | None = None,
) -> bytes:
    """Write one event; data of several lines is written as several and read back as one."""
    head = ""
    if name is not None:
        head = f"event: {_one_line(name)}\n"
    if id is not None:
        head += f"id: {_one_line(id)}\n"
    if retry is not None:
        head += f"retry: {retry}\n"
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"%bdata: %b\n\n" % (head.encode(), data)


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError(f"an event's name or id cannot hold a line end or a zero: {text!r}")
    return text


class SseParser:
    """Takes a stream piece by piece, however it was cut, and returns the events as they become complete."""

    def __init__(self, max_size: int = MAX_MESSAGE_SIZE) -> None:
        self.max_size = max_size
        self.last_id = ""
        """The newest id of a complete event: what a resume names as Last-Event-ID."""
        self.retry: int | None = None
        """How many milliseconds the server asked to be left alone before a reconnect."""
        self._parts: list[bytes] = []
        self._held = 0
        self._begun = self._after_return = False
        self._data: bytearray | None = None
        self._name = self._id = ""

    @property
    def held(self) -> int:
        """Bytes of the event that is not complete yet."""
        return self._held + (0 if self._data is None else len(self._data))

    def resume(self, before: SseParser) -> None:
        """Go on where another reading of the same stream was cut."""
        self.last_id = self._id = before.last_id
        self.retry = before.retry

    def feed(self, data: bytes) -> list[Event]:
        """Take the next piece. Return the events it completed; raises EventTooLarge."""
        # WHATWG HTML §9.2.5: a line ends with CRLF, LF or CR, and one byte order mark may come first.
        if self._after_return and data:
            self._after_return = False
            if data[0] == 0x0A:
                data = data[1:]
        if data.find(b"\r") >= 0:  # `in` would make an exception: it asks first whether this is a number
            self._after_return = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if data.find(b"\n") < 0:
            self._hold(data)
            return []
        if self._parts:
            data = b"".join((*self._parts, data))
            self._parts.clear()
        *lines, rest = data.split(b"\n")
        self._held = 0
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        events: list[Event] = []
        for line in lines:
            if line:
                self._field(line)
            else:
                self._end(events)
        self._hold(rest)
        return events

    def _hold(self, part: bytes) -> None:
        """Keep the beginning of a line until the rest of it comes."""
        if part:
            self._parts.append(part)
            self._held += len(part)
            if self._held > self.max_size + EVENT_OVERHEAD:
                raise EventTooLarge(self.max_size)

    def _field(self, line: bytes) -> None:
        """Take one line that is not blank (WHATWG HTML §9.2.6); a comment begins with its colon, and has no name."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._name = value[:MAX_EVENT_ID].decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value and len(value) <= MAX_EVENT_ID:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value[:LONGEST_NUMBER])

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = bytearray(value)
        else:
            self._data += b"\n"
            self._data += value
        if len(self._data) > self.max_size:
            raise EventTooLarge(self.max_size)

    def _end(self, events: list[Event]) -> None:
        """Dispatch the event at its blank line; one without data only sets the id."""
        self.last_id = self._id
        if self._data is not None:
            events.append(Event(bytes(self._data), self._name or "message", self._id))
        self._data = None
        self._name = ""
