"""Admission: a call runs now, waits for its turn in the bulkhead, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from ferrule.balancing.bulkhead import (
    LONGEST_RETRY,
    SHORTEST_RETRY,
    Bulkhead,
    BulkheadSettings,
    Refused,
    Ticket,
)
from ferrule.errors import Overloaded


class Admission:
    """Lets calls through a bulkhead, and wakes those that wait."""

    def __init__(self, settings: BulkheadSettings, refused: Callable[[str], None]) -> None:
        self.bulkhead = Bulkhead(settings)
        self._refused = refused
        """Called with the reason of every refusal."""
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}

    async def enter(self, principal: Hashable, now: float, deadline: float) -> Ticket:
        """Return a ticket as soon as the call may run; raise Overloaded if it may not."""
        entered = self.bulkhead.enter(principal, now, deadline)
        if isinstance(entered, Ticket) and entered.admitted:
            return entered
        return await self.wait(entered)

    async def wait(self, ticket: Ticket | Refused) -> Ticket:
        """Return a ticket that waits, as soon as it is admitted; raise Overloaded."""
        if isinstance(ticket, Refused):
            raise self._overloaded(ticket.retry_after, ticket.reason)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[ticket] = waiter
        try:
            async with asyncio.timeout_at(ticket.deadline):
                await waiter
        except TimeoutError:
            self.leave(ticket, ticket.since, loop.time())
            raise self._overloaded(self.bulkhead.estimate(ticket.principal), "waited too long") from None
        except asyncio.CancelledError:
            self.leave(ticket, ticket.since, loop.time())
            raise
        finally:
            del self._waiting[ticket]
        return ticket

    def leave(self, ticket: Ticket | None, began: float, now: float) -> None:
        """End a call, running or waiting, and wake the next; without a ticket, one that began running at a time."""
        if ticket is None:
            following = self.bulkhead.leave_freely(now - began, now)
        else:
            following = self.bulkhead.leave(ticket, now)
        if following is not None:
            self._wake(following)

    def _wake(self, following: Ticket) -> None:
        waiter = self._waiting.get(following)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _overloaded(self, retry_after: float, reason: str) -> Overloaded:
        self._refused(reason)
        return Overloaded(min(max(retry_after, SHORTEST_RETRY), LONGEST_RETRY))
