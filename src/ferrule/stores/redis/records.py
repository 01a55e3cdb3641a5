"""Values, tasks and events in Redis."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection
from hashlib import blake2b
from typing import Any

from ferrule.errors import Busy, StoreUnavailable
from ferrule.stores.contracts import StoredTask
from ferrule.stores.event_mirror import consecutive
from ferrule.stores.memory import FULL
from ferrule.stores.records import (
    LARGEST_RECORD,
    ForeignRecord,
    decode_task,
    decode_value,
    encode_task,
    encode_value,
)
from ferrule.stores.redis.backend import RedisBackend
from ferrule.stores.redis.scripts import APPEND_EVENT, CREATE_TASK, REPLACE, UPDATE_TASK


def _checked(encoded: bytes) -> bytes:
    if len(encoded) > LARGEST_RECORD:
        raise StoreUnavailable(f"a value has {len(encoded)} bytes, more than {LARGEST_RECORD}")
    return encoded


class RedisValues:
    """Values by key."""

    def __init__(self, redis: RedisBackend) -> None:
        self._redis = redis

    async def get(self, key: str) -> bytes | None:
        """Return a value; None when there is none or it expired."""
        name = self._redis.key("v", key)
        found = await self._redis.read(name, "string")
        if found is None:
            return None
        return await self._redis.decoded(name, found[0], decode_value)

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Keep a value, for `ttl` seconds where it is given; raises StoreUnavailable when there is no room for it."""
        name = self._redis.key("v", key)
        await self._redis.execute(name, "SET", name, _checked(encode_value(value)), *_lasting(ttl))

    async def add(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        """Keep a value unless there is one. Return whether it was kept."""
        name = self._redis.key("v", key)
        kept = await self._redis.execute(name, "SET", name, _checked(encode_value(value)), *_lasting(ttl), "NX")
        return kept is not None

    async def replace(self, key: str, old: bytes, new: bytes, ttl: float | None = None) -> bool:
        """Keep a value in the place of the one that is expected. Return whether that was there."""
        name = self._redis.key("v", key)
        lasting = 0 if ttl is None else max(1, round(ttl * 1000))
        arguments = (encode_value(old), _checked(encode_value(new)), lasting)
        return bool(await self._redis.run(REPLACE, [name], *arguments))

    async def take(self, key: str) -> bytes | None:
        """Return a value and forget it: only one of those who ask at once gets it."""
        name = self._redis.key("v", key)
        try:
            found = await self._redis.execute(name, "GETDEL", name)
        except ForeignRecord as reason:
            await self._redis.set_aside(name, reason)
            return None
        if found is None:
            return None
        return await self._redis.decoded(name, found, decode_value)

    async def delete(self, key: str) -> None:
        """Forget a value; harmless when there is none."""
        name = self._redis.key("v", key)
        await self._redis.execute(name, "UNLINK", name)


def _lasting(ttl: float | None) -> tuple[Any, ...]:
    if ttl is None:
        return ()
    return ("PX", max(1, round(ttl * 1000)))


class RedisTasks:
    """Tasks by id, with an index for each owner; over a bound, the oldest that has ended goes first."""

    def __init__(self, redis: RedisBackend, *, max_tasks: int = 100_000, max_per_owner: int = 1000) -> None:
        self._redis = redis
        self._max_tasks = max_tasks
        self._max_per_owner = max_per_owner

    def _key(self, task_id: str) -> str:
        return self._redis.key("t", task_id)

    def _index(self, owner: str) -> str:
        # An owner may be of any length, and is nobody else's business.
        return self._redis.key("o", blake2b(owner.encode(), digest_size=16).hexdigest())

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""
        keys = [self._key(task.id), self._index(task.owner)]
        ttl: int | str = ""
        if task.ttl is not None:
            ttl = max(1, round(task.ttl * 1000))
        most = self._max_per_owner if task.owner else self._max_tasks
        arguments = (_checked(encode_task(task)), task.status, _member(task.created, task.id), ttl, most)
        if not await self._redis.run_cleaning(CREATE_TASK, keys, *arguments, self._key("")):
            raise Busy(FULL)

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Return a task; None when there is none or it has expired."""
        key = self._key(task_id)
        found = await self._redis.read(key, "hash", "r")
        if found is None:
            return None
        return await self._redis.decoded(key, found[0], decode_task)

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status. Return whether it was."""
        key = self._key(task.id)
        try:
            changed = await self._redis.run(UPDATE_TASK, [key], _checked(encode_task(task)), task.status, *expected)
        except ForeignRecord as reason:
            await self._redis.set_aside(key, reason)
            return False
        return bool(changed)

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Return tasks of one owner by time of creation and id, those after a given pair, at most so many."""
        index = self._index(owner)
        tasks: list[StoredTask] = []
        start = "-"
        if after is not None:
            start = "(" + _member(*after)
        while len(tasks) < limit:
            wanted = limit - len(tasks)
            try:
                members = await self._redis.execute(index, "ZRANGEBYLEX", index, start, "+", "LIMIT", 0, wanted)
            except ForeignRecord as reason:
                await self._redis.set_aside(index, reason)
                break
            # Asked for in one turn, and so in one batch.
            found = await asyncio.gather(*[self.get(each[16:].decode("utf-8", "replace"), now) for each in members])
            for each, task in zip(members, found, strict=True):
                if task is None:
                    self._redis.write(index, "ZREM", index, each)
                elif task.owner == owner:
                    tasks.append(task)
            if len(members) < wanted:
                break
            start = b"(" + members[-1]
        return tasks

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none. Its index forgets it when it is next read."""
        key = self._key(task_id)
        await self._redis.execute(key, "UNLINK", key)

    async def expire(self, now: float) -> float | None:
        """Redis forgets what has expired by itself."""
        return None


def _member(created: float, task_id: str) -> str:
    """Return what sorts by time of creation, then id: the bits of a float that is not negative sort as it does."""
    return struct.pack(">d", max(created, 0.0)).hex() + task_id


class RedisEvents:
    """Events of streams, as the copy of a `MirroredLog`: the number of an event is its id in a stream of Redis.

    So an event that is written twice is kept once.
    """

    def __init__(self, redis: RedisBackend, age: float) -> None:
        self._redis = redis
        self._age = round(age * 1000)

    def _key(self, stream: str) -> str:
        return self._redis.key("e", f"{{{stream}}}")

    def append(self, stream: str, number: int, first: int, event: bytes) -> None:
        """Keep one event, and forget those of the stream before the number `first`."""
        key = self._key(stream)
        self._redis.write_script(APPEND_EVENT, [key], f"{first}-0", f"{number}-0", event, self._age)

    def trim(self, stream: str, first: int) -> None:
        """Forget the events of a stream before a number."""
        key = self._key(stream)
        self._redis.write(key, "XTRIM", key, "MINID", f"{first}-0")

    def forget(self, stream: str) -> None:
        """Forget a stream."""
        key = self._key(stream)
        self._redis.write(key, "UNLINK", key)

    def sweep(self) -> None:
        """Redis forgets streams by itself."""

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""
        if number < 0:
            return None
        key = self._key(stream)
        try:
            found = await self._redis.execute(key, "XRANGE", key, f"{number}-0", "+")
            return consecutive([_event(each) for each in found], number)
        except ForeignRecord as reason:
            await self._redis.set_aside(key, reason)
            return None


def _event(entry: Any) -> tuple[int, bytes]:
    place, fields = entry
    if len(fields) != 2 or fields[0] != b"d":
        raise ForeignRecord("it is a stream of another program")
    return int(place.partition(b"-")[0]), fields[1]
