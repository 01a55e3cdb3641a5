"""Probes of stores: what waits for them, and what they keep for many nodes."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from lasting import lasts_longer
from table import no_bound, period, probe

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "stores"))

from redis_server import RedisServer, needs_redis

from ferrule.errors import Busy, SetupError, StoreUnavailable
from ferrule.stores import records
from ferrule.stores.contracts import DirectoryEntry
from ferrule.stores.records import ForeignRecord, decode_value, encode_value
from ferrule.stores.redis import bus, cluster, lane
from ferrule.stores.redis import records as redis_records
from ferrule.stores.redis.bus import RedisBus
from ferrule.stores.redis.lane import Lane
from ferrule.stores.sqlite import database
from ferrule.stores.sqlite.database import Database
from ferrule.stores.stores import Stores


@probe("ferrule.stores.records.LARGEST_RECORD", lowered=1000)
async def a_record(limit: int, size: int) -> bool:
    """What is read, and what is written to Redis."""
    written = encode_value(b"x" * (size - 1))
    taken = set()
    with mock.patch.object(records, "LARGEST_RECORD", limit), mock.patch.object(redis_records, "LARGEST_RECORD", limit):
        for use in (decode_value, redis_records._checked):
            try:
                use(written)
            except (ForeignRecord, StoreUnavailable):
                taken.add(False)
            else:
                taken.add(True)
    assert len(taken) == 1
    return taken.pop()


# -- Redis: one connection, and what waits for it


async def unreachable() -> Any:
    await asyncio.Event().wait()


def command(size: int) -> tuple[bytes, ...]:
    """Return a command that takes so many bytes: its length stands in it, so that not every value fits."""
    for key in (b"k", b"kk"):
        for less in range(20, 50):
            made = (b"SET", key, b"x" * (size - less))
            if len(lane.pack_command(made)) == size:
                return made
    raise AssertionError(size)


def are_taken(commands: list[tuple[Any, ...]]) -> bool:
    """Return whether commands that somebody waits for are all taken by a connection that is not there yet."""
    waiting = Lane(unreachable)
    failed = False
    for each in commands:
        future = waiting.execute(*each)
        if future.done():
            failed = future.exception() is not None
            break
    return not failed


def are_kept(commands: list[tuple[Any, ...]], limit: int, of: str) -> bool:
    """Return whether all of what is written behind waits for such a connection."""
    waiting = Lane(unreachable)
    for each in commands:
        waiting.write(*each)
        assert (waiting.waiting if of == "commands" else waiting._size) <= limit
    if waiting._timer is not None:
        waiting._timer.cancel()
    return waiting.waiting == len(commands)


@probe("ferrule.stores.redis.lane.MOST_WAITING", lowered=20)
async def waiting_commands(limit: int, size: int) -> bool:
    with mock.patch.object(lane, "MOST_WAITING", limit):
        commands = [("PING",)] * size
        assert are_kept(commands, limit, "commands") is are_taken(commands)
        return are_taken(commands)


@probe("ferrule.stores.redis.lane.MOST_WAITING_BYTES", lowered=10_000)
async def waiting_bytes(limit: int, size: int) -> bool:
    with mock.patch.object(lane, "MOST_WAITING_BYTES", limit):
        commands: list[tuple[Any, ...]] = [command(1000), command(size - 1000)]
        assert are_kept(commands, limit, "bytes") is are_taken(commands)
        return are_taken(commands)


@probe("ferrule.stores.redis.lane.LARGEST_COMMAND", lowered=1000)
async def a_command(limit: int, size: int) -> bool:
    with mock.patch.object(lane, "LARGEST_COMMAND", limit):
        return are_taken([command(size)])


@period("ferrule.stores.redis.lane.DEADLINE")
async def a_batch(lasts: float, seconds: float) -> bool:
    waiting = Lane(unreachable)
    waiting.start()
    still = await lasts_longer(asyncio.wait([waiting.execute("PING")]), seconds)
    await waiting.close(0.0)
    return still


no_bound("ferrule.stores.redis.lane.MOST_TOGETHER", "how many commands we send at once")
no_bound("ferrule.stores.redis.lane.MOST_BYTES_TOGETHER", "how many bytes of them")


# -- Redis: what many nodes share


@asynccontextmanager
async def shared() -> AsyncIterator[tuple[Stores, RedisServer]]:
    """A node with a Redis of its own."""
    needs_redis()
    with RedisServer() as server:
        async with Stores.redis(server.url, required=True) as stores:
            yield stores, server


@probe("ferrule.stores.redis.bus.LARGEST_NOTICE")
async def a_notice(limit: int, size: int) -> bool:
    notices = RedisBus(mock.Mock(), "node")
    try:
        notices.send("other", "topic", b"x" * min(size, 2 * limit))
    except SetupError:
        return False
    return True


@probe("ferrule.stores.redis.bus.MOST_NOTICES", lowered=10, clamps=True)
async def notices_of_an_inbox(limit: int, size: int) -> bool:
    """For a node that has an inbox and reads nothing of it."""
    with mock.patch.object(bus, "MOST_NOTICES", limit):
        async with shared() as (stores, server):
            inbox = stores.backend.key("in", "deaf")  # type: ignore[attr-defined]
            server.command("XADD", inbox, "*", "n", "0")
            for _ in range(min(size, 3 * limit) - 1):
                assert await stores.bus.deliver("deaf", "topic", b"x")
            return int(server.command("XLEN", inbox)) == size


@probe("ferrule.stores.redis.cluster.MOST_NODES", lowered=5, clamps=True)
async def nodes(limit: int, size: int) -> bool:
    with mock.patch.object(cluster, "MOST_NODES", limit):
        async with shared() as (stores, _):
            for number in range(min(size, 3 * limit)):
                await stores.nodes.renew(f"{number}", b"", 60.0)
            return len(await stores.nodes.living()) == size


@probe("ferrule.stores.redis.cluster.MOST_ENTRIES", lowered=5)
async def entries(limit: int, size: int) -> bool:
    with mock.patch.object(cluster, "MOST_ENTRIES", limit):
        async with shared() as (stores, _):
            await stores.nodes.renew("node", b"", 60.0)
            try:
                for number in range(size):
                    assert await stores.directory.put("kind", f"{number}", DirectoryEntry("node", b""))
            except Busy:
                return False
    return True


# -- SQLite


@asynccontextmanager
async def stuck_file() -> AsyncIterator[Database]:
    """A file whose thread does something that does not end before this does."""
    with tempfile.TemporaryDirectory() as folder:
        file = Database(Path(folder) / "store")
        await file.open()
        going, release = threading.Event(), threading.Event()

        def stuck(connection: sqlite3.Connection) -> None:
            going.set()
            release.wait(30)

        waiting = asyncio.ensure_future(file.execute(stuck))
        await asyncio.to_thread(going.wait, 30)
        yield file
        release.set()
        await waiting
        await file.close()


def nothing(connection: sqlite3.Connection) -> None: ...


async def are_awaited(file: Database, sizes: list[int]) -> bool:
    """Return whether jobs of these sizes may all wait, after one that is written behind and has to make room."""
    file.write(nothing)
    jobs = []
    for size in sizes:
        jobs.append(asyncio.ensure_future(file.execute(nothing, size)))
        await asyncio.sleep(0)
        if jobs[-1].done():
            break
    assert len(file._jobs) <= database.MOST_WAITING
    assert file._size <= database.MOST_WAITING_BYTES
    refused = jobs[-1].done()
    for each in jobs:
        each.cancel()
    with suppress(StoreUnavailable, asyncio.CancelledError):
        await asyncio.gather(*jobs)
    return not refused


@probe("ferrule.stores.sqlite.database.MOST_WAITING", lowered=10)
async def jobs(limit: int, size: int) -> bool:
    with mock.patch.object(database, "MOST_WAITING", limit):
        async with stuck_file() as file:
            return await are_awaited(file, [0] * size)


@probe("ferrule.stores.sqlite.database.MOST_WAITING_BYTES", lowered=10_000)
async def bytes_of_jobs(limit: int, size: int) -> bool:
    with mock.patch.object(database, "MOST_WAITING_BYTES", limit):
        async with stuck_file() as file:
            return await are_awaited(file, [1000, size - 1000])


@period("ferrule.stores.sqlite.database.LOCKED_FOR")
async def a_locked_file(lasts: float, seconds: float) -> bool:
    """Another process holds the file; its lock is looked at every hundredth of a second of a clock set by hand."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    locked = sqlite3.OperationalError("database is locked")
    locked.sqlite_errorcode = sqlite3.SQLITE_BUSY

    def execute(statement: str) -> None:
        clock.now += 0.01
        if clock.now < seconds:
            raise locked

    with mock.patch.object(database, "time", clock):
        try:
            Database("store")._begin(SimpleNamespace(execute=execute))  # type: ignore[arg-type]
        except sqlite3.OperationalError:
            return False
    return True


no_bound("ferrule.stores.sqlite.database.MOST_TOGETHER", "how many jobs we commit at once")
no_bound("ferrule.stores.sqlite.database.GRACE", "how long we wait at our own end")
no_bound("ferrule.stores.redis.lane.FAILURES", "when we stop asking; nobody holds anything by it")
no_bound("ferrule.stores.redis.lane.PROBE", "how often we try again")
no_bound("ferrule.stores.redis.lane.LONGEST_PROBE", "how seldom we try again")
no_bound("ferrule.stores.redis.bus.INBOX_TTL", "a time that Redis keeps")
no_bound("ferrule.stores.redis.bus.TOGETHER", "how many notices we read at once")
