"""What a store is: values by key, and what was said on streams whose readers may be lost."""

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
        if self.ttl is None:
            return None
        return self.created + self.ttl


class TaskStore(Protocol):
    """Tasks by id. What `create` has kept, `get` finds at once, in every process that shares the store.

    `now` is the time on the wall, by which a store that processes share lets tasks expire. One that lives in a process
    has better clocks for that.
    """

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Return a task; None when there is none or it has expired."""

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status. Return whether it was."""

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Return tasks of one owner by time of creation and id, those after a given pair, at most so many."""

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none."""

    async def expire(self, now: float) -> float | None:
        """Forget what has expired. Return when the next will, None when nothing does."""


class Store(Protocol):
    """Values by key, which may expire."""

    async def get(self, key: str) -> bytes | None:
        """Return a value; None when there is none or it expired."""

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Keep a value, for `ttl` seconds where it is given."""

    async def add(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        """Keep a value unless there is one. Return whether it was kept."""

    async def delete(self, key: str) -> None:
        """Forget a value; harmless when there is none."""


class EventLog(Protocol):
    """What was said on a stream, so that a lost reader can catch up.

    A stream numbers its events itself, from 1. Writing never waits: a log that lives elsewhere writes behind.
    The name of a stream begins with its owner (`owner_of`): a log that is full takes from whoever holds most.
    """

    def append(self, stream: str, number: int, event: bytes, now: float) -> None:
        """Keep one event; what is over a bound is forgotten, the oldest first."""

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""

    def shorten(self, stream: str, unacknowledged: int, spare: int) -> None:
        """Keep the last `unacknowledged` bytes of a stream, and at most `spare` bytes of what is older."""

    def forget(self, stream: str) -> None:
        """Forget a stream."""

    def sweep(self, now: float) -> None:
        """Forget what is too old."""


def owner_of(stream: str) -> str:
    """Return whose a stream is: what stands before the first dot of its name, or all of it."""
    return stream.partition(".")[0]
