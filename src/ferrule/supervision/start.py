"""Starting work at once: it runs where it was started until it first waits, and only then becomes a task.

Most calls never wait, and a task with its turn of the loop costs more than all the rest of such a call. Python has
this from 3.12 on (`eager_start`). Before, a spare task lends the work its identity while it runs in place: whatever
the work asks of `asyncio.current_task()` is asked of a real task, which then carries the work on if it waits.

Rule: a task that lent its identity, or carried work on to its end, is used again only if nobody kept it or set an
attribute of it, nothing cancelled it, and its context is as it was; one call can never reach another through it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from asyncio import tasks
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

MOST_SPARE = 1024
"""How many tasks without work are kept."""

NATIVE = sys.version_info >= (3, 12)


def is_same(one: Context, other: Context) -> bool:
    """Return whether two contexts hold the very same objects."""
    try:
        if one != other:
            return False
    except Exception:  # different objects were compared: the arrays of numpy, say, refuse to
        return False
    return not one or all(map(is_, one.values(), other.values()))


class LentTask(asyncio.Task[None]):
    """A task that notes when an attribute of it is set: libraries keep there what belongs to one request."""

    __slots__ = ("has_attributes",)

    has_attributes: bool

    def __setattr__(self, name: str, value: object) -> None:
        _set_attribute(self, "has_attributes", True)
        _set_attribute(self, name, value)


LentTask.__name__ = "Task"  # in logs it is a task like any other

_set_attribute = object.__setattr__


class SpareTask:
    """A task that runs nothing, until work that was begun in place waits for something."""

    __slots__ = (
        "_ends",
        "_loop",
        "_nothing",
        "_references",
        "_rest",
        "_spares",
        "_wake",
        "_was_awaited",
        "_weak_references",
        "base",
        "begin",
        "context",
        "entry",
        "task",
        "waiting",
    )

    def __init__(self, starter: Starter, spares: list[SpareTask], context: Context) -> None:
        self._loop = starter.loop
        self._spares = spares
        """Where it is kept while it has no work."""
        self._nothing = starter.nothing
        self.waiting: object = DONE
        """What its work waits for and the task does not know of yet; DONE where there is nothing."""
        self._was_awaited = False
        """Whether that is a future that the work awaits, which was not noted in the future for as long."""
        self._rest: asyncio.Future[object] = starter.loop.create_future()
        """What the task waits for while it has no work; nothing but a cancellation ends it."""
        self._wake: Callable[[asyncio.Future[object]], object] | None = None
        """What lets the task take its next step at once; known from its second work on."""
        self._references = REFERENCES
        self._ends = False
        """Whether the task is to end in its next step."""
        self.base = context.copy()  # a context may be changed by whoever has it
        self.context = context.copy()
        works = _run_works()
        works.send(None)
        self.begin: Callable[[Work], object] = works.send
        """Run work until it first waits. Return what it waits for, or DONE."""
        carried: Any = self._carry(works)
        carried.send(None)  # a task that is cancelled before its first step would not begin what it is to end
        self.task = LentTask(carried, loop=starter.loop, context=self.context)
        _set_attribute(self.task, "has_attributes", False)
        self.entry: ref[Any] = ref(self.task, _forget)
        """What it is counted by while it carries work on."""
        self.uncount()
        self._weak_references = getweakrefcount(self.task)

    def uncount(self) -> None:
        """Nobody's work is in a spare task: it is not counted, and a loop that ends with one has forgotten nothing."""
        _set_attribute(self.task, "_log_destroy_pending", False)
        _counted.discard(self.entry)

    def step(self) -> bool:
        """Let the task take a step at once, which runs nothing of the work.

        Return False, and leave it, where a step is due anyway: its first, or that after a cancellation.
        """
        rest: Any = self._rest
        wake = self._wake
        if wake is None:
            callbacks = rest._callbacks  # noqa: SLF001
            if not callbacks:
                return False
            wake = self._wake = callbacks[0][0]
            self._references += 1
        if not rest.remove_done_callback(wake):
            return False
        loop = self._loop
        outer = _current_tasks.pop(loop, None)  # a task cannot step within another
        try:
            wake(self._nothing)
        finally:
            if outer is not None:
                _current_tasks[loop] = outer
        return True

    def release_future(self) -> None:
        """Let others await what the work awaits before the step that is due, in which the task takes note of it.

        `await` marks a future, and refuses one that is marked; a task takes the mark away at once.
        """
        waiting: Any = self.waiting
        if getattr(waiting, "_asyncio_future_blocking", False):
            waiting._asyncio_future_blocking = False  # noqa: SLF001
            self._was_awaited = True

    def end(self) -> None:
        """Let the task end, of which somebody may know, as the work has that ran in place."""
        self._ends = True
        self.step()

    def has_context(self, context: Context) -> bool:
        """Return whether the task began in such a context."""
        return not (context or self.base) or is_same(self.base, context)

    def is_untouched(self, references: int) -> bool:
        """Return whether the work that is over left its task as it was, with so many references to it.

        Equal contexts are not enough: a value of one call may equal that of another.
        """
        task: Any = self.task
        if getrefcount(task) - 1 != references or getweakrefcount(task) != self._weak_references:
            return False
        if task._must_cancel or task._callbacks or task.has_attributes or self._rest.done():  # noqa: SLF001
            return False
        # Most hold nothing, before and after.
        return not (self.context or self.base) or is_same(self.context, self.base)

    @types.coroutine
    def _carry(self, works: Generator[object, Any, None]) -> Generator[object, None, None]:
        """Run for the task: carry on one work after another, and rest in between."""
        go_on = works.send
        error: BaseException | None = None
        rest: asyncio.Future[object] | None = None  # its first step comes by itself
        while True:
            try:
                yield rest
            except BaseException as raised:
                if self.waiting is DONE:
                    raise
                error = _passed_on(raised, self.waiting)
            if self._ends:
                return
            rest = self._rest
            rest._asyncio_future_blocking = True  # noqa: SLF001  # as `await` does: a task refuses what nobody awaits
            if self.waiting is DONE:
                continue
            waiting = self._take_waiting()
            while waiting is not DONE:
                if error is None:
                    try:
                        yield waiting
                    except BaseException as raised:
                        error = raised
                    else:
                        waiting = go_on(None)
                if error is not None:  # not where it is caught: what the work raises later has nothing to do with it
                    try:
                        waiting = works.throw(error)
                    finally:
                        error = None  # its traceback holds this frame
            if not self._is_kept():
                return

    def _take_waiting(self) -> object:
        """Return what the work waits for, as it came from the work: from now on the task knows of it."""
        waiting: Any = self.waiting
        self.waiting = DONE
        if self._was_awaited:
            self._was_awaited = False
            waiting._asyncio_future_blocking = True  # noqa: SLF001
        return waiting

    def _is_kept(self) -> bool:
        """Keep the running task, whose work is over, for the next. Return whether that can be done."""
        spares = self._spares
        if len(spares) >= MOST_SPARE or not self.is_untouched(self._references):
            return False
        if self.task.cancelling():  # of work in place, a cancellation has ended the rest
            return False
        if spares and not self.has_context(spares[-1].base):
            return False
        self.uncount()
        spares.append(self)
        return True


