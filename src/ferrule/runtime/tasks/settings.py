"""How tasks are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from ferrule.settings.option import PositiveInt, check
from ferrule.stores.contracts import TaskStore
from ferrule.stores.memory import MemoryTasks

LEAST_TTL = 1.0
"""A task is kept at least so many seconds, however short a life was asked for."""

Ttl = Annotated[float, Meta(ge=LEAST_TTL, extra={"unit": "seconds"})]


class TaskSettings(Struct, frozen=True, kw_only=True):
    """The options of tasks, with their defaults; times are seconds."""

    store: TaskStore = field(default_factory=MemoryTasks)
    """Where tasks are kept."""
    ttl: Ttl | None = 3600.0
    """How long a task is kept from its creation on, where the client does not say; None for ever."""
    max_ttl: Ttl | None = 86400.0
    """The most a client may ask for."""
    poll_interval: Annotated[float, Meta(ge=0.001, extra={"unit": "seconds"})] = 1.0
    """How long a client is asked to wait between two looks at a task."""
    max_running: PositiveInt = 1000
    """How many tasks may run at once; more are refused as busy."""
    max_running_per_owner: PositiveInt = 100
    """How many of one session or principal may run at once."""
    access: Literal["session", "id"] = "session"
    """Who may see the task of a caller who is not authenticated: its session, or whoever knows its id."""
    clock: Callable[[], float] = time.time
    """The time on the wall, for when a task was created and changed."""

    def __post_init__(self) -> None:
        check(self, "TaskSettings: ")

    def declared(self, requests: dict[str, Any]) -> dict[str, Any]:
        """Return the capability of whoever lets these requests become tasks."""
        listing: dict[str, Any] = {"list": {}} if self.access == "session" else {}
        return {**listing, "cancel": {}, "requests": requests}

    def lifetime(self, asked: float | None) -> float | None:
        """Return the seconds a task is kept: what was asked for within bounds, else the usual."""
        if asked is None:
            wanted = self.ttl
        else:
            wanted = max(asked, LEAST_TTL)
        if self.max_ttl is None:
            return wanted
        if wanted is None:
            return self.max_ttl
        return min(wanted, self.max_ttl)
