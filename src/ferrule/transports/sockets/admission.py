"""How many connections may be open at once: to one listener, and to all of this process together.

Rule: pure but for the log; whoever took a place gives it back, whatever happened in between.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from ferrule.balancing.limiter import ALERT_AT, ALERT_EVERY, MAX_TOTAL, Count, LimiterStats
from ferrule.errors import SetupError
from ferrule.telemetry.process import most_descriptors

logger = logging.getLogger("ferrule.transports")

MAX_PROCESS_CONNECTIONS = MAX_TOTAL
OWN_DESCRIPTORS = 64
"""What the rest of a process needs, at least."""


class Admission:
    """Counts who is inside and keeps out who is too many; one within another counts in both."""

    __slots__ = ("_alert_from", "_clock", "_count", "name", "within")

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
        self._count = Count(None)
        self._clock = clock
        self.limit = limit

    @property
    def limit(self) -> int | None:
        """How many may be inside; None: as many as come. May be set at any time, whoever is inside stays."""
        return self._count.limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise SetupError(f"a limit of connections is at least 1, or None for no limit, not {limit!r}")
        self._count.limit = limit
        self._alert_from = math.inf if limit is None else limit * ALERT_AT

    @property
    def occupancy(self) -> LimiterStats:
        """How full it is now."""
        return self._count.stats()

    def enter(self) -> str:
        """Take a place. Return why not where there is none left, else an empty text."""
        count = self._count
        if count.full:
            count.refused += 1
            return f"{self.name} takes {count.limit} connections at once"
        if self.within is not None and (refused := self.within.enter()):
            count.refused += 1
            return refused
        count.add()
        if count.current >= self._alert_from:
            self._alert()
        return ""

    def leave(self) -> None:
        """Free a place."""
        assert self._count.current > 0, "a place was given back twice"
        self._count.current -= 1
        if self.within is not None:
            self.within.leave()

    def note(self, inside: int) -> None:
        """Take notice of how many are inside, where they are counted elsewhere."""
        self._count.current = inside
        if inside >= self._alert_from:
            self._alert()

    def _alert(self) -> None:
        """Log, once a minute at most, that seven tenths of all places are taken."""
        count = self._count
        now = self._clock()
        if now - count.alerted_at >= ALERT_EVERY:
            count.alerted_at = now
            logger.warning("%s has %d connections and takes %s at once", self.name, count.current, count.limit)


process_admission = Admission("this process", MAX_PROCESS_CONNECTIONS)
"""What all socket listeners of this process share; its limit may be set, None for no limit."""


def warn_of_few_descriptors(connections: int) -> None:
    """Say at start that the system will not let us hold as many connections as are allowed."""
    limit = most_descriptors()
    if 0 < limit < connections + OWN_DESCRIPTORS:
        logger.warning(
            "max_connections is %d and this process may have %d files open: raise the limit (ulimit -n), or lower ours",
            connections,
            limit,
        )
