"""A bucket keeps its bounds for any order of events."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.token_bucket import TOKEN_SLACK, TokenBucket
from ferrule.errors import SetupError

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

    def test_what_is_left_and_when_it_is_full_again(self) -> None:
        bucket = TokenBucket(rate=2, burst=5)
        assert (bucket.left(0.0), bucket.full_in(0.0)) == (5, 0.0)
        assert bucket.take(0.0, 3)
        assert (bucket.left(0.0), bucket.full_in(0.0)) == (2, 1.5)
        assert (bucket.left(0.25), bucket.full_in(0.25)) == (2, 1.25)
        assert (bucket.left(9.0), bucket.full_in(9.0)) == (5, 0.0)

    def test_one_that_is_never_filled_stays_as_it_is(self) -> None:
        bucket = TokenBucket(rate=0, burst=2)
        assert bucket.take(0.0)
        assert (bucket.left(1e9), bucket.full_in(1e9)) == (1, math.inf)
