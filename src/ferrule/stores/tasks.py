"""What is kept of a task, and what a store of tasks is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from ferrule.schema.rounds import InputRequest
from ferrule.schema.tasks import ENDED, TaskError, TaskStatus


class StoredTask(Struct, frozen=True, kw_only=True):
    """One task as it is kept; times are seconds of the server's clock, whichever it is."""

    id: str
    owner: str
    """Who may see it; empty when whoever knows its id may."""
    tool: str
    status: TaskStatus = "working"
    status_message: str | None = None
    created: float
    updated: float
    ttl: float | None
    """How long it is kept from its creation on; None for as long as there is room."""
    poll_interval: float
    progress: tuple[float, float | None] | None = None
    """How far it is, and of how much."""
    input_requests: dict[str, InputRequest] = {}
    result: bytes | None = None
    """The result of the call, encoded."""
    is_error: bool = False
    """Whether the result tells of a failure of the tool."""
    error: TaskError | None = None

    @property
    def ended(self) -> bool:
        """Whether it has come to its end, well or not."""
        return self.status in ENDED

    @property
    def expires(self) -> float | None:
        """When it may be forgotten."""
        return None if self.ttl is None else self.created + self.ttl


class TaskStore(Protocol):
    """Tasks by id. What `create` has kept, `get` finds at once, in every process that shares the store.

    `now` is the time on the wall, by which a store that processes share lets tasks expire. One that lives in a process
    has better clocks for that.
    """

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Give a task; None when there is none or it has expired."""

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status; tells whether it was."""

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Give tasks of one owner by time of creation and id, those after a given pair, at most so many."""

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none."""

    async def expire(self, now: float) -> float | None:
        """Forget what has expired; gives when the next will, None when nothing does."""
