"""What nodes agree on in Redis: leases, the directory, limits and locks. All times are those of Redis."""

from __future__ import annotations

from ferrule.errors import Busy
from ferrule.stores.contracts import DirectoryEntry
from ferrule.stores.redis.backend import RedisBackend
from ferrule.stores.redis.scripts import (
    ACQUIRE,
    DROP_ENTRY,
    ENTRIES,
    LEASE_TOKENS,
    LIVING,
    PUT_ENTRY,
    RENEW,
    RENEW_LOCK,
)

MOST_NODES = 10_000
MOST_ENTRIES = 10_000
"""Of one kind."""
TOKENS_KEPT = 7 * 86400.0
"""How many seconds the last token of a lock is kept. After that, or where Redis has lost it, the next one is larger
because it is the time of Redis in microseconds; only a clock that was set back meanwhile could make it smaller."""


class RedisNodes:
    """Leases of nodes."""

    def __init__(self, redis: RedisBackend) -> None:
        self._redis = redis
        self._all = redis.key("nodes")

    async def renew(self, node: str, about: bytes, ttl: float) -> bool:
        """Take or extend a lease, and keep what the node says about itself. Return whether it still had one."""
        keys = [self._redis.key("n", node), self._all]
        had = await self._redis.run_cleaning(RENEW, keys, node, about, round(ttl * 1000))
        self._redis.written()
        return bool(had)

    async def release(self, node: str) -> None:
        """End a lease."""
        key = self._redis.key("n", node)
        await self._redis.execute(key, "DEL", key)

    async def find(self, node: str) -> bytes | None:
        """Return what a living node says about itself; None when its lease is over."""
        found = await self._redis.read(self._redis.key("n", node), "string")
        if found is None:
            return None
        return bytes(found[0])

    async def living(self) -> dict[str, bytes]:
        """Return all living nodes and what they say about themselves."""
        found = await self._redis.run_cleaning(LIVING, [self._all], self._redis.key("n"), MOST_NODES)
        living = {}
        for position in range(0, len(found), 2):
            living[found[position].decode()] = found[position + 1]
        return living


class RedisDirectory:
    """What nodes offer, by kind and name."""

    def __init__(self, redis: RedisBackend) -> None:
        self._redis = redis

    def _keys(self, kind: str) -> list[str]:
        return [self._redis.key("r", kind), self._redis.key("rn", kind)]

    async def put(self, kind: str, name: str, entry: DirectoryEntry) -> bool:
        """Keep an entry. Return False where a living node other than its own has the name."""
        arguments = (name, entry.node, entry.record, self._redis.key("n"), MOST_ENTRIES)
        kept = await self._redis.run_cleaning(PUT_ENTRY, self._keys(kind), *arguments)
        if kept < 0:
            raise Busy(f"Busy: {MOST_ENTRIES} entries of this kind are there already")
        return bool(kept)

    async def drop(self, kind: str, name: str, node: str) -> None:
        """Take out the entry of a node; harmless when the name is free or another's."""
        await self._redis.run_cleaning(DROP_ENTRY, self._keys(kind), name, node)

    async def entries(self, kind: str) -> dict[str, DirectoryEntry]:
        """Return the entries of a kind whose nodes live."""
        found = await self._redis.run_cleaning(ENTRIES, self._keys(kind), self._redis.key("n"))
        entries = {}
        for position in range(0, len(found), 3):
            name, node, record = found[position : position + 3]
            entries[name.decode()] = DirectoryEntry(node.decode(), record)
        return entries


class RedisLimits:
    """Token buckets that nodes share."""

    def __init__(self, redis: RedisBackend) -> None:
        self._redis = redis

    async def lease(self, name: str, rate: float, burst: float, wanted: float) -> float:
        """Take up to so many tokens out of a bucket. Return how many there were."""
        key = self._redis.key("l", name)
        return float(await self._redis.run_cleaning(LEASE_TOKENS, [key], rate, burst, wanted))


class RedisLocks:
    """Locks that end by themselves."""

    def __init__(self, redis: RedisBackend) -> None:
        self._redis = redis

    async def acquire(self, name: str, ttl: float) -> int | None:
        """Take a lock. Return its token, None where another has it."""
        keys = [self._redis.key("k", name), self._redis.key("fence", name)]
        token = await self._redis.run(ACQUIRE, keys, round(ttl * 1000), round((ttl + TOKENS_KEPT) * 1000))
        return int(token) or None

    async def renew(self, name: str, token: int, ttl: float) -> bool:
        """Hold a lock for longer. Return False where it is not held with this token."""
        return bool(await self._redis.run_cleaning(RENEW_LOCK, [self._redis.key("k", name)], token, round(ttl * 1000)))

    async def release(self, name: str, token: int) -> bool:
        """Release a lock. Return False where it is not held with this token."""
        return bool(await self._redis.run_cleaning(RENEW_LOCK, [self._redis.key("k", name)], token))
