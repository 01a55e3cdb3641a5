"""How many connections may be open at once: to each server, and to all of them together.

Whoever gets a slot gives it back, whatever happens in between: a slot is a context manager, giving it back twice does
no harm, and one that is lost is given back when Python frees it, and logged.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from types import TracebackType

from msgspec import Struct

from ferrule.settings.option import FiniteSeconds, Fraction, PositiveInt, require

logger = logging.getLogger("ferrule.balancing")

MAX_CONNECTIONS = 1024
"""To one server."""
MAX_TOTAL = 10_000
"""To all servers together."""
ALERT_AT = 0.7
ALERT_EVERY = 60.0

OnAlert = Callable[[str, int, int], None]
"""Called with the name of a server ("" for all), its connections and its limit."""


class LimiterStats(Struct, frozen=True):
    """How full a limiter is."""

    current: int
    limit: int | None
    most: int
    """The most there have been at once."""
    refused: int


class Count:
    """The connections of one server, or of all."""

    __slots__ = ("alerted_at", "current", "limit", "most", "refused")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.current = 0
        self.most = 0
        self.refused = 0
        self.alerted_at = -math.inf

    @property
    def full(self) -> bool:
        """Whether no more may be opened."""
        return self.limit is not None and self.current >= self.limit

    def add(self) -> None:
        """Count one more."""
        self.current += 1
        self.most = max(self.most, self.current)

    def stats(self) -> LimiterStats:
        """Return how full it is."""
        return LimiterStats(self.current, self.limit, self.most, self.refused)


class Slot:
    """The right to one open connection, until it is released."""

    __slots__ = ("_limiter", "server")

    def __init__(self, limiter: Limiter, server: str) -> None:
        self._limiter: Limiter | None = limiter
        self.server = server

    def release(self) -> None:
        """Release the slot; harmless when called again."""
        limiter = self._limiter
        self._limiter = None
        if limiter is not None:
            limiter.released(self.server)

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        if self._limiter is not None:
            logger.warning("a slot for a connection to %s was never released; releasing it now", self.server)
            self.release()


class Limiter:
    """Counts open connections and refuses those that are too many; those that are open are never touched."""

    def __init__(
        self,
        limit: int | None = MAX_CONNECTIONS,
        *,
        total: int | None = MAX_TOTAL,
        alert_at: float = ALERT_AT,
        alert_every: float = ALERT_EVERY,
        on_alert: OnAlert | None = None,
    ) -> None:
        _require_limit(limit)
        _require_limit(total)
        require("alert_at", alert_at, Fraction)
        require("alert_every", alert_every, FiniteSeconds)
        self._limit = limit
        self._total = Count(total)
        self._servers: dict[str, Count] = {}
        self._own_limits: dict[str, int | None] = {}
        self._alert_at = alert_at
        self._alert_every = alert_every
        self._on_alert = on_alert or _log_alert

    def try_acquire(self, server: str, now: float) -> Slot | None:
        """Return a slot for a connection to a server; None if there are too many."""
        count = self._count(server)
        if count.full or self._total.full:
            count.refused += 1
            self._total.refused += 1
            return None
        count.add()
        self._total.add()
        self._alert(server, count, now)
        self._alert("", self._total, now)
        return Slot(self, server)

    def released(self, server: str) -> None:
        """Called by a slot that is given back."""
        self._total.current -= 1
        self._servers[server].current -= 1

    def set_limit(self, limit: int | None, server: str | None = None) -> None:
        """Set how many connections a server may have, or all together; None: as many as come."""
        _require_limit(limit)
        if server is None:
            self._total.limit = limit
            return
        self._own_limits[server] = limit
        self._count(server).limit = limit

    def get_limit(self, server: str | None = None) -> int | None:
        """Return how many connections a server may have, or all together."""
        if server is None:
            return self._total.limit
        return self._own_limits.get(server, self._limit)

    def stats(self, server: str | None = None) -> LimiterStats:
        """Return how full a server is, or all together."""
        if server is None:
            return self._total.stats()
        return self._servers.get(server, Count(self.get_limit(server))).stats()

    def forget(self, server: str) -> None:
        """Forget the figures and the limit of a server; one with open connections keeps its count."""
        self._own_limits.pop(server, None)
        count = self._servers.get(server)
        if count is None:
            return
        if count.current:
            count.limit = self._limit
        else:
            del self._servers[server]

    def _count(self, server: str) -> Count:
        count = self._servers.get(server)
        if count is None:
            count = Count(self.get_limit(server))
            self._servers[server] = count
        return count

    def _alert(self, server: str, count: Count, now: float) -> None:
        if count.limit is None or count.current < count.limit * self._alert_at:
            return
        if now - count.alerted_at >= self._alert_every:
            count.alerted_at = now
            self._on_alert(server, count.current, count.limit)


def _require_limit(limit: int | None) -> None:
    if limit is not None:
        require("a limit of connections", limit, PositiveInt)


def _log_alert(server: str, current: int, limit: int) -> None:
    logger.warning("%s: %d of at most %d connections are open", server or "all servers", current, limit)
