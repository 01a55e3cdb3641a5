"""Worker threads for plain `def` handlers.

They are our own and daemonic: the standard executor would keep a process with a stuck handler alive at exit, and
hangs on a StopIteration.

Rule 1: waking a thread costs more than most handlers. While one looks for work, no other is woken; when it has found
some and there is more, it tells the loop before it begins. The loop runs as soon as the thread lets go of the
interpreter, because its work blocks, takes long or is done: where work still waits then, the loop wakes a thread for
it, and from there on each wakes the next before it begins. So work that blocks has a thread each, and many short pieces
are done by one thread that was woken once. Where work comes from several loops, each thread wakes the next: the loop
that is told may be another than the one whose work waits, and stand still.
Rule 2: the results of one moment go back to the loop together.
Rule 3: a thread that is done with its work hands its slot on to the next in line; the loop is not asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from msgspec import Struct

from ferrule.server.calls.slots import Slots

logger = logging.getLogger("ferrule.threads")

Work = Callable[..., Any]

IDLE_SECONDS = 10.0
"""After how long without work a thread ends."""


class Forks:
    """How often this process was forked off: no system call, where asking for its id is one for each job."""

    def __init__(self) -> None:
        self.count = 0
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.count += 1


_forks = Forks()


class LoopResults:
    """Brings results from the threads back to one loop, and lets it look at the work that waits."""

    __slots__ = ("_done", "_due", "loop", "thread", "threads")

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        """Where the loop runs."""
        self._done: deque[Job] = deque()
        self._due = False
        """Whether the loop was told already that there is something to see to."""

    def add(self, job: Job) -> None:
        """Hand a job back that is done; called in its thread."""
        self._done.append(job)
        if not self._due:
            self.tell()

    def tell(self) -> None:
        """Let the loop look at what is done and what waits; called in a thread."""
        if not self._due:
            self._due = True
            try:
                self.loop.call_soon_threadsafe(self._see_to)
            except RuntimeError:
                self._due = False
                logger.debug("a handler ended after its loop was closed")
                self.threads.see_to()  # what waits may be of another loop

    def _see_to(self) -> None:
        self._due = False  # before the look at what is done: what comes after that tells the loop again
        done = self._done
        for _ in range(len(done)):
            done.popleft().settle()
        self.threads.see_to()


class GeneratorExitRaised(Exception):
    """Carries a GeneratorExit, which a future may not hold: thrown into who awaits it, it means that they must end."""

    def __init__(self, error: GeneratorExit) -> None:
        super().__init__()
        self.error = error


class Job(Struct, eq=False):
    """One piece of work, the loop that waits for it, and the context it runs in."""

    results: LoopResults
    work: Work
    args: tuple[object, ...]
    slots: Slots | None
    """Where its own slot goes in the end; None if it has none, or has handed it on."""
    future: asyncio.Future[Any]
    context: Context
    started: float = 0.0
    result: Any = None
    error: BaseException | None = None

    def run(self, forks: int) -> None:
        """Do the work, unless nobody wants it any more; called in a thread that was begun after so many forks."""
        try:
            if not self.future.cancelled():
                self.result = self.context.run(self.work, *self.args)
        except StopIteration as stop:
            self.error = RuntimeError(f"the handler raised StopIteration({stop.value!r})")
        except GeneratorExit as raised:
            self.error = GeneratorExitRaised(raised)
        except BaseException as raised:  # whatever a handler raises belongs to its own call
            self.error = raised
        if _forks.count != forks:
            # The handler forked, and this is the child: it must not answer in its parent's name.
            os._exit(0)

    def settle(self) -> None:
        """Settle the future by how it ended; called in the loop."""
        error = self.error
        self.error = None  # its traceback holds this job
        if self.slots is not None:
            self.slots.leave()
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(error)

    # -- its turn in a line

    def is_gone(self) -> bool:
        """Return whether nobody waits for it any more."""
        return self.future.done()

    def granted(self) -> None:
        """Called when its turn has come, in the loop or in a thread: start it."""
        try:
            self.results.threads.submit(self)
        except RuntimeError as error:
            self.error = error
            self.results.add(self)


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


class Worker:
    """A thread of a pool: what it does now, and what wakes it."""

    __slots__ = ("job", "wake")

    def __init__(self) -> None:
        self.job: Job | None = None
        """None while it looks for work, or waits for some."""
        self.wake = threading.Lock()
        """Released by whoever has work for it."""
        self.wake.acquire()


class Threads:
    """A pool that grows when all its threads are busy, up to a limit; a thread without work ends after a while."""

    def __init__(
        self, limit: int = 256, clock: Callable[[], float] = time.monotonic, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._results: LoopResults | None = None
        self._several_loops = False
        """Whether work has come from more than one loop."""
        self._jobs: deque[Job] = deque()
        """Work that no thread has taken yet."""
        self._workers: set[Worker] = set()
        self._idle: list[threading.Lock] = []
        """What each thread without work waits for. The last one is woken first, so that the others may end."""
        self._seeking = False
        """Whether a thread was woken, or added, and has not looked for work yet."""
        self._blocked = False
        """Whether work waited while other work kept a thread: until none waits, threads wake each other."""
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many threads there are."""
        return len(self._workers)

    @property
    def busy(self) -> int:
        """How many threads work now."""
        return len(self._running())

    @property
    def idle(self) -> int:
        """How many threads wait for work."""
        return self.count - self.busy

    @property
    def waiting(self) -> int:
        """How much work waits for a thread."""
        return len(self._jobs)

    def figures(self) -> ThreadFigures:
        """Return how busy the threads are now, for a dashboard or a metric."""
        running = self._running()
        now = self._clock()
        return ThreadFigures(
            limit=self.limit,
            busy=len(running),
            idle=max(0, self.count - len(running)),
            waiting=len(self._jobs),
            abandoned=sum(job.future.cancelled() for job in running),
            longest=max((now - job.started for job in running), default=0.0),
        )

    def _running(self) -> list[Job]:
        """Return what the threads do now."""
        jobs = [worker.job for worker in list(self._workers)]  # a list first: threads come and go meanwhile
        return [job for job in jobs if job is not None]

    def job(self, work: Work, args: tuple[object, ...], slots: Slots | None = None) -> Job:
        """Make a job for the running loop; it has one of the slots, or stands in line for one."""
        results = self._results
        # No question for the running loop, which is a system call before Python 3.12.
        if results is None or results.thread != threading.get_ident() or not results.loop.is_running():
            self._several_loops = results is not None
            results = self._results = LoopResults(self)
        return Job(results, work, args, slots, results.loop.create_future(), copy_context())

    def submit(self, job: Job) -> None:
        """Run a job in a thread; raises RuntimeError where there is no thread and none can be had."""
        self._jobs.append(job)
        if not self._seeking:
            try:
                self._summon()
            except RuntimeError:
                self._jobs.remove(job)
                raise

    def see_to(self) -> None:
        """Wake a thread, or add one, for work that waits while none looks for it."""
        if self._jobs and not self._seeking:
            self._blocked = True
            self._summon()

    async def run(self, work: Work) -> Any:
        """Run work of our own, such as reading a file, in a thread."""
        job = self.job(work, ())
        self.submit(job)
        try:
            return await job.future
        except GeneratorExitRaised as raised:
            raise raised.error from None

    def _summon(self) -> None:
        """Wake one thread for the work that waits, or add one."""
        with self._lock:
            if self._seeking or not self._jobs:
                return
            if self._idle:
                self._seeking = True
                self._idle.pop().release()
            elif len(self._workers) < self.limit:
                self._grow()

    def _grow(self) -> None:
        """Add a thread; when the system gives us none, the existing ones must do, and without any the call fails."""
        worker = Worker()
        name = f"ferrule-worker-{len(self._workers) + 1}"
        thread = threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True)
        self._seeking = True
        self._workers.add(worker)
        try:
            thread.start()
        except RuntimeError:
            self._seeking = False
            self._workers.remove(worker)
            if not self._workers:
                raise
            logger.warning("no more than %d worker threads can be started", len(self._workers))

    def _serve(self, worker: Worker) -> None:
        forks = _forks.count
        wake = worker.wake
        while True:
            job = self._take(wake)
            if job is None:
                if not wake.acquire(timeout=self._idle_seconds) and self._is_superfluous(worker):
                    return
                continue
            job.started = self._clock()
            worker.job = job
            job.run(forks)
            worker.job = None
            self._seeking = True  # before anything else: what is started because this job is done needs no other thread
            if job.slots is not None and job.slots.pass_on():
                job.slots = None
            job.results.add(job)
            del job  # an idle thread keeps nothing of its last handler alive

    def _take(self, wake: threading.Lock) -> Job | None:
        """Return the next job for a thread that looks for work. Where there is none, it is idle from now on."""
        while True:
            if not self._jobs:
                with self._lock:
                    self._seeking = False  # before the last look: whatever comes after that wakes a thread
                    if not self._jobs:
                        self._blocked = False
                        self._idle.append(wake)
                        return None
            try:
                job = self._jobs.popleft()
                break
            except IndexError:  # another thread was quicker
                continue
        self._seeking = False
        if self._jobs:
            if self._blocked or self._several_loops or not job.results.loop.is_running():
                self._summon()
            else:
                job.results.tell()
        return job

    def _is_superfluous(self, worker: Worker) -> bool:
        """Return whether a thread that was idle for long should end: not if it was woken at the last moment."""
        with self._lock:
            if worker.wake in self._idle:
                self._idle.remove(worker.wake)
                self._workers.remove(worker)
                return True
        worker.wake.acquire()
        return False


class Bulkhead:
    """Lets only so many calls of one handler into the threads, so that it cannot take them all."""

    __slots__ = ("_threads", "slots")

    def __init__(self, threads: Threads, limit: int = 32, max_waiting: int | None = None, what: str = "") -> None:
        self._threads = threads
        self.slots = Slots(limit, max_waiting, what)

    async def run(self, work: Work, *args: object) -> Any:
        """Run work in a thread as soon as this handler may."""
        slots = self.slots
        # A thread cannot be stopped: whoever gives up waiting for it does not give its slot away.
        job = self._threads.job(work, args, slots)
        if not slots.take():
            slots.stand_in_line(job)
        else:
            try:
                self._threads.submit(job)
            except BaseException:
                slots.leave()
                raise
        try:
            return await job.future
        except GeneratorExitRaised as raised:
            raise raised.error from None
        except asyncio.CancelledError:
            slots.leave_line(job)
            raise
