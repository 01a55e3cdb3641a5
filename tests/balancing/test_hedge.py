"""A call is hedged after the time most calls take, and only a small share of calls is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.hedge import Hedge, HedgeTimer, Latencies
from ferrule.errors import SetupError


class TestLatencies:
    def test_the_last_thousand_are_kept(self) -> None:
        """ROUT-05"""
        latencies = Latencies()
        for number in range(5000):
            latencies.add(float(number))
        assert len(latencies) == 1000
        assert latencies.percentile(0.0) == 4000.0
        assert latencies.percentile(1.0) == 4999.0

    def test_percentiles(self) -> None:
        """ROUT-07"""
        latencies = Latencies()
        for number in range(1, 101):
            latencies.add(number / 1000)
        assert [latencies.percentile(share) for share in (0.5, 0.9, 0.95, 0.99)] == [0.05, 0.09, 0.095, 0.099]

    def test_of_nothing_there_is_none(self) -> None:
        assert math.isnan(Latencies().percentile(0.5))

    @given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.floats(0, 1))
    def test_a_share_of_the_calls_is_not_slower(self, samples: list[float], share: float) -> None:
        latencies = Latencies(50)
        for sample in samples:
            latencies.add(sample)
        kept = samples[-50:]
        found = latencies.percentile(share)
        assert found in kept
        assert sum(sample <= found for sample in kept) >= share * len(kept) - 1e-9

    def test_a_percentile_is_that_of_the_moment(self) -> None:
        latencies = Latencies()
        for _ in range(500):
            latencies.add(1.0)
        assert latencies.percentile(0.95) == 1.0
        for number in range(1, 601):
            latencies.add(2.0)
            expected = 2.0 if 0.95 * min(500 + number, 1000) > 500 else 1.0
            assert latencies.percentile(0.95) == expected


class TestWhen:
    def test_after_the_95th_percentile(self) -> None:
        latencies = Latencies()
        timer = HedgeTimer(Hedge(), latencies)
        for number in range(1, 101):
            latencies.add(float(number))
        assert timer.delay() == 95.0

    def test_among_few_calls_every_one_counts_at_once(self) -> None:
        latencies = Latencies()
        timer = HedgeTimer(Hedge(), latencies)
        for count, seconds in ((30, 1.0), (30, 2.0), (39, 3.0)):
            for _ in range(count):
                latencies.add(seconds)
            assert timer.delay() == seconds

    def test_among_many_the_percentile_is_counted_again_every_hundred_calls(self) -> None:
        latencies = Latencies()
        timer = HedgeTimer(Hedge(), latencies)
        for _ in range(1000):
            latencies.add(1.0)
        assert timer.delay() == 1.0
        for _ in range(1000):
            latencies.add(2.0)
        assert [timer.delay() for _ in range(100)] == [1.0] * 100
        assert timer.delay() == 2.0

    def test_never_sooner_than_the_least(self) -> None:
        latencies = Latencies()
        for _ in range(100):
            latencies.add(0.001)
        assert HedgeTimer(Hedge(), latencies).delay() == 0.05
        assert HedgeTimer(Hedge(after=0.01), latencies).delay() == 0.05

    def test_not_at_all_while_too_little_is_known(self) -> None:
        latencies = Latencies()
        timer = HedgeTimer(Hedge(), latencies)
        for _ in range(19):
            latencies.add(1.0)
            assert timer.delay() is None
        latencies.add(1.0)
        assert timer.delay() == 1.0

    def test_a_time_of_ones_own_needs_no_history(self) -> None:
        assert HedgeTimer(Hedge(after=2.0), Latencies()).delay() == 2.0


class TestBudget:
    def test_one_call_in_twenty(self) -> None:
        timer = HedgeTimer(Hedge(), Latencies())
        assert not timer.take(0.0)
        hedged = 0
        for number in range(1000):
            timer.called(number / 1000)
            hedged += timer.take(number / 1000)
        assert hedged == 50


@pytest.mark.parametrize("options", [{"after": "p42"}, {"after": -1}, {"least": -1}, {"budget": 2}, {"window": 0}])
def test_settings_that_could_not_work_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(SetupError, match=next(iter(options))):
        Hedge(**options)
