"""Tasks in this process: found at once, changed only while they go on, bounded, expiring."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ferrule.errors import Busy, SetupError
from ferrule.schema.tasks import GOING_ON
from ferrule.stores.contracts import StoredTask, TaskStore
from ferrule.stores.memory import LEAST_LOOKED_AT, MemoryTasks


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def new(name: str, owner: str = "ann", created: float = 0.0, ttl: float | None = None) -> StoredTask:
    return StoredTask(id=name, owner=owner, tool="t", created=created, updated=created, ttl=ttl, poll_interval=1.0)


async def end(store: TaskStore, task: StoredTask, result: bytes = b"{}") -> bool:
    return await store.update(structs.replace(task, status="completed", result=result), GOING_ON)


def test_what_was_created_is_found_at_once() -> None:
    """TASK-6"""

    async def use() -> None:
        store: TaskStore = MemoryTasks()
        assert await store.get("a", 0) is None
        await store.create(new("a"), 0)
        assert await store.get("a", 0) == new("a")
        await store.delete("a")
        await store.delete("a")
        assert await store.get("a", 0) is None

    run(use())


def test_what_has_ended_never_changes() -> None:
    """TSKX-5: the status that is expected is compared with the one that is kept."""

    async def use() -> None:
        store, task = MemoryTasks(), new("a")
        await store.create(task, 0)
        assert await store.update(structs.replace(task, status="input_required"), {"working"})
        assert not await store.update(structs.replace(task, status="failed"), {"working"})
        assert await end(store, task)
        for status in ("working", "input_required", "failed", "cancelled", "completed"):
            assert not await store.update(structs.replace(task, status=status), GOING_ON)
        kept = await store.get("a", 0)
        assert kept is not None
        assert (kept.status, kept.result) == ("completed", b"{}")
        assert not await store.update(new("nobody"), GOING_ON)

    run(use())


def test_a_task_is_kept_for_its_time_and_no_longer() -> None:
    async def use() -> None:
        now = 0.0
        store = MemoryTasks(clock=lambda: now)
        await store.create(new("short", ttl=10), 0)
        await store.create(new("long", ttl=20), 0)
        await store.create(new("for ever"), 0)
        now = 9.9
        assert await store.get("short", 0) is not None
        now = 10
        assert await store.get("short", 0) is None
        assert [task.id for task in await store.page("ann", None, 10, 0)] == ["for ever", "long"]
        assert await store.expire(5000) == 5010
        assert len(store) == 2
        now = 1e9
        assert await store.expire(0) is None
        assert len(store) == 1

    run(use())


@pytest.mark.parametrize("wall", [-1e9, 0.0, 1e9])
def test_a_clock_on_the_wall_that_jumps_ends_no_task_and_keeps_none(wall: float) -> None:
    """TSKX-13, BUD-19: what is kept for ten seconds is kept for ten seconds."""

    async def use() -> None:
        now = 0.0
        store = MemoryTasks(clock=lambda: now)
        await store.create(new("a", ttl=10), 0.0)
        now = 9.0
        assert await store.expire(wall) == wall + 1
        assert await store.get("a", wall) is not None
        assert len(await store.page("ann", None, 10, wall)) == 1
        now = 10.0
        assert await store.get("a", wall) is None
        assert await store.expire(wall) is None
        assert len(store) == 0

    run(use())


def test_pages_go_on_where_the_one_before_ended() -> None:
    """TSKX-11: by time and id, each owner's own."""

    async def use() -> None:
        store = MemoryTasks()
        for number in (3, 1, 2, 0):
            await store.create(new(f"t{number}", created=number // 2), 0)
        await store.create(new("other", "bob"), 0)
        first = await store.page("ann", None, 3, 0)
        assert [task.id for task in first] == ["t0", "t1", "t2"]
        last = first[-1]
        assert [task.id for task in await store.page("ann", (last.created, last.id), 3, 0)] == ["t3"]
        assert await store.page("nobody", None, 3, 0) == []

    run(use())


class TestBounds:
    def test_over_the_number_the_one_that_ended_longest_ago_goes(self) -> None:
        async def use() -> None:
            store = MemoryTasks(max_tasks=2)
            first, second = new("first"), new("second")
            await store.create(first, 0)
            await store.create(second, 0)
            with pytest.raises(Busy, match="none of them has ended"):
                await store.create(new("third"), 0)
            await end(store, second)
            await end(store, first)
            await store.create(new("third"), 0)
            assert await store.get("second", 0) is None
            assert await store.get("first", 0) is not None

        run(use())

    def test_an_owner_makes_room_among_its_own(self) -> None:
        async def use() -> None:
            store = MemoryTasks(max_per_owner=1)
            bob = new("b", "bob")
            await store.create(bob, 0)
            await end(store, bob)
            await store.create(new("a"), 0)
            with pytest.raises(Busy):
                await store.create(new("a2"), 0)
            assert await store.get("b", 0) is not None
            for name in "xyz":
                await store.create(new(name, ""), 0)
            assert len(store) == 5, "tasks that belong to nobody are bounded together with all others only"

        run(use())

    def test_over_the_bytes_the_oldest_results_go_and_the_newest_stays(self) -> None:
        async def use() -> None:
            store = MemoryTasks(max_bytes=100)
            for name in "abc":
                await store.create(new(name), 0)
            await end(store, new("a"), b"x" * 60)
            await end(store, new("b"), b"x" * 60)
            assert (await store.get("a", 0), store.size) == (None, 60)
            await end(store, new("c"), b"x" * 1000)
            assert (await store.get("b", 0), store.size, len(store)) == (None, 1000, 1)

        run(use())

    def test_large_results_of_one_owner_do_not_push_out_those_of_another(self) -> None:
        async def use() -> None:
            store = MemoryTasks(max_bytes=100)
            await store.create(new("mine", "ada"), 0)
            await end(store, new("mine", "ada"), b"x" * 20)
            for number in range(10):
                task = new(f"flood {number}", "eve")
                await store.create(task, 0)
                await end(store, task, b"x" * 40)
            assert await store.get("mine", 0) is not None
            assert await store.get("flood 9", 0) is not None
            assert store.size <= 100

        run(use())

    def test_ends_of_tasks_long_gone_are_not_remembered(self) -> None:
        async def use() -> None:
            store = MemoryTasks(max_tasks=1)
            for number in range(5 * LEAST_LOOKED_AT):
                task = new(str(number), ttl=1e9)
                await store.create(task, 0)
                await end(store, task)
            assert len(store._expiring) < 3 * LEAST_LOOKED_AT

        run(use())

    @pytest.mark.parametrize("name", ["max_tasks", "max_per_owner", "max_bytes"])
    @pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
    def test_a_bound_that_makes_no_sense_is_refused(self, name: str, value: Any) -> None:
        with pytest.raises(SetupError, match=name):
            MemoryTasks(**{name: value})


DEEDS = st.lists(st.tuples(st.sampled_from("cued"), st.integers(0, 9), st.integers(0, 30)), max_size=60)


@given(DEEDS)
def test_whatever_happens_the_books_are_right(deeds: list[tuple[str, int, int]]) -> None:
    async def use() -> None:
        store, now = MemoryTasks(max_tasks=5, max_per_owner=3, max_bytes=50), 0.0
        for deed, number, amount in deeds:
            name, now = str(number), now + 1
            kept = await store.get(name, now)
            if deed == "c" and kept is None:
                await store.delete(name)
                try:
                    await store.create(new(name, "ab"[number % 2], now, amount or None), now)
                except Busy:
                    continue
            elif deed == "u" and kept is not None:
                await end(store, kept, b"x" * amount)
            elif deed == "e":
                await store.expire(now)
            elif deed == "d":
                await store.delete(name)
            assert len(store) <= 5
            assert store.size == sum(len(task.result or b"") for task in store._tasks.values())
            assert {name for own in store._of.values() for name in own} == set(store._tasks)
            assert set(store._ended) == {task.id for task in store._tasks.values() if task.ended}

    run(use())
