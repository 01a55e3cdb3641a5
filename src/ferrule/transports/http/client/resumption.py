"""Streams of the handshake era that are resumed when their connection ends before they do.

Rule: a stream is asked for again after the pause its server wished, at least; after MAX_FRUITLESS attempts in a row
that brought nothing it is given up. With the usual pauses that is about half a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from ferrule.errors import FerruleError
from ferrule.transports.http.client.credentials import Claim, Gate
from ferrule.transports.http.client.headers import RequestHeaders
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.client.pool import Lane, Pool
from ferrule.transports.http.client.request import HttpExchange
from ferrule.wire.channel import Gap, Origin
from ferrule.wire.messages import Id
from ferrule.wire.sse import Event

logger = logging.getLogger("ferrule.transports")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 60.0
"""What a server's `retry` is clamped to, in seconds."""

USUAL_PAUSE = 1.0
MAX_FRUITLESS = 5

LONG_ENOUGH = 5.0
"""How many seconds a silent stream must last to count as one that works."""


class StreamOwner(Protocol):
    """The channel a stream belongs to."""

    options: HttpOptions
    heading: RequestHeaders
    loop: asyncio.AbstractEventLoop
    pool: Pool
    gate: Gate | None
    """Knows who we are; None where nobody asked."""

    @property
    def closing(self) -> bool:
        """Whether nothing more is sent."""

    def submit(self, asked: HttpExchange) -> None:
        """Let a request have a connection as soon as there is one."""

    def deliver(self, frame: bytes, origin: Origin | None = None) -> None:
        """Hand a message up."""

    def gap(self, lost: Gap) -> None:
        """Called when the stream is gone."""

    def stood(self) -> None:
        """Called when the server answered when it was asked for the stream of notifications."""


class Resumable(HttpExchange):
    """A stream of events whose rest can be asked for."""

    __slots__ = ("_began", "_fruitful", "channel", "claim", "fruitless", "timer")

    def __init__(self, channel: StreamOwner, request: bytes, lane: Lane) -> None:
        super().__init__(request, lane, channel.options.max_message_size)
        self.channel = channel
        self.claim: Claim | None = None
        """What it said of who sends it, where there are credentials."""
        self.fruitless = 0
        """How many attempts in a row brought nothing."""
        self.timer: asyncio.TimerHandle | None = None
        self._fruitful = False
        self._began = 0.0

    def head_received(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Note when a stream begins."""
        super().head_received(status, headers)
        if self.streams:
            self._began = self.channel.loop.time()

    def event_received(self, event: Event) -> None:
        """Note that something came; whatever it is, the stream works."""
        self._fruitful = True
        if event.data and event.name == "message":
            self.frame_received(event.data)

    @property
    def pause(self) -> float:
        """How long the server wants to be left alone before it is asked again."""
        retry = None if self.events is None else self.events.retry
        if retry is None:
            return USUAL_PAUSE
        return min(max(retry / 1000, SHORTEST_PAUSE), LONGEST_PAUSE)

    def come_back(self) -> bool:
        """Ask for the rest later; False when that was tried in vain too often."""
        lasted = self.streams and self.channel.loop.time() - self._began >= LONG_ENOUGH
        if self._fruitful or lasted:
            self.fruitless = 0
        else:
            self.fruitless = self.fruitless + 1
        self._fruitful = False
        if self.fruitless >= MAX_FRUITLESS or self.channel.closing:
            return False
        wait = self.pause
        if self.fruitless > 1:
            options = self.channel.options
            wait = max(wait, options.backoff.delay(self.fruitless - 1, options.chance))
        self.timer = self.channel.loop.call_later(wait, self._resume)
        return True

    def _resume(self) -> None:
        self.timer = None
        self.lane = "urgent"
        self.ask()

    def ask(self) -> None:
        """Ask for the stream, or for what follows the last event of it."""
        gate = self.channel.gate
        if gate is None:
            self.authorized(b"")
        else:
            gate.admit(self, "GET", self.channel.heading.place)

    def authorized(self, lines: bytes) -> None:
        """Send the request for the stream, with these lines."""
        if self.channel.closing:
            return
        last_id = "" if self.events is None else self.events.last_id
        self.begin_again(self.channel.heading.get(last_id, lines))
        self.channel.submit(self)

    def send_once_more(self) -> None:
        """Ask again for a stream that was refused."""
        self.ask()

    @property
    def operation(self) -> str:
        """What is asked, as credentials count it."""
        return "GET"

    def stop(self) -> None:
        """Read no more, and ask for no more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.claim = None
        self.let_go()
        self.channel.pool.withdraw(self)

    # -- for subclasses

    unanswered: Sequence[Id]
    """The requests that wait for it."""

    def unauthorized(self, error: FerruleError) -> None:
        """Called when there are no credentials to be had."""
        raise NotImplementedError

    def frame_received(self, frame: bytes) -> None:
        """Take one message of the stream."""
        raise NotImplementedError


class StandingStream(Resumable):
    """The stream for what belongs to no request: notifications and questions of the server."""

    __slots__ = ()

    unanswered: Sequence[Id] = ()

    def __init__(self, channel: StreamOwner) -> None:
        super().__init__(channel, b"", "urgent")

    def head_received(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Let the conversation begin once the server has answered."""
        super().head_received(status, headers)
        self.channel.stood()

    def frame_received(self, frame: bytes) -> None:
        """Hand the message on."""
        self.channel.deliver(frame)

    def answered(self) -> None:
        """A server may end the stream at any time, and need not have one."""
        if self.channel.gate is not None and self.channel.gate.takes_over(self):
            return
        if self.streams or self.status in self.channel.options.retry_statuses:
            self._again(f"it answered {self.status}")
        elif self.status == 404 and self._began:
            # A session that is over is noticed, and dealt with, by the next request.
            self.channel.gap("stream")
        elif self.status not in (404, 405):
            logger.info("%s has no stream for notifications: it answered %d", self.channel.heading.place, self.status)

    def failed(self, error: Exception) -> None:
        """What is cut can be resumed."""
        self.channel.stood()
        self._again(error)

    def unauthorized(self, error: FerruleError) -> None:
        """Go on without the stream; it is asked for again when the server knows us."""
        self.channel.stood()
        if not self.channel.closing:
            logger.info("%s gives no stream for notifications: %s", self.channel.heading.place, error)
            self.channel.gap("stream")

    def _again(self, why: Exception | str) -> None:
        if not self.come_back() and not self.channel.closing:
            place = self.channel.heading.place
            logger.warning("gave up the stream of notifications from %s: %s", place, why)
            self.channel.gap("stream")
