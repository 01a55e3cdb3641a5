"""What the calls of one peer hold while they stay beyond the turn in which they came.

Rule 1: a call that ends where it began pays nothing.
Rule 2: a long call is debited before it starts, a short one when it turns out to stay: once a handler has begun, its
call is not refused any more. Long ones that hold all there is keep no short one out: those may overdraw the account.
Rule 3: what is held is credited when the work has ended, not when it was answered or cancelled: until then it has its
params.
"""

from __future__ import annotations

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.budgets.weight import LIGHT, weight
from ferrule.protocol.call import Call

NO_ROOM = "Busy: the calls that run or wait hold as much as they may"
NO_STANDING_ROOM = "Busy: as many requests stay open as may"


class Holdings:
    """The account of one peer's calls, within that of the process, and the number of those that stand."""

    __slots__ = ("_max_standing", "account", "standing")

    def __init__(self, max_held: int | None, max_standing: int | None) -> None:
        self._max_standing = max_standing
        """None: as many as in the process."""
        self.account = process.requests
        """What is debited; where `max_held` is None, all that the process may hold."""
        if max_held is not None:
            self.account = Account("requests of one peer", max_held, within=process.requests)
        self.standing = 0
        """Calls that stay open for as long as the peer wants."""

    def take(self, call: Call) -> str:
        """Debit a call before it starts or waits. Return why there is no room; empty when there is."""
        if call.row.standing and not self._stand():
            return NO_STANDING_ROOM
        size = len(call.raw)
        if size <= LIGHT:
            amount = size
            taken = self.account.take_little(amount)
        else:
            amount = weight(bytes(call.raw))
            taken = self.account.take(amount)
        if not taken:
            if call.row.standing:
                self.stand_no_more()
            return NO_ROOM
        call.held = amount
        return ""

    def add(self, call: Call) -> None:
        """Debit a short call that runs already and stays."""
        held = len(call.raw)
        call.held = held
        self.account.add(held)

    def release(self, call: Call) -> None:
        """Credit what a call held; a no-op when that was done before."""
        held = call.held
        if held:
            call.held = 0
            self.account.give(held)

    def credit(self, held: int) -> None:
        """Credit what a call held whose work went on beyond its answer."""
        if held:
            self.account.give(held)

    def _stand(self) -> bool:
        if self._max_standing is not None and self.standing >= self._max_standing:
            return False
        if not process.standing.take(1):
            return False
        self.standing += 1
        return True

    def stand_no_more(self) -> None:
        """Called when a standing call that was taken is over."""
        self.standing -= 1
        process.standing.give(1)
