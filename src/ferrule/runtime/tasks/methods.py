"""The methods by which a peer asks about tasks, in either era."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec import structs

from ferrule.errors import Busy, InvalidParams, Refusal
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.runtime.tasks.form import cursor_after, describe, read_cursor
from ferrule.runtime.tasks.tasks import Tasks
from ferrule.schema.model import EmptyResult
from ferrule.schema.tasks import GOING_ON, RELATED_TASK_KEY, CancelTaskResult, ListTasksResult, Task
from ferrule.stores.contracts import StoredTask

PAGE_SIZE = 100
"""Tasks on a page of `tasks/list`."""

CANCELLED = "The task was cancelled"


class TaskMethods:
    """Answers what a peer asks about the tasks of one holder."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {
            "tasks/get": self.get,
            "tasks/result": self.result,
            "tasks/list": self.listed,
            "tasks/update": self.update,
            "tasks/cancel": self.cancel,
        }

    async def get(self, call: Call) -> Task:
        """Return how a task stands."""
        return describe(await self._found(call, "tasks"), call.peer.revision, Task)

    async def result(self, call: Call) -> object:
        """Wait for the end of a task, and give what its call would have been answered with."""
        task = await self._found(call, "tasks")
        while not task.ended:
            run = self._tasks.live.get(task.id)
            if run is None:  # another process runs it
                await asyncio.sleep(task.poll_interval)
                task = await self._found(call, "tasks")
            else:
                await run.attend(call)
                task = run.kept
        if task.error is not None:
            raise Refusal(task.error.message, task.error.data, code=task.error.code)
        if task.result is None:
            raise Refusal(CANCELLED, {"taskId": task.id})
        result = self._tasks.holder.read(task)
        meta = {**(result.meta or {}), RELATED_TASK_KEY: {"taskId": task.id}}
        return structs.replace(result, result_type=None, meta=meta)

    async def listed(self, call: Call) -> ListTasksResult:
        """Return the caller's tasks, page by page."""
        self._admit(call, "tasks.list")
        after = read_cursor(call.params.cursor)
        found = await self._tasks.page_of_all(self._tasks.owner(call), after, PAGE_SIZE + 1)
        page = found[:PAGE_SIZE]
        listed = []
        for task in page:
            listed.append(describe(task, call.peer.revision, Task))
        more = None
        if len(found) > PAGE_SIZE:
            more = cursor_after(page[-1])
        return ListTasksResult(tasks=listed, next_cursor=more)

    async def update(self, call: Call) -> EmptyResult:
        """Hand a task the answers to what it asked."""
        task = await self._found(call, "tasks")
        run = self._tasks.live.get(task.id)
        if run is not None:
            await run.answer(call.params.input_responses)
        elif not task.ended and self._tasks.others is not None:
            await self._tasks.others.answer(task, call.params.input_responses)
        elif self._tasks.peers is not None:
            await self._tasks.peers.answer(task.id, call.params.input_responses)
        return EmptyResult()

    async def cancel(self, call: Call) -> CancelTaskResult:
        """End a task; one that has ended stays as it is."""
        task = await self._found(call, "tasks.cancel")
        revision = call.peer.revision
        if task.ended and revision.tasks_by_request:
            raise InvalidParams(f"Cannot cancel task: already in terminal status '{task.status}'", {"taskId": task.id})
        run = self._tasks.live.get(task.id)
        if run is not None:
            await run.cancel()
            task = run.kept
        elif not task.ended:
            task = await self._cancel_elsewhere(task)
        return describe(task, revision, CancelTaskResult)

    async def _cancel_elsewhere(self, task: StoredTask) -> StoredTask:
        """Let another process end its task, or mark it: whoever runs it is told, or finds out when it has something."""
        if self._tasks.peers is not None:
            ended = await self._tasks.peers.cancel(task.id)
            if ended is not None:
                return ended
        settings = self._tasks.settings
        cancelled = structs.replace(
            task, status="cancelled", status_message=CANCELLED, updated=settings.clock(), input_requests={}
        )
        if await settings.store.update(cancelled, GOING_ON):
            if self._tasks.others is not None and task.node:
                with suppress(Busy):  # it finds out by itself
                    await self._tasks.others.cancelled(task)
            return cancelled
        return await settings.store.get(task.id, settings.clock()) or cancelled

    async def _found(self, call: Call, capability: str) -> StoredTask:
        self._admit(call, capability)
        task_id: Any = call.params.task_id
        task = await self._tasks.find(call, task_id)
        if task is None:
            raise InvalidParams("Failed to retrieve task: Task not found", {"taskId": task_id[:200]})
        return task

    def _admit(self, call: Call, capability: str) -> None:
        self._tasks.holder.require(capability)
        call.era.admit_to_tasks(call)
