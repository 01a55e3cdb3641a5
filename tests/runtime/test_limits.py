"""Buckets, coalescing and slots keep their bounds for any order of events."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.runtime.limits import TOKEN_SLACK, Coalescer, TokenBucket

GAPS = st.lists(st.floats(0, 0.3), min_size=1, max_size=80)


class TestTokenBucket:
    def test_a_burst_passes_at_once_and_then_no_more(self) -> None:
        bucket = TokenBucket(rate=10, burst=3)
        assert [bucket.take(5.0) for _ in range(4)] == [True, True, True, False]

    def test_tokens_come_back_at_the_rate_up_to_the_burst(self) -> None:
        bucket = TokenBucket(rate=10, burst=3)
        assert bucket.take(0.0, 3)
        assert not bucket.take(0.05)
        assert bucket.take(0.1)
        assert not bucket.take(0.1)
        assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]

    def test_a_refused_take_costs_nothing(self) -> None:
        bucket = TokenBucket(rate=1, burst=2)
        assert not bucket.take(0.0, 3)
        assert bucket.take(0.0, 2)

    def test_what_is_short_by_no_more_than_the_slack_is_given(self) -> None:
        """Timers fire a little early; who comes then is not sent away again."""
        assert TokenBucket(rate=0, burst=1).take(0.0, 1 + TOKEN_SLACK)
        assert not TokenBucket(rate=0, burst=1).take(0.0, 1 + 2 * TOKEN_SLACK)

    def test_wait_tells_when_one_token_is_there(self) -> None:
        bucket = TokenBucket(rate=4, burst=1)
        assert bucket.wait(7.0) == 0.0
        assert bucket.take(7.0)
        assert bucket.wait(7.0) == pytest.approx(0.25)
        assert bucket.wait(7.1) == pytest.approx(0.15)

    def test_a_bucket_without_refill_waits_for_ever(self) -> None:
        bucket = TokenBucket(rate=0, burst=1)
        assert bucket.take(0.0)
        assert bucket.wait(1e9) == math.inf
        assert not bucket.take(1e9)

    def test_a_clock_that_jumps_back_gives_and_takes_nothing(self) -> None:
        bucket = TokenBucket(rate=1, burst=1)
        assert bucket.take(100.0)
        assert not bucket.take(50.0)
        assert bucket.wait(50.0) == pytest.approx(1.0)
        assert not bucket.take(100.5)
        assert bucket.take(101.0)

    @pytest.mark.parametrize(("rate", "burst"), [(-1, 1), (1, 0.5), (math.nan, 1), (1, math.nan)])
    def test_a_bucket_that_could_never_work_is_refused(self, rate: float, burst: float) -> None:
        with pytest.raises(SetupError):
            TokenBucket(rate, burst)

    @given(st.floats(0.1, 1e5), st.integers(1, 20), st.floats(0, 1e7), GAPS)
    def test_no_stretch_of_time_sees_more_than_burst_and_rate_allow(
        self, rate: float, burst: int, start: float, gaps: list[float]
    ) -> None:
        bucket, now = TokenBucket(rate, burst), start
        taken: list[float] = []
        for gap in gaps:
            now += gap
            while len(taken) < 500 and bucket.take(now):
                taken.append(now)
        for first in range(len(taken)):
            for last in range(first, min(len(taken), first + 60)):
                allowed = burst + rate * (taken[last] - taken[first] + 1e-7) + 0.01
                assert last - first + 1 <= allowed

    @given(st.floats(0.1, 1e4), st.integers(1, 5), st.floats(0, 1e7))
    def test_after_the_wait_a_token_can_always_be_taken(self, rate: float, burst: int, now: float) -> None:
        bucket = TokenBucket(rate, burst)
        for _ in range(30):
            while bucket.take(now):
                pass
            now += bucket.wait(now)
            assert bucket.take(now)


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
