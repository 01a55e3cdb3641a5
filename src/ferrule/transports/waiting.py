"""Those who wait until there is room to write."""

from __future__ import annotations

import asyncio

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
