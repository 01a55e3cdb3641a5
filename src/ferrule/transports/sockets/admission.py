"""How many connections may be open at once: to one listener, and to all of this process together.

Rule: pure but for the log; whoever took a place gives it back, whatever happened in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from msgspec import Struct

from ferrule.errors import SetupError

logger = logging.getLogger("ferrule.transports")

ALERT_AT = 0.7
ALERT_EVERY = 60.0
MAX_PROCESS_CONNECTIONS = 10_000


class Occupancy(Struct, frozen=True):
    """How full a place is."""

    current: int
    limit: int | None
    most: int
    refused: int


class Admission:
    """Counts who is inside and keeps out who is too many; one within another counts in both."""

    __slots__ = ("_alerted_at", "_clock", "_count", "_limit", "_most", "_refused", "name", "within")

    def __init__(
        self,
        name: str,
        limit: int | None,
        *,
        within: Admission | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.within = within
        self.limit = limit
        self._clock = clock
        self._count = self._most = self._refused = 0
        self._alerted_at = -ALERT_EVERY

    @property
    def limit(self) -> int | None:
        """How many may be inside; None: as many as come. May be set at any time, whoever is inside stays."""
        return self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise SetupError(f"a limit of connections is at least 1, or None for no limit, not {limit!r}")
        self._limit = limit

    @property
    def occupancy(self) -> Occupancy:
        """How full it is now."""
        return Occupancy(self._count, self._limit, self._most, self._refused)

    def enter(self) -> str:
        """Take a place. Return why not where there is none left, else an empty text."""
        if self._limit is not None and self._count >= self._limit:
            self._refused += 1
            return f"{self.name} takes {self._limit} connections at once"
        if self.within is not None and (refused := self.within.enter()):
            self._refused += 1
            return refused
        self._count += 1
        self._most = max(self._most, self._count)
        if self._limit is not None and self._count >= self._limit * ALERT_AT:
            self._alert()
        return ""

    def leave(self) -> None:
        """Free a place."""
        assert self._count > 0, "a place was given back twice"
        self._count -= 1
        if self.within is not None:
            self.within.leave()

    def _alert(self) -> None:
        now = self._clock()
        if now - self._alerted_at >= ALERT_EVERY:
            self._alerted_at = now
            logger.warning("%s has %d connections and takes %s at once", self.name, self._count, self._limit)


process_admission = Admission("this process", MAX_PROCESS_CONNECTIONS)
"""What all socket listeners of this process share; its limit may be set, None for no limit."""
