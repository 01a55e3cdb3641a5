"""Hedging: a safe call that takes unusually long is sent to a second target, and the first answer wins."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from ferrule.balancing.retry import Budget
from ferrule.settings.option import FiniteSeconds, Fraction, PositiveInt, Seconds, check, require

SAMPLES = 1000
"""How many of the last latencies are kept."""
LEAST_SAMPLES = 20
"""With fewer, a percentile says too little to hedge by."""
STALE_AFTER = 100
"""For how many calls a percentile is good enough."""

Percentile = Literal["p50", "p90", "p95", "p99"]
PERCENTILES: dict[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


class Hedge(Struct, frozen=True, kw_only=True):
    """When a safe call is sent to a second target as well."""

    after: Percentile | Seconds = "p95"
    """How long to wait for the first answer: seconds, or a percentile of the last latencies."""
    least: Seconds = 0.05
    """Seconds to wait at least."""
    budget: Fraction = 0.05
    """Hedged calls as a share of all calls in the window."""
    window: FiniteSeconds = 10.0
    """Over how long calls are counted."""

    def __post_init__(self) -> None:
        check(self)


class Latencies:
    """The last latencies of a target, and their percentiles."""

    __slots__ = ("_samples", "add")

    def __init__(self, size: int = SAMPLES) -> None:
        require("size", size, PositiveInt)
        self._samples: deque[float] = deque(maxlen=size)
        self.add: Callable[[float], None] = self._samples.append
        """Adds the latency of one call; the oldest goes when there are too many."""

    def __len__(self) -> int:
        return len(self._samples)

    def percentile(self, share: float) -> float:
        """Return the latency that a share of the calls did not exceed; NaN without calls."""
        if not self._samples:
            return math.nan
        ordered = sorted(self._samples)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class HedgeTimer:
    """Decides when a call is hedged, and how many are."""

    def __init__(self, settings: Hedge, latencies: Latencies) -> None:
        self.settings = settings
        self.latencies = latencies
        self.budget = Budget(settings.budget, 0, settings.window)
        self._known = math.nan
        """The percentile as it was last counted."""
        self._left = 0
        """For how many calls more it is good enough."""

    def delay(self) -> float | None:
        """Return how many seconds to wait for the first answer; None while too little is known to hedge."""
        after = self.settings.after
        if isinstance(after, str):
            if len(self.latencies) < LEAST_SAMPLES:
                return None
            after = self._percentile(PERCENTILES[after])
        return max(after, self.settings.least)

    def _percentile(self, share: float) -> float:
        """Return a percentile that up to 100 of the newest calls may not be counted in."""
        self._left -= 1
        if self._left < 0 or len(self.latencies) < STALE_AFTER:
            self._known = self.latencies.percentile(share)
            self._left = STALE_AFTER
        return self._known

    def called(self, now: float) -> None:
        """Count a call."""
        self.budget.called(now)

    def take(self, now: float) -> bool:
        """Whether a call may be hedged now; True counts it."""
        return self.budget.take(now)
