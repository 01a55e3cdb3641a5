"""A bulkhead keeps its bounds for any order of calls, and serves principals in turn."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.bulkhead import Bulkhead, BulkheadSettings, Refused, Ticket
from ferrule.errors import SetupError


def small(in_flight: int = 4, queue: int = 8, share: float = 0.5, queue_time: float = 5.0) -> Bulkhead:
    """Return a bulkhead that is soon full."""
    return Bulkhead(BulkheadSettings(in_flight=in_flight, queue=queue, share=share, queue_time=queue_time))


def entered(bulkhead: Bulkhead, principal: str | None, now: float = 0.0, deadline: float = math.inf) -> Ticket:
    """Enter, and be let in or put in line."""
    ticket = bulkhead.enter(principal, now, deadline)
    assert isinstance(ticket, Ticket)
    return ticket


def refused(bulkhead: Bulkhead, principal: str | None, now: float = 0.0, deadline: float = math.inf) -> Refused:
    """Enter, and be refused."""
    refusal = bulkhead.enter(principal, now, deadline)
    assert isinstance(refusal, Refused)
    return refusal


def test_the_defaults() -> None:
    """ROUT-05: the depth is 1000, and there is pressure from 800 on."""
    settings = BulkheadSettings()
    assert (settings.in_flight, settings.queue, settings.queue_time, settings.share) == (100, 1000, 5.0, 0.25)
    bulkhead = Bulkhead()
    for _ in range(100 + 799):
        entered(bulkhead, None)
    assert not bulkhead.under_pressure
    entered(bulkhead, None)
    assert bulkhead.under_pressure
    for _ in range(200):
        entered(bulkhead, None)
    assert refused(bulkhead, None) == Refused("queue_full", 1)
    stats = bulkhead.stats()
    assert (stats.in_flight, stats.waiting, stats.principals, stats.refused) == (100, 1000, 1, 1)


class TestShares:
    def test_one_principal_runs_at_most_its_share_and_the_rest_waits(self) -> None:
        bulkhead = small()
        tickets = [entered(bulkhead, "ada") for _ in range(3)]
        assert [ticket.admitted for ticket in tickets] == [True, True, False]
        assert entered(bulkhead, "bob").admitted

    def test_one_principal_waits_in_at_most_its_share_of_the_line(self) -> None:
        bulkhead = small()
        for _ in range(2 + 4):
            entered(bulkhead, "ada")
        assert refused(bulkhead, "ada").reason == "share_used"
        assert entered(bulkhead, "bob").admitted

    def test_nobody_in_particular_has_no_share(self) -> None:
        bulkhead = small()
        assert [entered(bulkhead, None).admitted for _ in range(5)] == [True] * 4 + [False]

    def test_a_share_is_at_least_one(self) -> None:
        bulkhead = small(in_flight=1, queue=1, share=0.01)
        assert entered(bulkhead, "ada").admitted
        assert not entered(bulkhead, "bob").admitted
        assert refused(bulkhead, "eve").reason == "queue_full"


class TestTurns:
    def test_principals_take_turns_whoever_has_more_waiting(self) -> None:
        bulkhead = small(in_flight=1, queue=100, share=1.0)
        running = entered(bulkhead, "ada")
        for _ in range(5):
            entered(bulkhead, "ada")
        for _ in range(2):
            entered(bulkhead, "bob")
        entered(bulkhead, "eve")
        served = []
        following: Ticket | None = running
        while following := bulkhead.leave(following, 0.0):
            served.append(following.principal)
        assert served == ["ada", "bob", "eve", "ada", "bob", "ada", "ada", "ada"]

    def test_one_that_has_used_its_share_is_passed_over(self) -> None:
        bulkhead = small()
        for _ in range(2):
            entered(bulkhead, "ada")
        bob = [entered(bulkhead, "bob") for _ in range(2)]
        waiting = [entered(bulkhead, "ada"), entered(bulkhead, "eve")]
        assert bulkhead.leave(bob[0], 0.0) is waiting[1]
        assert bulkhead.leave(bob[1], 0.0) is None

    def test_a_quiet_principal_waits_for_one_turn_of_a_flood(self) -> None:
        bulkhead = small(in_flight=2, queue=1000, share=0.5)
        running = [entered(bulkhead, "flood"), entered(bulkhead, "other")]
        for _ in range(400):
            entered(bulkhead, "flood")
        entered(bulkhead, "other")
        quiet = entered(bulkhead, "quiet")
        served = []
        for _ in range(3):
            following = bulkhead.leave(running.pop(0), 0.0)
            assert following is not None
            served.append(following.principal)
            running.append(following)
        assert served == ["flood", "other", "quiet"]
        assert quiet.admitted

    @pytest.mark.parametrize("floods", [1, 4])
    def test_a_thousand_calls_a_second_of_others_leave_a_quiet_one_fast(self, floods: int) -> None:
        """Ten seconds of calls that take 50 ms each and have 200 ms; of one principal that floods, and of four."""
        bulkhead, chance = Bulkhead(), random.Random(17)
        ends: list[tuple[float, int, Ticket]] = []
        began: dict[Ticket, float] = {}
        latencies: list[float] = []

        def start(ticket: Ticket, now: float) -> None:
            heapq.heappush(ends, (now + 0.05, id(ticket), ticket))

        for step in range(10_000):
            now = step / 1000
            while ends and ends[0][0] <= now:
                at, _, ticket = heapq.heappop(ends)
                if ticket.principal == "quiet":
                    latencies.append(at - began[ticket])
                following = bulkhead.leave(ticket, at)
                if following is not None:
                    start(following, at)
            callers = [f"flood {number}" for number in range(floods)]
            if chance.random() < 0.02:
                callers.append("quiet")
            for caller in callers:
                entered_one = bulkhead.enter(caller, now, now + 0.2)
                assert caller != "quiet" or isinstance(entered_one, Ticket)
                if isinstance(entered_one, Ticket):
                    began[entered_one] = now
                    if entered_one.admitted:
                        start(entered_one, now)
        assert bulkhead.refused > 1000
        assert len(latencies) > 150
        latencies.sort()
        assert latencies[int(len(latencies) * 0.99)] <= 0.1

    def test_shares_of_the_service_are_equal(self) -> None:
        """A hundred times the calls gets no more than its turn."""
        bulkhead = small(in_flight=4, queue=10_000, share=0.25)
        running = [entered(bulkhead, name) for name in "abcd"]
        for name, calls in (("a", 1000), ("b", 100), ("c", 100), ("d", 100), ("e", 100)):
            for _ in range(calls):
                entered(bulkhead, name)
        served: Counter[object] = Counter()
        chance = random.Random(8)
        for _ in range(300):
            following = bulkhead.leave(running.pop(chance.randrange(4)), 0.0)
            assert following is not None
            served[following.principal] += 1
            running.append(following)
        assert max(served.values()) - min(served.values()) <= 15
        assert sum(served.values()) == 300


class TestServiceTime:
    def test_it_is_a_moving_average_in_which_the_newest_call_counts_a_tenth(self) -> None:
        bulkhead = small(in_flight=2, queue=0, share=1.0)
        for seconds, average in ((2.0, 2.0), (4.0, 2.2), (0.0, 1.98)):
            bulkhead.leave(entered(bulkhead, None, 0.0), seconds)
            assert bulkhead.service_time == pytest.approx(average)

    def test_waiting_is_no_service(self) -> None:
        bulkhead = small(in_flight=1, queue=1, share=1.0)
        first = entered(bulkhead, None, 0.0)
        second = entered(bulkhead, None, 0.0)
        bulkhead.leave(first, 2.0)
        bulkhead.leave(second, 4.0)
        assert bulkhead.service_time == 2.0

    def test_a_call_without_a_ticket_counts_too_and_makes_room(self) -> None:
        bulkhead = small(in_flight=1, queue=1, share=1.0)
        bulkhead.in_flight += 1
        waiting = entered(bulkhead, None, 0.0)
        assert not waiting.admitted
        assert bulkhead.leave_freely(3.0, 3.0) is waiting
        assert (bulkhead.service_time, bulkhead.in_flight) == (3.0, 1)


class TestDeadlines:
    def test_who_cannot_be_served_in_time_is_refused_at_once(self) -> None:
        bulkhead = small(in_flight=1, queue=100, share=1.0)
        running = entered(bulkhead, None, 0.0)
        following = entered(bulkhead, None, 0.0)
        assert bulkhead.leave(running, 2.0) is following
        assert bulkhead.service_time == 2.0
        entered(bulkhead, None, 2.0)
        assert bulkhead.estimate(None) == 2.0
        assert refused(bulkhead, None, 2.0, deadline=3.9) == Refused("too_late", 2)
        entered(bulkhead, None, 2.0, deadline=4.1)

    def test_nobody_waits_longer_than_the_queue_time(self) -> None:
        bulkhead = small(in_flight=1, queue=100, share=1.0)
        running = entered(bulkhead, None, 0.0)
        entered(bulkhead, None, 0.0)
        alive = entered(bulkhead, None, 4.0)
        assert bulkhead.leave(running, 6.0) is alive
        assert bulkhead.waiting == 0

    @pytest.mark.parametrize(("service", "seconds"), [(0.001, 1), (1.5, 3), (100.0, 30)])
    def test_retry_after_is_the_estimate_from_1_to_30(self, service: float, seconds: int) -> None:
        bulkhead = small(in_flight=1, queue=2, share=1.0)
        for _ in range(3):
            entered(bulkhead, None, 0.0)
        bulkhead.service_time = service
        assert refused(bulkhead, None, 0.0).retry_after == seconds

    def test_the_line_of_a_flood_is_no_reason_to_refuse_another(self) -> None:
        bulkhead = small(in_flight=4, queue=400, share=0.5)
        for _ in range(2 + 200):
            entered(bulkhead, "flood")
        for _ in range(2):
            entered(bulkhead, "other")
        bulkhead.service_time = 0.1
        assert bulkhead.estimate("flood") == pytest.approx(200 * 0.1 / 2)
        assert bulkhead.estimate("quiet") == pytest.approx(0.1 / 4)
        assert not entered(bulkhead, "quiet", 0.0, deadline=0.5).admitted

    def test_before_the_first_call_has_ended_nobody_is_refused_for_time(self) -> None:
        bulkhead = small(in_flight=1, share=1.0)
        entered(bulkhead, "a", 0.0)
        assert not entered(bulkhead, "a", 0.0, deadline=0.001).admitted


class TestLeaving:
    def test_who_gives_up_in_line_makes_room_there(self) -> None:
        bulkhead = small(in_flight=1, queue=1, share=1.0)
        running = entered(bulkhead, "a")
        waiting = entered(bulkhead, "a")
        assert bulkhead.leave(waiting, 0.0) is None
        assert bulkhead.waiting == 0
        after = entered(bulkhead, "b")
        assert bulkhead.leave(running, 1.0) is after

    def test_leaving_twice_does_no_harm(self) -> None:
        bulkhead = small()
        ticket = entered(bulkhead, "a")
        bulkhead.leave(ticket, 1.0)
        bulkhead.leave(ticket, 2.0)
        assert (bulkhead.in_flight, bulkhead.service_time) == (0, 1.0)

    def test_everything_is_forgotten_when_all_have_left(self) -> None:
        bulkhead = small()
        tickets = [bulkhead.enter(f"p{number % 5}", 0.0) for number in range(12)]
        for ticket in tickets:
            if isinstance(ticket, Ticket):
                bulkhead.leave(ticket, 0.0)
        assert (bulkhead._running, bulkhead._lines) == ({}, {})


EVENTS = st.tuples(st.sampled_from(["enter", "enter", "leave", "give up"]), st.integers(0, 5), st.floats(0, 2))


@given(st.lists(EVENTS, max_size=200), st.integers(1, 6), st.integers(0, 8), st.sampled_from([0.2, 0.5, 1.0]))
def test_the_bounds_hold_for_any_order_of_calls(
    events: list[tuple[str, int, float]], in_flight: int, queue: int, share: float
) -> None:
    """ROUT-05"""
    bulkhead = small(in_flight, queue, share)
    tickets: list[Ticket] = []
    now = 0.0
    for what, number, pause in events:
        now += pause
        if what == "enter":
            principal = None if number == 0 else f"p{number}"
            ticket = bulkhead.enter(principal, now)
            if isinstance(ticket, Ticket):
                tickets.append(ticket)
            else:
                assert 1 <= ticket.retry_after <= 30
        elif tickets:
            wanted = "admitted" if what == "leave" else "waiting"
            matching = [ticket for ticket in tickets if ticket.state == wanted]
            if matching:
                bulkhead.leave(matching[number % len(matching)], now)
        running = [ticket for ticket in tickets if ticket.state == "admitted"]
        waiting = [ticket for ticket in tickets if ticket.state == "waiting"]
        assert len(running) == bulkhead.in_flight <= in_flight
        assert len(waiting) == bulkhead.waiting <= queue
        per_principal = Counter(ticket.principal for ticket in running)
        in_line = Counter(ticket.principal for ticket in waiting)
        for name in (per_principal | in_line).keys() - {None}:
            assert per_principal[name] <= max(1, int(in_flight * share))
            assert in_line[name] <= max(1, int(queue * share))
        if len(running) < in_flight:
            # Nobody waits who may run, but for those whose time is over.
            for ticket in waiting:
                at_its_share = per_principal[ticket.principal] >= max(1, int(in_flight * share))
                assert (ticket.principal is not None and at_its_share) or now > ticket.deadline


@pytest.mark.parametrize("options", [{"in_flight": 0}, {"queue": -1}, {"queue_time": 0}, {"share": 2}, {"queue": 1.5}])
def test_settings_that_could_not_work_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(SetupError, match=next(iter(options))):
        BulkheadSettings(**options)  # type: ignore[arg-type]
