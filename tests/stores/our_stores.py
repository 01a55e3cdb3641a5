"""The stores of this project, to be judged by the rules of the kit."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from redis_server import RedisServer

from ferrule.stores.memory import LogBounds
from ferrule.stores.stores import Stores
from ferrule.testing.store_kit import Part, StoreStand

_numbers = itertools.count()


class Clock:
    """Time as it is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def advance(self, seconds: float) -> None:
        self.now += seconds


class Memory:
    name = "memory"
    lacks: ClassVar[dict[Part, str]] = {}

    @asynccontextmanager
    async def stand(self, *, idle: float = 600.0, age: float = 600.0) -> AsyncIterator[StoreStand]:
        clock = Clock()
        async with Stores.memory(idle=idle, bounds=LogBounds(age=age), clock=clock) as stores:
            yield StoreStand(stores, 10.0, clock.advance)


class Sqlite:
    name = "sqlite"
    lacks: ClassVar[dict[Part, str]] = {
        "bus": "notices stay in a process",
        "limits": "limits are those of a process",
        "locks": "locks are those of a process",
    }

    @asynccontextmanager
    async def stand(self, *, idle: float = 600.0, age: float = 600.0) -> AsyncIterator[StoreStand]:
        clock = Clock()
        bounds = LogBounds(age=age)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "store.db"
            async with (
                Stores.sqlite(path, idle=idle, bounds=bounds, clock=clock) as stores,
                Stores.sqlite(path, idle=idle, bounds=bounds, clock=clock) as another,
            ):
                yield StoreStand(stores, 10.0, clock.advance, another)


class Redis:
    """Each stand has a namespace of its own; time passes as it does for Redis."""

    name = "redis"
    lacks: ClassVar[dict[Part, str]] = {}

    def __init__(self) -> None:
        self.server: RedisServer | None = None

    @asynccontextmanager
    async def stand(self, *, idle: float = 600.0, age: float = 600.0) -> AsyncIterator[StoreStand]:
        assert self.server is not None
        namespace = f"kit{next(_numbers)}"
        bounds = LogBounds(age=age)
        async with (
            Stores.redis(self.server.url, namespace=namespace, idle=idle, bounds=bounds, required=True) as stores,
            Stores.redis(self.server.url, namespace=namespace, idle=idle, bounds=bounds, required=True) as another,
        ):
            yield StoreStand(stores, 0.1, asyncio.sleep, another)
