"""`Concurrency`: so many calls at once, for the whole server, each principal, session or tool."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Hashable
from typing import Any

from ferrule.errors import Busy, SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.server.middleware.callers import Key, key_of
from ferrule.server.middleware.hooks import Middleware


class Concurrency(Middleware):
    """Lets so many calls run at once; the next wait in line, and beyond `max_waiting` they are refused as busy.

    `by` is "server" for all together, "principal", "session", "tool", or a function of the call.
    """

    def __init__(
        self,
        limit: int,
        *,
        by: str | Key = "server",
        max_waiting: int = 1000,
        methods: Collection[str] = ("tools/call",),
    ) -> None:
        if limit < 1 or max_waiting < 0:
            raise SetupError(f"Concurrency: limit must be at least 1, max_waiting at least 0: {limit}, {max_waiting}")
        self._limit = limit
        self._key = key_of(by, "Concurrency")
        self._max_waiting = max_waiting
        self._methods = frozenset(methods)
        self._lines: dict[Hashable, Line] = {}

    async def on_request(self, call: Call, proceed: Handler) -> Any:
        """Run a call as soon as it may."""
        if call.method not in self._methods:
            return await proceed(call)
        key = self._key(call)
        line = self._lines.setdefault(key, Line())
        try:
            await line.enter(self._limit, self._max_waiting)
            try:
                return await proceed(call)
            finally:
                line.leave()
        finally:
            if not line.running and not line.waiting:
                self._lines.pop(key, None)


class Line:
    """Those who run, and those who wait to."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, limit: int, max_waiting: int) -> None:
        """Wait until one more may run."""
        if self.running < limit:
            self.running += 1
            return
        if len(self.waiting) >= max_waiting:
            raise Busy(f"Busy: {self.running} calls run and {len(self.waiting)} wait already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place was given to us in the moment we gave up
            elif turn in self.waiting:
                self.waiting.remove(turn)
            raise

    def leave(self) -> None:
        """Give the place to who waits the longest."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1
