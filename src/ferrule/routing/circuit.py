"""A circuit breaker around any awaitable call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ferrule.balancing.breaker import Breaker, verdict_of
from ferrule.errors import ConnectionTimedOut, NoTarget

T = TypeVar("T")


class Circuit:
    """Makes calls through a breaker: while it is open, a fallback answers or the call is refused."""

    def __init__(self, name: str = "circuit", breaker: Breaker | None = None) -> None:
        self.name = name
        self.breaker = breaker or Breaker()

    async def call(self, work: Callable[[], Awaitable[T]], fallback: Callable[[], Awaitable[T]] | None = None) -> T:
        """Return what `work` does, or `fallback` while the breaker is open; without one, raise NoTarget.

        A call that takes longer than `call_timeout` is cancelled and counts as failed.
        """
        loop = asyncio.get_running_loop()
        breaker = self.breaker
        if not breaker.allow(loop.time()):
            if fallback is not None:
                return await fallback()
            raise NoTarget({self.name: "the breaker is open"})
        try:
            result = await self._in_time(work)
        except BaseException as error:
            settle(breaker, error, loop.time())
            raise
        breaker.ok(loop.time())
        return result

    async def _in_time(self, work: Callable[[], Awaitable[T]]) -> T:
        seconds = self.breaker.settings.call_timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                return await work()
        except TimeoutError:
            if not limit.expired():
                raise
            raise ConnectionTimedOut(f"{self.name} did not answer within {seconds:g} s") from None


def settle(breaker: Breaker, error: BaseException | None, now: float) -> None:
    """Report to a breaker how an admitted call ended."""
    verdict = verdict_of(error)
    if verdict == "ok":
        breaker.ok(now)
    elif verdict == "failed":
        breaker.failed(now)
    elif verdict == "local":
        breaker.local_fault()
    else:
        breaker.released()
