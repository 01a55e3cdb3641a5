"""Worker threads for plain `def` handlers.

They are our own and daemonic: the standard executor would keep a process with a stuck handler alive at exit, and
hangs on a StopIteration.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct

from ferrule.server.calls.slots import Slots

logger = logging.getLogger("ferrule.threads")

Work = Callable[[], Any]

IDLE_SECONDS = 10.0
"""After how long without work a thread ends."""


class Job:
    """One piece of work, the loop that waits for it, and the context it runs in."""

    __slots__ = ("context", "ended", "future", "loop", "started", "work")

    def __init__(self, work: Work, ended: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.ended = ended
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.context = contextvars.copy_context()
        self.started = 0.0

    def run(self) -> None:
        """Do the work, unless nobody wants it any more, and tell the loop how it ended."""
        result: Any = None
        error: BaseException | None = None
        process = os.getpid()
        try:
            if not self.future.cancelled():
                result = self.context.run(self.work)
        except StopIteration as stop:
            error = RuntimeError(f"the handler raised StopIteration({stop.value!r})")
        except BaseException as raised:  # whatever a handler raises belongs to its own call
            error = raised
        if os.getpid() != process:
            # The handler forked, and this is the child: it must not answer in its parent's name.
            os._exit(0)
        try:
            self.loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            logger.debug("a handler ended after its loop was closed")

    def _settle(self, result: object, error: BaseException | None) -> None:
        self.ended()
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class ThreadFigures(Struct, frozen=True, kw_only=True):
    """How busy the worker threads of a server are at one moment."""

    limit: int
    """How many threads there may be."""
    busy: int
    idle: int
    waiting: int
    """How much work waits for a thread."""
    abandoned: int
    """How many threads do work that nobody waits for any more: cancelled, or out of time."""
    longest: float
    """For how many seconds the work that runs longest has run."""


class Threads:
    """A pool that grows when all its threads are busy, up to a limit; a thread without work ends after a while."""

    def __init__(
        self, limit: int = 256, clock: Callable[[], float] = time.monotonic, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._running: set[Job] = set()
        self._count = 0
        self._spare = 0
        """How many threads wait for work; below zero, how much work waits for a thread."""
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many threads there are."""
        return self._count

    @property
    def busy(self) -> int:
        """How many threads work now."""
        return len(self._running)

    @property
    def idle(self) -> int:
        """How many threads wait for work."""
        return self._count - len(self._running)

    @property
    def waiting(self) -> int:
        """How much work waits for a thread."""
        return max(0, -self._spare)

    def figures(self) -> ThreadFigures:
        """Return how busy the threads are now, for a dashboard or a metric."""
        with self._lock:
            running = list(self._running)
            count = self._count
            waiting = max(0, -self._spare)
        now = self._clock()
        return ThreadFigures(
            limit=self.limit,
            busy=len(running),
            idle=count - len(running),
            waiting=waiting,
            abandoned=sum(job.future.cancelled() for job in running),
            longest=max((now - job.started for job in running), default=0.0),
        )

    def start(self, work: Work, ended: Callable[[], None]) -> asyncio.Future[Any]:
        """Run work in a thread and give its result; `ended` is called in the loop, also when nobody waits any more."""
        job = Job(work, ended, asyncio.get_running_loop())
        with self._lock:
            if self._spare <= 0 and self._count < self.limit:
                self._grow()
            self._spare -= 1
        self._jobs.put(job)
        return job.future

    async def run(self, work: Work) -> Any:
        """Run work of our own, such as reading a file, in a thread."""
        return await self.start(work, _nothing)

    def _grow(self) -> None:
        """Add a thread; when the system gives us none, the existing ones must do, and without any the call fails."""
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
            try:
                # One that is woken at its last moment for work another takes may wait for the next: it ends after that.
                job = self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                if self._is_superfluous():
                    return
                continue
            job.started = self._clock()
            self._running.add(job)
            job.run()
            with self._lock:
                self._running.discard(job)
                self._spare += 1
            del job  # an idle thread keeps nothing of its last handler alive

    def _is_superfluous(self) -> bool:
        """Tell an idle thread whether to end: not while work that counts on it is about to come."""
        with self._lock:
            if self._spare <= 0:
                return False
            self._spare -= 1
            self._count -= 1
            return True


def _nothing() -> None:
    """Do nothing when work of our own ends: nobody counts it."""


class Bulkhead:
    """Lets only so many calls of one handler into the threads, so that it cannot take them all."""

    __slots__ = ("_threads", "places")

    def __init__(self, threads: Threads, limit: int = 32, max_waiting: int | None = None, what: str = "") -> None:
        self._threads = threads
        self.places = Slots(limit, max_waiting, what)

    async def run(self, work: Work) -> Any:
        """Run work in a thread as soon as this handler may."""
        places = self.places
        if not places.take():
            await places.wait()
        try:
            # A thread cannot be stopped: whoever gives up waiting for it does not give its place away.
            future = self._threads.start(work, places.leave)
        except BaseException:
            places.leave()
            raise
        return await future
