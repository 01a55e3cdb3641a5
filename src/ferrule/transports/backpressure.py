"""What connections hold: counted together, and cut where it is too much.

Either it waits for a peer that reads slower than we write (`backlog`), or it is the beginning of a message that is not
whole yet (`unfinished`; a short beginning is not counted).

Rule 1: only a peer over its high-water mark is counted; one that keeps up costs nothing here.
Rule 2: when all of them together are over the limit of the account, the connection that holds most is cut.
Rule 3: nobody is cut for what its peer has taken meanwhile: whoever seems to hold most is measured again first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.budgets.allocator import allocator
from ferrule.budgets.bounds import FREE_UNFINISHED
from ferrule.budgets.shares import Shares

HELD_BACK = 0.01
"""How long whoever goes on writing is held while a channel ends whose peer does not read."""


class Waiters(list[asyncio.Future[None]]):
    """Everyone who waits for the same thing, woken together."""

    __slots__ = ()

    async def wait(self) -> None:
        """Wait to be woken."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # Whoever it waits for may never come: one that is not waited for any more is not kept until then.
            if waiter in self:
                self.remove(waiter)
            raise

    def wake(self) -> None:
        """Wake everyone; whoever comes after this waits for the next time."""
        waiters = self[:]
        self.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


BACKLOG_MESSAGES = 2
"""How many messages of the greatest size may wait for one peer, however little waits for the others."""
FRAMING = 64
"""Bytes that frame a message, at most: the end of a line, a header, or the head of a WebSocket frame."""
LEAST_BACKLOG = 4 * 1024 * 1024
"""How many bytes may wait for one peer, however small the greatest size of a message is."""

logger = logging.getLogger("ferrule.transports")


class Holder(Protocol):
    """A connection with a peer that reads slower than we write."""

    @property
    def backlog(self) -> int:
        """How many bytes wait for the peer now."""

    def abort(self) -> None:
        """End the connection at once; what waits is thrown away."""

    def __hash__(self) -> int:
        """Return the same number as long as it lives."""


class Backlog:
    """The connections whose peers read slower than we write, and how much waits for each."""

    __slots__ = ("_shares", "account", "cut")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.cut = 0
        """How many connections were cut because all of them together held too much."""
        self._shares: Shares[Holder] = Shares()

    def __len__(self) -> int:
        return len(self._shares)

    def held(self, holder: Holder) -> int:
        """Return how many bytes are counted for a connection."""
        return self._shares.held(holder)

    def grew(self, holder: Holder, waiting: int) -> bool:
        """Note how many bytes wait for a congested peer now. Return whether its connection lives on.

        May be called again at any time with a larger or a smaller number. Over the limit the connection that holds
        most is aborted, which may be the one that is noted.
        """
        account = self.account
        shares = self._shares
        more = waiting - shares.held(holder)
        if more <= 0:
            self._give(holder, -more)
            return True
        if account.held == shares.held(holder):
            # Nobody else holds anything: one message may be larger than the limit, and may come in pieces.
            account.add(more)
            shares.take(holder, more)
            return True
        while not account.take(more):
            largest = shares.largest()
            if largest is None or largest is holder or shares.held(largest) <= waiting:
                self._cut(holder)
                return False
            less = shares.held(largest) - largest.backlog
            if less > 0:
                self._give(largest, less)
            else:
                self._cut(largest)
        shares.take(holder, more)
        return True

    def drained(self, holder: Holder) -> None:
        """Count a connection no more: its peer has caught up, or is gone. Harmless when it is not counted."""
        held = self._shares.forget(holder)
        if held:
            self.account.give(held)

    def _give(self, holder: Holder, less: int) -> None:
        if less:
            self._shares.give(holder, less)
            self.account.give(less)

    def _cut(self, holder: Holder) -> None:
        held = self._shares.held(holder)
        self.drained(holder)
        self.cut += 1
        logger.info("a connection was cut: its peer does not read, and %d bytes or more wait for it", held)
        holder.abort()


def most_waiting(max_message_size: int) -> int:
    """Return how many bytes may wait for one peer."""
    return max(LEAST_BACKLOG, BACKLOG_MESSAGES * (max_message_size + FRAMING))


backlog = Backlog(process.answers)
"""What waits for the peers of this process."""


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
            allocator.large_message()
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
