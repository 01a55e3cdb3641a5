"""Starting work at once: it runs where it was started until it first waits, and only then becomes a task.

Most calls never wait, and a task with its turn of the loop costs more than all the rest of such a call. Python has
this from 3.12 on (`eager_start`). Before, a spare task lends the work its identity while it runs in place: whatever
the work asks of `asyncio.current_task()` is asked of a real task, which then carries the work on if it waits.

Rule: a task that lent its identity, or carried work on to its end, is used again only if nobody kept it, nothing
cancelled it, and its context is as it was; one call can never reach another through it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from asyncio import futures, tasks
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from operator import is_
from sys import getrefcount
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, getweakrefcount, ref

Work = Coroutine[object, object, None]
Start = Callable[[Work, str, Context | None], "asyncio.Task[None] | None"]
"""Runs work, in a copy of a context or of the current one, until it first waits.

Gives the task that carries it on, None when it is done.
"""

DONE = object()

_current_tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[object]] = getattr(tasks, "_current_tasks", {})
"""Where asyncio keeps which task runs on which loop, in the versions before `eager_start`."""

_all_tasks: Any = getattr(tasks, "_all_tasks", WeakSet())
_counted: set[ref[Any]] = _all_tasks.data
_forget: Callable[[ref[Any]], None] = _all_tasks._remove  # noqa: SLF001
"""Where asyncio keeps which tasks there are: a set of weak references, and what takes one out whose task is gone."""

REFERENCES = 4
"""How often a running task is referred to that nobody has kept: by asyncio, what woke it, its spare, and who counts."""

MOST_SPARE = 128
"""How many tasks without work are kept."""

NOT_CANCELLED = object()

NATIVE = sys.version_info >= (3, 12)


class Rest:
    """What a task without work waits for: to asyncio, a future.

    Work that begins to wait hands the future it waits for to it, so the task waits for that one from then on, without a
    turn of the loop in between.
    """

    __slots__ = ("_asyncio_future_blocking", "_loop", "_waiting", "cancellation", "wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop  # a task asks for it
        self._waiting: asyncio.Future[object] | None = None
        self.cancellation: object = NOT_CANCELLED
        """The message of a cancellation of work that runs in place, until it waits for something."""
        self.wake: Callable[[asyncio.Future[object]], object] | None = None
        """What wakes the task; None while the task does not wait for this."""

    def begin(self) -> Rest:
        """Return itself, ready for a task to wait for."""
        self._asyncio_future_blocking = True  # what `await` does for a future: a task refuses one that nobody awaits
        self._waiting = None
        return self

    def wait_for(self, future: asyncio.Future[object], context: Context) -> None:
        """Let the task wait for a future instead."""
        self._waiting = future
        future.add_done_callback(self.wake, context=context)  # type: ignore[arg-type]
        self.wake = None

    # -- what a task asks of a future

    def add_done_callback(self, wake: Callable[[asyncio.Future[object]], object], *, context: Context) -> None:
        """Keep what wakes the task."""
        self.wake = wake

    def cancel(self, msg: object = None) -> bool:
        """Cancel what the task waits for, or will wait for. Return whether that could be done."""
        if self._waiting is not None:
            return self._waiting.cancel(msg)
        self.cancellation = msg
        return True


def is_same(one: Context, other: Context) -> bool:
    """Return whether two contexts hold the very same objects."""
    try:
        if one != other:
            return False
    except Exception:  # different objects were compared: the arrays of numpy, say, refuse to
        return False
    return not one or all(map(is_, one.values(), other.values()))


class SpareTask:
    """A task that runs nothing, until work that was begun in place waits for something."""

    __slots__ = (
        "_carrying",
        "_ends",
        "_entry",
        "_rest",
        "_starter",
        "_waiting",
        "_weak_references",
        "base",
        "begin",
        "context",
        "task",
    )

    def __init__(self, starter: Starter, context: Context) -> None:
        self._starter = starter
        self._waiting: object = DONE
        """What adopted work waits for and its task does not know of yet; DONE where there is nothing."""
        self._rest = Rest(starter.loop)
        self._carrying = False
        """Whether the task carries work on."""
        self._ends = False
        """Whether the task is to end in its first step."""
        self.base = context
        self.context = context.copy()
        works = self._run_works()
        works.send(None)
        self.begin: Callable[[Work], object] = works.send
        """Run work until it first waits. Return what it waits for, or DONE."""
        carried: Any = self._carry(works)
        carried.send(None)
        self.task: asyncio.Task[None] = asyncio.Task(carried, loop=starter.loop, context=self.context)
        self._entry: ref[Any] = ref(self.task, _forget)
        """What it is counted by while it carries work on."""
        self.uncount()
        self._weak_references = getweakrefcount(self.task)

    @types.coroutine
    def _run_works(self) -> Generator[object, Any, None]:
        """Run one work after another, each in place until it waits, and from then on in the task.

        Work that is awaited ends without the exception that `send` would raise for it.
        """
        work = yield DONE
        while work is not None:
            yield from work
            if not self._carrying:
                work = yield DONE
            elif self._starter.take_back(self):
                self._carrying = False
                work = yield self._rest.begin()
            else:
                return

    def uncount(self) -> None:
        """Nobody's work is in a spare task: it is not counted, and a loop that ends with one has forgotten nothing."""
        self.task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        _counted.discard(self._entry)

    def adopt(self, waiting: Any, name: str) -> asyncio.Task[None]:
        """Carry on the work that was begun last and waits for something now."""
        self._carrying = True
        task = self.task
        task.set_name(name)
        task._log_destroy_pending = True  # type: ignore[attr-defined]  # noqa: SLF001
        _counted.add(self._entry)
        rest = self._rest
        if rest.wake is None:
            self._waiting = waiting  # for its first step, which is due
        else:
            rest.wait_for(self._starter.awaitable(waiting, task, rest), self.context)
        return task

    def end(self) -> None:
        """Let the task end, of which somebody may know, as the work has that ran in place."""
        if self._rest.wake is None:
            self._ends = True
        else:
            self._rest.wait_for(self._starter.nothing, self.context)

    def is_untouched(self, references: int) -> bool:
        """Return whether the work that is over left its task as it was, with so many references to it.

        Equal contexts are not enough: a value of one call may equal that of another.
        """
        task: Any = self.task
        if getrefcount(task) - 1 != references or getweakrefcount(task) != self._weak_references:
            return False
        if task._must_cancel or task._callbacks or self._rest.cancellation is not NOT_CANCELLED:  # noqa: SLF001
            return False
        # Most hold nothing, before and after.
        return not (self.context or self.base) or is_same(self.context, self.base)

    @types.coroutine
    def _carry(self, works: Generator[object, Any, None]) -> Generator[object, None, None]:
        """Run for the task: its first step, for which work may wait already, and then all that waits."""
        error: BaseException | None = None
        try:
            yield None  # a task that is cancelled before its first step would not begin what it is to end
            if not (self._carrying or self._ends):
                yield self._rest.begin()
        except BaseException as raised:
            if not self._carrying:
                raise
            error = raised
        waiting = self._waiting
        self._waiting = DONE
        if error is not None and _cancelled(waiting, error):
            error = None
        while error is not None or waiting is not DONE:
            if error is not None:
                try:
                    waiting = works.throw(error)
                except StopIteration:
                    return
            error = None
            try:
                yield waiting
            except BaseException as raised:
                error = raised
            waiting = DONE
        yield from works


