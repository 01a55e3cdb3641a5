"""Leases as their holders see them: the life of a node, tokens of a limit, a lock.

A holder counts from before it asked, by a clock that never jumps, so it stops before others take over.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable

from ferrule.errors import Busy, StoreUnavailable
from ferrule.stores.contracts import Limits, Locks, Nodes

LEASE = 10.0
"""Seconds after which a silent node counts as dead."""
TRUST = 0.7
"""The part of a lease after which its holder does not rely on it any more."""
RENEWAL = 0.3
"""The part of a lease after which it is renewed."""

AGAIN = 0.5
"""Seconds between two tries of a node that has lost its lease."""


class NodeLease:
    """The lease of this node: renewed while it runs, released at its end."""

    def __init__(
        self,
        nodes: Nodes,
        node: str,
        about: bytes = b"",
        *,
        ttl: float = LEASE,
        lapsed: Callable[[], None] | None = None,
    ) -> None:
        self._nodes = nodes
        self._ttl = ttl
        self._lapsed = lapsed
        self._until = -math.inf
        self._was_held = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.node = node
        self.about = about

    @property
    def held(self) -> bool:
        """Whether others count on this node; where not, it must not serve sessions that others may claim."""
        return asyncio.get_running_loop().time() < self._until

    async def start(self) -> None:
        """Take the lease, as soon as the store can be reached, and keep it."""
        await self.renew()
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Release the lease, so that others need not wait for its end."""
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._timer is not None:
            self._timer.cancel()
        self._until = -math.inf
        with contextlib.suppress(StoreUnavailable):
            await self._nodes.release(self.node)

    async def _keep(self) -> None:
        while True:
            pause = self._ttl * RENEWAL
            if not self.held:
                pause = min(pause, AGAIN)
            await asyncio.sleep(pause)
            await self.renew()

    async def renew(self) -> None:
        """Renew the lease now, where the store can be reached."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            had = await self._nodes.renew(self.node, self.about, self._ttl)
        except Busy:
            return
        if self._was_held and not had:
            # It was over, and sessions may be others' by now.
            self._lapse()
        self._was_held = True
        self._until = began + self._ttl * TRUST
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._lapse)

    def _lapse(self) -> None:
        """Report once that the lease cannot be relied on."""
        was_held = self._was_held
        self._was_held = False
        if was_held and self._lapsed is not None:
            self._lapsed()


ASK_EVERY = 0.1
"""Seconds between two questions for more tokens."""
AHEAD = 0.2
"""Seconds that the tokens of one lease last at the whole rate."""


class LeasedBucket:
    """A limit that nodes share, decided here with the tokens this node has leased.

    It begins with the tokens of one lease before they are granted, and pays them back with the first: so all nodes
    together may be over the limit by one lease each, once. Without the store each node has its part of the rate.
    """

    def __init__(
        self,
        limits: Limits,
        name: str,
        rate: float,
        burst: float,
        *,
        nodes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._name = name
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self.nodes = nodes
        """How many nodes share the limit, as far as this one knows."""
        self._tokens = self._lease
        self._owed = self._tokens
        self._asked = -math.inf
        self._asking: asyncio.Task[None] | None = None
        self._alone_since: float | None = None

    @property
    def _lease(self) -> float:
        part = self._burst / self.nodes
        return max(1.0, min(part, max(self._rate * AHEAD, part / 4)))

    @property
    def tokens(self) -> float:
        """How many tokens this node has."""
        return self._tokens

    def take(self, n: float = 1.0) -> bool:
        """Take tokens if there are as many; never waits."""
        granted = self.has(n)
        if granted:
            self._tokens -= n
            self._ask_early(n)
        return granted

    def has(self, n: float = 1.0) -> bool:
        """Return whether there are as many tokens; where there are few, more are asked for."""
        now = self._clock()
        if self._alone_since is not None:
            earned = (now - self._alone_since) * self._rate / self.nodes
            self._tokens = min(max(1.0, self._burst / self.nodes), self._tokens + earned)
            self._alone_since = now
        granted = self._tokens >= n
        if not granted:
            self._ask_early(n)
        return granted

    def _ask_early(self, n: float) -> None:
        now = self._clock()
        if self._tokens <= self._lease / 4 and self._asking is None and now - self._asked >= ASK_EVERY:
            self._asked = now
            self._asking = asyncio.get_running_loop().create_task(self._ask(n))

    async def _ask(self, n: float) -> None:
        wanted = max(self._lease, n) + self._owed
        try:
            granted = await self._limits.lease(self._name, self._rate, self._burst, wanted)
        except Busy:
            if self._alone_since is None:
                self._alone_since = self._clock()
        else:
            self._alone_since = None
            if granted >= wanted:
                # There is more: who needs it need not wait.
                self._asked = -math.inf
            paid = min(granted, self._owed)
            self._owed -= paid
            self._tokens += granted - paid
        finally:
            self._asking = None

    async def close(self) -> None:
        """Ask for no more."""
        if self._asking is not None:
            await asyncio.wait([self._asking])


@contextlib.asynccontextmanager
async def locked(locks: Locks, name: str, ttl: float = LEASE) -> AsyncIterator[int | None]:
    """Hold a lock, renewed while the body runs; yield its token, None where another has it."""
    token = await locks.acquire(name, ttl)
    if token is None:
        yield None
        return
    renewal = asyncio.get_running_loop().create_task(_renew(locks, name, token, ttl))
    try:
        yield token
    finally:
        renewal.cancel()
        await asyncio.wait([renewal])
        with contextlib.suppress(StoreUnavailable):
            await locks.release(name, token)


async def _renew(locks: Locks, name: str, token: int, ttl: float) -> None:
    while True:
        await asyncio.sleep(ttl / 3)
        with contextlib.suppress(StoreUnavailable):
            if not await locks.renew(name, token, ttl):
                return
