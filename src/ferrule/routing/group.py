"""The targets of a router: who may be used, who is picked, and how each has done."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ferrule.balancing.breaker import BreakerSettings, State, verdict_of
from ferrule.balancing.ejection import Ejection, EjectionSettings, in_panic
from ferrule.balancing.policy import SMOOTHING, Policy, Random, Target
from ferrule.errors import NoTarget, NotConnected, SetupError
from ferrule.routing.circuit import settle
from ferrule.routing.decisions import Decisions
from ferrule.routing.replica import CONNECT_TIMEOUT, NewClient, Replica, TargetState
from ferrule.supervision.scope import Scope

REFRESH = 1.0
"""Seconds between two looks at the figures of all targets."""
LONGEST_RETRY = 30.0


class Group:
    """Several targets that offer the same."""

    def __init__(
        self,
        policy: Policy,
        breaker: BreakerSettings,
        ejection: EjectionSettings,
        new_client: NewClient,
        random: Random,
        decisions: Decisions,
    ) -> None:
        self.replicas: dict[str, Replica] = {}
        self._facts: list[Target] = []
        self._steady = False
        """Whether every target may be used and is marked so: then a call need not look at each."""
        self._policy = policy
        self._breaker = breaker
        self._ejection = Ejection(ejection, on_ejection=self._ejected)
        self._new_client = new_client
        self._random = random
        self._decisions = decisions
        self._tells_picks = decisions.tells_picks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: Scope | None = None

    # -- lifetime

    async def start(self, timeout: float = CONNECT_TIMEOUT) -> dict[str, BaseException]:
        """Connect to every target. Return the errors of those that cannot be reached; they are tried again later."""
        self._loop = asyncio.get_running_loop()
        self._scope = Scope(self._loop)
        self._scope.spawn(self._refresh())
        connecting = []
        for replica in self.replicas.values():
            connecting.append(replica.connect(self._scope, timeout))
        ends = await asyncio.gather(*connecting, return_exceptions=True)
        failed = {}
        for name, error in zip(self.replicas, ends, strict=True):
            if error is not None:
                failed[name] = error
        return failed

    async def close(self, drain: float) -> None:
        """Close every client, after the answers that still come within `drain` seconds."""
        scope = self._scope
        self._scope = None
        if scope is None:
            return
        await asyncio.gather(*(replica.close(drain) for replica in self.replicas.values()))
        await scope.close()

    @property
    def running(self) -> bool:
        """Whether it was started and not closed."""
        return self._scope is not None

    @property
    def scope(self) -> Scope:
        """The tasks of the router; raise NotConnected while it does not run."""
        if self._scope is None:
            raise NotConnected("the router is not running: use `async with Router(...)`")
        return self._scope

    # -- members

    def add(self, name: str, target: object, weight: float) -> None:
        """Add a target."""
        if name in self.replicas:
            raise SetupError(f"there is a target {name!r} already")
        replica = Replica(name, self._new_client(name, target), weight, self._breaker, self._changes(name))
        self.replicas[name] = replica
        self._facts.append(replica.facts)
        replica.record = self._ejection.add(name)

    async def remove(self, name: str, drain: float) -> None:
        """Send a target no more calls, wait up to `drain` seconds for its answers, and forget it."""
        replica = self.replica(name)
        self.drain(name, draining=True)
        await replica.close(drain)
        if self.replicas.pop(name, None) is not None:
            self._facts.remove(replica.facts)
            self._ejection.remove(name)
            self._policy.forget(name)

    def replica(self, name: str) -> Replica:
        """Return the target of a name; raise SetupError if there is none."""
        replica = self.replicas.get(name)
        if replica is None:
            raise SetupError(f"there is no target {name!r}: there are {', '.join(self.replicas) or 'none'}")
        return replica

    def states(self) -> list[TargetState]:
        """Return how each target stands."""
        states = []
        for name, replica in self.replicas.items():
            states.append(replica.state(ejected=self._ejection.is_ejected(name)))
        return states

    # -- calls

    def choose(self, key: str | None, tried: Sequence[Replica], now: float) -> Replica:
        """Pick a target that may be used and has not been tried, for one call; raise NoTarget."""
        panic = False
        if tried or not self._steady:
            panic = self._mark(now, tried)
        picked = self._policy.pick(self._facts, key, self._random)
        if picked is None:
            raise self._no_target(now, tried)
        replica = self.replicas[picked.name]
        if not replica.breaker.closed:
            replica.breaker.allow(now, limited=not panic)
        picked.in_flight += 1
        if self._tells_picks:
            self._decisions.picked(picked.name)
        return replica

    def _mark(self, now: float, tried: Sequence[Replica]) -> bool:
        """Mark who may be picked. Return whether it is a panic."""
        usable = self._admit(now, tried, panic=False)
        settings = self._ejection.settings
        size = len(self._facts)
        panic = size >= settings.least_group and in_panic(usable, size, settings.panic)
        if panic:
            self._admit(now, tried, panic=True)
        self._steady = not tried and usable == size and all(each.breaker.closed for each in self.replicas.values())
        return panic

    def drain(self, name: str, *, draining: bool) -> None:
        """Send a target no more calls, or send it calls again."""
        self.replica(name).draining = draining
        self._steady = False

    def _admit(self, now: float, tried: Sequence[Replica], *, panic: bool) -> int:
        """Mark who may be picked. Return how many can be used, be they tried already or not."""
        usable = 0
        for name, replica in self.replicas.items():
            well = not replica.draining and replica.breaker.would_allow(now, limited=not panic)
            if well and not panic:
                well = not self._ejection.is_ejected(name)
            usable += well
            replica.facts.admitted = well and replica not in tried
        return usable

    def ended(self, replica: Replica, error: BaseException | None, seconds: float, now: float) -> None:
        """Called when a call of a target that `choose` picked has ended, after so many seconds."""
        verdict = verdict_of(error)
        if verdict == "ok":
            self.answered(replica, seconds, now)
            return
        settle(replica.breaker, error, now)
        if verdict == "failed":
            replica.facts.failed(seconds)
            self._ejection.failed(replica.name, now)
        else:
            replica.facts.released()

    def answered(self, replica: Replica, seconds: float, now: float) -> None:
        """Called when a target that `choose` picked has answered its call, after so many seconds."""
        # Every call comes here, so what `Target.answered` and `Ejection.ok` do is written out.
        facts = replica.facts
        facts.in_flight -= 1
        facts.latency += SMOOTHING * (seconds - facts.latency) if facts.calls else seconds
        facts.calls += 1
        record = replica.record
        record.calls += 1
        record.consecutive = 0
        replica.breaker.ok(now)
        replica.latencies.add(seconds)

    def delivered(self, replica: Replica) -> None:
        """Called when a target took a notification: nobody answers one, so it is no verdict."""
        replica.breaker.released()
        replica.facts.released()

    def _no_target(self, now: float, tried: Sequence[Replica]) -> NoTarget:
        reasons = {}
        soonest = math.inf
        for name, replica in self.replicas.items():
            if replica in tried:
                reasons[name] = "it was tried"
            else:
                reasons[name] = replica.reason_against(now, ejected=self._ejection.is_ejected(name))
            soonest = min(soonest, replica.breaker.next_probe - now)
        error = NoTarget(reasons, min(max(soonest, 1.0), LONGEST_RETRY))
        if not tried:
            self._decisions.tell("no_target", "", str(error))
        return error

    # -- what happens by itself

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(REFRESH)
            self._policy.refresh(self._facts)
            self._ejection.sweep(loop.time())

    def _changes(self, name: str) -> Callable[[State, State, float], None]:
        def changed(before: State, after: State, now: float) -> None:
            self._steady = False
            self._decisions.tell("breaker", name, f"{before}>{after}")
            if after == "open":
                self._plan_probe(self.replicas[name])

        return changed

    def _ejected(self, name: str, reason: str, until: float) -> None:
        self._steady = False
        self._decisions.tell("ejected", name, reason)

    def _plan_probe(self, replica: Replica) -> None:
        if replica.probe_timer is not None:
            replica.probe_timer.cancel()
            replica.probe_timer = None
        if self._loop is not None and self._scope is not None and replica.breaker.next_probe < math.inf:
            replica.probe_timer = self._loop.call_at(replica.breaker.next_probe, self._start_probe, replica)

    def _start_probe(self, replica: Replica) -> None:
        if self._scope is not None and replica.breaker.state == "open":
            self._scope.spawn(self._probe(replica, self._scope))

    async def _probe(self, replica: Replica, scope: Scope) -> None:
        works = await replica.works(scope)
        replica.breaker.probed(asyncio.get_running_loop().time(), ok=works)
        if replica.breaker.state == "open" and not replica.draining:
            self._plan_probe(replica)


def named_targets(targets: Mapping[str, object] | Iterable[object]) -> dict[str, Any]:
    """Return targets by name: the given one, the address without what may be secret in it, or their number."""
    if isinstance(targets, Mapping):
        return dict(targets)
    if isinstance(targets, str):
        raise SetupError(f"targets must be a list or a mapping of names to targets, not the str {targets!r}")
    named: dict[str, Any] = {}
    for number, target in enumerate(targets):
        name = without_secrets(target) if isinstance(target, str) else str(number)
        if name in named:
            raise SetupError(f"the target {name!r} is given twice: give the targets names, as a mapping")
        named[name] = target
    return named


def without_secrets(address: str) -> str:
    """Return an address without user, password, query and fragment: names are shown in logs, metrics and spans."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    if not parts.netloc:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
