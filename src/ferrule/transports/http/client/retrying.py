"""Which requests may be sent again, and when."""

from __future__ import annotations

import datetime
from email.utils import parsedate_to_datetime
from typing import Literal

Retry = Literal["safe", "all", "never"]

RETRYABLE = frozenset({429, 500, 502, 503, 504})
"""Statuses that may be over soon, unless the options name others."""
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
