"""The decisions of a router: counted, and told to whoever wants to know; and what could not be delivered."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ferrule.settings.option import FiniteSeconds, PositiveInt, require

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers

logger = logging.getLogger("ferrule.routing")


class RouterEvent(Struct, frozen=True):
    """A decision of a router.

    | kind | reason |
    |---|---|
    | `picked` | empty; told to observers only, once for each time a call is sent |
    | `breaker` | from which state to which: `closed>open` |
    | `ejected` | why the target gets no calls for a while |
    | `retried` | why the call left the target before this one |
    | `hedged` | how long the target has not answered |
    | `overloaded` | why the bulkhead refused a call |
    | `no_target` | why each target could not be used |
    | `outcome_unknown` | how an unsafe call was lost |
    | `dead_letter` | why a notification could not be delivered |
    """

    kind: str
    target: str
    """Whom it is about; empty for the whole group."""
    reason: str


OnEvent = Callable[[RouterEvent], None]


class Decisions:
    """Counts what a router decides, and tells its owner and its observers."""

    def __init__(self, observers: Observers | None = None) -> None:
        self._listeners: list[OnEvent] = []
        self._counts: dict[str, int] = {}
        self._observed: Callable[[str, str, str], None] | None = None
        if observers is not None and observers.wants("router_decided"):
            self._observed = observers.router_decided
        self.tells_picks = self._observed is not None
        """Whether anybody wants to know which target takes each call: nobody else pays for it."""

    def listen(self, on_event: OnEvent) -> None:
        """Call a function with every decision but picks."""
        self._listeners.append(on_event)

    def count(self, kind: str) -> int:
        """Return how many decisions of a kind there have been; picks are not counted."""
        return self._counts.get(kind, 0)

    def picked(self, target: str) -> None:
        """Report to the observers which target takes a call."""
        if self._observed is not None:
            self._observed("picked", target, "")

    def tell(self, kind: str, target: str, reason: str) -> None:
        """Count a decision, and tell of it; who fails to hear harms nobody."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._observed is not None:
            self._observed(kind, target, reason)
        if not self._listeners:
            return
        event = RouterEvent(kind, target, reason)
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener of a router failed")


class DeadLetter(Struct, frozen=True):
    """One notification that could not be delivered."""

    at: float
    method: str
    target: str
    reason: str
    payload: Any = None
    """Its params, if payloads are kept."""


class DeadLetters:
    """The last letters, so many and not older than an hour by default; without payloads unless asked to keep them."""

    def __init__(self, *, size: int = 1000, age: float = 3600.0, keep_payload: bool = False) -> None:
        require("size", size, PositiveInt)
        require("age", age, FiniteSeconds)
        self.age = age
        self.keep_payload = keep_payload
        self.total = 0
        """How many there have been."""
        self._letters: deque[DeadLetter] = deque(maxlen=size)

    def add(self, now: float, method: str, target: str, reason: str, payload: object = None) -> None:
        """Keep a letter; the oldest goes when there are too many."""
        self._forget(now)
        self.total += 1
        if not self.keep_payload:
            payload = None
        self._letters.append(DeadLetter(now, method, target, reason, payload))

    def letters(self, now: float) -> list[DeadLetter]:
        """Return the letters that are not too old, oldest first."""
        self._forget(now)
        return list(self._letters)

    def take(self, now: float) -> list[DeadLetter]:
        """Return the letters and forget them."""
        found = self.letters(now)
        self._letters.clear()
        return found

    def _forget(self, now: float) -> None:
        while self._letters and self._letters[0].at <= now - self.age:
            self._letters.popleft()
