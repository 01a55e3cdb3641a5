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

    __slots__ = ("context", "ended", "future", "loop", "work")

    def __init__(self, work: Work, ended: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.ended = ended
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.context = contextvars.copy_context()

    def run(self) -> None:
        """Do the work, unless nobody wants it any more, and tell the loop how it ended."""
        result: Any = None
        error: BaseException | None = None
        try:
            if not self.future.cancelled():
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
        self.ended()
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
        self._count = 0
        self._spare = 0
        """How many threads wait for work; below zero, how much work waits for a thread."""
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many threads there are."""
        return self._count

    def start(self, work: Work, ended: Callable[[], None]) -> asyncio.Future[Any]:
        """Run work in a thread and give its result; `ended` is called in the loop, also when nobody waits any more."""
        job = Job(work, ended, asyncio.get_running_loop())
        with self._lock:
            if self._spare <= 0 and self._count < self.limit:
                self._grow()
            self._spare -= 1
        self._jobs.put(job)
        return job.future

    def _grow(self) -> None:
        """Add a thread; when the system gives us none, those there are must do, and without any the call fails."""
        thread = threading.Thread(target=self._serve, name=f"ferrule-worker-{self._count + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._count:
                raise
            logger.warning("no more than %d worker threads can be started", self._count)
        else:
            self._count += 1
            self._spare += 1

    def _serve(self) -> None:
        while True:
            self._jobs.get().run()
            with self._lock:
                self._spare += 1


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
            await self._wait_for_turn()
        else:
            self._running += 1
        try:
            # A thread cannot be stopped: whoever gives up waiting for it does not give its place away.
            future = self._threads.start(work, self._leave)
        except BaseException:
            self._leave()
            raise
        return await future

    async def _wait_for_turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def _leave(self) -> None:
        """Hand the place to the first one waiting, or free it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1
