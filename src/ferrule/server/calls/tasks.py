"""Which calls of tools become tasks, and how their work is carried on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ferrule.errors import MethodNotFound
from ferrule.protocol.call import Call
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.protocol.tasks import TaskWish
from ferrule.runtime.dispatch import Handler
from ferrule.runtime.tasks.form import describe
from ferrule.runtime.tasks.run import TaskRun, carry
from ferrule.runtime.tasks.tasks import Tasks
from ferrule.schema.tasks import Task
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.results import whole
from ferrule.server.calls.services import Services
from ferrule.server.functions.types.extra_types import encode_hook
from ferrule.server.offers.catalogue import off
from ferrule.server.offers.offers import Offers
from ferrule.server.offers.tool_entry import ToolEntry
from ferrule.stores.contracts import StoredTask

_write = msgspec.json.Encoder(decimal_format="number", enc_hook=encode_hook).encode
_read = msgspec.json.Decoder(CallToolResult).decode


class ToolTasks:
    """What the tasks of a server must know of it; see `TaskHolder`."""

    requests: dict[str, Any] = {"tools": {"call": {}}}  # noqa: RUF012 - never changed

    def __init__(self, services: Services) -> None:
        self._services = services

    def named(self, call: Call) -> str:
        """Return the name of the tool a call runs."""
        name: str = call.params.name
        return name

    def owner(self, call: Call, *, by_session: bool) -> str:
        """Return whose a task of this call is; empty for whoever knows its id."""
        if call.origin.principal is None and not (by_session and call.era is self._services.handshake):
            return ""
        return self._services.links.owner(call) or ""

    def require(self, capability: str) -> None:
        """Refuse a request for something the server does not offer."""
        if not server_offers(self._services.capabilities(), capability):
            raise off(capability)

    def changed(self, task: StoredTask) -> None:
        """Notify the subscriptions that asked for this task."""
        self._services.subscriptions.task_changed(task.id, lambda: describe(task, STATELESS, Task))

    def may_tell_progress(self, call: Call) -> bool:
        """Return whether one more progress notice may go out now to the caller of a task."""
        return self._services.links.may_tell_progress(call)

    def written(self, result: object) -> bytes:
        """Write the result of a tool, which may hold values of any type."""
        return _write(result)

    def read(self, task: StoredTask) -> CallToolResult:
        """Read the result of a tool that is kept."""
        return _read(task.result or b"")


class TaskCalls:
    """Answers `tools/call` of a server that has tools which run as tasks; middleware is around their work."""

    def __init__(self, offers: Offers, tasks: Tasks, proceed: Handler) -> None:
        self._catalogue = offers.tools.catalogue
        self._visibility = offers.visibility
        self._tasks = tasks
        self._proceed = proceed

    async def __call__(self, call: Call) -> Any:
        """Make a task of a call that should be one, and answer any other as it is."""
        entry: ToolEntry | None = self._visibility.find(call, self._catalogue, call.params.name)
        if entry is None:
            return await self._proceed(call)
        wish = call.era.task_wish(call)
        if entry.task == "forbidden" and wish is TaskWish.ASKED:
            raise MethodNotFound(f"The tool {entry.name} does not run as a task", {"tool": entry.name})
        if entry.task == "required" and wish is TaskWish.NO:
            raise call.era.task_demanded(entry.name)
        if entry.task == "forbidden" or wish in (TaskWish.NO, TaskWish.UNKNOWN):
            return await self._proceed(call)
        run = call.as_task = TaskRun(self._tasks, call)
        if entry.task_start == "handler":
            return await self._begun_by_handler(run, wish)
        await run.begin()
        run.answered.set_result(None)
        self._tasks.start(run, self._carry(run))
        return run.created()

    async def _begun_by_handler(self, run: TaskRun, wish: TaskWish) -> Any:
        """Run a call as any other until its handler says that it is a task from here on."""
        work = self._tasks.start(run, self._carry(run))
        try:
            await asyncio.wait({work, run.begun}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            run.answered.set_result(None)
            if not run.is_begun:
                self._tasks.stop(run)
        if not run.is_begun:
            if isinstance(run.outcome, BaseException):
                raise run.outcome
            if wish is not TaskWish.ASKED:
                return run.outcome
            await run.begin()
            await run.finish(run.outcome)
        return run.created()

    async def _carry(self, run: TaskRun) -> None:
        await carry(run, self._whole, f"the tool {run.call.params.name}")

    async def _whole(self, call: Call) -> Any:
        return whole(await self._proceed(call))
