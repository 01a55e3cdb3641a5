"""The least a hand-over to a thread and back can be, for a plain function that must not run in the event loop.

One thread, no limits, no contexts, no cancelling, no errors. Results of one moment go back to the loop together. What
`ferrule/server/calls/threads.py` costs more than this is what its rules cost.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Worker:
    """A thread that runs functions for one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.jobs: SimpleQueue[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self.done: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self.told = False
        threading.Thread(target=self.serve, daemon=True).start()

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Hand a function over; the future is for what it gives."""
        future = self.loop.create_future()
        self.jobs.put((future, function, arguments))
        return future

    def serve(self) -> None:
        """Run what is handed over, in the thread."""
        while True:
            future, function, arguments = self.jobs.get()
            self.done.append((future, function(*arguments)))
            if not self.told:
                self.told = True
                self.loop.call_soon_threadsafe(self.settle)

    def settle(self) -> None:
        """Hand the results back, in the loop."""
        self.told = False  # before the look at what is done: what comes after that tells the loop again
        while self.done:
            future, value = self.done.popleft()
            future.set_result(value)