@types.coroutine
def _run_works() -> Generator[object, Any, None]:
    """Run one work after another, as `send` brings them, and yield DONE after each.

    Work that is awaited ends without the exception that `send` would raise for it.
    """
    work = yield DONE
    while work is not None:
        yield from work
        work = yield DONE


def _passed_on(error: BaseException, waiting: object) -> BaseException | None:
    """Cancel what a task did not know yet that it waits for, as the task would have done; give the error otherwise."""
    if isinstance(error, asyncio.CancelledError) and asyncio.isfuture(waiting) and waiting.cancel(*error.args):
        return None
    return error


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
            spares.append(SpareTask(self, spares, context))
        spare = spares.pop()
        if (context or spare.base) and not is_same(spare.base, context):
            spares.clear()  # all have one context: what others hold belongs to calls that are over
            spare = SpareTask(self, spares, context)
        task = spare.task
        task.set_name(name)
        held = getrefcount(task)
        outer = _current_tasks.get(loop)
        _current_tasks[loop] = task
        try:
            waiting = spare.context.run(spare.begin, work)
        except BaseException:
            spare.end()
            raise
        finally:
            if outer is None:
                del _current_tasks[loop]
            else:
                _current_tasks[loop] = outer
        if waiting is not DONE:
            spare.waiting = waiting
            _set_attribute(task, "_log_destroy_pending", True)
            _counted.add(spare.entry)
            if not spare.step():
                spare.release_future()
            return task
        if spare.is_untouched(held):
            spares.append(spare)
        else:
            spare.end()
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


def _start_by_factory(loop: asyncio.AbstractEventLoop) -> Start:
    def start(work: Work, name: str, context: Context | None = None) -> asyncio.Task[None] | None:
        begun = _begun(work)
        begun.send(None)
        task = loop.create_task(begun, name=name, context=_copied(context))
        if task.done():  # asyncio.eager_task_factory
            return None
        return task

    return start


async def _begun(work: Work) -> None:
    """Run work whose task may be cancelled before its first step: it begins all the same, and ends where it waits.

    Whoever starts work counts on what stands at its end.
    """
    try:
        await _pause()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        task.cancel()
    except GeneratorExit:
        work.close()
        raise
    await work


@types.coroutine
def _pause() -> Generator[None, None, None]:
    yield


_starts: WeakKeyDictionary[asyncio.AbstractEventLoop, Start] = WeakKeyDictionary()
_starts_lock = threading.RLock()
"""Held while its entries are looked through: other threads have loops of their own."""


def starting(loop: asyncio.AbstractEventLoop) -> Start:
    """Return what starts work on a loop; a loop with a task factory of its own is asked for its tasks."""
    if loop.get_task_factory() is not None:
        return _start_by_factory(loop)
    start = _starts.get(loop)
    if start is None:
        start = _start_native(loop) if NATIVE else Starter(loop).start
        with _starts_lock:
            for other in list(_starts):
                if other.is_closed():
                    _starts.pop(other, None)  # what starts work on a loop holds the loop, and its spare tasks
            _starts[loop] = start
    return start
