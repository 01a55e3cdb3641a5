"""Shares: who holds how much of something that is limited for all together.

Rule: when there is too much, it is taken from whoever holds most, not from whoever came first: a peer that floods a
store pushes out what is its own. `largest` is exact within a factor of two, in constant time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)


class Shares(Generic[Owner]):
    """How much each owner holds, and who holds most."""

    __slots__ = ("_held", "_ranks", "total")

    def __init__(self) -> None:
        self.total = 0
        """What all of them hold together."""
        self._held: dict[Owner, int] = {}
        self._ranks: dict[int, dict[Owner, None]] = {}
        """Owners by the number of bits of what they hold; there are never more than a few dozen ranks."""

    def __len__(self) -> int:
        return len(self._held)

    def held(self, owner: Owner) -> int:
        """Return how much an owner holds."""
        return self._held.get(owner, 0)

    def take(self, owner: Owner, amount: int) -> None:
        """Count more as held by an owner."""
        self._set(owner, self._held.get(owner, 0) + amount)
        self.total += amount

    def give(self, owner: Owner, amount: int) -> None:
        """Count less as held by an owner; one that holds nothing is forgotten."""
        held = self._held.get(owner, 0)
        assert amount <= held, f"{amount} given back, only {held} held"
        self._set(owner, held - amount)
        self.total -= amount

    def forget(self, owner: Owner) -> int:
        """Forget an owner. Return how much it held."""
        held = self._held.get(owner, 0)
        self._set(owner, 0)
        self.total -= held
        return held

    def largest(self) -> Owner | None:
        """Return an owner that holds most, within a factor of two; None when nothing is held."""
        if not self._ranks:
            return None
        return next(iter(self._ranks[max(self._ranks)]))

    def _set(self, owner: Owner, held: int) -> None:
        before = self._held.get(owner, 0).bit_length()
        after = held.bit_length()
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)
        if before == after:
            return
        if before:
            rank = self._ranks[before]
            del rank[owner]
            if not rank:
                del self._ranks[before]
        if after:
            self._ranks.setdefault(after, {})[owner] = None
