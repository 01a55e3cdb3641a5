"""A bulkhead: so many calls in flight at once, so many waiting, and no principal with more than its share of either.

Rule: whoever waits is admitted in turn by principal, one call each (deficit round robin with a quantum of one call),
so that a principal that floods waits in its own line. Who cannot be served before its deadline is refused at once.
The queue itself is a plain value: whoever waits on a ticket is woken by its owner.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal

from msgspec import Struct

from ferrule.settings.option import FiniteSeconds, Fraction, NonNegativeInt, PositiveInt, check

SMOOTHING = 0.1
"""How much the newest call counts in the average service time."""
PRESSURE = 0.8
"""How full the queue is when senders should slow down."""
SHORTEST_RETRY = 1
LONGEST_RETRY = 30
"""Bounds of `Retry-After`, in seconds."""

NOBODY = object()
"""No principal at all; None is one."""

TicketState = Literal["waiting", "admitted", "gone"]
Reason = Literal["queue_full", "share_used", "too_late"]


class BulkheadSettings(Struct, frozen=True, kw_only=True):
    """How many calls run and wait; times are seconds."""

    in_flight: PositiveInt = 100
    """How many calls run at once."""
    queue: NonNegativeInt = 1000
    """How many calls may wait."""
    queue_time: FiniteSeconds = 5.0
    """How long a call may wait."""
    share: Fraction = 0.25
    """What one principal may have of `in_flight` and of `queue`; of each at least one."""

    def __post_init__(self) -> None:
        check(self)


DEFAULTS = BulkheadSettings()


class Ticket:
    """One call in a bulkhead: in flight, waiting, or gone."""

    __slots__ = ("deadline", "principal", "since", "state")

    def __init__(self, principal: Hashable, now: float, deadline: float, state: TicketState) -> None:
        self.principal = principal
        self.state = state
        self.since = now
        """When it came, and once it is admitted, when it was."""
        self.deadline = deadline
        """When it no longer waits."""

    @property
    def admitted(self) -> bool:
        """Whether the call may run."""
        return self.state == "admitted"


class Refused(Struct, frozen=True):
    """A call that may neither run nor wait."""

    reason: Reason
    retry_after: int
    """Seconds, from 1 to 30."""


class BulkheadStats(Struct, frozen=True):
    """How full a bulkhead is."""

    in_flight: int
    waiting: int
    principals: int
    """How many principals have calls in flight or waiting; None counts while it waits only."""
    refused: int
    service_time: float


class Bulkhead:
    """Admits calls, lets them wait, or refuses them.

    The principal None stands for nobody in particular: no share holds for it.
    """

    def __init__(self, settings: BulkheadSettings = DEFAULTS) -> None:
        self.settings = settings
        self.in_flight = 0
        self.waiting = 0
        self.refused = 0
        self.service_time = 0.0
        """How long a call takes, as a moving average; 0 before the first has ended."""
        self._running: dict[Hashable, int] = {}
        self._lines: dict[Hashable, dict[Ticket, None]] = {}
        """Who waits, by principal, in order. The first principal is next; it moves to the end when it had its turn."""
        self.most = settings.in_flight
        """How many calls run at once. One of nobody in particular may be counted in `in_flight` without a ticket."""
        self._running_share = max(1, int(settings.in_flight * settings.share))
        self._queue_share = max(1, int(settings.queue * settings.share))

    @property
    def under_pressure(self) -> bool:
        """Whether the queue is so full that senders should slow down."""
        return self.waiting >= self.settings.queue * PRESSURE and self.settings.queue > 0

    def stats(self) -> BulkheadStats:
        """Return how full it is."""
        principals = len(self._running.keys() | self._lines.keys())
        return BulkheadStats(self.in_flight, self.waiting, principals, self.refused, self.service_time)

    def enter(self, principal: Hashable, now: float, deadline: float = math.inf) -> Ticket | Refused:
        """Return a ticket, admitted or waiting, or why there is none."""
        if self.in_flight < self.most and self._may_run(principal):
            self.in_flight += 1
            if principal is not None:
                self._running[principal] = self._running.get(principal, 0) + 1
            return Ticket(principal, now, deadline, "admitted")
        until = min(deadline, now + self.settings.queue_time)
        wait = self.estimate(principal)
        if self.waiting >= self.settings.queue:
            return self._refuse("queue_full", wait)
        if principal is not None and self._length(principal) >= self._queue_share:
            return self._refuse("share_used", wait)
        if now + wait > until:
            return self._refuse("too_late", wait)
        ticket = Ticket(principal, now, until, "waiting")
        self._lines.setdefault(principal, {})[ticket] = None
        self.waiting += 1
        return ticket

    def leave(self, ticket: Ticket, now: float) -> Ticket | None:
        """End a call, in flight or waiting. Return the ticket that is admitted in its place; None if there is none."""
        if ticket.state != "admitted":
            if ticket.state == "waiting":
                self._leave_line(ticket)
            return None
        ticket.state = "gone"
        if ticket.principal is not None:
            self._stop_running(ticket.principal)
        return self.leave_freely(now - ticket.since, now)

    def leave_freely(self, seconds: float, now: float) -> Ticket | None:
        """End a call without a ticket that took so many seconds. Return the ticket that is admitted in its place."""
        self.in_flight -= 1
        if self.service_time:
            self.service_time += SMOOTHING * (seconds - self.service_time)
        else:
            self.service_time = seconds
        if self._lines:
            return self._next(now)
        return None

    def estimate(self, principal: Hashable) -> float:
        """Return how many seconds a call of a principal would wait if it came now, by the average service time.

        Calls ahead of it: under round robin, no more than one of each line for every one in its own line. A line that
        uses up its share of the calls in flight drains only as fast as that share.
        """
        own = self._length(principal)
        ahead = min(self.waiting, (own + 1) * len(self._lines))
        wait = ahead * self.service_time / self.settings.in_flight
        if principal is None:
            return wait
        return max(wait, own * self.service_time / self._running_share)

    def _may_run(self, principal: Hashable) -> bool:
        return principal is None or self._running.get(principal, 0) < self._running_share

    def _admit(self, ticket: Ticket, now: float) -> None:
        ticket.state = "admitted"
        ticket.since = now
        self.in_flight += 1
        if ticket.principal is not None:
            self._running[ticket.principal] = self._running.get(ticket.principal, 0) + 1

    def _stop_running(self, principal: Hashable) -> None:
        left = self._running[principal] - 1
        if left:
            self._running[principal] = left
        else:
            del self._running[principal]

    def _length(self, principal: Hashable) -> int:
        return len(self._lines.get(principal, ()))

    def _leave_line(self, ticket: Ticket) -> None:
        ticket.state = "gone"
        self.waiting -= 1
        line = self._lines[ticket.principal]
        del line[ticket]
        if not line:
            del self._lines[ticket.principal]

    def _next(self, now: float) -> Ticket | None:
        """Admit the first ticket of the next principal that may run one; tickets past their deadline leave."""
        while (principal := self._turn()) is not NOBODY:
            line = self._lines[principal]
            ticket = next(iter(line))
            self._leave_line(ticket)
            if now > ticket.deadline:
                continue
            if line:
                del self._lines[principal]
                self._lines[principal] = line
            self._admit(ticket, now)
            return ticket
        return None

    def _turn(self) -> Hashable:
        """Return the next principal that may run a call; as many as have used their share are passed over."""
        for principal in self._lines:
            if self._may_run(principal):
                return principal
        return NOBODY

    def _refuse(self, reason: Reason, wait: float) -> Refused:
        self.refused += 1
        return Refused(reason, min(max(math.ceil(wait), SHORTEST_RETRY), LONGEST_RETRY))
