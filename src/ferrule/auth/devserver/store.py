"""What a server keeps for a while: bounded in number, each value until its time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")

MAX_ENTRIES = 10_000


class Store(Generic[V]):
    """Values by key; over the bound the oldest goes first."""

    def __init__(self, clock: Callable[[], float], max_entries: int = MAX_ENTRIES) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._entries: dict[str, tuple[float, V]] = {}

    def put(self, key: str, value: V, lifetime: float) -> None:
        """Keep a value for so many seconds."""
        while len(self._entries) >= self._max_entries:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock() + lifetime, value)

    def get(self, key: str) -> V | None:
        """Return a value that is still kept."""
        found = self._entries.get(key)
        if found is None:
            return None
        until, value = found
        if self._clock() >= until:
            del self._entries[key]
            return None
        return value

    def take(self, key: str) -> V | None:
        """Return a value that is still kept, and keep it no longer."""
        found = self.get(key)
        self._entries.pop(key, None)
        return found
