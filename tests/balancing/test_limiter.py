"""Connections are counted for each server and for all, and every slot comes back."""

from __future__ import annotations

import gc
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.limiter import Limiter, LimiterStats, Slot
from ferrule.errors import SetupError


def taken(limiter: Limiter, server: str, now: float = 0.0) -> Slot:
    """Take a slot that there is."""
    slot = limiter.try_acquire(server, now)
    assert slot is not None
    return slot


def test_one_over_the_limit_of_a_server_is_refused() -> None:
    """LIMT-01, LIMT-03: those inside stay, and one that leaves makes room."""
    limiter = Limiter(2)
    first = taken(limiter, "a")
    second = taken(limiter, "a")
    assert limiter.try_acquire("a", 0.0) is None
    assert limiter.stats("a") == LimiterStats(current=2, limit=2, most=2, refused=1)
    other = taken(limiter, "b")
    first.release()
    third = taken(limiter, "a")
    for slot in (second, third, other):
        slot.release()
    assert limiter.stats() == LimiterStats(current=0, limit=10_000, most=3, refused=1)


def test_a_slot_is_given_back_once_whatever_fails() -> None:
    """LIMT-02"""
    limiter = Limiter(1)
    with pytest.raises(OSError, match="the handler could not start"), taken(limiter, "a") as slot:
        raise OSError("the handler could not start")
    slot.release()
    slot.release()
    assert limiter.stats("a").current == 0
    taken(limiter, "a").release()


def test_a_lost_slot_comes_back_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """LIMT-02"""
    limiter = Limiter(10)
    slot = taken(limiter, "a")
    with caplog.at_level(logging.WARNING, "ferrule.balancing"):
        del slot
        gc.collect()
    assert caplog.messages == ["a slot for a connection to a was never released; releasing it now"]
    assert limiter.stats("a").current == 0


def test_the_defaults() -> None:
    """LIMT-05"""
    assert (Limiter().get_limit("a"), Limiter().get_limit()) == (1024, 10_000)


def test_a_flood_of_five_thousand_is_held_at_a_hundred() -> None:
    limiter = Limiter(100)
    slots = [limiter.try_acquire("a", 0.0) for _ in range(5000)]
    held = [slot for slot in slots if slot is not None]
    assert len(held) == 100 == limiter.stats("a").current
    assert limiter.stats("a").refused == 4900
    for slot in held:
        slot.release()


def test_servers_share_the_total() -> None:
    """LIMT-08"""
    limiter = Limiter(2, total=3)
    slots = [taken(limiter, server) for server in ("a", "a", "b")]
    assert limiter.try_acquire("b", 0.0) is None
    assert limiter.stats("b").refused == 1
    slots[0].release()
    slots.append(taken(limiter, "b"))
    for slot in slots:
        slot.release()


def test_seven_tenths_are_told_once_a_minute() -> None:
    """LIMT-08"""
    told: list[tuple[str, int, int]] = []
    limiter = Limiter(None, total=10, on_alert=lambda server, current, limit: told.append((server, current, limit)))
    slots = [taken(limiter, "a", 0.0) for _ in range(6)]
    assert told == []
    slots.append(taken(limiter, "a", 0.0))
    slots.append(taken(limiter, "a", 59.9))
    assert told == [("", 7, 10)]
    slots.append(taken(limiter, "a", 60.0))
    assert told == [("", 7, 10), ("", 9, 10)]
    for slot in slots:
        slot.release()


def test_each_server_is_told_of_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ferrule.balancing"):
        taken(Limiter(1, total=None), "a").release()
    assert caplog.messages == ["a: 1 of at most 1 connections are open"]


def test_limits_can_be_read_set_and_switched_off() -> None:
    """LIMT-08: a lower one lets nobody in until enough have left."""
    limiter = Limiter(5)
    slots = [taken(limiter, "a") for _ in range(5)]
    limiter.set_limit(3, "a")
    assert (limiter.get_limit("a"), limiter.get_limit("b")) == (3, 5)
    for slot in slots[:2]:
        slot.release()
    assert limiter.try_acquire("a", 0.0) is None
    limiter.set_limit(None, "a")
    slots.append(taken(limiter, "a"))
    limiter.set_limit(1)
    assert limiter.get_limit() == 1
    assert limiter.try_acquire("b", 0.0) is None
    limiter.set_limit(None)
    slots.append(taken(limiter, "b"))
    for slot in slots:
        slot.release()
    for limit in (0, -1, 1.5):
        with pytest.raises(SetupError, match="limit of connections"):
            limiter.set_limit(limit)  # type: ignore[arg-type]


def test_a_forgotten_server_has_the_common_limit_again() -> None:
    limiter = Limiter(5)
    limiter.forget("a")
    limiter.set_limit(1, "a")
    slot = taken(limiter, "a")
    limiter.forget("a")
    assert limiter.stats("a") == LimiterStats(current=1, limit=5, most=1, refused=0)
    slot.release()
    limiter.forget("a")
    assert limiter.stats("a") == LimiterStats(current=0, limit=5, most=0, refused=0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=200), st.integers(1, 4), st.integers(1, 8))
def test_the_count_is_who_came_and_did_not_leave(steps: list[tuple[str, bool]], limit: int, total: int) -> None:
    limiter = Limiter(limit, total=total, alert_at=1.0, on_alert=lambda *_: None)
    held: dict[str, list[Slot]] = {"a": [], "b": [], "c": []}
    for server, enters in steps:
        if enters:
            slot = limiter.try_acquire(server, 0.0)
            if slot is not None:
                held[server].append(slot)
        elif held[server]:
            held[server].pop().release()
        assert limiter.stats(server).current == len(held[server]) <= limit
        assert limiter.stats().current == sum(map(len, held.values())) <= total
    for slots in held.values():
        for slot in slots:
            slot.release()
