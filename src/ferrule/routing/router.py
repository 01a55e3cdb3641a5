"""The router: several servers that offer the same, used as one.

The rules, in the order they apply to a call:

1. The bulkhead admits it, lets it wait, or refuses it with `Overloaded`.
2. The policy picks one of the targets whose breaker admits calls and which are not ejected or draining. If less than
   half of three or more are left, ejections and half-open limits are ignored. Without any it ends with `NoTarget`.
3. A call that was not sent goes to another target. One that was sent goes to another only if it is safe, within the
   retry budget and its deadline. An unsafe call that was sent and lost ends with `OutcomeUnknown`.
4. With hedging, a safe call that takes unusually long is sent to a second target; the first answer wins.

A router opens one client for each target and opens it again when it is lost. Targets with an open breaker are probed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from msgspec import Struct

from ferrule.balancing.breaker import verdict_of
from ferrule.balancing.hedge import HedgeTimer, Latencies
from ferrule.balancing.policy import Random, policy_named
from ferrule.balancing.retry import may_repeat, retry_budget, was_sent
from ferrule.client.client import Client
from ferrule.errors import (
    CarrierError,
    ConnectionTimedOut,
    FerruleError,
    InvalidAnswer,
    LinkLost,
    NoTarget,
    NotConnected,
    OutcomeUnknown,
    SetupError,
    TimedOut,
)
from ferrule.protocol.stateless import REVISIONS as STATELESS
from ferrule.routing.admission import Admission
from ferrule.routing.call import RoutedCall, Work, request_of, tool_call_of
from ferrule.routing.decisions import DeadLetters, Decisions, OnEvent
from ferrule.routing.group import Group, named_targets
from ferrule.routing.replica import CONNECT_TIMEOUT, NewClient, Replica, TargetState, client_maker
from ferrule.routing.settings import RoutingSettings
from ferrule.schema.methods import METHODS
from ferrule.schema.tools import CallToolResult
from ferrule.settings.option import pick
from ferrule.settings.sources import read_sourced
from ferrule.telemetry.observer import attempts, observers_of

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords
    from ferrule.telemetry.metrics import Metrics
    from ferrule.telemetry.router_recorder import RouterRecorder

logger = logging.getLogger("ferrule.routing")

T = TypeVar("T")

LOST = (LinkLost, TimedOut, NotConnected, CarrierError, InvalidAnswer)
"""How a call ends that another target may be able to answer."""
DRAIN = 5.0


class RouterStats(Struct, frozen=True, kw_only=True):
    """What a router has done, and how full it is."""

    calls: int
    """Calls that were admitted."""
    errors: int
    """How many of them were lost at a target; those that found no target are counted in `no_target`."""
    retries: int
    """How often a call went on to another target."""
    hedges: int
    overloaded: int
    no_target: int
    outcome_unknown: int
    dead_letters: int
    in_flight: int
    waiting: int
    under_pressure: bool
    """Whether the queue is four fifths full."""


class Router:
    """Several servers used as one."""

    options = frozenset(RoutingSettings.__struct_fields__)
    """The names of its options; all others are options of its clients."""

    def __init__(
        self,
        targets: Mapping[str, object] | Iterable[object] = (),
        *,
        on_event: OnEvent | None = None,
        new_client: NewClient | None = None,
        random: Random = random.random,
        **options: Unpack[ClientKeywords],
    ) -> None:
        self._decisions = Decisions(observers_of(options.get("observer"), "Router"))
        if on_event is not None:
            self._decisions.listen(on_event)
        self._tell = self._decisions.tell
        routing = pick(RoutingSettings, options)
        for_clients = {name: value for name, value in options.items() if name not in self.options}
        settings = read_sourced("routing", RoutingSettings, routing, "Router")
        self.settings = settings
        self._breaker = settings.breaker
        self._group = Group(
            policy_named(settings.balance),
            settings.breaker,
            settings.ejection,
            new_client or client_maker(for_clients),
            random,
            self._decisions,
        )
        self._admission = Admission(settings.bulkhead, lambda reason: self._tell("overloaded", "", reason))
        self._bulkhead = self._admission.bulkhead
        self._retry = settings.retry
        self._budget = retry_budget(settings.retry)
        self._latencies = Latencies()
        self._hedge = None if settings.hedge is None else HedgeTimer(settings.hedge, self._latencies)
        self.safe_tools = frozenset(settings.safe_tools)
        self.dead_letters = DeadLetters(keep_payload=settings.keep_payload)
        """Notifications that could not be delivered."""
        self._recorder: RouterRecorder | None = None
        self._unwatch: Callable[[], None] | None = None
        """What ends that metrics show how the targets stand."""
        metrics = options.get("metrics")
        if metrics is not None:
            self.record(metrics, options.get("upstream", ""))
        self._clock: Callable[[], float] = _now
        self._calls = 0
        self._errors = 0
        given = dict(settings.weights or {})
        for name, target in named_targets(targets).items():
            self.add(name, target, weight=given.pop(name, 1.0))
        if given:
            raise SetupError(f"weights names unknown targets: {', '.join(given)}")

    # -- lifetime

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(DRAIN if error is None else 0.0)

    async def start(self, timeout: float = CONNECT_TIMEOUT) -> dict[str, BaseException]:
        """Connect to every target. Return the errors of those that cannot be reached; they are tried again later."""
        self._clock = _clock_of(asyncio.get_running_loop())
        if self._recorder is not None and self._unwatch is None:
            self._unwatch = self._recorder.watch(lambda: self.targets)
        failed = await self._group.start(timeout)
        for name, error in failed.items():
            logger.warning("the target %s could not be reached, and will be tried again: %s", name, error)
        return failed

    async def close(self, drain: float = DRAIN) -> None:
        """Close every client, after the answers that still come within `drain` seconds; harmless when called again."""
        await self._group.close(drain)
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something as long as the router runs."""
        if self._group.running:
            self._group.scope.spawn(work)
        else:
            work.close()

    # -- targets

    def add(self, name: str, target: object, *, weight: float = 1.0) -> None:
        """Add a target: whatever a `Client` connects to."""
        self._group.add(name, target, weight)

    async def remove(self, name: str, drain: float = DRAIN) -> None:
        """Send a target no more calls, wait up to `drain` seconds for its answers, and forget it."""
        await self._group.remove(name, drain)

    def drain(self, name: str, *, draining: bool = True) -> None:
        """Send a target no more calls, or, with `draining` False, send it calls again."""
        self._group.drain(name, draining=draining)

    async def connect(self, name: str) -> None:
        """Connect to a target again, unless it is connected; raise ConnectFailed and the like."""
        await self._group.replica(name).connect(self._group.scope)

    def reset(self, name: str) -> None:
        """Close the breaker of a target and forget what failed."""
        self._group.replica(name).breaker.reset(self._clock())

    def force_open(self, name: str) -> None:
        """Open the breaker of a target until `reset`."""
        self._group.replica(name).breaker.force_open(self._clock())

    @property
    def clients(self) -> dict[str, Client]:
        """The client of each target, by name."""
        return {name: replica.client for name, replica in self._group.replicas.items()}

    @property
    def connected(self) -> list[Client]:
        """The clients of the targets that are connected now."""
        return [replica.client for replica in self._group.replicas.values() if replica.connected]

    @property
    def targets(self) -> list[TargetState]:
        """How each target stands."""
        return self._group.states()

    def stats(self) -> RouterStats:
        """Return what the router has done, and how full it is."""
        return RouterStats(
            calls=self._calls,
            errors=self._errors,
            retries=self._decisions.count("retried"),
            hedges=self._decisions.count("hedged"),
            overloaded=self._decisions.count("overloaded"),
            no_target=self._decisions.count("no_target"),
            outcome_unknown=self._decisions.count("outcome_unknown"),
            dead_letters=self.dead_letters.total,
            in_flight=self._bulkhead.in_flight,
            waiting=self._bulkhead.waiting,
            under_pressure=self._bulkhead.under_pressure,
        )

    def listen(self, on_event: OnEvent) -> None:
        """Call a function with every decision but picks."""
        self._decisions.listen(on_event)

    def record(self, metrics: Metrics, upstream: str = "") -> None:
        """Count every decision in these metrics, and show how the targets stand while the router runs."""
        from ferrule.telemetry.router_recorder import RouterRecorder

        self._recorder = RouterRecorder(metrics, upstream)
        self.listen(self._recorder.record)

    # -- calls

    def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        safe: bool | None = None,
        timeout: float | None = None,
        principal: Hashable = None,
        key: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Send a request to one of the targets and return its result as plain values.

        `safe` says whether it may run twice; None: by its method, and for tools by `safe_tools`. `principal` is whose
        call it is, and `key` what `balance="hash"` goes by.
        """
        if safe is None:
            safe = self.is_safe(method, params)
        asked = (method, params)
        return self.call(request_of, method, asked, safe=safe, timeout=timeout, principal=principal, key=key)

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        safe: bool | None = None,
        timeout: float | None = None,
        principal: Hashable = None,
        key: str | None = None,
        **more: Any,
    ) -> Coroutine[Any, Any, CallToolResult]:
        """Call a tool of one of the targets; more options are those of `Client.call_tool`."""
        if safe is None:
            safe = name in self.safe_tools
        asked = (name, arguments, more or None)
        return self.call(tool_call_of, "tools/call", asked, safe=safe, timeout=timeout, principal=principal, key=key)

    async def call(
        self,
        work: Work[T],
        method: str,
        arguments: tuple[Any, ...] = (),
        *,
        safe: bool = False,
        timeout: float | None = None,
        principal: Hashable = None,
        key: str | None = None,
    ) -> T:
        """Do something with the client of one of the targets, and with another's if that does no harm."""
        clock = self._clock
        began = clock()
        deadline = math.inf
        if timeout is not None:
            deadline = began + timeout
        ticket = None
        bulkhead = self._bulkhead
        if principal is None and bulkhead.in_flight < bulkhead.most:
            # What `Bulkhead.enter` does for nobody in particular, written out: it is on the path of every call.
            bulkhead.in_flight += 1
        else:
            ticket = await self._admission.enter(principal, began, deadline)
            began = clock()
        self._calls += 1
        self._budget.called(began)
        replica = None
        try:
            if safe and self._hedge is not None:
                call = RoutedCall(work, method, arguments, key, deadline, safe=True)
                answer = await self._hedged(call, self._hedge)
            else:
                replica = self._group.choose(key, (), began)
                seconds = None
                if safe or timeout is not None or not replica.connected:
                    seconds = await self._prepare(replica, method, deadline, short=safe)
                answer = await work(replica.client, seconds, *arguments)
        except BaseException as error:
            try:
                if replica is None:
                    raise
                call = RoutedCall(work, method, arguments, key, deadline, safe=safe)
                return await self._recover(error, call, replica, began)
            except LOST:
                self._errors += 1
                raise
            finally:
                self._admission.leave(ticket, began, clock())
        now = clock()
        if replica is not None:
            self._group.answered(replica, now - began, now)
        if ticket is None and replica is not None and not bulkhead.waiting:
            # `Bulkhead.leave_freely`, written out; the average of the target stands for that of all calls.
            bulkhead.in_flight -= 1
            bulkhead.service_time = replica.facts.latency
        else:
            self._admission.leave(ticket, began, now)
        return answer

    @asynccontextmanager
    async def pick(self, *, principal: Hashable = None, key: str | None = None) -> AsyncIterator[Client]:
        """Lend the client of a target for one call, whose end is the verdict on the target; nothing is sent again."""
        ticket = await self._admission.enter(principal, self._clock(), math.inf)
        began = self._clock()
        self._calls += 1
        try:
            replica = self._group.choose(key, (), began)
            try:
                await replica.connect(self._group.scope)
                yield replica.client
            except BaseException as error:
                self._ended(replica, error, began)
                raise
            self._ended(replica, None, began)
        finally:
            self._admission.leave(ticket, began, self._clock())

    async def notify(self, method: str, params: Mapping[str, object] | None = None, *, key: str | None = None) -> bool:
        """Send a notification to one of the targets. Return whether it was sent; if not, it is in `dead_letters`."""
        target = ""
        try:
            replica = self._group.choose(key, (), self._clock())
            target = replica.name
            try:
                await replica.connect(self._group.scope)
                await replica.client.notify(method, params)
            except BaseException as error:
                self._ended(replica, error, self._clock())
                raise
            self._group.delivered(replica)
        except FerruleError as error:
            self.dead_letters.add(self._clock(), method, target, str(error), params)
            self._tell("dead_letter", target, str(error))
            return False
        return True

    # -- one call

    async def _recover(self, error: BaseException, call: RoutedCall[T], replica: Replica, began: float) -> T:
        """Go on with a call whose attempt at a target failed: at another if it may, else raise what it ended with."""
        call.tried.append(replica)
        if not isinstance(error, LOST):
            self._ended(replica, error, began)
            raise error
        return await self._persist(call, await self._after_loss(error, call, replica, began))

    async def _persist(self, call: RoutedCall[T], lost: FerruleError | None = None) -> T:
        """Try targets until one answers, or the call may not be sent again."""
        while True:
            began = self._clock()
            replica = self._choose(call, began, lost)
            call.tried.append(replica)
            attempt = attempts.set(len(call.tried))
            try:
                short = call.safe and not call.retries
                seconds = await self._prepare(replica, call.method, call.deadline, short=short)
                answer = await call.work(replica.client, seconds, *call.arguments)
            except LOST as error:
                lost = await self._after_loss(error, call, replica, began)
            except BaseException as error:
                self._ended(replica, error, began)
                raise
            else:
                now = self._clock()
                self._group.answered(replica, now - began, now)
                self._latencies.add(now - began)
                return answer
            finally:
                attempts.reset(attempt)

    async def _prepare(self, replica: Replica, method: str, deadline: float, *, short: bool) -> float | None:
        """Connect to a target. Return how many seconds the call has; None: as many as the client's options say."""
        if not replica.connected:
            left = max(0.0, deadline - self._clock())
            await replica.connect(self._group.scope, min(CONNECT_TIMEOUT, left))
        if deadline < math.inf:
            return max(0.0, deadline - self._clock())
        if short and method != "tools/call":
            # A read that takes so long is better asked of another target.
            return self._breaker.call_timeout
        return None

    async def _after_loss(
        self, error: FerruleError, call: RoutedCall[Any], replica: Replica, began: float
    ) -> FerruleError:
        """Return why a call goes on to another target; raise what the caller shall see if it does not."""
        try:
            if type(error) is TimedOut:
                error = await self._silence(error, replica)
        finally:
            self._ended(replica, error, began)
        final = self._final(error, call, replica)
        if self._may_go_on(error, call):
            return final
        raise final from error

    async def _silence(self, error: TimedOut, replica: Replica) -> TimedOut:
        """Find out whether a target that did not answer a call answers anything at all."""
        if replica.client.protocol_version not in STATELESS or await replica.works(self._group.scope):
            # A client of the handshake era has sent a ping before it said so.
            return error
        return ConnectionTimedOut(f"{error}, nor did {replica.name} answer when it was asked to discover itself")

    def _choose(self, call: RoutedCall[Any], now: float, lost: FerruleError | None) -> Replica:
        """Pick a target that was not tried; if there is none, raise NoTarget, or what was lost at the one before."""
        try:
            replica = self._group.choose(call.key, call.tried, now)
        except NoTarget:
            if lost is None:
                raise
            raise lost from None
        if lost is not None:
            self._tell("retried", replica.name, str(lost))
        return replica

    def _ended(self, replica: Replica, error: BaseException | None, began: float) -> None:
        now = self._clock()
        self._group.ended(replica, error, now - began, now)

    def _may_go_on(self, error: FerruleError, call: RoutedCall[Any]) -> bool:
        """Whether a call that ended so may go to another target.

        What was not sent has cost no target anything: it takes nothing of the budget.
        """
        now = self._clock()
        if now >= call.deadline or not may_repeat(error, safe=call.safe):
            return False
        if not was_sent(error):
            return True
        if verdict_of(error) != "failed" or call.retries >= self._retry.most or not self._budget.take(now):
            return False
        call.retries += 1
        return True

    def _final(self, error: FerruleError, call: RoutedCall[Any], replica: Replica) -> FerruleError:
        """Return what the caller shall see of a call that is not sent again."""
        if call.safe or not isinstance(error, LinkLost) or not was_sent(error):
            return error
        self._tell("outcome_unknown", replica.name, str(error))
        if isinstance(error, OutcomeUnknown):
            return error
        return OutcomeUnknown(
            f"unknown outcome: {replica.name} was lost after {call.method} was sent ({error}); it may have run or not, "
            "and was not sent again"
        )

    async def _hedged(self, call: RoutedCall[T], timer: HedgeTimer) -> T:
        """Ask a second target if the first takes unusually long; the first answer wins, the other call is cancelled."""
        timer.called(self._clock())
        delay = timer.delay()
        if delay is None or len(self._group.replicas) < 2:
            return await self._persist(call)
        scope = self._group.scope
        first = self._persist(call)
        tasks: list[asyncio.Task[T]] = [scope.spawn(first)]
        try:
            await asyncio.wait(tasks, timeout=delay)
            if not tasks[0].done() and timer.take(self._clock()):
                slow = ", ".join(replica.name for replica in call.tried)
                self._tell("hedged", slow, f"no answer in {delay:.3g} s")
                second = self._persist(call)
                tasks.append(scope.spawn(second))
            return await _first_answer(tasks)
        finally:
            for task in tasks:
                if not task.done():
                    scope.cancel(task, f"a hedged {call.method}")

    # -- small parts

    def is_safe(self, method: str, params: Mapping[str, object] | None) -> bool:
        """Whether a request may run twice: it only reads, or calls one of the safe tools."""
        if method == "tools/call":
            return (params or {}).get("name") in self.safe_tools
        row = METHODS.get(method)
        return row is not None and row.read_only


async def _first_answer(tasks: list[asyncio.Task[T]]) -> T:
    """Return the first result of some tasks; raise the first one's error if none has one."""
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        answers = [task for task in done if not task.cancelled() and task.exception() is None]
        if answers:
            return answers[0].result()
    if tasks[0].cancelled():
        raise NotConnected("the router was closed before an answer came")
    return tasks[0].result()


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return what tells the time of a loop, without the method around it where that is all it does."""
    if type(loop).time is asyncio.BaseEventLoop.time:
        return time.monotonic
    return loop.time


def _now() -> float:
    return asyncio.get_running_loop().time()
