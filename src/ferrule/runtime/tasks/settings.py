"""How tasks are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from ferrule.errors import SetupError
from ferrule.stores.contracts import TaskStore
from ferrule.stores.memory import MemoryTasks

LEAST_TTL = 1.0
"""A task is kept at least so many seconds, however short a life was asked for."""

ACCESS = ("session", "id")


class TaskSettings(Struct, frozen=True, kw_only=True):
    """The options of tasks, with their defaults; times are seconds."""

    store: TaskStore = field(default_factory=MemoryTasks)
    ttl: float | None = 3600.0
    """How long a task is kept from its creation on, where the client does not say; None for ever."""
    max_ttl: float | None = 86400.0
    """The most a client may ask for."""
    poll_interval: float = 1.0
    """How long a client is asked to wait between two looks at a task."""
    max_running: int = 1000
    """How many tasks may run at once; more are refused as busy."""
    max_running_per_owner: int = 100
    access: str = "session"
    """Who may see the task of a caller who is not authenticated: its session, or whoever knows its id."""
    clock: Callable[[], float] = time.time
    """The time on the wall, for when a task was created and changed."""

    def __post_init__(self) -> None:
        for name, least in (("poll_interval", 0.001), ("max_running", 1), ("max_running_per_owner", 1)):
            if not getattr(self, name) >= least:
                raise SetupError(f"TaskSettings: {name} must be at least {least}, not {getattr(self, name)!r}")
        for name in ("ttl", "max_ttl"):
            value = getattr(self, name)
            if value is not None and not value >= LEAST_TTL:
                raise SetupError(f"TaskSettings: {name} must be at least {LEAST_TTL:g} s or None, not {value!r}")
        if self.access not in ACCESS:
            raise SetupError(f"TaskSettings: access is {' or '.join(ACCESS)}, not {self.access!r}")

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
