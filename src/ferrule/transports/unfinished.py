"""What was read of messages that are not whole yet, of all connections together.

Rule: a short beginning is not counted. Over the limit the connection whose beginning is longest is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from ferrule.budgets import process
from ferrule.budgets.bounds import FREE_UNFINISHED
from ferrule.transports.backpressure import Backlog

NO_ROOM = "too much is held of messages that are not whole yet; send it again later, or in smaller messages"

unfinished = Backlog(process.requests)
"""What is held of the unfinished messages of this process."""


class Unfinished:
    """What one connection has read of a message that is not whole yet."""

    __slots__ = ("_counted", "_refuse", "_size")

    def __init__(self, size: Callable[[], int], refuse: Callable[[], None]) -> None:
        self._size = size
        self._refuse = refuse
        self._counted = False

    @property
    def backlog(self) -> int:
        """How many bytes are held now."""
        return self._size()

    def note(self) -> None:
        """Count what is held after a read; over the limit, whoever holds most is refused."""
        size = self._size()
        if size > FREE_UNFINISHED:
            self._counted = True
            unfinished.grew(self, size)
        elif self._counted:
            self.done()

    def done(self) -> None:
        """Count nothing more: the message is whole, or the connection is gone."""
        if self._counted:
            self._counted = False
            unfinished.drained(self)

    def abort(self) -> None:
        """Refuse what was read; called when it is too much."""
        self._counted = False
        self._refuse()
