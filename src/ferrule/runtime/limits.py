"""How much, how often and how many at once, decided without a clock: the time comes in as an argument."""

from __future__ import annotations

import math
from collections.abc import Hashable

from ferrule.errors import SetupError

# Rounding may leave a token a hair short at the very moment `wait` named; the debt is carried, so nothing is gained.
TOKEN_SLACK = 1e-3


class TokenBucket:
    """Lets `burst` through at once and `rate` a second in the long run."""

    __slots__ = ("_seen", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        if not (rate >= 0 and burst >= 1):
            raise SetupError(f"a token bucket needs a rate of at least 0 and a burst of at least 1: {rate}, {burst}")
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._seen = -math.inf

    def take(self, now: float, n: float = 1) -> bool:
        """Take `n` tokens if there are as many."""
        self._fill(now)
        if self._tokens + TOKEN_SLACK < n:
            return False
        self._tokens -= n
        return True

    def wait(self, now: float) -> float:
        """Return the seconds until one token can be taken."""
        self._fill(now)
        lacking = 1 - self._tokens
        if lacking <= TOKEN_SLACK:
            return 0.0
        return lacking / self.rate if self.rate else math.inf

    def _fill(self, now: float) -> None:
        if now <= self._seen:
            return
        if self._tokens < self.burst:
            self._tokens = min(self.burst, self._tokens + (now - self._seen) * self.rate)
        self._seen = now


class Coalescer:
    """Thins out notices: the first at once, then at most one per interval and key, and never losing the last."""

    __slots__ = ("_scheduled", "_sent", "interval")

    def __init__(self, interval: float = 0.1) -> None:
        self.interval = interval
        self._sent: dict[Hashable, float] = {}
        self._scheduled: set[Hashable] = set()

    def poke(self, key: Hashable, now: float) -> float | None:
        """Called on a change: 0.0 sends now, a positive delay schedules a notice, None means one is scheduled."""
        if key in self._scheduled:
            return None
        sent = self._sent.get(key)
        if sent is None:
            delay = 0.0
        else:
            delay = min(sent + self.interval - now, self.interval)
        if delay > 0:
            self._scheduled.add(key)
            return delay
        self._note_sent(key, now)
        return 0.0

    def fired(self, key: Hashable, now: float) -> None:
        """Called when the scheduled notice is being sent."""
        self._scheduled.discard(key)
        self._note_sent(key, now)

    def _note_sent(self, key: Hashable, now: float) -> None:
        sent = self._sent
        # Reinserting keeps the oldest send first, so forgetting what no longer matters costs nothing per key.
        sent.pop(key, None)
        sent[key] = now
        while sent and sent[oldest := next(iter(sent))] + self.interval <= now:
            del sent[oldest]
