"""How many calls of one handler run at once: the others wait in a line that is bounded too."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from ferrule.errors import ToolBusy


class Turn(Protocol):
    """What stands in line for a place: a future, or work that is started when it has one."""

    def done(self) -> bool:
        """Return whether it needs no place any more."""

    def set_result(self, result: None, /) -> None:
        """Called when it has its place."""


class Slots:
    """So many places, and a line before them: `async with places: …`."""

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
        """Take a place if one is free."""
        if self._taken >= self.limit:
            return False
        self._taken += 1
        return True

    def stand_in_line(self, turn: Turn) -> None:
        """Let something wait for a place; refused when the line is full."""
        if self.max_waiting is not None and len(self._line) >= self.max_waiting:
            raise ToolBusy(self.what, self.limit, self.max_waiting)
        self._line.append(turn)

    def leave_line(self, turn: Turn) -> None:
        """Let something wait no more; a no-op when it had its turn."""
        with suppress(ValueError):
            self._line.remove(turn)

    async def wait(self) -> None:
        """Stand in line for a place; refused when the line is full."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stand_in_line(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave()
            else:
                self.leave_line(turn)
            raise

    def leave(self) -> None:
        """Hand the place to the first one waiting, or free it."""
        if not self._line or not self.pass_on():
            self._taken -= 1

    def pass_on(self) -> bool:
        """Hand the place to the first one waiting, if any. Return whether there was one.

        It can be called in any thread, where those in line may be told of their turn in any.
        """
        line = self._line
        while line:
            try:
                turn = line.popleft()
            except IndexError:  # another thread was quicker
                break
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    async def __aenter__(self) -> None:
        if not self.take():
            await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
