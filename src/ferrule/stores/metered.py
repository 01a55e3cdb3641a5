"""Stores that report each operation: what it was, how many seconds it took, and whether it failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from time import monotonic
from typing import TypeVar

from ferrule.stores.contracts import EventLog, Seen, StoredTask, TaskStore

T = TypeVar("T")

Report = Callable[[str, float, bool], None]
"""Called with the name of an operation, its seconds, and whether it failed."""


async def _timed(report: Report, operation: str, work: Awaitable[T]) -> T:
    began = monotonic()
    try:
        result = await work
    except BaseException:
        report(operation, monotonic() - began, True)
        raise
    report(operation, monotonic() - began, False)
    return result


class MeteredTasks:
    """A store of tasks whose operations are reported."""

    def __init__(self, store: TaskStore, report: Report) -> None:
        self.store = store
        self._report = report

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""
        await _timed(self._report, "task_create", self.store.create(task, now))

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Return a task; None when there is none or it has expired."""
        return await _timed(self._report, "task_get", self.store.get(task_id, now))

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status. Return whether it was."""
        return await _timed(self._report, "task_update", self.store.update(task, expected))

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Return tasks of one owner by time of creation and id, those after a given pair, at most so many."""
        return await _timed(self._report, "task_page", self.store.page(owner, after, limit, now))

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none."""
        await _timed(self._report, "task_delete", self.store.delete(task_id))

    async def expire(self, now: float) -> float | None:
        """Forget what has expired. Return when the next will, None when nothing does."""
        return await _timed(self._report, "task_expire", self.store.expire(now))


class MeteredEventLog:
    """A log of events whose reading is reported; what is written is counted, for that never waits."""

    def __init__(self, log: EventLog, report: Report) -> None:
        self._log = log
        self._report = report
        self._append = log.append
        self.appended = 0
        """How many events were kept."""
        self.shorten = log.shorten
        self.forget = log.forget
        self.sweep = log.sweep

    def append(self, stream: str, number: int, event: bytes, now: float) -> None:
        """Keep one event; what is over a bound is forgotten, the oldest first."""
        self.appended += 1
        append = self._append
        append(stream, number, event, now)

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""
        return await _timed(self._report, "event_after", self._log.after(stream, number))


class MeteredSeen:
    """What may be used once, where each look at it is reported."""

    def __init__(self, seen: Seen, report: Report) -> None:
        self._seen = seen
        self._report = report

    async def add(self, key: str, ttl: float) -> bool:
        """Note a key. Return False where it was seen within its time; raise Busy where no more can be noted."""
        return await _timed(self._report, "seen_add", self._seen.add(key, ttl))
