"""Worker threads for plain `def` handlers.

They are our own and daemonic: the standard executor would keep a process with a stuck handler alive at exit, and
hangs on a StopIteration.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

logger = logging.getLogger("ferrule.threads")

Work = Callable[[], Any]


class Job:
    """One piece of work, the loop that waits for it, and the context it runs in."""

    __slots__ = ("context", "future", "loop", "work")

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.context = contextvars.copy_context()

    def run(self) -> None:
        """Do the work and tell the loop how it ended."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = self.context.run(self.work)
        except StopIteration as stop:
            error = RuntimeError(f"the handler raised StopIteration({stop.value!r})")
        except BaseException as raised:  # whatever a handler raises belongs to its own call
            error = raised
        try:
            self.loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            logger.debug("a handler ended after its loop was closed")

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Threads:
    """A pool that grows when all its threads are busy, up to a limit."""

    def __init__(self, limit: int = 256) -> None:
        self.limit = limit
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many threads there are."""
        return self._count

    def start(self, work: Work) -> asyncio.Future[Any]:
        """Run work in a thread; the future belongs to the running loop."""
        job = Job(work, asyncio.get_running_loop())
        with self._lock:
            grow = self._idle == 0 and self._count < self.limit
            if grow:
                self._count += 1
            elif self._idle:
                self._idle -= 1
        self._jobs.put(job)
        if grow:
            threading.Thread(target=self._serve, name=f"ferrule-worker-{self._count}", daemon=True).start()
        return job.future

    def _serve(self) -> None:
        while True:
            self._jobs.get().run()
            with self._lock:
                self._idle += 1


class Bulkhead:
    """Lets only so many calls of one handler into the threads, so that it cannot take them all."""

    __slots__ = ("_limit", "_running", "_threads", "_waiting")

    def __init__(self, threads: Threads, limit: int = 32) -> None:
        self._threads = threads
        self._limit = limit
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def run(self, work: Work) -> Any:
        """Run work in a thread as soon as this handler may."""
        if self._running >= self._limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._running += 1
        future = self._threads.start(work)
        try:
            return await future
        except asyncio.CancelledError:
            raise
        finally:
            self._running -= 1
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
