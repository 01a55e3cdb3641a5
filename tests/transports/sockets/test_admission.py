"""Who is let in, counted per listener and for the whole process."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.limiter import LimiterStats
from ferrule.errors import SetupError
from ferrule.transports.sockets.admission import Admission, process_admission


def test_limt_01_one_over_the_limit_is_refused_with_the_reason() -> None:
    """LIMT-01, LIMT-03: who is inside stays, and one that leaves makes room."""
    admission = Admission("a server", 2)
    assert (admission.enter(), admission.enter()) == ("", "")
    assert admission.enter() == "a server takes 2 connections at once"
    assert admission.occupancy == LimiterStats(current=2, limit=2, most=2, refused=1)
    admission.leave()
    assert admission.enter() == ""


def test_limt_08_listeners_share_the_limit_of_the_process() -> None:
    """LIMT-08."""
    process = Admission("this process", 3)
    first, second = (Admission(name, 2, within=process) for name in "ab")
    assert [first.enter(), first.enter(), second.enter()] == ["", "", ""]
    assert second.enter() == "this process takes 3 connections at once"
    assert (first.occupancy.current, second.occupancy.current, process.occupancy.current) == (2, 1, 3)
    assert second.occupancy.refused == 1
    first.leave()
    assert second.enter() == ""


def test_a_place_refused_by_a_listener_takes_none_of_the_process() -> None:
    process = Admission("this process", 10)
    listener = Admission("a", 1, within=process)
    assert [bool(listener.enter()) for _ in range(5)] == [False, True, True, True, True]
    assert process.occupancy.current == 1


def test_limt_08_seven_tenths_full_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """LIMT-08."""
    now = [0.0]
    admission = Admission("this process", 10, clock=lambda: now[0])
    with caplog.at_level(logging.WARNING, "ferrule.transports"):
        for _ in range(6):
            admission.enter()
        assert caplog.messages == []
        for _ in range(3):
            admission.enter()
        assert caplog.messages == ["this process has 7 connections and takes 10 at once"]
        now[0] = 59.0
        admission.leave()
        admission.enter()
        assert len(caplog.messages) == 1
        now[0] = 60.0
        admission.leave()
        admission.enter()
        assert caplog.messages[1:] == ["this process has 9 connections and takes 10 at once"]


def test_places_that_are_counted_elsewhere_are_told_of_too(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission("the port", 10)
    with caplog.at_level(logging.WARNING, "ferrule.transports"):
        for inside in (1, 6, 7, 8, 9):
            admission.note(inside)
    assert caplog.messages == ["the port has 7 connections and takes 10 at once"]
    assert admission.occupancy.current == 9


def test_limt_08_the_limit_can_be_read_set_and_switched_off() -> None:
    """LIMT-08: a lower one lets nobody in until enough have left."""
    admission = Admission("a", 10)
    for _ in range(5):
        admission.enter()
    admission.limit = 3
    assert admission.limit == 3
    assert admission.enter()
    admission.limit = None
    assert admission.enter() == ""
    with pytest.raises(SetupError, match="at least 1"):
        admission.limit = 0


def test_limt_05_a_process_takes_ten_thousand() -> None:
    """LIMT-05."""
    assert process_admission.limit == 10_000


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 5), st.integers(1, 5))
def test_the_count_is_who_entered_and_did_not_leave(steps: list[bool], own: int, shared: int) -> None:
    process = Admission("p", shared)
    admission = Admission("a", own, within=process)
    inside = 0
    for enters in steps:
        if enters:
            inside += not admission.enter()
        elif inside:
            admission.leave()
            inside -= 1
        assert admission.occupancy.current == process.occupancy.current == inside <= min(own, shared)
