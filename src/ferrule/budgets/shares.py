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
        before = self._held.get(owner, 0)
        held = before + amount
        if held:
            self._held[owner] = held
        self.total += amount
        if held.bit_length() != before.bit_length():
            self._rank(owner, before, held)

    def give(self, owner: Owner, amount: int) -> None:
        """Count less as held by an owner; one that holds nothing is forgotten."""
        before = self._held.get(owner, 0)
        assert amount <= before, f"{amount} given back, only {before} held"
        held = before - amount
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)
        self.total -= amount
        if held.bit_length() != before.bit_length():
            self._rank(owner, before, held)

    def forget(self, owner: Owner) -> int:
        """Forget an owner. Return how much it held."""
        held = self._held.pop(owner, 0)
        if held:
            self.total -= held
            self._rank(owner, held, 0)
        return held

    def largest(self) -> Owner | None:
        """Return an owner that holds most, within a factor of two; None when nothing is held."""
        if not self._ranks:
            return None
        return next(iter(self._ranks[max(self._ranks)]))

    def _rank(self, owner: Owner, before: int, held: int) -> None:
        """Put an owner whose number of bits changed into its new rank."""
        if before:
            bits = before.bit_length()
            rank = self._ranks[bits]
            del rank[owner]
            if not rank:
                del self._ranks[bits]
        if held:
            self._ranks.setdefault(held.bit_length(), {})[owner] = None
