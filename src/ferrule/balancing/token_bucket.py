"""How often, decided without a clock: the time comes in as an argument."""

from __future__ import annotations

import math

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
        if now > self._seen:
            self._fill(now)
        tokens = self._tokens
        if tokens + TOKEN_SLACK < n:
            return False
        self._tokens = tokens - n
        return True

    def wait(self, now: float) -> float:
        """Return the seconds until one token can be taken."""
        self._fill(now)
        lacking = 1 - self._tokens
        if lacking <= TOKEN_SLACK:
            return 0.0
        return lacking / self.rate if self.rate else math.inf

    def left(self, now: float) -> int:
        """Return how many whole tokens there are."""
        self._fill(now)
        return max(0, math.floor(self._tokens + TOKEN_SLACK))

    def full_in(self, now: float) -> float:
        """Return the seconds until the bucket is full."""
        self._fill(now)
        lacking = self.burst - self._tokens
        if lacking <= TOKEN_SLACK:
            return 0.0
        return lacking / self.rate if self.rate else math.inf

    def _fill(self, now: float) -> None:
        if now <= self._seen:
            return
        if self._tokens < self.burst:
            self._tokens = min(self.burst, self._tokens + (now - self._seen) * self.rate)
        self._seen = now
