"""Time that passes only when nobody has anything left to do: an hour of waiting takes no time at all."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

DELIVERY = 0.002
"""How many real seconds what was sent over a socket may take to arrive."""


class VirtualClock(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer as soon as nothing else is due."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class _Jumping(selectors.DefaultSelector):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0 if timeout is not None else None)
        # The loop itself listens to one descriptor. Where there are more, the system may still be delivering.
        if not events and timeout and len(self.get_map()) > 1:
            events = super().select(DELIVERY)
        if not events and timeout:
            self._clock.advance(timeout)
        return events


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        return runner.run(work)
