"""Accounts: how much of something is held now, and how much may be.

Rule 1: whatever comes from a peer and stays beyond the turn in which it came is debited to an account while it is held
and credited when it is let go, however it ends.
Rule 2: an account may lie within another: the account of a peer within that of the process. Both must have room.
Rule 3: a single amount for which there is no room is granted while next to nothing else is held. So no limit on what is
held together forbids for ever what the limit on one message allows, and the overdraft is at most one message.
Rule 4: small amounts may overdraw an account by its `spare`: those who hold all there is keep nobody out who needs
little.
"""

from __future__ import annotations

from ferrule.errors import SetupError

LITTLE = 16
"""One part in so many of the limit is next to nothing."""


class Account:
    """Counts what is held, in bytes or in things."""

    __slots__ = ("_limit", "brim", "held", "most", "name", "refused", "within")

    def __init__(self, name: str, limit: int, *, within: Account | None = None) -> None:
        self.name = name
        self.within = within
        self.held = 0
        self.brim = 0
        """With this much held, there is no room for small amounts either."""
        self.limit = limit
        self.most = 0
        """The most that was ever held at once."""
        self.refused = 0
        """How often there was no room."""

    @property
    def limit(self) -> int:
        """How much may be held at once. May be set at any time; what is held already stays."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise SetupError(f"the limit of {self.name} must be a whole number of at least 1, not {limit!r}")
        self._limit = limit
        self.brim = limit + self.spare

    @property
    def spare(self) -> int:
        """By how much small amounts may overdraw."""
        return self._limit // LITTLE

    @property
    def room(self) -> int:
        """What is left, without a look at the accounts around this one; negative when more is held than may be."""
        return self._limit - self.held

    @property
    def full(self) -> bool:
        """Whether nothing more can be taken, here or in an account around this one."""
        if self.held >= self._limit:
            return True
        return self.within is not None and self.within.full

    def take(self, amount: int) -> bool:
        """Debit an amount if there is room for it. Return whether there was."""
        if amount > self.room and self.held > self.spare:
            self.refused += 1
            return False
        if self.within is not None and not self.within.take(amount):
            self.refused += 1
            return False
        self._debit(amount)
        return True

    def take_little(self, amount: int) -> bool:
        """Debit a small amount, for which the account may be overdrawn. Return whether there was room."""
        account: Account | None = self
        while account is not None:  # on the path of every call that waits in line
            if account.held >= account.brim:
                self._count_refusal(account)
                return False
            account = account.within
        self.add(amount)
        return True

    def _count_refusal(self, full: Account) -> None:
        """Count that there was no room, in this account and those around it up to the one that is full."""
        account: Account | None = self
        while account is not None:
            account.refused += 1
            if account is full:
                return
            account = account.within

    def _debit(self, amount: int) -> None:
        self.held = held = self.held + amount
        if held > self.most:  # noqa: PLR1730  # a call of `max` costs as much as all the rest
            self.most = held

    def add(self, amount: int) -> None:
        """Debit an amount that is held already, whether there is room or not."""
        account: Account | None = self
        while account is not None:  # on the path of every call that waits
            account.held = held = account.held + amount
            if held > account.most:  # noqa: PLR1730  # as above
                account.most = held
            account = account.within

    def give(self, amount: int) -> None:
        """Credit an amount that was taken before."""
        account: Account | None = self
        while account is not None:
            held = account.held - amount
            assert held >= 0, f"{account.name}: {amount} given back, only {account.held} held"
            account.held = held
            account = account.within
