"""Calls of tools that may become tasks, and what a client asks about tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from ferrule.client.features.pages import PagedRequests, given
from ferrule.client.features.task_watch import read_state, seen
from ferrule.client.features.tasks import ProgressRelay, Task, created_task
from ferrule.client.link.conversation import Conversation, RequestOptions
from ferrule.client.link.replay import LOST
from ferrule.errors import (
    CallFailed,
    CapabilityNotSupported,
    InvalidAnswer,
    MethodNotFound,
    MissingCapability,
    PeerError,
    TimedOut,
    ToolError,
)
from ferrule.protocol.call import Note, Peer
from ferrule.protocol.capabilities import server_offers
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.notices import TASK_CHANGED, TASK_STATUS_CHANGED
from ferrule.schema.tasks import TASKS_EXTENSION
from ferrule.schema.tasks import Task as TaskState
from ferrule.schema.tools import CallToolResult, Tool

logger = logging.getLogger("ferrule.client")

T = TypeVar("T")

TaskChoice = Literal["auto"] | bool | float
"""Whether a call becomes a task: as the server has it, yes, no, or yes and to be kept for so many seconds."""


class TaskNotice(Struct, rename="camel"):
    """Which task a notice is about."""

    task_id: str = ""


_read_told = msgspec.json.Decoder(TaskNotice).decode


class ToolRequests(PagedRequests):
    """The half of a client that calls tools."""

    followed: dict[str, list[asyncio.Event]]
    """Who waits for news of which task."""

    # -- tools

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Return all tools, from all pages."""
        return await self._listed(lambda: self.iter_tools(timeout=timeout))

    async def iter_tools(self, *, timeout: float | None = None) -> AsyncIterator[Tool]:
        """Yield the tools one after another, page by page."""
        async for tool in self._pages("tools/list", "tools", timeout):
            self._tools.note(tool, checks=self.settings.validate_results)
            yield tool

    # -- tasks

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Task:
        """Call a tool as a task and do not wait for its end; `ttl` asks for so many seconds of life."""
        how = self._how(given(timeout, self.settings.tool_timeout), None, meta)
        return await self._begin(name, arguments or {}, how, True if ttl is None else float(ttl))

    def task(self, task_id: str) -> Task:
        """Come back to a task by its id, also one that another client or an earlier process has started."""
        return Task(self, task_id)

    async def list_tasks(self, *, timeout: float | None = None) -> list[TaskState]:
        """Return this session's or this principal's tasks, from all pages (handshake era)."""
        return [state async for state in self.iter_tasks(timeout=timeout)]

    def iter_tasks(self, *, timeout: float | None = None) -> AsyncIterator[TaskState]:
        """Return the tasks one after another, page by page (handshake era)."""
        return self._pages("tasks/list", "tasks", timeout)

    async def get_task(self, task_id: str) -> TaskState:
        """Look how a task stands."""
        return read_state(await self.ask_about_task("tasks/get", {"taskId": task_id}))

    async def cancel_task(self, task_id: str) -> None:
        """Ask the server to end a task."""
        await self.ask_about_task("tasks/cancel", {"taskId": task_id})

    async def ask_about_task(self, method: str, params: dict[str, Any], how: RequestOptions | None = None) -> Raw:
        """Send a request about a task."""
        return await self._ask(method, params, structs.replace(how or self._plain(), tasks=True))

    # -- calls

    async def _call_as_task(
        self,
        name: str,
        arguments: Mapping[str, Any],
        how: RequestOptions,
        *,
        choice: TaskChoice,
        timeout: float | None,
        raise_on_error: bool,
    ) -> CallToolResult:
        """Call a tool as told, and follow the task it becomes to its end."""
        task = await self._begin(name, arguments, how, choice)
        return await self.judged(name, await self._own_result(task, timeout), raise_on_error)

    async def _own_result(self, task: Task, timeout: float | None) -> CallToolResult:
        """Wait for the end of a task only this call knows of: it is cancelled when the wait is."""
        try:
            return await task.result(timeout=timeout, raise_on_error=False)
        except (asyncio.CancelledError, TimedOut, InvalidAnswer):
            if task.state is None or not task.state.ended:
                self._cancel_unheard(task.id)
            raise

    def _cancel_unheard(self, task_id: str) -> None:
        """Cancel a task nobody else knows of, without waiting for the answer."""
        with suppress(CallFailed):
            how = RequestOptions(tasks=True)
            self._talk().start("tasks/cancel", {"taskId": task_id}, how).waiter.add_done_callback(seen)

    async def _begin(self, name: str, arguments: Mapping[str, Any], how: RequestOptions, choice: TaskChoice) -> Task:
        conversation = await self._present(how.timeout)
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        conversation.allow("tools/call")
        relay = ProgressRelay(how.on_progress)
        if choice is False:
            how = structs.replace(how, tasks=False)
        else:
            self._require_tasks(conversation)
            how = structs.replace(how, on_progress=relay, tasks=True)
            if not conversation.stateless:
                if isinstance(choice, bool | str):
                    ttl = {}
                else:
                    ttl = {"ttl": int(choice * 1000)}
                params = {**params, "task": ttl}
        link = conversation.live()
        if link.congested:
            how = structs.replace(how, timeout=await link.make_room("tools/call", how.timeout))
        awaited = conversation.start("tools/call", params, how)
        try:
            raw: Raw = await awaited.waiter
        except asyncio.CancelledError:
            conversation.abandon(awaited)
            raise
        except LOST as error:
            raw, _ = await self._again(error, "tools/call", params, how)
        raw = await conversation.completed("tools/call", params, how, raw)
        if choice is False:
            task = None
        else:
            task = self._created(name, raw, relay)
        if task is None:
            return Task(self, "", tool=name, done=self._read("tools/call", raw))
        if awaited.on_progress is not None and not conversation.over:
            conversation.live().session.outlast(awaited)
        return task

    def _created(self, name: str, raw: Raw, relay: ProgressRelay) -> Task | None:
        """Return the task a call was answered with; None where it was answered with its result."""
        state = created_task(raw, stateless=self._talk().stateless)
        if state is None:
            return None
        return Task(self, state.task_id, tool=name, state=state, relay=relay)

    def _require_tasks(self, conversation: Conversation) -> None:
        """Refuse at once where the server runs no call as a task."""
        if not conversation.stateless:
            if not _offers_tasks(conversation.peer):
                raise CapabilityNotSupported("tasks.requests.tools.call")
        elif self.extension(TASKS_EXTENSION) is None:
            raise CapabilityNotSupported(TASKS_EXTENSION)

    async def _demands_task(self, name: str, refusal: PeerError) -> bool:
        """Find out whether a call was refused only because it was not a task."""
        if self.stateless:
            return refusal.code == MissingCapability.code and _names_tasks(refusal.data)
        if refusal.code != MethodNotFound.code or not _offers_tasks(self._talk().peer):
            return False
        await self.list_tools()
        return name in self._tools.only_as_task

    async def judged(self, name: str, result: CallToolResult, raise_on_error: bool) -> CallToolResult:
        """Return the result of a tool if it fits what the tool promised; raises ToolError when the tool failed."""
        if result.is_error:
            if raise_on_error:
                raise ToolError(result.text or f"the tool {name} failed", result=result)
        elif name in self._tools.output_checks:
            await self._tools.check(name, result)
        return result

    # -- following

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something that lives as long as the conversation."""
        try:
            return self._talk().scope.spawn(work)
        except CallFailed:
            work.close()
            raise

    @property
    def stateless(self) -> bool:
        """Whether the stateless era was settled on."""
        return self._talk().stateless

    @property
    def was_closed(self) -> bool:
        """Whether this client was closed by its own will."""
        return self._conversation is not None and self._conversation.closing

    @property
    def _takes_tasks(self) -> bool:
        """Whether any call may be answered with a task."""
        return self.stateless and TASKS_EXTENSION in (self.settings.declared_extensions or ())

    @property
    def comes_back(self) -> bool:
        """Whether a new conversation is being opened in place of a lost one."""
        return self._reconnecting.active

    def watches_task(self, task_id: str) -> bool:
        """Whether the server tells of a task now."""
        return task_id in self._listening.listened

    async def watch_task(self, task_id: str) -> bool:
        """Hear of a task's changes, and tell whether the server tells of them; of the first kind it does unasked."""
        try:
            await self._listening.want_task(task_id)
        except (PeerError, CallFailed) as error:
            logger.debug("the server does not tell of the task %s: %s", task_id, error)
            return False
        return True

    async def unwatch_task(self, task_id: str) -> None:
        """Hear of a task's changes no more."""
        try:
            await self._listening.unwant_task(task_id)
        except (PeerError, CallFailed) as error:
            logger.debug("the subscription to the task %s was not ended in order: %s", task_id, error)

    def _heard(self, note: Note) -> None:
        if self.followed and note.method in (TASK_CHANGED, TASK_STATUS_CHANGED):
            try:
                told = _read_told(note.params).task_id
            except msgspec.DecodeError:
                told = ""
            for news in self.followed.get(told, ()):
                news.set()
        super()._heard(note)


def _offers_tasks(peer: Peer | None) -> bool:
    """Return whether a server runs calls as tasks when it is asked to (handshake era)."""
    if peer is None or not peer.revision.tasks_by_request or not isinstance(peer.capabilities, ServerCapabilities):
        return False
    return server_offers(peer.capabilities, "tasks.requests.tools.call")


def _names_tasks(data: Any) -> bool:
    """Return whether what a refusal says is missing is the extension of tasks."""
    try:
        return TASKS_EXTENSION in data["requiredCapabilities"]["extensions"]
    except (KeyError, TypeError):
        return False
