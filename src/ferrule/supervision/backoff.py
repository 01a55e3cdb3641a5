"""How long to wait before trying again. Pure: chance is an argument."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """How long to wait before the next attempt: longer each time, and less by chance, so that not all come at once."""

    first: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    jitter: float = 0.5
    """How much of the wait chance may take away: 0 none, 1 all."""

    def delay(self, attempt: int, chance: Callable[[], float]) -> float:
        """Return the wait before attempt number `attempt` (the first repetition is 1)."""
        wait = min(self.first * self.factor ** min(attempt - 1, 64), self.longest)
        return wait * (1.0 - self.jitter * chance())
