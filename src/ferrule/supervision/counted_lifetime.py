"""CountedLifetime: what is started for its first user and ended after its last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from ferrule.supervision.event_loop import running_loop


class CountedLifetime:
    """Counts the users of something that lives as long as it has any."""

    def __init__(self, start: Callable[[AsyncExitStack], Awaitable[None]]) -> None:
        self._start = start
        """Starts it, and pushes on the stack whatever ends it again: where a start fails, what it began is ended."""
        self.users = 0
        """How many use it, or wait until it is started."""
        self._ends: AsyncExitStack | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def enter(self) -> None:
        """Start it for the first user; every enter is matched by a leave."""
        async with self._lock_here():
            self.users += 1
            if self._ends is not None:
                return
            try:
                async with AsyncExitStack() as stack:
                    await self._start(stack)
                    self._ends = stack.pop_all()
            except BaseException:
                self.users -= 1
                raise

    async def leave(self) -> None:
        """End it when the last user leaves; all of it, even if a part of it cannot be ended."""
        self.users -= 1  # before anything is awaited: who is cancelled meanwhile has left all the same
        async with self._lock_here():
            ends = self._ends
            if self.users == 0 and ends is not None:
                self._ends = None
                await ends.aclose()

    def _lock_here(self) -> asyncio.Lock:
        """Return the lock of the running loop: one that was closed may have left its own locked.

        No loop runs where a coroutine of a closed one is collected and leaves: then the last lock will do.
        """
        loop = running_loop()
        if loop is not None and self._loop is not loop:
            self._lock = asyncio.Lock()
            self._loop = loop
        return self._lock
