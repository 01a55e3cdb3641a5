"""One timer for everything that waits: a call that runs for long begins to stream, a stream shows that it lives.

A timer for each of thousands would cost more than what it watches over. Only a stream whose reader's credentials end
has one of its own, so that it ends with them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Protocol


class PendingExchange(Protocol):
    """An exchange that has sent nothing for a while."""

    def begin_stream(self) -> None:
        """Answer with a stream from here on."""


class OpenStream(Protocol):
    """A stream somebody reads."""

    bucket: set[OpenStream] | None
    expires: float
    """When the credentials of its reader end, in seconds since 1970."""

    def send_keepalive(self) -> None:
        """Send something that means nothing."""

    def expire(self) -> None:
        """Send the reader away: who it is is not proved any more."""


class Keepalive:
    """Ticks while anything is watched."""

    def __init__(self, quiet: float, keepalive: float, on_tick: Callable[[float], None]) -> None:
        self._quiet = quiet
        self._on_tick = on_tick
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.pending: set[PendingExchange] = set()
        """Exchanges that owe an answer since the last tick."""
        self._overdue: set[PendingExchange] = set()
        """Those that owed one at that tick already; they begin to stream at the next."""
        self._buckets: list[set[OpenStream]] = [set() for _ in range(max(1, int(keepalive // quiet)))]
        """The open streams, those of one bucket a tick: so each shows once in `keepalive` seconds that it lives."""
        self._turn = 0
        """The bucket whose turn it was at the last tick."""
        self._expiries: dict[OpenStream, asyncio.TimerHandle] = {}
        """What ends a stream with the credentials of its reader."""
        self.clock: Callable[[], float] = time.time
        """Seconds since 1970, as credentials count."""
        self.cuts = 0
        """How many streams were cut because their readers lagged too far behind."""

    @property
    def open_streams(self) -> int:
        """How many streams somebody reads now."""
        return sum(map(len, self._buckets))

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to tick."""
        self._loop = loop
        self._timer = loop.call_later(self._quiet, self._tick)

    def stop(self) -> None:
        """Tick no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for expiry in self._expiries.values():
            expiry.cancel()
        self._expiries.clear()

    def answered(self, exchange: PendingExchange) -> None:
        """Called when an exchange waits no longer."""
        self.pending.discard(exchange)
        if self._overdue:
            self._overdue.discard(exchange)

    def streams(self, stream: OpenStream) -> None:
        """Watch over a stream."""
        stream.bucket = self._buckets[self._turn]
        stream.bucket.add(stream)
        if stream.expires < math.inf:
            self._await_expiry(stream)

    def ended(self, stream: OpenStream) -> None:
        """Watch over a stream no longer."""
        if stream.bucket is not None:
            stream.bucket.discard(stream)
            stream.bucket = None
        if self._expiries:
            expiry = self._expiries.pop(stream, None)
            if expiry is not None:
                expiry.cancel()

    def _await_expiry(self, stream: OpenStream) -> None:
        assert self._loop is not None
        delay = max(0.0, stream.expires - self.clock())
        self._expiries[stream] = self._loop.call_later(delay, self._look, stream)

    def _look(self, stream: OpenStream) -> None:
        """End a stream at its time; the clock on the wall may have been set back since the timer was."""
        if stream.expires <= self.clock():
            stream.expire()
        else:
            self._await_expiry(stream)

    def _tick(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(self._quiet, self._tick)
        late = self._overdue
        self._overdue = self.pending
        self.pending = set()
        for exchange in late:
            exchange.begin_stream()
        self._turn = (self._turn + 1) % len(self._buckets)
        now = self.clock()
        for stream in list(self._buckets[self._turn]):
            if stream.expires <= now:
                stream.expire()
            else:
                stream.send_keepalive()
        self._on_tick(self._loop.time())
