"""The tasks of one holder: which are kept, which run, who may see them, and their end with it."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Coroutine
from typing import Any, Protocol

from ferrule.errors import Busy
from ferrule.protocol.call import Call
from ferrule.protocol.tasks import wanted
from ferrule.runtime.dispatch import label_of
from ferrule.runtime.tasks.run import TaskRun
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.stores.contracts import StoredTask
from ferrule.supervision.scope import Scope


class TaskHolder(Protocol):
    """What the tasks of one side must know of it."""

    @property
    def requests(self) -> dict[str, object]:
        """Which requests may become tasks, as it is declared."""

    def named(self, call: Call) -> str:
        """Return the name of what a call runs: of a tool, or of a method."""

    def owner(self, call: Call, *, by_session: bool) -> str:
        """Return whose a task of this call is; empty for whoever knows its id."""

    def require(self, capability: str) -> None:
        """Refuse a request for something that was not declared."""

    def changed(self, task: StoredTask) -> None:
        """Notify those who subscribed to a task."""

    def may_tell_progress(self, call: Call) -> bool:
        """Return whether one more progress notice may go out now to the caller of a task."""

    def written(self, result: object) -> bytes:
        """Write the result of a task as it is kept."""

    def read(self, task: StoredTask) -> Any:
        """Read the result of a task that is kept."""


logger = logging.getLogger("ferrule.tasks")

ID_BYTES = 24
"""How many random bytes an id has: nobody guesses one, since where nobody is authenticated it opens the task.

A multiple of three, so that base64 pads nothing.
"""

LEAST_SWEEP = 1.0
"""Seconds between two looks for tasks that have expired, at least."""

STOPPED = "The server stopped before the task was done"
EXPIRED = "The task took longer than it is kept"


class Tasks:
    """The tasks of one holder."""

    def __init__(self, holder: TaskHolder, settings: TaskSettings | None) -> None:
        self.holder = holder
        self.settings = settings or TaskSettings()
        self.live: dict[str, TaskRun] = {}
        """Tasks that run here and have not ended."""
        self._working: dict[TaskRun, str] = {}
        """Whatever runs, with its owner: also what was ended and does not heed it."""
        self._scope: Scope | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def scope(self) -> Scope:
        """Where the work of tasks lives: with their holder, whoever comes and goes."""
        if self._scope is None:
            self._scope = Scope(asyncio.get_running_loop())
        return self._scope

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of whoever asks; a holder lives in one."""
        return asyncio.get_running_loop()

    @property
    def offered(self) -> dict[str, object]:
        """What is declared to peers that ask for tasks; where a caller cannot be known again, there is no list."""
        return self.settings.declared(self.holder.requests)

    # -- the beginning

    def start(self, run: TaskRun, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Begin the work of a task, or of a call that may become one."""
        self._working.setdefault(run, "")
        task = run.work = self.scope.spawn(work)
        task.add_done_callback(lambda _: self._worked(run))
        return task

    def _worked(self, run: TaskRun) -> None:
        self._working.pop(run, None)
        held = run.held
        run.held = 0
        if held:
            link: Any = run.call.link
            link.holdings.credit(held)

    async def keep(self, run: TaskRun, message: str | None) -> StoredTask:
        """Keep a new task before anyone knows of it; raises Busy when there is no room for one more."""
        call = run.call
        settings = self.settings
        owner = self.owner(call)
        now = settings.clock()
        by_request = call.peer.revision.tasks_by_request
        asked = wanted(call.params.task).ttl if by_request else None
        self._make_sure_of_room(run, owner)
        task = StoredTask(
            id=base64.urlsafe_b64encode(os.urandom(ID_BYTES)).decode(),
            owner=owner,
            tool=self.holder.named(call),
            status_message=message,
            created=now,
            updated=now,
            ttl=settings.lifetime(None if asked is None else asked / 1000),
            poll_interval=settings.poll_interval,
        )
        self._working[run] = owner
        try:
            await settings.store.create(task, now)
        except BaseException:
            del self._working[run]
            raise
        self.live[task.id] = run
        if run.work is None or not run.work.done():
            _carry_on(run)
        if task.ttl is not None:
            run.timer = self.loop.call_later(task.ttl, self._expire, run)
            self._look_later(task.ttl)
        logger.info("task %s: %s was started", task.id[:6], task.tool)
        return task

    def _make_sure_of_room(self, run: TaskRun, owner: str) -> None:
        most = self.settings.max_running
        most_of_one = self.settings.max_running_per_owner
        if len(self._working) - (run in self._working) >= most:
            raise Busy(f"Busy: {most} tasks run already")
        if owner and list(self._working.values()).count(owner) >= most_of_one:
            raise Busy(f"Busy: {most_of_one} of your tasks run already")

    # -- who may see what

    def owner(self, call: Call) -> str:
        """Return whose a task of this call is; empty for whoever knows its id."""
        return self.holder.owner(call, by_session=self.settings.access == "session")

    async def find(self, call: Call, task_id: str) -> StoredTask | None:
        """Return a task this caller may see, as it stands now."""
        run = self.live.get(task_id)
        if run is None:
            task = await self.settings.store.get(task_id, self.settings.clock())
        else:
            task = run.kept
        if task is not None and task.owner in ("", self.owner(call)):
            return task
        return None

    # -- the end

    def ended(self, run: TaskRun) -> None:
        """Called when a task has come to its end."""
        self.live.pop(run.id, None)
        if run.work is not None and run.work.done():  # it became a task only when its work was over
            self._working.pop(run, None)
        if run.timer is not None:
            run.timer.cancel()
        logger.info("task %s: %s", run.id[:6], run.status)

    def stop(self, run: TaskRun) -> None:
        """End the work of a task."""
        if run.work is not None:
            self.scope.cancel(run.work, label_of(run.call))

    def _expire(self, run: TaskRun) -> None:
        self.scope.spawn(self._forget(run))

    async def _forget(self, run: TaskRun) -> None:
        await run.give_up(EXPIRED)
        await self.settings.store.delete(run.id)

    def _look_later(self, delay: float) -> None:
        """Look for what has expired when the first of it does, so that it is not kept until somebody asks."""
        at = self.loop.time() + max(delay, LEAST_SWEEP)
        if self._sweep is None or self._sweep.when() > at:
            if self._sweep is not None:
                self._sweep.cancel()
            self._sweep = self.loop.call_at(at, lambda: self.scope.spawn(self._swept()))

    async def _swept(self) -> None:
        self._sweep = None
        now = self.settings.clock()
        following = await self.settings.store.expire(now)
        if following is not None:
            self._look_later(following - now)

    async def drain(self, grace: float) -> None:
        """Wait until no task runs, at most `grace` seconds."""
        working = [run.work for run in self._working if run.work is not None]
        if working:
            await asyncio.wait(working, timeout=grace)

    async def close(self, why: str = STOPPED) -> None:
        """End every task that still runs: their holder stops."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._scope is None:
            return
        for run in list(self._working):
            if run.is_begun:
                await run.give_up(why)
        scope = self._scope
        self._scope = None
        await scope.close()


def _carry_on(run: TaskRun) -> None:
    """Let the work of a task hold what its call does: the call is answered soon, and the work still has its params."""
    call = run.call
    if not call.held:
        link: Any = call.link
        link.holdings.add(call)
    run.held = call.held
    call.held = 0
