"""One HTTP request of a client and its answer: read whole, or as a stream of events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Raw, Struct, UnsetType

from ferrule.budgets import process
from ferrule.errors import CallFailed, InvalidAnswer
from ferrule.transports.http.client.connection import HttpConnection
from ferrule.wire.codec import Unreadable, decode
from ferrule.wire.messages import Failure, Id
from ferrule.wire.sse import Event, EventTooLarge, SseParser

if TYPE_CHECKING:
    from ferrule.transports.http.client.pool import Lane

JSON = b"application/json"
STREAM = b"text/event-stream"

SLICE = 8 * 1024
"""Bytes of a stream that are read in one turn of the loop, where they hold many events."""
MANY_LINES = 256
"""Line ends in one piece of a stream from which on it is read in slices."""

SMALL = 64 * 1024
"""Bytes of an answer that is not whole yet that are counted in no account: there are only so many connections."""

MAX_PAGE = 64 * 1024
"""How much of an answer is kept that is neither an answer nor a stream: enough to find an error in it."""


CROWDED = (
    "the answers that are being read are together larger than ferrule.budgets.process.requests allows; "
    "ask for fewer at once"
)


class Kind(Struct, gc=False):
    """Enough of a message to tell a response from the rest."""

    method: Raw | UnsetType = msgspec.UNSET
    id: Id | UnsetType | None = msgspec.UNSET


_read_kind = msgspec.json.Decoder(Kind).decode


def answers(frame: bytes, identity: Id) -> bool:
    """Return whether a frame is the response to a request of ours."""
    try:
        kind = _read_kind(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return kind.method is msgspec.UNSET and kind.id == identity and type(kind.id) is type(identity)


def failure_in(body: bytes) -> Failure | None:
    """Find the JSON-RPC error in the body of an answer, whatever its id is."""
    try:
        message = decode(body)
    except Unreadable:
        return None
    if isinstance(message, Failure):
        return message
    return None


class HttpExchange:
    """One request and its answer; what is to be done with the answer is for subclasses to say."""

    __slots__ = (
        *("_backlog", "_debit", "_end", "_parts", "_size", "connection", "events", "headers", "kind", "lane"),
        *("max_size", "request", "status", "streams"),
    )

    def __init__(self, request: bytes, lane: Lane, max_size: int) -> None:
        self.request = request
        self.lane: Lane = lane
        self.max_size = max_size
        self.connection: HttpConnection | None = None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.kind = b""
        """The content type of the answer, without its parameters."""
        self.streams = False
        """Whether the answer is a stream of events."""
        self.events: SseParser | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._debit = 0
        """What this answer holds in the account of messages that are not whole yet."""
        self._backlog = b""
        """What came of a stream and is not read yet: the loop has other things to do in between."""
        self._end: Exception | Literal["open"] | None = "open"
        """How the answer ended while there was a backlog: None in order, else by a failure."""

    # -- what a connection tells

    def head_received(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Find out what kind of answer comes."""
        self.status = status
        self.headers = headers
        kind = headers.get(b"content-type", b"")
        if kind in (JSON, STREAM):
            self.kind = kind
        else:
            self.kind = kind.partition(b";")[0].strip().lower()
        if self.kind == STREAM and status == 200:
            self._begin_stream()
        elif headers.get(b"content-encoding", b"identity") != b"identity":
            self.refuse("the server compressed its answer, which we did not ask for")

    def _begin_stream(self) -> None:
        self.streams = True
        before = self.events
        self.events = SseParser(self.max_size)
        if before is not None:
            self.events.resume(before)
        if self.connection is not None:
            self.connection.streaming = True
            self.connection.since = asyncio.get_running_loop().time()

    def body_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        if self.streams and self.events is not None:
            if self._backlog:
                self._backlog += data
            elif len(data) > SLICE and data.count(b"\n") + data.count(b"\r") > MANY_LINES:
                self._backlog = data
                if self.connection is not None:
                    self.connection.pause()
                self._read_on()
            else:
                self._read_events(data)
            return
        self._size += len(data)
        if self.kind == JSON:
            if self._size > self.max_size:
                self.refuse(f"the server's answer is longer than the limit of {self.max_size} bytes")
                return
        elif self._size > MAX_PAGE:
            return
        self._parts.append(data)
        if self._size > SMALL and not self._account(self._size):
            self.refuse(CROWDED)

    def _read_events(self, data: bytes) -> None:
        assert self.events is not None
        try:
            for event in self.events.feed(data):
                self.event_received(event)
        except EventTooLarge as error:
            self.refuse(f"{error}")
            return
        held = self.events.held
        if (held > SMALL or self._debit) and not self._account(held):
            self.refuse(CROWDED)

    def _read_on(self) -> None:
        """Read the next slice of a backlog, and the rest in turns of the loop to come."""
        piece = self._backlog[:SLICE]
        self._backlog = self._backlog[SLICE:]
        if piece:
            self._read_events(piece)
        if self._backlog:
            asyncio.get_running_loop().call_soon(self._read_on)
            return
        if self._end == "open":
            if self.connection is not None:
                self.connection.resume()
            return
        end = self._end
        self.let_go()
        if end is None:
            self.answered()
        else:
            self.failed(end)

    def _account(self, size: int) -> bool:
        """Debit what is held of an answer that is not whole; whether there was room."""
        more = size - self._debit
        if more > 0 and not process.requests.take(more):
            return False
        if more < 0:
            process.requests.give(-more)
        self._debit = size
        return True

    def let_go(self) -> None:
        """Called when nobody wants the answer any more: forget what was not read, and credit what was held."""
        self._backlog = b""
        self._end = "open"
        if self._debit:
            process.requests.give(self._debit)
            self._debit = 0

    def ended(self) -> None:
        """Called when the answer is complete."""
        connection = self.connection
        self.connection = None
        if self._backlog:
            self._end = None
            if connection is not None:
                connection.resume()
            return
        self.let_go()
        self.answered()

    def lost(self, error: Exception) -> None:
        """Called when no more of the answer will come."""
        self.connection = None
        if self._backlog:
            self._end = error
            return
        self.let_go()
        self.failed(error)

    # -- the answer

    @property
    def body(self) -> bytes:
        """What came, where the answer is no stream."""
        if len(self._parts) == 1:
            return self._parts[0]
        return b"".join(self._parts)

    def begin_again(self, request: bytes) -> None:
        """Forget the answer, to be sent once more."""
        self.request = request
        self.let_go()
        self.status = 0
        self.headers = {}
        self.streams = False
        self._parts = []
        self._size = 0

    def refuse(self, why: str) -> None:
        """Cut an answer that cannot be taken."""
        if self.connection is not None:
            self.connection.abort()
            self.connection = None
        self.let_go()
        self.failed(InvalidAnswer(why))

    # -- for subclasses

    def event_received(self, event: Event) -> None:
        """Take one event of a stream."""

    def answered(self) -> None:
        """Judge an answer that is complete."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """Judge an answer that will never be complete."""
        raise NotImplementedError


class SingleExchange(HttpExchange):
    """A request of the transport's own, awaited: the future holds the message that answers it, or its empty body."""

    __slots__ = ("done", "identity")

    def __init__(self, request: bytes, lane: Lane, max_size: int, identity: Id | None = None) -> None:
        super().__init__(request, lane, max_size)
        self.identity = identity
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def event_received(self, event: Event) -> None:
        """The response among the events is the answer; what follows it is not waited for."""
        if self.identity is not None and event.data and answers(event.data, self.identity):
            connection = self.connection
            self.connection = None
            self._settle(event.data)
            if connection is not None:
                connection.abort()

    def answered(self) -> None:
        """Called when the answer is whole: set the result."""
        if self.streams:
            self.failed(CallFailed("the server ended its stream without an answer"))
        else:
            self._settle(self.body)

    def failed(self, error: Exception) -> None:
        """Called when it failed: set the exception."""
        if not self.done.done():
            self.done.set_exception(error)

    def _settle(self, body: bytes) -> None:
        if not self.done.done():
            self.done.set_result(body)
