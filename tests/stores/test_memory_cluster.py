"""What nodes share in one process is bounded: what is full says so, and what has ended makes room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ferrule.errors import Busy
from ferrule.stores.contracts import DirectoryEntry, SessionRecord
from ferrule.stores.memory import MemoryStore
from ferrule.stores.memory_cluster import (
    MemoryBus,
    MemoryDirectory,
    MemoryLimits,
    MemoryLocks,
    MemoryNodes,
    MemorySeen,
    MemorySessions,
)

Keep = Callable[[str], Awaitable[object]]


class Clock:
    """Time as it is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def record(name: str) -> SessionRecord:
    return SessionRecord(id=name, revision="r", owner="n1")


def sessions(clock: Clock) -> Keep:
    store = MemorySessions(max_sessions=3, idle=10, clock=clock)
    return lambda name: store.create(record(name))


def nodes(clock: Clock) -> Keep:
    store = MemoryNodes(clock, max_nodes=3)
    return lambda name: store.renew(name, b"", 10)


def limits(clock: Clock) -> Keep:
    store = MemoryLimits(clock, max_buckets=3)
    return lambda name: store.lease(name, 1, 10, 1)


def locks(clock: Clock) -> Keep:
    store = MemoryLocks(clock, max_locks=3)
    return lambda name: store.acquire(name, 10)


def seen(clock: Clock) -> Keep:
    store = MemorySeen(clock, max_keys=3)
    return lambda name: store.add(name, 10)


def values(clock: Clock) -> Keep:
    store = MemoryStore(clock, max_values=3)
    return lambda name: store.put(name, b"", 10)


def value_bytes(clock: Clock) -> Keep:
    store = MemoryStore(clock, max_bytes=30)
    return lambda name: store.put(name, b"x" * 10, 10)


@pytest.mark.parametrize("make", [sessions, nodes, limits, locks, seen, values, value_bytes])
def test_what_is_full_refuses_until_something_has_ended(make: Callable[[Clock], Keep]) -> None:
    async def use() -> None:
        clock = Clock()
        keep = make(clock)
        for name in "abc":
            await keep(name)
        for _ in range(3):
            with pytest.raises(Busy, match="as many"):
                await keep("d")
        clock.now = 10.0
        for name in "def":
            await keep(name)
        with pytest.raises(Busy):
            await keep("g")

    run(use())


def test_a_full_store_still_takes_what_replaces_something() -> None:
    async def use() -> None:
        store = MemoryStore(Clock(), max_values=1, max_bytes=10)
        await store.put("a", b"x" * 10)
        await store.put("a", b"y" * 10)
        with pytest.raises(Busy):
            await store.put("a", b"y" * 11)
        assert await store.get("a") == b"y" * 10
        assert store.size == 10
        await store.delete("a")
        assert store.size == 0

    run(use())


def test_looking_for_room_in_vain_is_rare() -> None:
    """While a store is full, each refusal costs the same however much it holds."""

    async def use() -> None:
        clock = Clock()
        store = MemorySeen(clock, max_keys=3)
        for name in "abc":
            await store.add(name, 0.5)
        with pytest.raises(Busy):
            await store.add("d", 1)
        clock.now = 0.6
        # They have ended, and are found when a second has passed since the last look.
        with pytest.raises(Busy):
            await store.add("d", 1)
        clock.now = 1.1
        assert await store.add("d", 1)

    run(use())


def test_a_directory_is_bounded() -> None:
    async def use() -> None:
        store = MemoryNodes(Clock())
        await store.renew("n1", b"", 10)
        directory = MemoryDirectory(store, max_entries=2)
        entry = DirectoryEntry("n1", b"")
        assert await directory.put("a", "1", entry)
        assert await directory.put("b", "1", entry)
        assert await directory.put("b", "1", entry)
        with pytest.raises(Busy):
            await directory.put("b", "2", entry)

    run(use())


def test_a_subscriber_that_fails_does_not_keep_others_from_hearing() -> None:
    async def use() -> None:
        bus = MemoryBus()
        heard: list[bytes] = []
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        bus.subscribe("t", lambda notice: 1 / 0)
        bus.subscribe("t", lambda notice: heard.append(notice.body))
        bus.publish("t", b"1")
        bus.send("nobody", "t", b"2")
        bus.send(bus.node, "t", b"3")
        await asyncio.sleep(0.01)
        assert heard == [b"1", b"3"]
        assert len(failures) == 2

    run(use())
