"""Which requests may be sent again, and when."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Literal

from msgspec import Struct

Retry = Literal["safe", "all", "never"]

RETRYABLE = frozenset({429, 500, 502, 503, 504})
NOT_BEGUN = frozenset({429, 503})
"""Statuses of a server that did not begin what it was asked."""

REPEATABLE = frozenset(
    {
        *("initialize", "ping", "server/discover", "completion/complete", "logging/setLevel"),
        *("tools/list", "prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list"),
        *("resources/subscribe", "resources/unsubscribe", "tasks/get", "tasks/list", "tasks/result"),
    }
)
"""Methods that do the same when they are done twice. A tool call is one only if its tool says so."""


class Backoff(Struct, frozen=True):
    """How long to wait before the next attempt: longer each time, and less by chance, so that not all come at once."""

    first: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    jitter: float = 0.5
    """How much of the wait chance may take away: 0 none, 1 all."""

    def delay(self, attempt: int, chance: Callable[[], float]) -> float:
        """Give the wait before attempt number `attempt` (the first repetition is 1)."""
        wait = min(self.first * self.factor ** min(attempt - 1, 64), self.longest)
        return wait * (1.0 - self.jitter * chance())


def retry_after(value: str, now: float) -> float | None:
    """Read a Retry-After header, seconds or a date, as seconds from now; None when it says nothing."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:12])
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, date.timestamp() - now)
