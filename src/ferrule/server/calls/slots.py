"""How many calls of one handler run at once: the others wait in a line.

The line is bounded where `max_waiting` says so. Where it does not, what comes to it is: the calls that links let run
(`LinkOptions.max_running`), the requests that an HTTP listener takes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from msgspec import Struct

from ferrule.errors import ToolBusy


class Turn(Protocol):
    """What waits for a slot."""

    def is_gone(self) -> bool:
        """Return whether it needs no slot any more."""

    def granted(self) -> None:
        """Called when it has its slot."""


class FutureTurn(Struct, eq=False):
    """A coroutine that waits for a slot, by the future it awaits."""

    future: asyncio.Future[None]

    def is_gone(self) -> bool:
        """Return whether nobody awaits the future any more."""
        return self.future.done()

    def granted(self) -> None:
        """Let the coroutine go on."""
        self.future.set_result(None)


class Slots:
    """So many slots for calls, and a line before them: `async with slots: …`."""

    __slots__ = ("_line", "_taken", "limit", "max_waiting", "what")

    def __init__(self, limit: int, max_waiting: int | None = None, what: str = "") -> None:
        self.limit = limit
        self.max_waiting = max_waiting
        """How many may wait; None for any number."""
        self.what = what
        self._taken = 0
        self._line: deque[Turn] = deque()

    @property
    def taken(self) -> int:
        """How many run now."""
        return self._taken

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def take(self) -> bool:
        """Take a slot if one is free; return whether one was."""
        if self._taken >= self.limit:
            return False
        self._taken += 1
        return True

    def stand_in_line(self, turn: Turn) -> None:
        """Let something wait for a slot; raise ToolBusy where the line is full."""
        if self.max_waiting is not None and len(self._line) >= self.max_waiting:
            raise ToolBusy(self.what, self.limit, self.max_waiting)
        self._line.append(turn)

    def leave_line(self, turn: Turn) -> None:
        """Let something wait no more; a no-op when it had its turn."""
        with suppress(ValueError):
            self._line.remove(turn)

    async def wait(self) -> None:
        """Stand in line for a slot; raise ToolBusy where the line is full."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = FutureTurn(future)
        self.stand_in_line(turn)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                self.leave()
            else:
                self.leave_line(turn)
            raise

    def leave(self) -> None:
        """Hand the slot to the first one waiting, or free it."""
        if not self._line or not self.pass_on():
            self._taken -= 1

    def pass_on(self) -> bool:
        """Hand the slot to the first one waiting, if any. Return whether there was one.

        It can be called in any thread, where those in line may be told of their turn in any.
        """
        line = self._line
        while line:
            try:
                turn = line.popleft()
            except IndexError:  # another thread was quicker
                break
            if not turn.is_gone():
                turn.granted()
                return True
        return False

    async def __aenter__(self) -> None:
        if not self.take():
            await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
