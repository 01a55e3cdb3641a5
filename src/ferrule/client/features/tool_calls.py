"""Calls of tools, which may become tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, structs

from ferrule.budgets.collector import LONG, decode_long
from ferrule.client.era.contract import Params, TaskChoice
from ferrule.client.features.progress import ProgressHandler, ProgressRelay
from ferrule.client.features.requests import Requests
from ferrule.client.features.task_requests import TaskRequests
from ferrule.client.features.tasks import Task
from ferrule.client.features.tool_facts import ToolFacts
from ferrule.client.link.conversation import RequestOptions
from ferrule.client.link.keeper import LOST, Keeper
from ferrule.client.settings import ClientSettings
from ferrule.errors import InvalidAnswer, PeerError, TimedOut
from ferrule.schema.keys import asks_version
from ferrule.schema.methods import METHODS
from ferrule.schema.rounds import COMPLETE
from ferrule.schema.tools import CallToolResult, Tool

FINAL = (None, COMPLETE)
"""The kinds of result that end a call; any other is looked at twice."""

_read_call_result: Callable[[Raw], CallToolResult] = METHODS["tools/call"].result_decoder()


class ToolCalls:
    """Lists the tools of one server and calls them."""

    def __init__(
        self, keeper: Keeper, requests: Requests, tasks: TaskRequests, tools: ToolFacts, settings: ClientSettings
    ) -> None:
        self._keeper = keeper
        self._requests = requests
        self._tasks = tasks
        self._tools = tools
        self._only_as_task = tools.only_as_task
        self._output_checks = tools.output_checks
        self._timeout = settings.tool_timeout
        self._checks = settings.validate_results
        self._declared = frozenset(settings.declared_extensions or ())
        self._usual = requests.how(settings.tool_timeout)

    async def pages(self, timeout: float | None) -> AsyncIterator[Tool]:
        """Yield the tools one after another, page by page, and keep what they say of themselves."""
        async for tool in self._requests.pages("tools/list", "tools", timeout):
            self._tools.note(tool, checks=self._checks)
            yield tool

    async def list(self, timeout: float | None = None) -> list[Tool]:
        """Return all tools, from all pages."""
        return await self._requests.listed(lambda: self.pages(timeout))

    def how(
        self, timeout: float | None, on_progress: ProgressHandler | None = None, meta: dict[str, Any] | None = None
    ) -> RequestOptions:
        """Return the options of a call."""
        if timeout is None:
            timeout = self._timeout
        return self._requests.how(timeout, on_progress, meta)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        timeout: float | None,
        on_progress: ProgressHandler | None,
        meta: dict[str, Any] | None,
        raise_on_error: bool,
        task: TaskChoice,
    ) -> CallToolResult:
        """Call a tool, and follow the task it becomes to its end."""
        how = self._usual
        if timeout is not None or on_progress is not None or meta is not None:
            how = self.how(timeout, on_progress, meta)
        if task != "auto" or name in self._only_as_task:
            return await self._call_as_task(name, arguments, how, task, timeout, raise_on_error)
        conversation = self._keeper.conversation or self._keeper.current()
        link = conversation.link
        if link is not None and link.channel is not None and link.channel.congested:
            how = structs.replace(how, timeout=await link.make_room("tools/call", how.timeout))
        try:
            awaited = conversation.call_tool(name, arguments, how)
            raw: Raw = await awaited.waiter
        except asyncio.CancelledError:
            conversation.abandon(awaited)
            raise
        except LOST as error:
            raw, _ = await self._keeper.ask_again(error, "tools/call", {"name": name, "arguments": arguments}, how)
            conversation = self._keeper.current()
            awaited = None  # the one that was sent again has another id
        except PeerError as refusal:
            return await self._refused(refusal, name, arguments, how, timeout, raise_on_error)
        try:
            if len(raw) <= LONG:
                result = _read_call_result(raw)
            else:
                result = decode_long(_read_call_result, raw, len(raw))
            final = result.result_type in FINAL
        except (msgspec.DecodeError, RecursionError):
            final = False
        if not final:
            params = {"name": name, "arguments": arguments}
            request_id = None if awaited is None else awaited.id
            raw = await conversation.completed("tools/call", params, how, raw, request_id)
            result = await self._outcome(name, raw, on_progress, timeout)
        if result.is_error or name in self._output_checks:
            return await self._judged(name, result, raw, meta, raise_on_error)
        return result

    async def _judged(
        self, name: str, result: CallToolResult, raw: Raw, meta: dict[str, Any] | None, raise_on_error: bool
    ) -> CallToolResult:
        """Hold a result to what is listed of its tool, which says nothing of other versions."""
        if result.is_error:
            return await self._tools.judged(name, result, raise_on_error)
        if asks_version(meta) or self._tools.fits(name, result.structured_content, memoryview(raw).nbytes):
            return result
        return await self._tools.judged(name, result, raise_on_error)

    async def _refused(
        self,
        refusal: PeerError,
        name: str,
        arguments: Mapping[str, object],
        how: RequestOptions,
        timeout: float | None,
        raise_on_error: bool,
    ) -> CallToolResult:
        """Call once more, where the refusal says what the call lacked: headers, or to be a task."""
        conversation = self._keeper.current()
        params = {"name": name, "arguments": arguments}
        if await conversation.lists_afresh("tools/call", refusal, how.timeout):
            raw = await conversation.last("tools/call", params, how)
            raw = await conversation.completed("tools/call", params, how, raw)
            result = await self._outcome(name, raw, how.on_progress, timeout)
            return await self._tools.judged(name, result, raise_on_error)
        if await self._demands_task(name, refusal):
            return await self._call_as_task(name, arguments, how, True, timeout, raise_on_error)
        raise refusal

    async def _outcome(
        self, name: str, raw: Raw, on_progress: ProgressHandler | None, timeout: float | None
    ) -> CallToolResult:
        """Return the result an answer holds, or the one of the task it is."""
        if self._keeper.current().era.takes_tasks(self._declared):
            created = self._created(name, raw, ProgressRelay(on_progress))
            if created is not None:
                return await self._own_result(created, timeout)
        result: CallToolResult = self._requests.read("tools/call", raw)
        return result

    # -- as tasks

    async def start_task(
        self, name: str, arguments: Mapping[str, object], how: RequestOptions, ttl: float | None
    ) -> Task:
        """Call a tool as a task and do not wait for its end."""
        if ttl is None:
            return await self._begin(name, arguments, how, True)
        return await self._begin(name, arguments, how, float(ttl))

    async def _call_as_task(
        self,
        name: str,
        arguments: Mapping[str, object],
        how: RequestOptions,
        choice: TaskChoice,
        timeout: float | None,
        raise_on_error: bool,
    ) -> CallToolResult:
        """Call a tool as told, and follow the task it becomes to its end."""
        task = await self._begin(name, arguments, how, choice)
        return await self._tools.judged(name, await self._own_result(task, timeout), raise_on_error)

    async def _own_result(self, task: Task, timeout: float | None) -> CallToolResult:
        """Wait for the end of a task only this call knows of: it is cancelled when the wait is."""
        try:
            return await task.result(timeout=timeout, raise_on_error=False)
        except (asyncio.CancelledError, TimedOut, InvalidAnswer):
            if task.state is None or not task.state.ended:
                self._tasks.cancel_unheard(task.id)
            raise

    async def _begin(self, name: str, arguments: Mapping[str, object], how: RequestOptions, choice: TaskChoice) -> Task:
        conversation = await self._keeper.when_connected(how.timeout)
        params: Params = {"name": name, "arguments": arguments}
        conversation.allow("tools/call")
        relay = ProgressRelay(how.on_progress)
        if choice is False:
            how = structs.replace(how, tasks=False)
        else:
            conversation.era.require_tasks(conversation.peer)
            how = structs.replace(how, on_progress=relay, tasks=True)
            params.update(conversation.era.task_members(choice))
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
            raw, _ = await self._keeper.ask_again(error, "tools/call", params, how)
        except PeerError as refusal:
            if not await conversation.lists_afresh("tools/call", refusal, how.timeout):
                raise
            raw = await conversation.last("tools/call", params, how)
        raw = await conversation.completed("tools/call", params, how, raw, awaited.id)
        task = None
        if choice is not False:
            task = self._created(name, raw, relay)
        if task is None:
            return Task(self._tasks, "", tool=name, done=self._requests.read("tools/call", raw))
        if awaited.on_progress is not None and not conversation.over:
            conversation.live().session.outlast(awaited)
        return task

    def _created(self, name: str, raw: Raw, relay: ProgressRelay) -> Task | None:
        """Return the task a call was answered with; None where it was answered with its result."""
        state = self._keeper.current().era.created_task(raw)
        if state is None:
            return None
        return Task(self._tasks, state.task_id, tool=name, state=state, relay=relay)

    async def _demands_task(self, name: str, refusal: PeerError) -> bool:
        """Find out whether a call was refused only because it was not a task."""
        conversation = self._keeper.current()

        async def is_listed_so() -> bool:
            await self.list()
            return name in self._tools.only_as_task

        return await conversation.era.demands_task(refusal, conversation.peer, is_listed_so)
