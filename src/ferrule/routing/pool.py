"""Several connections to one server, opened as they are needed and closed when they are not.

What is opened is anything that can be opened, checked and closed: a `Client`, or a transport with its channel.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from ferrule.balancing.policy import Random, Target, policy_named
from ferrule.errors import CarrierError, ConnectFailed, FerruleError, SetupError
from ferrule.settings.option import NonNegativeInt, PositiveInt, PositiveSeconds, check
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.routing")

T = TypeVar("T")

Strategy = Literal["round_robin", "least_loaded", "random"]


class PoolSettings(Struct, frozen=True, kw_only=True):
    """How many connections there are, and who gets which; times are seconds."""

    min_size: NonNegativeInt = 10
    """How many connections are kept open in any case."""
    max_size: PositiveInt = 1000
    """How many there may be."""
    strategy: Strategy = "round_robin"
    """Who gets which."""
    max_load: PositiveInt = 1
    """How many users one connection has at once; with more users, another is opened."""
    checkout_timeout: PositiveSeconds = 5.0
    """How long a user waits for a connection."""
    health_interval: PositiveSeconds = 5.0
    """How often unused connections are checked."""
    idle_time: PositiveSeconds = 60.0
    """How long a connection over the least number may be unused."""

    def __post_init__(self) -> None:
        check(self)
        if self.min_size > self.max_size:
            raise SetupError(f"min_size must be at most max_size: {self.min_size}, {self.max_size}")


class Member(Generic[T]):
    """One connection of a pool."""

    __slots__ = ("connection", "facts", "sick", "used_at")

    def __init__(self, name: str, connection: T, now: float) -> None:
        self.connection = connection
        self.facts = Target(name)
        """What the policy compares: how many users it has."""
        self.used_at = now
        self.sick = False


class PoolState(Struct, frozen=True):
    """How a pool is used now."""

    size: int
    in_use: int
    waiting: int
    opened: int
    closed: int


class Pool(Generic[T]):
    """Several connections to one server."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[T]],
        closed: Callable[[T], Awaitable[None]],
        healthy: Callable[[T], Awaitable[bool]],
        settings: PoolSettings | None = None,
        *,
        chance: Random = random.random,
    ) -> None:
        self._open = opened
        self._close = closed
        self._healthy = healthy
        self.settings = settings or PoolSettings()
        self._chance = chance
        self._policy = policy_named(self.settings.strategy)
        self._numbers = itertools.count()
        self._loop = asyncio.get_running_loop()
        self._scope = Scope(self._loop)
        self._members: dict[str, Member[T]] = {}
        self._opening = self._opened = self._closed = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._ended = False

    @property
    def state(self) -> PoolState:
        """How the pool is used now."""
        in_use = 0
        for member in self._members.values():
            in_use += member.facts.in_flight
        return PoolState(len(self._members), in_use, len(self._waiters), self._opened, self._closed)

    async def start(self) -> None:
        """Open the least number of connections and begin to look after them; raises CarrierError."""
        if self._ended:
            raise CarrierError("the pool is closed: make a new one")
        try:
            # In our scope, so that one that fails ends the others too.
            await asyncio.gather(*[self._scope.spawn(self._grow()) for _ in range(self.settings.min_size)])
        except BaseException:
            await self.close()
            raise
        self._scope.spawn(self._tend_often())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[T]:
        """Lend a connection; raises CarrierError when none is free in time."""
        member = await self._check_out()
        try:
            yield member.connection
        finally:
            self._check_in(member)

    async def resize(self, min_size: int, max_size: int) -> None:
        """Change the bounds; what is over them is closed when nobody uses it."""
        values = {}
        for name in self.settings.__struct_fields__:
            values[name] = getattr(self.settings, name)
        self.settings = PoolSettings(**{**values, "min_size": min_size, "max_size": max_size})
        await self.tend()

    async def close(self) -> None:
        """Close every connection, also those in use; harmless when called again."""
        self._ended = True
        await self._scope.close()
        members = self._members
        self._members = {}
        for member in members.values():
            await self._end(member)
        self._wake()

    async def _check_out(self) -> Member[T]:
        try:
            async with asyncio.timeout(self.settings.checkout_timeout):
                while True:
                    if self._ended:
                        raise CarrierError("the pool is closed")
                    member = self._pick()
                    if member is None and self._room:
                        await self._grow()
                    elif member is None:
                        await self._wait_for_change()
                    else:
                        member.facts.started()
                        return member
        except TimeoutError:
            within = self.settings.checkout_timeout
            raise ConnectFailed(f"no connection of the pool became free within {within:g} s") from None

    def _pick(self) -> Member[T] | None:
        facts = []
        for member in self._members.values():
            member.facts.admitted = member.facts.in_flight < self.settings.max_load and not member.sick
            facts.append(member.facts)
        picked = self._policy.pick(facts, None, self._chance)
        if picked is None:
            return None
        return self._members[picked.name]

    def _check_in(self, member: Member[T]) -> None:
        member.facts.released()
        member.used_at = self._loop.time()
        self._wake()

    @property
    def _room(self) -> bool:
        return len(self._members) + self._opening < self.settings.max_size

    async def _grow(self) -> None:
        self._opening += 1
        try:
            connection = await self._open()
        finally:
            self._opening -= 1
            self._wake()
        self._opened += 1
        name = str(next(self._numbers))
        member = Member(name, connection, self._loop.time())
        if self._ended:
            await self._end(member)
        else:
            self._members[name] = member

    async def _wait_for_change(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _tend_often(self) -> None:
        while True:
            await asyncio.sleep(self.settings.health_interval)
            try:
                await self.tend()
            except FerruleError as error:
                logger.warning("a pool of connections could not be filled: %s", error)
            except Exception:
                logger.exception("could not look after a pool of connections")

    async def tend(self) -> None:
        """Close what is sick or not needed, and open what is missing; done by itself every `health_interval`."""
        checks = []
        for member in self._members.values():
            if not member.facts.in_flight:
                checks.append(self._check(member))
        await asyncio.gather(*checks)
        for member in self._dismiss():
            await self._end(member)
        while len(self._members) + self._opening < self.settings.min_size:
            await self._grow()
        self._wake()

    def _dismiss(self) -> list[Member[T]]:
        """Take out who is sick or not needed: all in one turn, so that nobody is lent, or taken out, twice."""
        spare = len(self._members) - self.settings.min_size
        over = len(self._members) - self.settings.max_size
        since = self._loop.time() - self.settings.idle_time
        leaving: list[Member[T]] = []
        for member in self._members.values():
            unused = member.used_at <= since
            if not member.facts.in_flight and (member.sick or over > 0 or (unused and spare > 0)):
                leaving.append(member)
                spare = spare - 1
                over = over - 1
        for member in leaving:
            del self._members[member.facts.name]
            self._policy.forget(member.facts.name)
        return leaving

    async def _check(self, member: Member[T]) -> None:
        """Find out whether a connection works; meanwhile, and if not, it is lent to nobody."""
        member.sick = True
        try:
            async with asyncio.timeout(self.settings.health_interval):
                member.sick = not await self._healthy(member.connection)
        except Exception as error:
            logger.info("a connection of a pool is not well: %s", error)

    async def _end(self, member: Member[T]) -> None:
        self._closed += 1
        try:
            await self._close(member.connection)
        except Exception:
            logger.exception("could not close a connection of a pool")
