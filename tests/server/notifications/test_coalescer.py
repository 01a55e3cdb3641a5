"""Coalescing keeps its bounds for any order of events."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.server.notifications.changes import Coalescer

GAPS = st.lists(st.floats(0, 0.3), min_size=1, max_size=80)


class Inbox:
    """A driver that obeys a Coalescer and runs its timers on time."""

    def __init__(self, interval: float = 0.1) -> None:
        self.coalescer = Coalescer(interval)
        self.due: dict[str, float] = {}
        self.sent: dict[str, list[float]] = {}

    def poke(self, key: str, now: float) -> None:
        self.run_timers(now)
        delay = self.coalescer.poke(key, now)
        if delay == 0.0:
            self.sent.setdefault(key, []).append(now)
        elif delay is not None:
            assert key not in self.due
            self.due[key] = now + delay

    def run_timers(self, until: float) -> None:
        for key, at in sorted(self.due.items(), key=lambda item: item[1]):
            if at <= until:
                del self.due[key]
                self.coalescer.fired(key, at)
                self.sent.setdefault(key, []).append(at)


class TestCoalescer:
    def test_the_first_poke_sends_at_once(self) -> None:
        """NOTI-06: nothing is delayed without need."""
        assert Coalescer().poke("tools", 3.0) == 0.0

    def test_ten_notices_a_second_are_sent_unless_told_otherwise(self) -> None:
        coalescer = Coalescer()
        assert coalescer.poke("tools", 5.0) == 0.0
        assert coalescer.poke("tools", 5.0) == pytest.approx(0.1)

    def test_pokes_within_the_interval_schedule_one_trailing_notice(self) -> None:
        """NOTI-06: at most one per 100 ms, and the last change is announced."""
        coalescer = Coalescer(0.1)
        assert coalescer.poke("tools", 1.0) == 0.0
        assert coalescer.poke("tools", 1.03) == pytest.approx(0.07)
        assert coalescer.poke("tools", 1.05) is None
        coalescer.fired("tools", 1.1)
        assert coalescer.poke("tools", 1.15) == pytest.approx(0.05)
        coalescer.fired("tools", 1.2)
        assert coalescer.poke("tools", 1.4) == 0.0

    def test_a_poke_at_the_end_of_the_interval_sends_at_once(self) -> None:
        coalescer = Coalescer(0.5)
        assert [coalescer.poke("tools", now) for now in (1.0, 1.5, 1.75)] == [0.0, 0.0, 0.25]

    def test_a_thousand_changes_in_50_ms_are_two_notices(self) -> None:
        """NOTI-06: the count is bounded, the last change is followed by a notice."""
        notices = Inbox()
        for number in range(1000):
            notices.poke("tools", number * 0.05 / 1000)
        notices.run_timers(math.inf)
        assert notices.sent == {"tools": [0.0, pytest.approx(0.1)]}

    def test_three_kinds_in_the_same_100_ms_all_go_out(self) -> None:
        """NOTI-07: limits are independent per type."""
        coalescer = Coalescer()
        assert [coalescer.poke(key, 1.0) for key in ("tools", "resources", "prompts")] == [0.0, 0.0, 0.0]

    def test_a_late_timer_moves_the_next_interval(self) -> None:
        coalescer = Coalescer(0.1)
        coalescer.poke("tools", 0.0)
        coalescer.poke("tools", 0.05)
        assert coalescer.poke("tools", 0.3) is None, "still scheduled, so it will go out"
        coalescer.fired("tools", 0.35)
        assert coalescer.poke("tools", 0.4) == pytest.approx(0.05)

    def test_a_clock_that_jumps_back_delays_by_one_interval_at_most(self) -> None:
        """PERF-17: never more than 100 ms."""
        coalescer = Coalescer(0.1)
        coalescer.poke("tools", 1000.0)
        delay = coalescer.poke("tools", 1.0)
        assert delay is not None
        assert delay <= 0.1

    def test_keys_that_fell_silent_are_forgotten(self) -> None:
        coalescer = Coalescer(0.1)
        for number in range(10_000):
            coalescer.poke(f"file:///{number}", number * 0.01)
        assert len(coalescer._sent) <= 12

    def test_an_interval_of_nothing_sends_every_time(self) -> None:
        coalescer = Coalescer(0)
        assert [coalescer.poke("tools", now) for now in (1.0, 1.0, 2.0)] == [0.0, 0.0, 0.0]

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 0.25)), min_size=1, max_size=120))
    def test_no_poke_is_lost_or_late_and_no_two_notices_are_close(self, pokes: list[tuple[str, float]]) -> None:
        """NOTI-06, PERF-17: each poke is followed by a notice within the interval, notices keep their distance."""
        notices, now = Inbox(), 0.0
        poked: dict[str, list[float]] = {}
        for key, gap in pokes:
            now += gap
            notices.poke(key, now)
            poked.setdefault(key, []).append(now)
        notices.run_timers(math.inf)
        for key, times in poked.items():
            sent = notices.sent[key]
            assert all(any(at <= send <= at + 0.1 + 1e-9 for send in sent) for at in times)
            assert all(later - earlier >= 0.1 - 1e-9 for earlier, later in pairwise(sent))

    @given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 0.25)), max_size=60))
    def test_one_key_never_changes_what_another_gets(self, pokes: list[tuple[str, float]]) -> None:
        """NOTI-07: leaving the other key's pokes out changes nothing."""
        both, alone, now = Inbox(), Inbox(), 0.0
        for key, gap in pokes:
            now += gap
            both.poke(key, now)
            if key == "a":
                alone.poke(key, now)
        both.run_timers(math.inf)
        alone.run_timers(math.inf)
        assert both.sent.get("a") == alone.sent.get("a")
