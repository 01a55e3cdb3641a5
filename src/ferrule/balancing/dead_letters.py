"""Dead letters: notifications that could not be delivered, kept for a while to be looked at."""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec import Struct

from ferrule.settings.option import FiniteSeconds, PositiveInt, require


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
