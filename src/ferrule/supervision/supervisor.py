"""Supervisor: starts children in order, restarts those that die, and stops them in reverse.

Rule 1: a child starts when the former has called `ready()`. One that ends before, or takes too long, is a start that
failed: those that were started are stopped and SupervisorFailed is raised.
Rule 2: nothing a child raises leaves the tree, SystemExit and KeyboardInterrupt included. A CancelledError that we did
not cause is a failure like any other.
Rule 3: a supervisor that gives up stops its children and fails; the supervisor above counts that as one crash.
Rule 4: the supervisor awaits no code of a child but its `run`, and what hears its events cannot hurt it.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Literal

from msgspec import Struct

from ferrule.errors import SetupError, SupervisorFailed
from ferrule.supervision.child import Child, ChildState, Ready, sentence
from ferrule.supervision.group import EventKind, Group, Member, Strategy, logger
from ferrule.supervision.restart import RestartHistory, RestartPlan, RestartWindow

AutoShutdown = Literal["any_significant", "all_significant"]

STRATEGIES = ("one_for_one", "rest_for_one", "one_for_all")
AUTO_SHUTDOWNS = ("any_significant", "all_significant")
DEFAULT_PLAN = RestartPlan()
GRACE = 5.0
"""Seconds a child has to end in after it was cancelled."""


class SupervisorEvent(Struct, frozen=True, kw_only=True):
    """Something that happened to a child."""

    kind: EventKind
    path: str
    """Whose: `app/listeners/http`. A supervisor that gives up names itself."""
    error: BaseException | None = None
    """What the child ended with; None for a normal end, or one that was asked for."""
    delay: float = 0.0
    """Seconds until the restart."""
    restarts: int = 0
    """How often the child was restarted since its supervisor was started."""


class Supervisor:
    """Starts children in order, restarts those that die, and stops them in reverse.

    `strategy` says who is restarted when a child dies: `one_for_one` it alone, `rest_for_one` it and those behind it,
    `one_for_all` all. The children share `plan`; with `give_up=False` each is counted by itself.

    `auto_shutdown` says when significant children end the tree: `any_significant` when the first of them has ended,
    `all_significant` when each has ended or was stopped. The tree fails where one of those has.
    """

    def __init__(
        self,
        name: str,
        *children: Child | Supervisor,
        strategy: Strategy = "one_for_one",
        auto_shutdown: AutoShutdown = "any_significant",
        plan: RestartPlan = DEFAULT_PLAN,
        grace: float = GRACE,
        on_event: Callable[[SupervisorEvent], None] | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        if strategy not in STRATEGIES:
            raise SetupError(f"supervisor {name!r}: strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}")
        if auto_shutdown not in AUTO_SHUTDOWNS:
            known = ", ".join(AUTO_SHUTDOWNS)
            raise SetupError(f"supervisor {name!r}: auto_shutdown must be one of {known}, not {auto_shutdown!r}")
        if inspect.iscoroutinefunction(on_event):
            raise SetupError(f"supervisor {name!r}: on_event must be a plain function: it is called, not awaited")
        self.name = name
        self.path = name
        """Its name behind those of the supervisors above it."""
        self.chance = chance or _chance
        self._strategy: Strategy = strategy
        self._auto_shutdown: AutoShutdown = auto_shutdown
        self._plan = plan
        self._grace = grace
        self._on_event = on_event
        self._given: dict[str, Child] = {}
        """The children to start, by name."""
        self._members: dict[str, Member] = {}
        """Those that were started, in order."""
        self._groups: dict[str, Group] = {}
        """The group of each member."""
        self._keepers: set[asyncio.Task[None]] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        """Stops of single children that are under way."""
        self._abandoned: set[asyncio.Task[BaseException | None]] = set()
        """Runs that ignore their cancellation: held until they end."""
        self._shared: Group | None = None
        """The one group of all children, unless the strategy is `one_for_one`."""
        self._window = RestartWindow(plan)
        self._history = RestartHistory(plan, self._window)
        self._running = False
        self._over = asyncio.Event()
        """Set when the tree is to end: it failed, was stopped, or a significant child has ended."""
        self._failure: SupervisorFailed | None = None
        self._closing: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        """The task inside `async with`; it is cancelled when the tree fails."""
        self._body_cancelled = False
        """Whether we did that."""
        self._body_waits = False
        """Whether it waits for the end of the tree, and need not be cancelled."""
        for child in children:
            self.add(child)

    # What users call

    @property
    def children(self) -> list[ChildState]:
        """The states of the children, in order."""
        found = []
        for name, child in self._given.items():
            member = self._members.get(name)
            if member is None:
                member = self._member(child)
            found.append(member.describe())
        return found

    def add(self, child: Child | Supervisor) -> None:
        """Add a child behind the others; it is started at once where the supervisor runs.

        One that cannot be started then is restarted by the plan, like one that died. A supervisor is added as a
        transient child: restarted when it failed, not when it ended.
        """
        if isinstance(child, Supervisor):
            child = Child(child.name, child, restart="transient")
        if child.name in self._given:
            raise SetupError(f"supervisor {self.path!r} has a child {child.name!r} already: choose another name")
        if self._running and self._over.is_set():
            raise SetupError(f"supervisor {self.path!r} is stopping: no child can be added")
        self._given[child.name] = child
        if child.tree is not None:
            child.tree.attach(f"{self.path}/{child.name}", self._on_event)
        if self._running:
            group = self._enlist(child)
            if group is not self._shared:
                group.settled.set()

    async def stop(self, name: str | None = None) -> None:
        """Stop a child and leave it stopped; without a name, stop all in reverse and end the tree."""
        if name is not None:
            member = self._find(name)
            await self._as_job(self._groups[name].stop(member), f"stop {member.path}")
            self._end_without_significant()
            return
        if self._running:
            self._finish()
            await asyncio.shield(self._begin_closing())

    def request_stop(self) -> None:
        """Begin to stop all in reverse, without waiting for it: whoever runs the tree does."""
        if self._running:
            self._finish()
            self._begin_closing()

    async def remove(self, name: str) -> None:
        """Stop a child and forget it."""
        if not self._running and name in self._given:
            del self._given[name]
            return
        member = self._find(name)
        group = self._groups[name]
        self.forget(member)
        group.remove(member)
        await self._as_job(group.stop(member), f"stop {member.path}")
        self._end_without_significant()

    async def restart(self, name: str) -> None:
        """Stop a child, start it again and wait until it is ready; its delays begin again.

        With `rest_for_one` and `one_for_all` the children that go with it are restarted too. Raise SupervisorFailed
        when it does not become ready.
        """
        member = self._find(name)
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        member.watchers.append(done)
        self._groups[name].ask_restart(member)
        error = await done
        if error is not None:
            raise SupervisorFailed(member.path, f"it was restarted and is not ready: {sentence(error)}") from error

    async def run(self, ready: Ready | None = None) -> None:
        """Start every child, call `ready`, and wait until the tree ends: raise SupervisorFailed when it gave up."""
        if self._body is not None:
            await self._wait_in_body()
            return
        self._begin()
        try:
            await self._start()
            # Also where its significant children have ended already: that is a normal end, not a failed start.
            if ready is not None and self._closing is None:
                ready()
            await self._over.wait()
        finally:
            interrupted = await self._close()
        if interrupted:
            raise asyncio.CancelledError
        if self._failure is not None:
            raise self._failure

    async def __aenter__(self) -> Supervisor:
        self._begin()
        try:
            await self._start()
            if self._over.is_set() and self._failure is None:
                raise SupervisorFailed(self.path, "it was stopped while it started")
        except BaseException:
            await self._close()
            raise
        self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body = self._body
        assert body is not None
        self._body = None
        if self._body_cancelled:
            body.uncancel()
        interrupted = await self._close()
        cancelled_by_others = body.cancelling() > 0
        if cancelled_by_others and interrupted:
            raise asyncio.CancelledError
        if self._failure is None or error is self._failure:
            return
        if cancelled_by_others and isinstance(error, asyncio.CancelledError):
            return
        raise self._failure

    async def _wait_in_body(self) -> None:
        """Wait inside `async with` until the tree ends."""
        if self._body is asyncio.current_task():
            self._body_waits = True
        try:
            await self._over.wait()
        finally:
            self._body_waits = False
        if self._failure is not None:
            raise self._failure

    # Start and end

    def _begin(self) -> None:
        """Forget the last run."""
        if self._running:
            raise SetupError(f"supervisor {self.path!r} runs already")
        self._running = True
        self._over = asyncio.Event()
        self._failure = None
        self._closing = None
        self._body_cancelled = False
        self._members.clear()
        self._groups.clear()
        self._shared = None
        self._window.clear()
        self._history = RestartHistory(self._plan, self._window)

    async def _start(self) -> None:
        """Start the children in order; raise SupervisorFailed when one cannot be started."""
        for child in list(self._given.values()):
            if self._over.is_set():
                break
            if child.name in self._members or child.name not in self._given:
                continue
            group = self._enlist(child)
            if self._shared is None:
                await group.settled.wait()
        if self._shared is not None:
            await self._shared.settled.wait()
        if self._failure is not None:
            raise self._failure
        self._end_without_significant()

    def _enlist(self, child: Child) -> Group:
        """Put a child into a group, which starts it."""
        member = self._member(child)
        self._members[child.name] = member
        group = self._shared
        if group is None:
            group = Group(self, self._strategy)
            keeper = asyncio.get_running_loop().create_task(group.keep(), name=f"supervisor {self.path}")
            self._keepers.add(keeper)
            keeper.add_done_callback(self._keeper_ended)
            if self._strategy != "one_for_one":
                self._shared = group
        self._groups[child.name] = group
        group.add(member)
        return group

    def _member(self, child: Child) -> Member:
        """Return a child with its counts; children count together unless they have plans of their own."""
        grace = child.grace
        if grace is None and child.tree is None:
            grace = self._grace
        if grace == math.inf:
            grace = None
        member = Member(child, f"{self.path}/{child.name}", grace, child.plan or self._plan)
        if child.plan is None:
            if self._strategy != "one_for_one":
                member.history = self._history
            elif self._plan.give_up:
                member.history = RestartHistory(self._plan, self._window)
        return member

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        self._keepers.discard(keeper)
        if not keeper.cancelled() and keeper.exception() is not None:
            self._fail(f"an error of its own: {sentence(keeper.exception())}", keeper.exception())

    def _begin_closing(self) -> asyncio.Task[None]:
        """Start to stop everything, once."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._stop_all(), name=f"stop {self.path}")
        return self._closing

    async def _close(self) -> bool:
        """Stop everything and wait until it has stopped; return whether we were cancelled meanwhile."""
        self._finish()
        interrupted = False
        closing = self._begin_closing()
        while not closing.done():
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError:
                # Every child has its time to end in, so this wait is bounded, and who leaves early leaves children.
                interrupted = True
        self._running = False
        return interrupted

    async def _stop_all(self) -> None:
        """Stop the children in reverse."""
        keepers = set(self._keepers)
        for keeper in keepers:
            keeper.cancel()
        if keepers:
            await asyncio.wait(keepers)
        for name, member in reversed(list(self._members.items())):
            await self._groups[name].halt(member)
            if member.state != "ended":
                member.state = "stopped"
            member.settle(asyncio.CancelledError("the supervisor has stopped"))
        if self._jobs:
            await asyncio.wait(self._jobs)

    async def _as_job(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do something to the end, also when the caller stops waiting for it."""
        job = asyncio.get_running_loop().create_task(work, name=name)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        await asyncio.shield(job)

    def _finish(self) -> None:
        """End the tree; who waits for its start or its end is woken."""
        self._over.set()
        for group in self._groups.values():
            group.settled.set()

    def _fail(self, reason: str, error: BaseException | None, *, gave_up: bool = False) -> None:
        if self._over.is_set():
            return
        failure = SupervisorFailed(self.path, reason, gave_up=gave_up)
        failure.__cause__ = error
        self._failure = failure
        if gave_up:
            logger.error("%s", failure)
        self._finish()
        if self._body is not None and not self._body_waits:
            self._body_cancelled = True
            self._body.cancel()

    def _find(self, name: str) -> Member:
        member = self._members.get(name)
        if member is not None and self._running:
            return member
        if name in self._given:
            raise SetupError(f"supervisor {self.path!r} does not run")
        raise SetupError(f"supervisor {self.path!r} has no child {name!r}: it has {', '.join(self._given) or 'none'}")

    # What groups call, and the supervisor above

    def attach(self, path: str, on_event: Callable[[SupervisorEvent], None] | None) -> None:
        """Called when this supervisor was given to another, with its path there and who hears that one's events."""
        self.path = path
        if self._on_event is None:
            self._on_event = on_event
        for child in self._given.values():
            if child.tree is not None:
                child.tree.attach(f"{path}/{child.name}", self._on_event)

    def emit(self, kind: EventKind, member: Member, delay: float = 0.0) -> None:
        """Report an event of a child."""
        self._report(kind, member.path, member.error, delay, member.restarts)

    def significant_ended(self, member: Member) -> bool:
        """Called when a significant child has ended and is not restarted; return whether that ends the tree."""
        if self._auto_shutdown == "all_significant":
            return self._end_without_significant()
        self._end_by([member])
        return True

    def _end_without_significant(self) -> bool:
        """End the tree if it ends with its last significant child and none is left; return whether it is so."""
        if self._auto_shutdown != "all_significant":
            return False
        ended = []
        for name, child in self._given.items():
            member = self._members.get(name)
            if not child.significant:
                continue
            if member is None or not member.is_over:
                return False
            ended.append(member)
        self._end_by(ended)
        return True

    def _end_by(self, ended: Iterable[Member]) -> None:
        """End the tree because significant children have ended; it fails where one of them has."""
        for member in ended:
            if member.state == "ended" and member.error is not None:
                self.fail(member, f"significant child {member.child.name!r} failed: {sentence(member.error)}")
        self._finish()

    def fail(self, member: Member, reason: str, *, gave_up: bool = False) -> None:
        """Called when a child cannot be kept running."""
        if gave_up and not self._over.is_set():
            self._report("gave_up", self.path, member.error, 0.0, member.restarts)
        member.settle(member.error or RuntimeError("it ended"))
        self._fail(reason, member.error, gave_up=gave_up)

    def forget(self, member: Member) -> None:
        """Called when a temporary child has ended."""
        name = member.child.name
        self._members.pop(name, None)
        self._groups.pop(name, None)
        self._given.pop(name, None)

    def keep_abandoned(self, task: asyncio.Task[BaseException | None]) -> None:
        """Called with a task that ignores its cancellation: it is held until it ends."""
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    def _report(self, kind: EventKind, path: str, error: BaseException | None, delay: float, restarts: int) -> None:
        if self._on_event is None:
            return
        event = SupervisorEvent(kind=kind, path=path, error=error, delay=delay, restarts=restarts)
        try:
            self._on_event(event)
        except BaseException as failure:
            logger.error("on_event of supervisor %s failed, which was ignored", self.path, exc_info=failure)


def _chance() -> float:
    """Return a random number from 0 to 1, for jitter."""
    # A server whose children do not die needs none, and starts faster without.
    import random

    return random.random()  # noqa: S311 - for jitter
