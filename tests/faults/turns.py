"""Finds the longest turn of an event loop by the CPU time of its thread, which no other process can spoil."""

from __future__ import annotations

import asyncio
import time

EVERY = 0.005


class Turns:
    """Looks at the loop every 5 ms, and remembers how long it was kept from looking by work of its own."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Forget what was seen, and look from now on; called in the loop that is watched."""
        self.stop()
        self.longest = 0.0
        self._wait()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + EVERY
        self._spent = time.thread_time()
        self._timer = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        # A machine that is busy makes us late without CPU time spent; many short turns spend it without being late.
        late = asyncio.get_running_loop().time() - self._due
        self.longest = max(self.longest, min(late, time.thread_time() - self._spent))
        self._wait()
