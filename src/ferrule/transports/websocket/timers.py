"""What is due on a WebSocket, and when: pings, pongs, the rest of a message, a peer that does not read, the end.

Rule: pure. The clock is an argument, and so is everything that was seen since the last look.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from ferrule.transports.websocket.settings import ChannelSettings

NEVER = math.inf

Due = Literal["", "ping", "no pong", "no end", "stuck", "read on", "cut"]


class Seen(Struct):
    """What a look needs to know of the channel."""

    received: int
    """Bytes so far."""
    taken: int
    """Bytes the peer took so far of what we wrote."""
    congested: bool
    """Whether more waits for the peer than should."""
    reading: bool
    """Whether we read at all: else no pong can reach us."""
    inside: bool
    """Whether a frame has come in part: nothing can come between its bytes, a pong included."""
    unfinished: int
    """Which message in parts is under way; not below 0 where none is."""


class Timers:
    """Watches over one WebSocket."""

    __slots__ = (
        "_congested_since",
        "_end_by",
        "_ping_at",
        "_pong_by",
        "_received",
        "_settings",
        "_stuck_by",
        "_taken",
        "_unfinished",
        "_unfinished_by",
    )

    def __init__(self, settings: ChannelSettings, now: float) -> None:
        self._settings = settings
        self._ping_at = now + (settings.ping_interval or NEVER)
        self._pong_by = self._unfinished_by = self._stuck_by = self._congested_since = self._end_by = NEVER
        self._received = self._taken = -1
        self._unfinished = 0

    def end_within(self, now: float, seconds: float) -> None:
        """Cut the connection at the latest then; nothing else is due any more."""
        self._end_by = min(self._end_by, now + seconds)

    def pong(self, now: float) -> None:
        """Called when the peer has answered a ping."""
        self._pong_by = NEVER
        self._ping_at = now + (self._settings.ping_interval or NEVER)

    def look(self, now: float, seen: Seen) -> Due:
        """Return the one thing that is due now."""
        if self._end_by < NEVER:
            if now >= self._end_by:
                return "cut"
            return ""
        return self._look_at_reader(now, seen) or self._look_at_writer(now, seen) or self._look_at_life(now, seen)

    def _look_at_writer(self, now: float, seen: Seen) -> Due:
        if not seen.congested:
            self._congested_since = self._stuck_by = NEVER
            return ""
        timeout = self._settings.backpressure_timeout
        if self._congested_since == NEVER:
            self._congested_since = now
        if seen.taken != self._taken or self._stuck_by == NEVER:
            self._taken = seen.taken
            self._stuck_by = now + timeout
        elif now >= self._stuck_by:
            return "stuck"
        if not seen.reading and now >= self._congested_since + timeout:
            return "read on"
        return ""

    def _look_at_reader(self, now: float, seen: Seen) -> Due:
        if seen.unfinished >= 0:
            self._unfinished_by = NEVER
        elif seen.unfinished != self._unfinished or self._unfinished_by == NEVER:
            self._unfinished_by = now + self._settings.fragment_timeout
        self._unfinished = seen.unfinished
        if now >= self._unfinished_by:
            return "no end"
        return ""

    def _look_at_life(self, now: float, seen: Seen) -> Due:
        moved = seen.received != self._received
        self._received = seen.received
        if self._pong_by < NEVER:
            if not seen.reading or (seen.inside and moved):
                self._pong_by = now + self._settings.pong_timeout
            if now >= self._pong_by:
                return "no pong"
            return ""
        if now >= self._ping_at:
            self._pong_by = now + self._settings.pong_timeout
            return "ping"
        return ""
