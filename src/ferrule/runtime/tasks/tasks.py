"""The tasks of one holder: which are kept, which run, who may see them, and their end with it."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Coroutine
from typing import Any, Protocol

from msgspec import Raw, structs

from ferrule.errors import Busy, Internal, StoreUnavailable
from ferrule.protocol.call import Call
from ferrule.protocol.tasks import wanted
from ferrule.runtime.dispatch import label_of
from ferrule.runtime.tasks.run import TaskRun
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.schema.tasks import GOING_ON, TaskError
from ferrule.stores.contracts import StoredTask
from ferrule.stores.metered import MeteredTasks, Report
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


class TaskPeers(Protocol):
    """The other processes that run tasks of the same holder."""

    mark: str
    """How the ids of our own tasks begin."""

    async def get(self, task_id: str) -> StoredTask | None:
        """Return a task of another process; None where none has it."""

    async def cancel(self, task_id: str) -> StoredTask | None:
        """Cancel a task of another process and return it; None where none runs it."""

    async def answer(self, task_id: str, responses: dict[str, Raw]) -> None:
        """Send the answers to the questions of a task to the process that runs it."""

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int) -> list[StoredTask]:
        """Return tasks of one owner that other processes have, in no order."""

    def changed(self, task_id: str) -> None:
        """Notify other processes that a task of ours changed."""


class OtherNodes(Protocol):
    """The other nodes that run tasks of the same store."""

    @property
    def name(self) -> str:
        """The name of this node, as the others know it."""

    async def lives(self, node: str) -> bool:
        """Return whether a node is alive; raise Busy where nobody knows."""

    async def answer(self, task: StoredTask, responses: dict[str, Raw]) -> None:
        """Send the answers to the questions of a task to the node that runs it; raise Busy."""

    async def cancelled(self, task: StoredTask) -> None:
        """Notify the node that runs a task that it was cancelled."""

    def changed(self, task: StoredTask) -> None:
        """Notify the nodes whose clients subscribed to a task that it has changed."""


logger = logging.getLogger("ferrule.tasks")

ID_BYTES = 24
"""How many random bytes an id has: nobody guesses one, since where nobody is authenticated it opens the task.

A multiple of three, so that base64 pads nothing.
"""

LEAST_SWEEP = 1.0
"""Seconds between two looks for tasks that have expired, at least."""

SAVE_AGAIN = 1.0
"""Seconds between two tries to tell a store that is away."""

DIED = "The node that ran the task is gone"
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
        self.peers: TaskPeers | None = None
        """The other processes that run tasks of the holder; None where there are none."""
        self.others: OtherNodes | None = None
        """The other nodes that run tasks of the same store; None where there are none."""
        self._unsaved: dict[str, StoredTask] = {}
        """How tasks stand that the store could not be told of."""
        self._saving: asyncio.TimerHandle | None = None
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

    def measure(self, report: Report) -> None:
        """Report every operation of the store from now on."""
        self.settings = structs.replace(self.settings, store=MeteredTasks(self.settings.store, report))

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
            id=self._new_id(),
            owner=owner,
            tool=self.holder.named(call),
            status_message=message,
            created=now,
            updated=now,
            ttl=settings.lifetime(None if asked is None else asked / 1000),
            poll_interval=settings.poll_interval,
            node="" if self.others is None else self.others.name,
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

    def _new_id(self) -> str:
        mark = "" if self.peers is None else self.peers.mark
        return mark + base64.urlsafe_b64encode(os.urandom(ID_BYTES)).decode()

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
        task = await self.kept(task_id)
        if self.peers is not None and run is None and (task is None or not task.ended):
            # Another worker may know it better than what is kept.
            task = await self.peers.get(task_id) or task
        if task is None or task.owner not in ("", self.owner(call)):
            return None
        if run is None and not task.ended and self.others is not None and task.node:
            return await self._of_other_node(task, self.others)
        return task

    async def _of_other_node(self, task: StoredTask, others: OtherNodes) -> StoredTask:
        """Return a task of another node; one whose node is dead is kept as failed first."""
        if task.node != others.name and await others.lives(task.node):
            return task
        settings = self.settings
        error = TaskError(code=Internal.code, message=DIED)
        failed = structs.replace(
            task, status="failed", status_message=DIED, error=error, updated=settings.clock(), input_requests={}
        )
        if await settings.store.update(failed, GOING_ON):
            return failed
        return await settings.store.get(task.id, settings.clock()) or failed

    # -- a store that is away

    def save_later(self, task: StoredTask) -> None:
        """Save a task as soon as the store can be reached."""
        self._unsaved[task.id] = task
        if self._saving is None:
            self._saving = self.loop.call_later(SAVE_AGAIN, lambda: self.scope.spawn(self._save()))

    async def _save(self) -> None:
        self._saving = None
        for task in list(self._unsaved.values()):
            try:
                await self.settings.store.update(task, GOING_ON)
            except StoreUnavailable:
                self.save_later(task)
                return
            if self._unsaved.get(task.id) is task:
                del self._unsaved[task.id]

    async def kept(self, task_id: str) -> StoredTask | None:
        """Return a task as it stands now; None where there is none here."""
        run = self.live.get(task_id)
        if run is not None:
            return run.kept
        return self._unsaved.get(task_id) or await self.settings.store.get(task_id, self.settings.clock())

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int) -> list[StoredTask]:
        """Return tasks of one owner that are here, by time of creation, those after a given one, at most so many."""
        found = []
        for stored in await self.settings.store.page(owner, after, limit, self.settings.clock()):
            run = self.live.get(stored.id)
            found.append(stored if run is None else run.kept)
        return found

    async def page_of_all(self, owner: str, after: tuple[float, str] | None, limit: int) -> list[StoredTask]:
        """Return tasks of one owner as `page` does, also those of other processes."""
        found = await self.page(owner, after, limit)
        if self.peers is None:
            return found
        by_id = {task.id: task for task in found}
        for task in await self.peers.page(owner, after, limit):
            by_id.setdefault(task.id, task)
        return sorted(by_id.values(), key=lambda task: (task.created, task.id))[:limit]

    def changed(self, task: StoredTask) -> None:
        """Called when a task has changed."""
        self.holder.changed(task)
        if self.peers is not None:
            self.peers.changed(task.id)
        if self.others is not None:
            self.others.changed(task)

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
        for timer in (self._sweep, self._saving):
            if timer is not None:
                timer.cancel()
        self._sweep = self._saving = None
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
