"""Stores: all that one server, or many that work as one, keep beyond a request; named once."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.stores.contracts import (
    Bus,
    Directory,
    EventLog,
    Limits,
    Locks,
    Nodes,
    Seen,
    SessionStore,
    Store,
    TaskStore,
)
from ferrule.stores.event_mirror import MirroredLog
from ferrule.stores.leases import LEASE
from ferrule.stores.memory import LogBounds, MemoryEventLog, MemoryStore, MemoryTasks
from ferrule.stores.memory_cluster import (
    IDLE,
    MemoryBus,
    MemoryDirectory,
    MemoryLimits,
    MemoryLocks,
    MemoryNodes,
    MemorySeen,
    MemorySessions,
)

NO_NAMESPACE = re.compile(r"[^A-Za-z0-9_-]+")
MEMORY = "memory:"
REDIS = ("redis", "rediss", "unix")
"""How the addresses of a Redis begin."""


class Backend(Protocol):
    """What stores work on: opened before they are used, closed when all that was written behind is kept."""

    @property
    def state(self) -> str:
        """`ready`, `degraded` while it cannot be reached, or `closed`."""

    @property
    def is_gone(self) -> bool:
        """Whether it is away for every node: its machine says that nobody is there, or it takes no writes."""

    @property
    def stats(self) -> Any:
        """What it has done, as a struct of counters."""

    async def open(self) -> None:
        """Begin."""

    async def close(self) -> None:
        """Write what waits, within bounds, and end."""


class InProcess:
    """The backend of stores that live in this process."""

    state = "ready"
    is_gone = False
    stats = None

    async def open(self) -> None:
        """Do nothing: memory needs no opening."""

    async def close(self) -> None:
        """Do nothing: memory needs no closing."""


class SeenValues:
    """What may be used once, kept as values of another store."""

    def __init__(self, values: Store) -> None:
        self._values = values

    async def add(self, key: str, ttl: float) -> bool:
        """Note a key. Return False where it was seen within its time."""
        from hashlib import blake2b

        # A key may be of any length: what is kept is not.
        return await self._values.add("seen:" + blake2b(key.encode(), digest_size=24).hexdigest(), b"", ttl)


class Stores(Struct, frozen=True, kw_only=True, eq=False):
    """Where a server keeps what outlives a request; a context manager that opens and closes its backend."""

    sessions: SessionStore
    events: EventLog
    tasks: TaskStore
    values: Store
    bus: Bus
    limits: Limits
    seen: Seen
    nodes: Nodes
    directory: Directory
    locks: Locks
    backend: Backend
    reaches_others: bool = False
    """Whether notices reach other processes, so that one node can answer for another."""
    required: bool = False
    """Whether a server is not ready while the backend cannot be used."""
    lease: float = LEASE
    """Seconds after which a silent node counts as dead, and others take over its sessions."""

    @classmethod
    def memory(
        cls, *, idle: float = IDLE, bounds: LogBounds | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Stores:
        """Return stores in this process, which are gone with it."""
        nodes = MemoryNodes(clock)
        return cls(
            sessions=MemorySessions(nodes, idle=idle, clock=clock),
            events=MemoryEventLog(bounds),
            tasks=MemoryTasks(clock=clock),
            values=MemoryStore(clock),
            bus=MemoryBus(),
            limits=MemoryLimits(clock),
            seen=MemorySeen(clock),
            nodes=nodes,
            directory=MemoryDirectory(nodes),
            locks=MemoryLocks(clock),
            backend=InProcess(),
        )

    @classmethod
    def sqlite(
        cls,
        path: str | os.PathLike[str],
        *,
        idle: float = IDLE,
        bounds: LogBounds | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Stores:
        """Return stores in a file, for one machine that must survive a restart.

        Processes that share the file share all of it but notices, limits and locks.
        """
        from ferrule.stores.sqlite import stores as sqlite
        from ferrule.stores.sqlite.database import Database

        bounds = bounds or LogBounds()
        database = Database(path, clock=clock)
        values = sqlite.SqliteValues(database)
        return cls(
            sessions=sqlite.SqliteSessions(database, idle=idle),
            events=MirroredLog(sqlite.SqliteEvents(database, bounds.age), bounds),
            tasks=sqlite.SqliteTasks(database),
            values=values,
            bus=MemoryBus(os.urandom(9).hex()),
            limits=MemoryLimits(clock or time.monotonic),
            seen=SeenValues(values),
            nodes=sqlite.SqliteNodes(database),
            directory=sqlite.SqliteDirectory(database),
            locks=MemoryLocks(clock or time.monotonic),
            backend=database,
        )

    @classmethod
    def redis(
        cls,
        url: str | Sequence[str],
        *,
        namespace: str = "ferrule",
        node: str = "",
        idle: float = IDLE,
        bounds: LogBounds | None = None,
        required: bool = False,
        lease: float = LEASE,
    ) -> Stores:
        """Return stores in Redis or Valkey, for servers on many machines that work as one.

        Of several addresses the first that answers as a primary is used. With `required`, `open` fails without Redis,
        and a server is not ready without it; else it begins without it and uses it as soon as it is there.
        """
        from ferrule.stores.redis import cluster, records
        from ferrule.stores.redis.backend import RedisBackend
        from ferrule.stores.redis.bus import RedisBus
        from ferrule.stores.redis.sessions import RedisSessions

        bounds = bounds or LogBounds()
        redis = RedisBackend(url, namespace, required=required)
        bus = RedisBus(redis, node)
        values = records.RedisValues(redis)
        return cls(
            sessions=RedisSessions(redis, idle=idle),
            events=MirroredLog(records.RedisEvents(redis, bounds.age), bounds),
            tasks=records.RedisTasks(redis),
            values=values,
            bus=bus,
            limits=cluster.RedisLimits(redis),
            seen=SeenValues(values),
            nodes=cluster.RedisNodes(redis),
            directory=cluster.RedisDirectory(redis),
            locks=cluster.RedisLocks(redis),
            backend=redis,
            reaches_others=True,
            required=required,
            lease=lease,
        )

    async def open(self) -> None:
        """Open the backend."""
        await self.backend.open()

    async def close(self) -> None:
        """Close the backend, after what was written behind is kept."""
        await self.backend.close()

    async def __aenter__(self) -> Stores:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def require_stores(given: object) -> None:
    """Raise SetupError for what is neither stores nor their address."""
    if isinstance(given, Stores):
        return
    if not isinstance(given, str):
        raise SetupError(f"stores must be a Stores or its address, not {type(given).__name__}")
    scheme, _, rest = given.partition(":")
    if scheme in REDIS or (scheme == "sqlite" and rest) or given == MEMORY:
        return
    # The rest is not repeated: it may hold a password.
    raise SetupError(
        f"stores: an address begins with redis://, rediss://, unix:// or sqlite:, or is memory:, not {scheme[:16]!r}"
    )


def stores_of(given: Stores | str, server: str = "ferrule") -> Stores:
    """Return stores by their address: `redis://…`, `sqlite:PATH` or `memory:`; raises SetupError for another.

    In a Redis that several servers use, each has what is kept under its name.
    """
    require_stores(given)
    if isinstance(given, Stores):
        return given
    if given == MEMORY:
        return Stores.memory()
    scheme, _, rest = given.partition(":")
    if scheme in REDIS:
        return Stores.redis(given.split(","), namespace=NO_NAMESPACE.sub("-", server) or "ferrule")
    return Stores.sqlite(rest.removeprefix("//"))
