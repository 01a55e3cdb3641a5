"""Group: children that are restarted together. Under `one_for_one` every child is a group of its own.

    waiting ──launch──▶ starting ──ready()──▶ running
       ▲                   │ died, or not ready in time │ died
       │                   ▼                            ▼
       └──────────── restarting / failed  ◀─── the plan allows one more
                                          ───▶ the supervisor gives up     ended: not to be restarted

    starting, running ──halt──▶ stopping ──▶ stopped, or restarting where a sibling failed

One task a group, `Group.keep`, makes every transition but the ends of runs. All it waits for is `_changed`, which is
set when a run ended, a child is ready, or somebody wants a child stopped, restarted or added.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from ferrule.supervision.child import Child, ChildState, State, contained, sentence, stack_of
from ferrule.supervision.restart import RestartHistory, RestartPlan

logger = logging.getLogger("ferrule.supervision")

Strategy = Literal["one_for_one", "rest_for_one", "one_for_all"]
EventKind = Literal["started", "ready", "ended", "restarting", "gave_up", "abandoned"]


class Member:
    """A child in its supervisor: its state, its present run, its restarts."""

    def __init__(self, child: Child, path: str, grace: float | None, plan: RestartPlan) -> None:
        self.child = child
        self.path = path
        self.grace = grace
        """Seconds to end in after it was cancelled; None for a supervisor, whose children have theirs."""
        self.plan = plan
        self.history = RestartHistory(plan)
        self.state: State = "waiting"
        self.error: BaseException | None = None
        """What the last run ended with."""
        self.restarts = 0
        self.run_number = 0
        """Which run is the present one; a run that was abandoned is none."""
        self.task: asyncio.Task[BaseException | None] | None = None
        self.ready_at: float | None = None
        """When the present or last run said that it is ready."""
        self.has_been_ready = False
        """Whether any run did."""
        self.cancelled = False
        """Whether we cancelled the present run."""
        self.dead = False
        """Whether the last run ended by itself and that was not attended to."""
        self.restart_asked = False
        self.unwanted = False
        """Whether it was stopped on purpose."""
        self.watchers: list[asyncio.Future[BaseException | None]] = []
        """Told of the next time the child is ready, or fails to be."""

    def settle(self, error: BaseException | None) -> None:
        """Wake those who wait for the child to be ready, with the error where it is not."""
        for watcher in self.watchers:
            if not watcher.done():
                watcher.set_result(error)
        self.watchers.clear()

    @property
    def is_over(self) -> bool:
        """Whether it has ended or was stopped, and is not to be started again."""
        return self.state == "ended" or (self.state == "stopped" and self.unwanted)

    def describe(self) -> ChildState:
        """Return what is known of the child now."""
        children = () if self.child.tree is None else self.child.tree.children
        return ChildState(
            name=self.child.name,
            path=self.path,
            state=self.state,
            restart=self.child.restart,
            restarts=self.restarts,
            error=sentence(self.error),
            children=children,
        )


class GroupOwner(Protocol):
    """What a group needs of its supervisor."""

    chance: Callable[[], float]

    def emit(self, kind: EventKind, member: Member, delay: float = 0.0) -> None:
        """Report an event."""

    def significant_ended(self, member: Member) -> bool:
        """Called when a significant child has ended and is not restarted; return whether that ends the tree."""

    def fail(self, member: Member, reason: str, *, gave_up: bool = False) -> None:
        """Called when a child cannot be kept running: the tree fails."""

    def forget(self, member: Member) -> None:
        """Called when a temporary child has ended."""

    def keep_abandoned(self, task: asyncio.Task[BaseException | None]) -> None:
        """Called with a task that ignores its cancellation."""


class Group:
    """Children that are restarted together, in order."""

    def __init__(self, owner: GroupOwner, strategy: Strategy) -> None:
        self._owner = owner
        self._strategy = strategy
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.members: list[Member] = []
        self.settled = asyncio.Event()
        """Set when the first start is over, or the whole tree is."""

    # What others want

    def add(self, member: Member) -> None:
        """Add a child behind the others; it is started when they are ready."""
        self.members.append(member)
        self._changed.set()

    def remove(self, member: Member) -> None:
        """Forget a child that was stopped."""
        self.members.remove(member)
        self._changed.set()

    def ask_restart(self, member: Member) -> None:
        """Let a child be stopped and started again, with those that are restarted together with it."""
        member.unwanted = False
        member.restart_asked = True
        self._changed.set()

    async def stop(self, member: Member) -> None:
        """Stop one child and leave it stopped."""
        member.unwanted = True
        member.restart_asked = False
        if member.task is None and member.state != "ended":
            member.state = "stopped"
        self._changed.set()
        await self.halt(member)
        if member.unwanted:
            member.settle(asyncio.CancelledError("it was stopped"))

    async def halt(self, member: Member) -> None:
        """Cancel the run of a child and wait for its end; leave it behind when it does not come in time."""
        task = member.task
        if task is None:
            return
        member.state = "stopping"
        if not member.cancelled:
            member.cancelled = True
            task.cancel()
        await asyncio.wait({task}, timeout=member.grace)
        if member.task is task and not task.done():
            self._abandon(member, task)

    def _abandon(self, member: Member, task: asyncio.Task[BaseException | None]) -> None:
        member.run_number += 1
        member.task = None
        member.state = "stopped"
        self._owner.keep_abandoned(task)
        logger.error(
            "%s is still running %g s after it was cancelled; abandoning it. It waits here:\n%s",
            member.path,
            member.grace,
            stack_of(task),
        )
        self._owner.emit("abandoned", member)
        self._changed.set()

    # The task of the group

    async def keep(self) -> None:
        """Start the children in order and restart them by the plan, until the tree is over or nobody is left."""
        while True:
            member = self._troubled() or await self._bring_up()
            if member is None:
                self.settled.set()
                if not self.members and self._strategy == "one_for_one":
                    return
                await self._next_change()
                continue
            if not await self._attend(member):
                return

    def _troubled(self) -> Member | None:
        """Return the first child that has died or is to be restarted."""
        for member in self.members:
            if member.dead or member.restart_asked:
                return member
        return None

    async def _next_change(self) -> None:
        """Wait until there is something to attend to."""
        while self._troubled() is None:
            for member in self.members:
                if member.state == "waiting":
                    return
            if not self.members and self._strategy == "one_for_one":
                return
            await self._changes(None)

    async def _changes(self, until: float | None) -> bool:
        """Wait for a change; return False when the time came first."""
        self._changed.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _bring_up(self) -> Member | None:
        """Start those that wait, each when the former is ready; return the child that stands in the way."""
        for member in list(self.members):
            if member.state != "waiting":
                continue
            self._launch(member)
            troubled = await self._until_ready(member)
            if troubled is not None:
                return troubled
        return None

    def _launch(self, member: Member) -> None:
        member.run_number += 1
        member.state = "starting"
        member.error = None
        member.ready_at = None
        member.cancelled = False
        number = member.run_number

        def ready() -> None:
            if member.run_number == number and member.state == "starting":
                member.state = "running"
                member.ready_at = self._loop.time()
                member.has_been_ready = True
                self._owner.emit("ready", member)
                member.settle(None)
                self._changed.set()

        def ended(task: asyncio.Task[BaseException | None]) -> None:
            if member.run_number == number:
                self._ended(member, task)

        member.task = self._loop.create_task(contained(member.child.run, ready), name=f"child {member.path}")
        member.task.add_done_callback(ended)
        self._owner.emit("started", member)

    def _ended(self, member: Member, task: asyncio.Task[BaseException | None]) -> None:
        """Called when the present run of a child is over."""
        if task.cancelled():  # before its first step
            error: BaseException | None = asyncio.CancelledError()
        else:
            error = task.result()
        member.task = None
        if member.cancelled:
            member.state = "stopped"
            if error is not None and not isinstance(error, asyncio.CancelledError):
                member.error = error
                logger.warning("%s failed while it was stopped", member.path, exc_info=error)
        else:
            if error is None and member.ready_at is None:
                error = RuntimeError("it ended before it called ready()")
            member.error = error
            member.dead = True
        self._owner.emit("ended", member)
        self._changed.set()

    async def _until_ready(self, member: Member) -> Member | None:
        """Wait until a child is ready or stopped; return the child that stands in the way."""
        limit = None
        if member.child.ready_timeout != math.inf:
            limit = self._loop.time() + member.child.ready_timeout
        while member.state == "starting":
            troubled = self._troubled()
            if troubled is not None:
                return troubled
            if not await self._changes(limit):
                await self.halt(member)
                if not member.unwanted:
                    member.error = TimeoutError(f"it did not call ready() within {member.child.ready_timeout:g} s")
                    member.dead = True
        return self._troubled()

    # Restarts

    async def _attend(self, member: Member) -> bool:
        """Act on the death of a child, or on the wish to restart it; return False when the tree is over."""
        if member.restart_asked:
            await self._restart_by_hand(member)
            return True
        member.dead = False
        if member.error is None and member.child.significant:
            return self._end(member)
        if not member.has_been_ready and not self.settled.is_set() and member.plan.give_up:
            member.state = "ended"
            self._owner.fail(member, f"child {member.child.name!r} could not be started: {sentence(member.error)}")
            return False
        if not self._is_restarted(member):
            return self._end(member)
        alive = 0.0
        if member.ready_at is not None:
            alive = self._loop.time() - member.ready_at
        delay = member.history.next_delay(self._loop.time(), alive, self._owner.chance)
        if delay is None:
            member.state = "ended"
            self._owner.fail(
                member,
                f"gave up after {member.plan.intensity} restarts within {member.plan.period:g} s: "
                f"child {member.child.name!r} failed again: {sentence(member.error) or 'it ended'}",
                gave_up=True,
            )
            return False
        await self._restart(member, delay)
        return True

    def _is_restarted(self, member: Member) -> bool:
        if member.child.restart == "transient":
            return member.error is not None
        return member.child.restart == "permanent"

    def _end(self, member: Member) -> bool:
        """Leave a child dead; return False when that ends the tree."""
        member.state = "ended"
        member.settle(member.error)
        if member.child.significant:
            return not self._owner.significant_ended(member)
        if member.child.restart == "temporary":
            self._forget(member)
        return True

    def _forget(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
            self._owner.forget(member)
        member.settle(member.error or asyncio.CancelledError("it was stopped with its siblings"))

    async def _restart(self, member: Member, delay: float) -> None:
        """Stop those that are restarted together with a dead child, and let all wait to be started."""
        restarts = member.history.in_a_row
        logger.warning(
            "%s %s; restart %d in %.3g s",
            member.path,
            f"failed ({sentence(member.error)})" if member.error is not None else "ended",
            restarts,
            delay,
            exc_info=member.error if restarts == 1 else None,
        )
        member.settle(member.error or RuntimeError("it ended"))
        member.restarts += 1
        member.state = "failed" if member.history.failed else "restarting"
        together = self._restarted_with(member)
        together.remove(member)
        together = await self._stop_to_restart(together)
        self._owner.emit("restarting", member, delay)
        # What may fail for ever does not hold up those that start behind it.
        if not member.plan.give_up:
            self.settled.set()
        until = self._loop.time() + delay
        while not member.unwanted and self._troubled() is None:
            if not await self._changes(until):
                break
        self._let_wait([member, *together])

    async def _restart_by_hand(self, member: Member) -> None:
        member.dead = False
        member.history.clear()
        together = await self._stop_to_restart(self._restarted_with(member))
        self._let_wait(together)

    def _restarted_with(self, member: Member) -> list[Member]:
        """Return the children that are restarted when one is, itself included, in order."""
        if self._strategy == "one_for_all":
            return list(self.members)
        return self.members[self.members.index(member) :]

    async def _stop_to_restart(self, members: Iterable[Member]) -> list[Member]:
        """Stop children, the last first, and return those that shall be started again."""
        kept: list[Member] = []
        for member in reversed(list(members)):
            await self.halt(member)
            member.dead = False
            asked = member.restart_asked
            member.restart_asked = False
            if member.unwanted:
                continue
            if member.child.restart == "temporary" and not asked:
                member.state = "ended"
                self._forget(member)
                continue
            member.state = "restarting"
            kept.insert(0, member)
        return kept

    def _let_wait(self, members: Iterable[Member]) -> None:
        for member in members:
            if member.unwanted:
                member.state = "stopped"
            else:
                member.state = "waiting"
