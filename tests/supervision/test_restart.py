"""The plan by which children are restarted: how often, how soon, and what follows when it was too often."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.supervision.restart import RestartHistory, RestartPlan, RestartWindow


def never() -> float:
    """Leave every delay as it is."""
    return 0.0


def always() -> float:
    """Take away all that chance may."""
    return 1.0


def delays(plan: RestartPlan, count: int, chance: Any = never) -> list[float | None]:
    """Return the delays of a child that crashes again as soon as it was restarted."""
    history = RestartHistory(plan)
    now = 0.0
    found: list[float | None] = []
    for _ in range(count):
        delay = history.next_delay(now, 0.0, chance)
        found.append(delay)
        now += delay or 0.0
    return found


def test_the_defaults_are_five_restarts_a_minute() -> None:
    plan = RestartPlan()
    assert (plan.intensity, plan.period, plan.first, plan.delay, plan.factor) == (5, 60.0, 0.0, 1.0, 2.0)
    assert (plan.longest, plan.jitter, plan.calm, plan.give_up) == (30.0, 0.5, 60.0, True)


@pytest.mark.parametrize(
    ("plan", "chance", "expected"),
    [
        (RestartPlan(intensity=9, period=1e6), never, [0, 1, 2, 4, 8, 16, 30, 30, 30, None]),
        (RestartPlan(intensity=9, period=1e6), always, [0, 0.5, 1, 2, 4, 8, 15, 15, 15, None]),
        (RestartPlan(intensity=9, period=1e6, jitter=0), always, [0, 1, 2, 4, 8, 16, 30, 30, 30, None]),
        (RestartPlan(), never, [0, 1, 2, 4, 8, None, None]),
        (RestartPlan(first=3.0, delay=0.5, factor=3.0, longest=4.0), never, [3, 0.5, 1.5, 4, 4, None]),
        (RestartPlan(intensity=0), never, [None]),
        (RestartPlan(give_up=False), never, [0, 1, 2, 4, 8, 30, 30, 30, 30, 30, 30]),
        (RestartPlan(give_up=False), always, [0, 0.5, 1, 2, 4, 30, 30, 30, 30, 30, 30]),
        (RestartPlan(first=100.0), never, [30, 1, 2, 4, 8, None]),
    ],
)
def test_the_delays_before_each_restart(plan: RestartPlan, chance: Any, expected: list[float | None]) -> None:
    """The delays grow to 30 s, and the sixth crash within a minute is one too many."""
    assert delays(plan, len(expected), chance) == expected


def test_a_plan_that_never_gives_up_stays_failed_until_the_child_was_calm() -> None:
    history = RestartHistory(RestartPlan(give_up=False))
    now = 0.0
    while not history.failed:
        now += history.next_delay(now, 0.0, never) or 0.0
    assert history.next_delay(now + 1000, 59.9, never) == 30
    assert history.failed
    assert history.next_delay(now + 2000, 60.0, never) == 0
    assert not history.failed


def test_after_a_calm_minute_the_delays_begin_again() -> None:
    history = RestartHistory(RestartPlan())
    assert [history.next_delay(now, 0.0, never) for now in (0.0, 1.0, 3.0)] == [0, 1, 2]
    assert history.in_a_row == 3
    assert history.next_delay(62.0, 59.0, never) == 4
    assert history.next_delay(130.0, 60.0, never) == 0
    assert history.in_a_row == 1


def test_the_sixth_crash_within_a_minute_is_one_too_many_however_long_the_delays_are() -> None:
    """SUPV-06"""
    history = RestartHistory(RestartPlan())
    for crash in (0.0, 20.0, 22.0, 25.0, 30.0):
        assert history.next_delay(crash, 1.0, never) is not None
    assert history.next_delay(59.0, 1.0, never) is None


def test_the_sixth_crash_after_the_minute_is_not() -> None:
    history = RestartHistory(RestartPlan())
    for crash in (0.0, 20.0, 22.0, 25.0, 30.0):
        history.next_delay(crash, 1.0, never)
    assert history.next_delay(60.0, 1.0, never) == 16


def test_histories_may_share_a_window() -> None:
    plan = RestartPlan(intensity=2)
    window = RestartWindow(plan)
    one = RestartHistory(plan, window)
    other = RestartHistory(plan, window)
    assert one.next_delay(0.0, 0.0, never) == 0
    assert other.next_delay(1.0, 0.0, never) == 0
    assert one.next_delay(2.0, 0.0, never) is None


def test_a_cleared_history_begins_again() -> None:
    history = RestartHistory(RestartPlan(intensity=1))
    assert history.next_delay(0.0, 0.0, never) == 0
    assert history.next_delay(1.0, 0.0, never) is None
    history.clear()
    assert history.in_a_row == 0
    assert history.next_delay(1.0, 0.0, never) == 0


def test_clearing_one_history_leaves_a_window_that_others_count_in() -> None:
    plan = RestartPlan(intensity=1)
    window = RestartWindow(plan)
    one = RestartHistory(plan, window)
    other = RestartHistory(plan, window)
    one.next_delay(0.0, 0.0, never)
    one.clear()
    assert other.next_delay(1.0, 0.0, never) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"intensity": -1},
        {"period": 0.0},
        {"first": -1.0},
        {"delay": float("nan")},
        {"factor": 0.5},
        {"longest": -1.0},
        {"jitter": 1.5},
        {"calm": -1.0},
        {"give_up": False, "longest": 0.0},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    name = list(wrong)[-1]
    with pytest.raises(SetupError, match=name):
        RestartPlan(**wrong)


seconds = st.floats(0.0, 200.0)
plans = st.builds(
    RestartPlan,
    intensity=st.integers(0, 6),
    period=st.floats(0.1, 100.0),
    first=st.floats(0.0, 5.0),
    delay=st.floats(0.0, 5.0),
    factor=st.floats(1.0, 4.0),
    longest=st.floats(0.1, 40.0),
    jitter=st.floats(0.0, 1.0),
    calm=st.floats(0.0, 100.0),
)
lives = st.lists(st.tuples(st.integers(0, 2), seconds, st.floats(0.0, 1.0)), max_size=60)
"""Which of three children crashes, how long it had lived, and what chance says."""


def most_in_a_window(times: list[float], period: float) -> int:
    """Return the largest number of times within any window; the window is open at one end."""
    most = 0
    for end in times:
        inside = [time for time in times if end - period < time <= end]
        most = max(most, len(inside))
    return most


@given(plans, lives)
def test_no_window_ever_holds_more_restarts_than_the_intensity(plan: RestartPlan, crashes: list[Any]) -> None:
    """SUPV-06: also where three children share a window and crash while others wait for their restart."""
    window = RestartWindow(plan)
    histories = [RestartHistory(plan, window) for _ in range(3)]
    up_at = [0.0, 0.0, 0.0]
    restarts: list[float] = []
    now = 0.0
    for child, alive, chance in crashes:
        now = max(now, up_at[child] + alive)
        delay = histories[child].next_delay(now, alive, lambda c=chance: c)
        if delay is None:
            assert len(restarts) >= plan.intensity
            break
        up_at[child] = now + delay
        restarts.append(now + delay)
    assert most_in_a_window(restarts, plan.period) <= plan.intensity


@given(plans, lives)
def test_a_failed_child_is_tried_again_with_long_pauses_only(plan: RestartPlan, crashes: list[Any]) -> None:
    patient = RestartPlan(
        **{name: getattr(plan, name) for name in plan.__struct_fields__ if name != "give_up"}, give_up=False
    )
    history = RestartHistory(patient)
    now = 0.0
    for _, alive, chance in crashes:
        now += alive
        delay = history.next_delay(now, alive, lambda c=chance: c)
        assert delay is not None
        assert delay <= patient.longest
        assert delay == patient.longest or not history.failed
        now += delay
