"""The tasks one owner started, so that none is forgotten and all can be ended together."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger("ferrule.scope")


NO_TASKS: frozenset[asyncio.Task[object]] = frozenset()

ABANDONED_AFTER = 5.0
"""How many seconds a cancelled task may go on before it counts as abandoned."""


class Scope:
    """The tasks one owner started."""

    __slots__ = ("_loop", "_watched", "tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: set[asyncio.Task[object]] | frozenset[asyncio.Task[object]] = NO_TASKS
        """Those that were cancelled and have not ended."""
        self.tasks: set[asyncio.Task[object]] | frozenset[asyncio.Task[object]] = NO_TASKS

    def spawn(self, work: Coroutine[object, object, object]) -> asyncio.Task[Any]:
        """Start a task that this scope owns until it ends."""
        task = self._loop.create_task(work)
        self._adopt(task)
        return task

    def cancel(self, task: asyncio.Task[object], what: str = "") -> None:
        """Cancel a task, and keep it until it has really ended; one that goes on is logged once, as `what` it is."""
        self._adopt(task)
        task.cancel()
        if task not in self._watched:
            self._watch(task, what)

    def _watch(self, task: asyncio.Task[object], what: str) -> None:
        watched = self._watched if isinstance(self._watched, set) else set()
        watched.add(task)
        self._watched = watched
        late = self._loop.call_later(ABANDONED_AFTER, _log_abandoned, task, what)

        def ended(task: asyncio.Task[object]) -> None:
            late.cancel()
            watched.discard(task)

        task.add_done_callback(ended)

    def _adopt(self, task: asyncio.Task[object]) -> None:
        if task not in self.tasks:
            # An idle link should cost little, so the set is made when there is something to put into it.
            tasks = self.tasks if isinstance(self.tasks, set) else set()
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            self.tasks = tasks

    async def close(self, grace: float = 0.0) -> None:
        """Let the tasks end by themselves for a while, then cancel them, then leave those that will not go."""
        if self.tasks and grace > 0:
            await asyncio.wait(set(self.tasks), timeout=grace)
        for task in list(self.tasks):
            self.cancel(task)
        if self.tasks:
            _, stuck = await asyncio.wait(set(self.tasks), timeout=1.0)
            if stuck:
                logger.warning("%d tasks ignore their cancellation and are left behind", len(stuck))


def _log_abandoned(task: asyncio.Task[object], what: str) -> None:
    if not what:
        work = task.get_coro()
        if inspect.iscoroutine(work):
            what = f"the task {work.__qualname__}"
        else:
            what = f"the task {task.get_name()}"
    logger.warning("%s is still running %g s after it was cancelled; abandoning it", what, ABANDONED_AFTER)
