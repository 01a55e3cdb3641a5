"""Starting work at once: it runs where it was started until it first waits, and only then becomes a task.

Most calls never wait, and a task with its turn of the loop costs more than all the rest of such a call. Python has
this from 3.12 on (`eager_start`). Before, a spare task lends the work its identity while it runs in place: whatever
the work asks of `asyncio.current_task()` is asked of a real task, which then carries the work on if it waits.

Rule: a task that lent its identity is used again only if nobody kept it, nothing cancelled it, and its context is as
it was; one call can never reach another through it.
"""

from __future__ import annotations

import asyncio
import sys
import types
from asyncio import tasks
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any
from weakref import WeakKeyDictionary

Work = Coroutine[object, object, None]
Start = Callable[[Work, str, Context | None], "asyncio.Task[None] | None"]
"""Runs work, in a copy of a context or of the current one, until it first waits.

Gives the task that carries it on, None when it is done.
"""

DONE = object()

_current_tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[object]] = getattr(tasks, "_current_tasks", {})
"""Where asyncio keeps which task runs on which loop, in the versions before `eager_start`."""

NATIVE = sys.version_info >= (3, 12)


class SpareTask:
    """A task that runs nothing, until work that was begun in place waits for something."""

    __slots__ = ("_loop", "_parked", "_waiting", "_work", "base", "begin", "context", "counted", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._work: Generator[object, object, None] | None = None
        self._waiting: object = None
        self._parked: asyncio.Future[None] | None = None
        self.base = context
        self.context = context.copy()
        carried: Any = self._carry()
        carried.send(None)
        self.task: asyncio.Task[None] = asyncio.Task(carried, loop=loop, context=self.context)
        self.counted = True
        """Whether asyncio counts it among its tasks, as it does a new one."""
        in_place = self._in_place()
        in_place.send(None)
        self.begin: Callable[[Work], object] = in_place.send
        """Run work until it first waits. Return what it waits for, or DONE."""

    @types.coroutine
    def _in_place(self) -> Generator[object, Any, None]:
        """Run one work after another, until the task adopts the one that waits: with that one it ends.

        Work that is awaited ends without the exception that `send` would raise for it.
        """
        while self._work is None:
            work = yield DONE
            yield from work

    def uncount(self) -> None:
        """Nobody's work is in a spare task: it is not counted, and a loop that ends with one has forgotten nothing."""
        self.counted = False
        self.task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        tasks._unregister_task(self.task)  # noqa: SLF001

    def adopt(self, waiting: object, name: str) -> asyncio.Task[None]:
        """Carry on the work that was begun last and waits for something now."""
        self._work = self.begin.__self__  # type: ignore[attr-defined]  # the generator
        self._waiting = waiting
        del self.begin
        task = self.task
        del self.task  # the task holds this object, so this object lets go of the task
        task.set_name(name)
        if not self.counted:
            task._log_destroy_pending = True  # type: ignore[attr-defined]  # noqa: SLF001
            tasks._register_task(task)  # noqa: SLF001
        if self._parked is not None and not self._parked.done():  # work that cancelled itself has ended it
            self._parked.set_result(None)
        return task

    @types.coroutine
    def _carry(self) -> Generator[object, None, None]:
        """Run for the task: wait for work, then for what that waits for, and then carry it on."""
        error: BaseException | None = None
        try:
            yield None  # a task that is cancelled before its first step would not begin what it is to end
            if self._work is None:
                self._parked = self._loop.create_future()
                # What `await` does for a future: a task refuses one that nobody awaits.
                self._parked._asyncio_future_blocking = True  # noqa: SLF001
                yield self._parked
        except BaseException as raised:
            if self._work is None:
                raise
            error = raised
        work = self._work
        waiting = self._waiting
        self._waiting = None
        assert work is not None
        if error is not None and _cancelled(waiting, error):
            error = None
        while True:
            if error is not None:
                try:
                    waiting = work.throw(error)
                except StopIteration:
                    return
            try:
                yield waiting
                break
            except BaseException as raised:
                error = raised
        yield from work


def _cancelled(waiting: object, error: BaseException) -> bool:
    """Cancel what a task did not know yet that it waits for, as the task would have done. Return whether that is so."""
    if not asyncio.isfuture(waiting) or not isinstance(error, asyncio.CancelledError):
        return False
    return waiting.cancel(*error.args)


class Starter:
    """Starts work on one loop."""

    __slots__ = ("_loop", "_spare")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spare: SpareTask | None = None

    def start(self, work: Work, name: str, context: Context | None = None) -> asyncio.Task[None] | None:
        """Run work until it first waits."""
        loop = self._loop
        spare = self._spare
        self._spare = None
        if context is None:
            context = copy_context()
        if spare is None or (spare.base is not context and spare.base != context):
            spare = SpareTask(loop, context)
        task = spare.task
        held = getrefcount(task)
        outer = _current_tasks.get(loop)
        _current_tasks[loop] = task
        waiting: object = DONE
        try:
            waiting = spare.context.run(spare.begin, work)
        finally:
            if outer is None:
                del _current_tasks[loop]
            else:
                _current_tasks[loop] = outer
            if waiting is DONE and spare.counted:
                spare.uncount()
        if waiting is not DONE:
            return spare.adopt(waiting, name)
        if getrefcount(task) == held and spare.context == context and not task.cancelling():
            self._spare = spare
        return None


def _copied(context: Context | None) -> Context | None:
    return None if context is None else context.copy()  # an empty one is false, and is copied too


def _start_native(loop: asyncio.AbstractEventLoop) -> Start:
    def start(work: Work, name: str, context: Context | None = None) -> asyncio.Task[None] | None:
        task = asyncio.Task(work, loop=loop, name=name, context=_copied(context), eager_start=True)  # type: ignore[call-arg,unused-ignore]
        if task.done():
            return None
        return task

    return start


_starts: WeakKeyDictionary[asyncio.AbstractEventLoop, Start] = WeakKeyDictionary()


def starting(loop: asyncio.AbstractEventLoop) -> Start:
    """Return what starts work on a loop; a loop with a task factory of its own is asked for its tasks."""
    if loop.get_task_factory() is not None:
        return lambda work, name, context: loop.create_task(work, name=name, context=_copied(context))
    start = _starts.get(loop)
    if start is None:
        start = _starts[loop] = _start_native(loop) if NATIVE else Starter(loop).start
    return start