def _cancelled(waiting: object, error: BaseException) -> bool:
    """Cancel what a task did not know yet that it waits for, as the task would have done. Return whether that is so."""
    if not asyncio.isfuture(waiting) or not isinstance(error, asyncio.CancelledError):
        return False
    return waiting.cancel(*error.args)


class Starter:
    """Starts work on one loop."""

    __slots__ = ("_spares", "loop", "nothing")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._spares: list[SpareTask] = []
        self.nothing: asyncio.Future[object] = loop.create_future()
        """Is done."""
        self.nothing.set_result(None)

    def start(self, work: Work, name: str, context: Context | None = None) -> asyncio.Task[None] | None:
        """Run work until it first waits."""
        loop = self.loop
        spares = self._spares
        if context is None:
            context = copy_context()
        if not spares:
            spares.append(SpareTask(self, context))
        spare = spares.pop()
        if spare.base is not context and (context or spare.base) and not is_same(spare.base, context):
            spare = SpareTask(self, context)
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
        if waiting is not DONE:
            return spare.adopt(waiting, name)
        if spare.is_untouched(held):
            spares.append(spare)
        else:
            spare.end()
        return None

    def awaitable(self, waiting: Any, task: asyncio.Task[None], rest: Rest) -> asyncio.Future[object]:
        """Return what a task waits for whose work has yielded this: mostly just that."""
        if waiting is None:
            waiting = self.nothing
        elif not getattr(waiting, "_asyncio_future_blocking", False):
            return self._refused(f"Task got bad yield: {waiting!r}")
        elif waiting is task:
            return self._refused(f"Task cannot await on itself: {task!r}")
        elif futures._get_loop(waiting) is not self.loop:  # type: ignore[attr-defined]  # noqa: SLF001
            return self._refused(f"Task {task!r} got Future {waiting!r} attached to a different loop")
        waiting._asyncio_future_blocking = False  # noqa: SLF001  # as a task does
        if rest.cancellation is not NOT_CANCELLED:
            message = rest.cancellation
            rest.cancellation = NOT_CANCELLED
            if not waiting.cancel(message):
                cancelled: asyncio.Future[object] = self.loop.create_future()
                cancelled.cancel(message)
                return cancelled
        return waiting  # type: ignore[no-any-return]

    def _refused(self, why: str) -> asyncio.Future[object]:
        """Return what fails as a task lets work fail that yields what cannot be waited for."""
        refused: asyncio.Future[object] = self.loop.create_future()
        refused.set_exception(RuntimeError(why))
        return refused

    def take_back(self, spare: SpareTask) -> bool:
        """Keep the running task, whose work is over, for the next. Return whether that can be done."""
        if not spare.is_untouched(REFERENCES) or len(self._spares) >= MOST_SPARE:
            return False
        if spare.task.cancelling():  # of work in place, the rest has kept the cancellation
            return False
        spare.uncount()
        self._spares.append(spare)
        return True


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
_starts_lock = threading.RLock()
"""Held while its entries are looked through: other threads have loops of their own."""


def starting(loop: asyncio.AbstractEventLoop) -> Start:
    """Return what starts work on a loop; a loop with a task factory of its own is asked for its tasks."""
    if loop.get_task_factory() is not None:
        return lambda work, name, context: loop.create_task(work, name=name, context=_copied(context))
    start = _starts.get(loop)
    if start is None:
        start = _start_native(loop) if NATIVE else Starter(loop).start
        with _starts_lock:
            for other in list(_starts):
                if other.is_closed():
                    _starts.pop(other, None)  # what starts work on a loop holds the loop, and its spare tasks
            _starts[loop] = start
    return start
