"""Only what does no harm is sent again, and never more of it than the budget allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import errors
from ferrule.balancing.retry import Budget, RetrySettings, may_repeat, retry_budget, was_sent
from ferrule.errors import SetupError


class TestBudget:
    def test_a_fifth_of_the_calls_of_ten_seconds_and_at_least_three(self) -> None:
        budget = retry_budget(RetrySettings())
        budget.called(0.0)
        assert [budget.take(0.0) for _ in range(4)] == [True, True, True, False]
        for _ in range(99):
            budget.called(1.0)
        assert [budget.take(1.0) for _ in range(18)] == [True] * 17 + [False]

    def test_it_comes_back_when_the_window_has_passed(self) -> None:
        budget = retry_budget(RetrySettings())
        assert [budget.take(5.0) for _ in range(4)] == [True, True, True, False]
        assert not budget.take(14.9)
        assert budget.take(15.0)

    def test_old_calls_count_no_more(self) -> None:
        budget = retry_budget(RetrySettings())
        for _ in range(1000):
            budget.called(0.5)
        assert [budget.take(11.0) for _ in range(4)] == [True, True, True, False]

    @pytest.mark.parametrize("window", [1.0, 60.0])
    def test_the_window_may_be_another(self, window: float) -> None:
        budget = retry_budget(RetrySettings(window=window))
        for _ in range(100):
            budget.called(0.95 * window)
        assert [budget.take(1.7 * window) for _ in range(21)] == [True] * 20 + [False]
        assert not budget.take(1.8 * window)
        assert [budget.take(2.8 * window) for _ in range(4)] == [True, True, True, False]

    def test_a_clock_that_jumps_back_gives_nothing(self) -> None:
        budget = retry_budget(RetrySettings())
        assert [budget.take(100.0) for _ in range(3)] == [True] * 3
        assert not budget.take(50.0)

    @given(
        st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.01, 0.3, 1.0, 2.5, 9.99])), max_size=300),
        st.sampled_from([0.05, 0.2, 0.5]),
        st.integers(0, 4),
        st.floats(0, 1e6),
    )
    def test_it_is_never_exceeded_in_any_window(
        self, steps: list[tuple[bool, float]], share: float, least: int, start: float
    ) -> None:
        budget = Budget(share, least, 10.0)
        calls: list[float] = []
        extra: list[float] = []
        now = start
        for is_call, pause in steps:
            now += pause
            if is_call:
                budget.called(now)
                calls.append(now)
            elif budget.take(now):
                extra.append(now)
                recent_calls = sum(now - 10.0 - 1e-6 < at <= now for at in calls)
                recent_extra = sum(now - 10.0 < at <= now for at in extra)
                assert recent_extra <= max(least, share * recent_calls)

    def test_it_keeps_little_however_many_calls_there_are(self) -> None:
        budget = retry_budget(RetrySettings())
        for number in range(100_000):
            budget.called(number / 100)
        assert len(budget._slices) <= 10


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return an error with its cause."""
    error.__cause__ = cause
    return error


class TestWhatMayBeSentAgain:
    @pytest.mark.parametrize(
        ("error", "sent"),
        [
            (errors.ConnectFailed("nobody there"), False),
            (errors.ChildFailed("no such program"), False),
            (errors.InitializeTimedOut("silent"), False),
            (errors.NotConnected("closed"), False),
            (errors.LinkLost("lost", sent=False), False),
            (caused(errors.LinkLost("could not be sent"), errors.ConnectFailed("refused")), False),
            (errors.LinkLost("lost"), True),
            (errors.OutcomeUnknown("lost"), True),
            (errors.HttpFailed("bad gateway", 502), True),
            (errors.TimedOut("slow"), True),
            (errors.ConnectionTimedOut("silent"), True),
            (errors.InvalidAnswer("odd"), True),
            (RuntimeError("whatever"), True),
        ],
        ids=repr,
    )
    def test_what_was_not_sent_or_does_no_harm(self, error: BaseException, sent: bool) -> None:
        assert was_sent(error) is sent
        assert may_repeat(error, safe=True)
        assert may_repeat(error, safe=False) is not sent


@pytest.mark.parametrize("options", [{"budget": 1.5}, {"least": -1}, {"most": 11}, {"window": 0}, {"most": 0.5}])
def test_settings_that_could_not_work_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(SetupError, match=next(iter(options))):
        RetrySettings(**options)  # type: ignore[arg-type]


def test_a_slice_begins_with_its_first_moment() -> None:
    budget = Budget(share=1.0, least=0, window=10.0)
    budget.called(0.5)
    budget.called(1.0)
    assert budget.take(10.5)
    assert not budget.take(10.5)
    fresh = Budget(share=1.0, least=0, window=10.0)
    fresh.called(1.0)
    assert not fresh.take(11.0)
