"""One stream of an HTTP/2 connection: a request while it comes in, and the way back of its answer.

Rule: a stream holds what the peer's windows do not let go yet (RFC 9113 §5.2). That is on the account of answers, as
what a connection of HTTP/1.1 holds for a slow reader is; what has come of an unfinished request is on that of requests.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from h2.errors import ErrorCodes

from ferrule.telemetry.observer import ObservedExchange
from ferrule.transports.backpressure import Waiters
from ferrule.transports.backpressure import backlog as unread
from ferrule.transports.http.engine.answer import WITHOUT_LENGTH
from ferrule.transports.http.engine.head_parser import Head, Unacceptable
from ferrule.transports.http.engine.state import RETRY_AFTER, EngineState
from ferrule.transports.http.heads import TEXT_HEAD

COMING, WHOLE, OVER = range(3)
"""The phases of a request: its body comes; it came whole, or no more of it is wanted; its stream has ended."""

HIGH_WATER = 64 * 1024
LOW_WATER = 16 * 1024
"""Whoever writes an answer waits while more than the first is held, until it is less than the second."""
NEVER = math.inf


class Outlet(Protocol):
    """What sends the answers of a connection."""

    def send_head(self, stream: Stream, head: bytes, *, ends: bool) -> None:
        """Send the fields of an answer; with `ends` they are all of it. What is written with them follows at once."""

    def send_waiting(self, stream: Stream) -> None:
        """Send what was written, as far as the peer's windows let it go."""


class Multiplexer(Protocol):
    """What a stream needs of its connection."""

    address: str

    @property
    def engine_state(self) -> EngineState:
        """What it has in common with others."""

    @property
    def out(self) -> Outlet:
        """What sends its answers."""

    def reset(self, stream: Stream, code: ErrorCodes) -> None:
        """Cancel a stream (RFC 9113 §6.4)."""


