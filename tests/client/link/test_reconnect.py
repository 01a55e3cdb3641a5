"""How a client comes back after a loss: the options."""

from __future__ import annotations

import pytest

from ferrule import Client, Reconnect, SetupError
from ferrule.client.link.reconnect import plan_for


def test_the_waits_double_up_to_half_a_minute():
    """SESS-12"""
    plan = Reconnect(jitter=0)
    assert [plan.delay(number) for number in range(1, 9)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_chance_takes_up_to_half_of_a_wait():
    assert [Reconnect(chance=lambda: 1.0).delay(number) for number in (1, 2, 6)] == [0.5, 1, 15]
    assert [Reconnect(chance=lambda: 0.0).delay(number) for number in (1, 2, 6)] == [1, 2, 30]
    assert len({Reconnect().delay(3) for _ in range(20)}) > 1


def test_which_wait_is_the_longest_is_told_by_the_plan_alone():
    plan = Reconnect(first_delay=2, longest_delay=16)
    assert [plan.is_longest(number) for number in range(1, 6)] == [False, False, False, True, True]


@pytest.mark.parametrize(("longest", "reached"), [(2.0**64, True), (2.0**64 * 1.5, False)])
def test_waits_grow_no_more_after_the_64th_doubling(longest, reached):
    plan = Reconnect(longest_delay=longest)
    assert not plan.is_longest(64)
    assert plan.is_longest(65) is reached
    assert plan.is_longest(10**6) is reached


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"replay": "all"}, "Reconnect: replay must be one of none, safe, not 'all'"),
        ({"meanwhile": "block"}, "meanwhile must be one of fail, wait, not 'block'"),
        ({"first_delay": -1}, "first_delay must be at least 0 seconds, not -1"),
        ({"first_delay": 5, "longest_delay": 1}, "longest_delay must be at least first_delay, 5 seconds, not 1"),
        ({"factor": 0.5}, "factor must be at least 1, not 0.5"),
        ({"jitter": 2}, "jitter must be from 0 to 1, not 2"),
        ({"max_attempts": 0}, "use reconnect=False"),
        ({"first_delay": "1"}, "first_delay must be a number, not '1'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, says):
    with pytest.raises(SetupError, match=says):
        Reconnect(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"first_delay": 0, "longest_delay": 0},
        {"first_delay": 5, "longest_delay": 5},
        {"factor": 1},
        {"jitter": 0},
        {"jitter": 1},
        {"max_attempts": 1},
    ],
)
def test_options_at_their_bounds_are_taken(options):
    plan = Reconnect(**options)
    assert plan.delay(1) <= plan.first_delay


def test_a_client_comes_back_for_ever_and_repeats_what_is_harmless_unless_told_otherwise():
    plan = Reconnect()
    assert (plan.first_delay, plan.factor, plan.longest_delay, plan.jitter) == (1.0, 2.0, 30.0, 0.5)
    assert (plan.max_attempts, plan.resubscribe, plan.replay, plan.meanwhile) == (None, False, "safe", "wait")


def test_the_option_is_a_plan_or_yes_or_no():
    """SESS-29"""
    plan = Reconnect(max_attempts=2)
    assert plan_for(plan, usual=False) is plan
    assert plan_for(True, usual=False) == Reconnect()
    assert plan_for(False, usual=True) is None
    assert plan_for(None, usual=True) == Reconnect()
    assert plan_for(None, usual=False) is None
    with pytest.raises(SetupError, match=r"reconnect must be Reconnect or True or False or None, not 3"):
        Client("tcp://localhost:1", reconnect=3)  # type: ignore[arg-type]
