"""Probes of what stores in memory and in SQLite, and the tasks in Redis, keep of all peers together."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from probes_stores import shared
from table import probe

from ferrule.errors import Busy
from ferrule.stores.contracts import DirectoryEntry, SessionRecord, StoredTask
from ferrule.stores.memory import MemoryStore
from ferrule.stores.memory_cluster import (
    MemoryDirectory,
    MemoryLimits,
    MemoryLocks,
    MemoryNodes,
    MemorySeen,
    MemorySessions,
)
from ferrule.stores.redis.records import RedisTasks
from ferrule.stores.sqlite.database import Database
from ferrule.stores.sqlite.stores import SqliteDirectory, SqliteSessions, SqliteTasks, SqliteValues

Put = Callable[[int], Awaitable[Any]]


async def all_kept(put: Put, count: int) -> bool:
    """Return whether so many things are all kept."""
    try:
        for number in range(count):
            await put(number)
    except Busy:
        return False
    return True


def entry(put: Callable[[str, str, DirectoryEntry], Awaitable[bool]]) -> Put:
    return lambda number: put("kind", f"{number}", DirectoryEntry("node", b""))


def session(number: int) -> SessionRecord:
    return SessionRecord(id=f"{number}", revision="2025-11-25", owner="node")


def task(number: int, owner: str) -> StoredTask:
    return StoredTask(id=f"{number}", owner=owner, tool="t", created=0.0, updated=0.0, ttl=None, poll_interval=1.0)


# -- memory


@probe("MemoryStore(max_values=…)", lowered=5)
async def values(limit: int, size: int) -> bool:
    store = MemoryStore(max_values=limit)
    return await all_kept(lambda number: store.put(f"{number}", b""), size)


@probe("MemoryStore(max_bytes=…)", lowered=10_000)
async def bytes_of_values(limit: int, size: int) -> bool:
    store = MemoryStore(max_bytes=limit)
    sizes = [size // 2, size - size // 2]
    return await all_kept(lambda number: store.put(f"{number}", b"x" * sizes[number]), 2)


@probe("MemoryNodes(max_nodes=…)", lowered=5)
async def nodes(limit: int, size: int) -> bool:
    store = MemoryNodes(max_nodes=limit)
    return await all_kept(lambda number: store.renew(f"{number}", b"", 60.0), size)


@probe("MemoryDirectory(max_entries=…)", lowered=5)
async def entries(limit: int, size: int) -> bool:
    return await all_kept(entry(MemoryDirectory(MemoryNodes(), max_entries=limit).put), size)


@probe("MemorySessions(max_sessions=…)", lowered=5)
async def sessions(limit: int, size: int) -> bool:
    store = MemorySessions(max_sessions=limit)
    return await all_kept(lambda number: store.create(session(number)), size)


@probe("MemoryLimits(max_buckets=…)", lowered=5)
async def limits(limit: int, size: int) -> bool:
    store = MemoryLimits(max_buckets=limit)
    return await all_kept(lambda number: store.lease(f"{number}", 0.001, 1.0, 1.0), size)


@probe("MemoryLocks(max_locks=…)", lowered=5)
async def locks(limit: int, size: int) -> bool:
    store = MemoryLocks(max_locks=limit)
    return await all_kept(lambda number: store.acquire(f"{number}", 60.0), size)


@probe("MemorySeen(max_keys=…)", lowered=5)
async def used_keys(limit: int, size: int) -> bool:
    store = MemorySeen(max_keys=limit)
    return await all_kept(lambda number: store.add(f"{number}", 60.0), size)


# -- SQLite


@asynccontextmanager
async def file() -> AsyncIterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "store")
        await database.open()
        yield database
        await database.close()


@probe("SqliteDirectory(max_entries=…)", lowered=5)
async def entries_of_a_file(limit: int, size: int) -> bool:
    async with file() as database:
        return await all_kept(entry(SqliteDirectory(database, max_entries=limit).put), size)


@probe("SqliteSessions(max_sessions=…)", lowered=5)
async def sessions_of_a_file(limit: int, size: int) -> bool:
    async with file() as database:
        store = SqliteSessions(database, max_sessions=limit)
        return await all_kept(lambda number: store.create(session(number)), size)


@probe("SqliteTasks(max_tasks=…)", lowered=5)
async def tasks_of_a_file(limit: int, size: int) -> bool:
    async with file() as database:
        store = SqliteTasks(database, max_tasks=limit)
        return await all_kept(lambda number: store.create(task(number, f"{number}"), 0.0), size)


@probe("SqliteTasks(max_per_owner=…)", lowered=5)
async def tasks_of_one_in_a_file(limit: int, size: int) -> bool:
    async with file() as database:
        store = SqliteTasks(database, max_per_owner=limit)
        return await all_kept(lambda number: store.create(task(number, "me"), 0.0), size)


@probe("SqliteValues(max_values=…)", lowered=5)
async def values_of_a_file(limit: int, size: int) -> bool:
    async with file() as database:
        store = SqliteValues(database, max_values=limit)
        return await all_kept(lambda number: store.put(f"{number}", b""), size)


# -- Redis


@probe("RedisTasks(max_tasks=…)", lowered=5)
async def tasks_of_nobody_in_redis(limit: int, size: int) -> bool:
    async with shared() as (stores, _):
        store = RedisTasks(stores.backend, max_tasks=limit)  # type: ignore[attr-defined]
        return await all_kept(lambda number: store.create(task(number, ""), 0.0), size)


@probe("RedisTasks(max_per_owner=…)", lowered=5)
async def tasks_of_one_in_redis(limit: int, size: int) -> bool:
    async with shared() as (stores, _):
        store = RedisTasks(stores.backend, max_per_owner=limit)  # type: ignore[attr-defined]
        return await all_kept(lambda number: store.create(task(number, "me"), 0.0), size)