class Stream:
    """One request and the answer to it; see `Responder`."""

    __slots__ = (
        "_began",
        "_connection",
        "_held",
        "_holding",
        "_lost",
        "_waiters",
        "begun",
        "body",
        "body_end",
        "deadline",
        "ending",
        "head",
        "number",
        "peer_ended",
        "phase",
        "received",
        "sent",
        "status",
        "stuck_at",
        "waiting",
    )

    unacknowledged: int | None = None
    """What TCP acknowledges belongs to many streams: nobody can tell."""

    def __init__(self, connection: Multiplexer, number: int, head: Head) -> None:
        self._connection = connection
        self.number = number
        self.head = head
        self.phase = COMING
        self.peer_ended = False
        """Whether the peer has said all on this stream."""
        self.body = bytearray()
        self.received = 0
        """Bytes of the body that came."""
        self.deadline = NEVER
        """When the request must have come, or more of it."""
        self.body_end = NEVER
        """When it must be whole, however fast it comes."""
        self._held = 0
        """Bytes on the account of requests."""
        self.begun = False
        """Whether the fields of the answer were sent."""
        self.ending = False
        """Whether nothing more is written."""
        self.status = 0
        self.sent = 0
        """Bytes of the answer that were handed to the transport."""
        self.waiting = bytearray()
        """What the peer's windows do not let go yet."""
        self.stuck_at = NEVER
        """When the peer must have taken more of it."""
        self._holding: Holding | None = None
        self._lost: Callable[[], None] | None = None
        self._waiters = Waiters()
        self._began = time.monotonic() if connection.engine_state.reports else 0.0

    # The request.

    def hold(self, more: int) -> bool:
        """Count more bytes of an unfinished request. Return False where there was no room for them."""
        engine_state = self._connection.engine_state
        if not engine_state.debit(self, more):
            self.shed()
            return False
        if self.over:
            # To make room another stream was cancelled, one too many: the whole connection has ended.
            engine_state.credit(self, more)
            return False
        self._held += more
        return True

    def take(self, data: bytes) -> None:
        """Take a part of the body."""
        self.body += data
        self.received += len(data)

    def prolong(self, coming: int) -> None:
        """Extend the deadline of a body that moves, by the rules HTTP/1.1 has; `coming` bytes are of its next frame."""
        self.deadline = self._connection.engine_state.body_deadline(self.body_end, len(self.body) + coming)

    def end_request(self) -> None:
        """Take no more of the request: it is whole, or refused."""
        self.phase = WHOLE
        self.deadline = NEVER
        if self._held:
            self._connection.engine_state.credit(self, self._held)
            self._held = 0

    def shed(self) -> None:
        """Let go of the request that is being read: all of them together take too much."""
        self.refuse(Unacceptable(503, "too many requests are being read", RETRY_AFTER))

    def refuse(self, reason: Unacceptable) -> None:
        """Answer a request that is not handed on, and want no more of it."""
        self.end_request()
        self.body.clear()
        self.reply(reason.status, TEXT_HEAD + reason.head, str(reason).encode() + b"\n")

    # The answer.

    @property
    def over(self) -> bool:
        """Whether the stream has ended."""
        return self.phase == OVER

    @property
    def gone(self) -> bool:
        """Whether nothing more can be written: the answer is finished, or nobody can read it any more."""
        return self.ending or self.phase == OVER

    @property
    def backlog(self) -> int:
        """How many bytes were written and not taken by the peer yet."""
        return len(self.waiting)

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """Send a whole answer."""
        if self.gone:
            return
        if status not in WITHOUT_LENGTH:
            head += b"content-length: %d\r\n" % len(body)
        # RFC 9110 §9.3.2: HEAD is answered with the head alone, and the length the body would have.
        if status in WITHOUT_LENGTH or self.head.method == "HEAD":
            body = b""
        self._begin(status)
        self._end_answer()
        self.waiting += body
        self._connection.out.send_head(self, head, ends=not body)
        self._send()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        """Start an answer of unknown length."""
        if self.gone:
            return
        self._begin(status)
        self._connection.out.send_head(self, head, ends=False)
        self._send()

    def _begin(self, status: int) -> None:
        if self.begun:
            raise RuntimeError("this answer has begun already")
        self.begun = True
        self.status = status

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""
        if data and not self.gone and self.head.method != "HEAD":
            self.waiting += data
            self._send()

    def finish(self) -> None:
        """End the answer."""
        if not self.gone:
            self._end_answer()
            self._send()

    def _end_answer(self) -> None:
        """Let nothing more be written. Whoever watched has done its part, though the peer may still go away."""
        self.ending = True
        self._lost = None

    def _send(self) -> None:
        if not self.over:
            self._connection.out.send_waiting(self)
            self.count_waiting()

    def abort(self) -> None:
        """Cancel the stream: what was written and not taken is lost."""
        if not self.gone:
            self._lost = None
            self._connection.reset(self, ErrorCodes.CANCEL)

    def watch(self, lost: Callable[[], None]) -> None:
        """Call a function, once, if the peer goes away before the answer is finished; the last one given counts."""
        self._lost = lost

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""
        while len(self.waiting) > HIGH_WATER and not self.gone:
            await self._waiters.wait()

    def count_waiting(self) -> None:
        """Put what waits now on the account of answers, and wake who waits for less."""
        size = len(self.waiting)
        if size <= LOW_WATER:
            self._waiters.wake()
        if size:
            if self._holding is None:
                self._holding = Holding(self)
            unread.grew(self._holding, size)
        elif self._holding is not None:
            unread.drained(self._holding)
            self._holding = None

    def cut(self) -> None:
        """Cancel the stream, and tell who watches: what waits for its reader is too much, or waits too long."""
        if not self.over:
            self._connection.reset(self, ErrorCodes.ENHANCE_YOUR_CALM)

    # The end.

    def end(self) -> Callable[[], None] | None:
        """Release everything: the answer is sent, or cannot be. Return what is to be called in the second case."""
        watching = self._lost
        self._lost = None
        self.end_request()
        self.phase = OVER
        self.body.clear()
        self.waiting.clear()
        self.stuck_at = NEVER
        self.count_waiting()
        if self._connection.engine_state.reports:
            self._report()
        return watching

    def _report(self) -> None:
        exchange = ObservedExchange(
            method=self.head.method,
            path=self.head.path,
            status=self.status,
            received=self.received,
            sent=self.sent,
            began=self._began,
            ended=time.monotonic(),
            address=self._connection.address,
        )
        for report in self._connection.engine_state.reports:
            report(exchange)


class Holding:
    """What a stream holds for its reader, as the account of answers sees it."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def backlog(self) -> int:
        """How many bytes wait for the peer now."""
        return len(self._stream.waiting)

    def abort(self) -> None:
        """Cancel the stream; what waits is thrown away."""
        self._stream.cut()
