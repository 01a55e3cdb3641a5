"""Stores that report what they do: each operation once, with its time, and whether it failed."""

from __future__ import annotations

import asyncio

import pytest

from ferrule.stores.contracts import StoredTask
from ferrule.stores.memory import LogBounds, MemoryEventLog, MemoryTasks
from ferrule.stores.metered import MeteredEventLog, MeteredTasks


class Reports(list[tuple[str, bool]]):
    """Keeps what is reported, without the times."""

    def __call__(self, operation: str, seconds: float, failed: bool) -> None:
        assert 0 <= seconds < 60
        self.append((operation, failed))


def test_every_operation_on_tasks_is_done_and_reported() -> None:
    async def scene() -> None:
        reports = Reports()
        store = MeteredTasks(MemoryTasks(), reports)
        task = StoredTask(id="t", owner="ada", tool="add", created=1.0, updated=1.0, ttl=None, poll_interval=1.0)
        await store.create(task, 1.0)
        assert await store.get("t", 1.0) == task
        assert await store.update(task, ("working",))
        assert await store.page("ada", None, 10, 1.0) == [task]
        assert await store.expire(1.0) is None
        await store.delete("t")
        assert await store.get("t", 1.0) is None
        names = ["task_create", "task_get", "task_update", "task_page", "task_expire", "task_delete", "task_get"]
        assert reports == [(name, False) for name in names]

    asyncio.run(scene())


def test_what_fails_is_reported_and_raised() -> None:
    class Gone(MemoryTasks):
        async def get(self, task_id: str, now: float) -> StoredTask | None:
            raise ConnectionError("gone")

    async def scene() -> None:
        reports = Reports()
        with pytest.raises(ConnectionError, match="gone"):
            await MeteredTasks(Gone(), reports).get("t", 1.0)
        assert reports == [("task_get", True)]

    asyncio.run(scene())


def test_a_log_reports_what_is_written_and_read_again_and_still_forgets() -> None:
    async def scene() -> None:
        reports = Reports()
        log = MeteredEventLog(MemoryEventLog(LogBounds(10, 1000, 60.0)), reports)
        log.append("a.1", 1, b"one", 0.0)
        log.append("a.1", 2, b"two", 0.0)
        assert await log.after("a.1", 1) == [b"two"]
        log.forget("a.1")
        assert not await log.after("a.1", 1)
        assert [name for name, _ in reports] == ["event_after", "event_after"]
        assert log.appended == 2

    asyncio.run(scene())
