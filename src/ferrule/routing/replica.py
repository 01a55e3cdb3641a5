"""One target of a router: its client, whether it may be used, and what is known of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from ferrule.balancing.breaker import Breaker, BreakerSettings, BreakerStats, OnTransition
from ferrule.balancing.ejection import Record
from ferrule.balancing.hedge import Latencies
from ferrule.balancing.policy import Target
from ferrule.client.client import Client
from ferrule.errors import ConnectFailed, FerruleError, SetupError
from ferrule.protocol.session import Phase
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.routing")

CONNECT_TIMEOUT = 5.0

NewClient = Callable[[str, object], Client]
"""Returns a client for the target of a name, not connected yet."""


class TargetState(Struct, frozen=True, kw_only=True):
    """How one target of a router stands."""

    name: str
    weight: float
    connected: bool
    draining: bool
    ejected: bool
    in_flight: int
    calls: int
    """Calls that ended with a verdict on it."""
    errors: int
    """How many of them it failed."""
    latency: float
    """Seconds a call takes, as a moving average."""
    percentiles: dict[str, float]
    """p50, p95 and p99 of the last 1000 calls, in seconds; NaN before the first."""
    breaker: BreakerStats


class Replica:
    """One target of a router. It has one client; whoever needs it opens it, and all who need it wait for the same."""

    def __init__(
        self,
        name: str,
        client: Client,
        weight: float,
        breaker: BreakerSettings,
        on_transition: OnTransition,
    ) -> None:
        self.name = name
        self.facts = Target(name, weight)
        self.breaker = Breaker(breaker, on_transition=on_transition)
        self.latencies = Latencies()
        self.record = Record()
        """What ejection knows of it."""
        self.draining = False
        self.client = client
        self.connected = False
        """Whether its client can be asked now."""
        self.client.on_phase_change(self._phase_changed)
        self.probe_timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None

    def _phase_changed(self, before: Phase, after: Phase) -> None:
        self.connected = after is Phase.INITIALIZED

    async def connect(self, scope: Scope, timeout: float = CONNECT_TIMEOUT) -> None:
        """Connect its client, unless it is connected; raise ConnectFailed and the like."""
        if self.connected:
            return
        if self._opening is None or self._opening.done():
            self._opening = scope.spawn(self._open())
            self._opening.add_done_callback(_look_at)
        try:
            await asyncio.wait_for(asyncio.shield(self._opening), timeout)
        except TimeoutError:
            raise ConnectFailed(f"{self.name} did not let us connect within {timeout:.3g} s") from None
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if mine is None or mine.cancelling() or not self._opening.cancelled():
                raise
            raise ConnectFailed(f"{self.name} was closed while we connected") from None

    async def _open(self) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await self.client.connect()

    async def works(self, scope: Scope) -> bool:
        """Whether it can be connected to and answers a ping; a connection on which it does not is closed."""
        try:
            await self.connect(scope)
            await self.client.ping()
        except (FerruleError, OSError) as error:
            logger.debug("the probe of %s failed: %s", self.name, error)
            await self._give_up()
            return False
        return True

    async def _give_up(self) -> None:
        """Close a connection on which nothing is answered: the next probe opens another."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self.client.close(0.0)
        except (FerruleError, OSError) as error:
            logger.debug("the connection to %s could not be closed in order: %s", self.name, error)

    async def close(self, drain: float) -> None:
        """Close its client; harmless when called again."""
        if self.probe_timer is not None:
            self.probe_timer.cancel()
            self.probe_timer = None
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self.client.close(drain)

    def reason_against(self, now: float, *, ejected: bool) -> str:
        """Return why it may not be used now, for people; empty if it may."""
        if self.draining:
            return "draining"
        if self.breaker.state == "open":
            return "the breaker is open"
        if not self.breaker.would_allow(now):
            return "the breaker is half-open and a call is being tried"
        if ejected:
            return "ejected"
        return ""

    def state(self, *, ejected: bool) -> TargetState:
        """Return how it stands."""
        percentiles = {}
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            percentiles[name] = self.latencies.percentile(share)
        return TargetState(
            name=self.name,
            weight=self.facts.weight,
            connected=self.connected,
            draining=self.draining,
            ejected=ejected,
            in_flight=self.facts.in_flight,
            calls=self.facts.calls,
            errors=self.facts.errors,
            latency=self.facts.latency,
            percentiles=percentiles,
            breaker=self.breaker.stats(),
        )


def client_maker(options: Mapping[str, Any]) -> NewClient:
    """Return what makes the clients of a router: they leave it to the router to connect and to send again."""
    if "reconnect" in options:
        raise SetupError("reconnect cannot be used with several targets: the router connects to each again by itself")
    if "replica" in options:
        raise SetupError("replica cannot be used with several targets: each is called by its own name")
    http = {"retry": "never", **(options.get("http") or {})}

    def new_client(name: str, target: object) -> Client:
        if isinstance(target, Client):
            raise SetupError(f"target {name!r} is a Client: give what the client connects to")
        return Client(target, **{**options, "reconnect": False, "http": http, "replica": name})

    return new_client


def _look_at(task: asyncio.Task[None]) -> None:
    """Look at the error of a task that nobody may be waiting for any more, so that asyncio does not complain."""
    if not task.cancelled():
        task.exception()
