"""A task on the client's side: look at it, wait for its end, answer what it asks, cancel it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import msgspec
from msgspec import Raw

from ferrule.budgets.collector import decode_long
from ferrule.client.features.progress import ProgressHandler, ProgressRelay
from ferrule.client.features.task_requests import TaskRequests
from ferrule.client.features.task_watch import TaskWatch, limited
from ferrule.errors import CallFailed, Cancelled, InvalidAnswer, PeerError
from ferrule.schema.methods import METHODS
from ferrule.schema.tasks import Task as TaskState
from ferrule.schema.tools import CallToolResult

_read_result: Callable[[Raw], CallToolResult] = METHODS["tools/call"].result_decoder()


class Task:
    """A call that goes on at the server after it was answered; its `id` is all that is needed to come back to it."""

    def __init__(
        self,
        requests: TaskRequests,
        task_id: str,
        *,
        tool: str = "",
        state: TaskState | None = None,
        relay: ProgressRelay | None = None,
        done: CallToolResult | None = None,
    ) -> None:
        self._requests = requests
        self.id = task_id
        """The id; empty for a call that was answered at once."""
        self.tool = tool
        self.state = state
        """How the task stood when it was last looked at."""
        self._relay = relay or ProgressRelay()
        self._done = done

    def __repr__(self) -> str:
        status = "unknown"
        if self._done is not None:
            status = "completed"
        elif self.state is not None:
            status = self.state.status
        return f"<Task {self.id or 'answered at once'}: {status}>"

    async def status(self) -> TaskState:
        """Look how the task stands."""
        if self._done is not None:
            return TaskState(task_id=self.id, status="completed")
        self.state = await self._requests.get(self.id)
        return self.state

    async def cancel(self) -> None:
        """Ask the server to end the task; one that has ended already stays as it is."""
        if self._done is None:
            await self._requests.cancel(self.id)

    async def result(
        self, *, timeout: float | None = None, on_progress: ProgressHandler | None = None, raise_on_error: bool = True
    ) -> CallToolResult:
        """Wait for the end, answering what the task asks, and give its result.

        Ending the wait, by a time-out or by cancelling whoever waits, does not end the task.
        """
        if self._done is None:
            self._relay.target = on_progress or self._relay.target
            self._done = await limited(self._awaited(), timeout, f"the task {self.id}")
        return await self._requests.judged(self.tool, self._done, raise_on_error)

    async def _awaited(self) -> CallToolResult:
        following = self._following()
        async with following:
            async for state in following.states():
                self.state = state
            last = self.state
            assert last is not None
            if last.status == "cancelled":
                raise Cancelled(f"the task {self.id} was cancelled: {last.status_message or 'no reason was given'}")
            return _read(await following.outcome(last))

    def _following(self) -> TaskWatch:
        return TaskWatch(self._requests, self.id, self.state, self._relay)

    async def __aiter__(self) -> AsyncIterator[TaskState]:
        """Yield how the task stands again and again, to its end; what it asks is answered meanwhile."""
        if self._done is not None:
            yield await self.status()
            return
        following = self._following()
        async with following:
            async for state in following.states():
                self.state = state
                yield state

    async def give_up(self) -> None:
        """Cancel a task nobody else knows of, without a word if that fails."""
        with suppress(CallFailed, PeerError):
            await self.cancel()


def _read(raw: Raw) -> CallToolResult:
    try:
        return decode_long(_read_result, raw, len(raw))
    except (msgspec.DecodeError, RecursionError) as reason:
        raise InvalidAnswer(f"the result of the task is malformed: {reason}") from None
