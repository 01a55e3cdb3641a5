"""RedisBackend: the connections of one process to Redis; its keys, its scripts and its values.

Keys are `f:<namespace>:<kind>:<id>`. A key always uses the same lane, so that commands for it keep their order.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from ferrule.errors import SetupError, StoreUnavailable
from ferrule.stores.records import LARGEST_RECORD, ForeignRecord

try:
    from redis.asyncio.connection import AbstractConnection
    from redis.exceptions import RedisError, ResponseError

    from ferrule.stores.redis.connection import (
        TAKES_NOTHING,
        Address,
        RedisAway,
        away,
        disconnect,
        exchange,
        unavailable,
        word_of,
    )
    from ferrule.stores.redis.lane import DEADLINE, Lane, is_wrong_type, logger
except ImportError as error:
    raise SetupError("Redis needs a library: pip install 'ferrule[redis]'") from error

from ferrule.stores.redis.scripts import ALL, READ, SET_ASIDE, Script

NAMESPACE = re.compile(r"[-_]*[A-Za-z0-9][A-Za-z0-9_-]*")
LANES = 2
GRACE = 2.0
"""Seconds to send the writes nobody waits for when the store is closed."""
KEPT_ASIDE = 86_400_000
"""Milliseconds for which a value that was set aside is kept."""

T = TypeVar("T")


class RedisStats(Struct, frozen=True, kw_only=True):
    """Counts of a backend."""

    batches: int
    commands: int
    dropped: int
    refused: int
    failures: int
    connections: int
    waiting: int
    set_aside: int
    """Keys whose value was not ours."""


class RedisBackend:
    """The connections of one process to Redis."""

    def __init__(self, url: str | Sequence[str], namespace: str, *, required: bool = False) -> None:
        if isinstance(url, str):
            url = [url]
        if not url:
            raise SetupError("the address of a Redis is missing: write redis://host:port")
        if not NAMESPACE.fullmatch(namespace):
            raise SetupError(f"a namespace is letters, digits, - and _, not {namespace!r}")
        self._addresses = [Address(each) for each in url]
        self._first = 0
        self._namespace = namespace
        self._required = required
        self._lanes: list[Lane] = []
        self._followers: list[Callable[[], Awaitable[None]]] = []
        self._leavers: list[Callable[[], Awaitable[None]]] = []
        self._set_aside = 0
        self._refused = False
        """Whether the last address that was tried refused the connection."""
        self._takes_nothing = False
        """Whether it answered to the last write that it takes none."""

    def __repr__(self) -> str:
        return f"<RedisBackend {self._addresses} {self.state}>"

    @property
    def state(self) -> str:
        """`ready`, `degraded` while Redis cannot be reached, or `closed`."""
        if not self._lanes:
            return "closed"
        for lane in self._lanes:
            if lane.state == "degraded":
                return "degraded"
        return "ready"

    @property
    def is_gone(self) -> bool:
        """Whether no node can write to it: its only address refuses connections, or takes no writes."""
        return len(self._addresses) == 1 and (self._refused or self._takes_nothing)

    @property
    def why(self) -> str:
        """Why it is degraded; empty where it is not."""
        for lane in self._lanes:
            if lane.state == "degraded":
                return lane.why
        return ""

    @property
    def stats(self) -> RedisStats:
        """What all its lanes have done."""
        lanes = [lane.stats for lane in self._lanes]
        return RedisStats(
            batches=sum(each.batches for each in lanes),
            commands=sum(each.commands for each in lanes),
            dropped=sum(each.dropped for each in lanes),
            refused=sum(each.refused for each in lanes),
            failures=sum(each.failures for each in lanes),
            connections=sum(each.connections for each in lanes),
            waiting=sum(lane.waiting for lane in self._lanes),
            set_aside=self._set_aside,
        )

    # -- life

    def attach(self, opened: Callable[[], Awaitable[None]], closing: Callable[[], Awaitable[None]]) -> None:
        """Call `opened` after the backend has opened, and `closing` before it closes."""
        self._followers.append(opened)
        self._leavers.append(closing)

    async def open(self) -> None:
        """Connect. Without Redis it is `degraded`; where Redis is required, raise StoreUnavailable instead."""
        if self._lanes:
            return
        self._lanes = [Lane(self.connect) for _ in range(LANES)]
        for lane in self._lanes:
            lane.start()
        try:
            await asyncio.gather(*[lane.execute("PING") for lane in self._lanes])
        except StoreUnavailable as error:
            if self._required:
                await self.close()
                raise
            logger.warning("Redis cannot be used yet: %s; this node begins without it", error.reason)
        for opened in self._followers:
            await opened()

    async def close(self) -> None:
        """Send the waiting writes, within two seconds, and close the connections."""
        for closing in self._leavers:
            await closing()
        lanes = self._lanes
        self._lanes = []
        await asyncio.gather(*[lane.close(GRACE) for lane in lanes])

    async def connect(self) -> AbstractConnection:
        """Return a new connection to the first address that has a primary, with our scripts."""
        reason = RedisAway("no address")
        for turn in range(len(self._addresses)):
            number = (self._first + turn) % len(self._addresses)
            try:
                # Each has its part of the deadline, so that a silent one leaves time for the others.
                async with asyncio.timeout(DEADLINE * 0.9 / len(self._addresses)):
                    connection = await self._addresses[number].connect()
                    await self._load(connection)
            except RedisAway as told:
                reason = told
                self._refused = told.refused
            except (TimeoutError, RedisError, OSError) as error:
                reason = RedisAway(f"{self._addresses[number]} does not answer: {type(error).__name__}")
                self._refused = False
            else:
                self._first = number
                self._refused = False
                return connection
        raise reason

    async def _load(self, connection: AbstractConnection) -> None:
        """Load our scripts; where that fails, close the connection."""
        try:
            replies = await exchange(connection, [("SCRIPT", "LOAD", script.text) for script in ALL])
        except BaseException:
            await disconnect(connection)
            raise
        for reply in replies:
            if isinstance(reply, Exception):
                await disconnect(connection)
                raise away(reply) or RedisAway(f"Redis does not take our scripts: {reply}", lasting=True)

    # -- commands

    def key(self, kind: str, name: str = "") -> str:
        """Return the key of a value of a kind."""
        return f"f:{self._namespace}:{kind}:{name}"

    def _lane(self, key: str) -> Lane:
        if not self._lanes:
            raise StoreUnavailable("the store is not open")
        return self._lanes[zlib.crc32(key.encode()) % LANES]

    def write(self, key: str, *command: Any) -> None:
        """Send a command for a key, without waiting for the reply; it must be idempotent."""
        if self._lanes:
            self._lane(key).write(*command)

    def write_script(self, script: Script, keys: Sequence[str], *arguments: Any) -> None:
        """Run a script on the lane of its first key, without waiting for the reply; it must be idempotent."""
        self.write(keys[0], "EVALSHA", script.sha, len(keys), *keys, *arguments)

    async def execute(self, key: str, *command: Any) -> Any:
        """Send a command for a key and return the reply; raise StoreUnavailable where there is none or a refusal."""
        try:
            return await self._lane(key).execute(*command)
        except ResponseError as error:
            if is_wrong_type(error):
                raise ForeignRecord("another type of value is kept there") from error
            if word_of(error) in TAKES_NOTHING:
                self._takes_nothing = True
            raise unavailable(error) from error

    def written(self) -> None:
        """Called when something could be written."""
        self._takes_nothing = False

    async def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Any:
        """Run a script on the lane of its first key and return the reply; errors are those of `execute`."""
        return await self.execute(keys[0], "EVALSHA", script.sha, len(keys), *keys, *arguments)

    async def run_cleaning(self, script: Script, keys: Sequence[str], *arguments: Any) -> Any:
        """Run a script; where a key has another type of value, set that aside and run the script again."""
        try:
            return await self.run(script, keys, *arguments)
        except ForeignRecord as reason:
            for key in keys:
                await self.set_aside(key, reason)
            return await self.run(script, keys, *arguments)

    async def read(self, key: str, kind: str, *fields: str) -> list[Any] | None:
        """Return fields of a hash, or the value of a string; None where there is none, or it is not ours."""
        found = await self.run(READ, [key], kind, LARGEST_RECORD, *fields)
        if found == b"bad":
            await self.set_aside(key, ForeignRecord("it is of another type, or too large"))
            return None
        if found is None or found[0] is None:
            return None
        return list(found)

    async def decoded(self, key: str, data: bytes, decode: Callable[[bytes], T]) -> T | None:
        """Return a record decoded; None, and set it aside, where it is not ours."""
        try:
            return decode(data)
        except ForeignRecord as reason:
            await self.set_aside(key, reason)
            return None

    async def set_aside(self, key: str, reason: ForeignRecord) -> None:
        """Move a value that is not ours to another key, where it is kept for a day to be looked at."""
        kind = key.split(":")[2]
        place = self.key("bad", f"{kind}:{zlib.crc32(key.encode()):08x}")
        moved = await self.run(SET_ASIDE, [key, place], KEPT_ASIDE)
        if moved:
            self._set_aside += 1
            logger.warning("a value of kind %r in Redis is not ours and was set aside for a day: %s", kind, reason)
