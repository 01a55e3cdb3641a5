"""Stores in this process: bounded, and gone with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.stores.memory import LEAST_LOOKED_AT, LogBounds, MemoryEventLog, MemoryStore


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


class Clock:
    """Time as it is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


# -- values


def test_a_value_is_kept_until_it_is_deleted() -> None:
    async def use() -> None:
        store = MemoryStore(Clock())
        assert await store.get("a") is None
        await store.put("a", b"1")
        await store.put("a", b"2")
        assert await store.get("a") == b"2"
        await store.delete("a")
        await store.delete("a")
        assert await store.get("a") is None

    run(use())


def test_a_value_expires_at_its_time() -> None:
    async def use() -> None:
        clock = Clock()
        store = MemoryStore(clock)
        await store.put("a", b"1", ttl=10)
        clock.now = 9.9
        assert await store.get("a") == b"1"
        clock.now = 10
        assert await store.get("a") is None
        assert len(store) == 0

    run(use())


def test_a_value_is_added_once_and_again_after_it_expired() -> None:
    async def use() -> None:
        clock = Clock()
        store = MemoryStore(clock)
        assert await store.add("a", b"1", ttl=10)
        assert not await store.add("a", b"2")
        assert await store.get("a") == b"1"
        clock.now = 11
        assert await store.add("a", b"3")
        assert await store.get("a") == b"3"

    run(use())


def test_an_empty_value_is_a_value() -> None:
    async def use() -> None:
        store = MemoryStore(Clock())
        assert await store.add("a", b"")
        assert not await store.add("a", b"1")
        assert await store.get("a") == b""

    run(use())


def test_what_expired_unasked_does_not_pile_up() -> None:
    async def use() -> None:
        clock = Clock()
        store = MemoryStore(clock)
        await store.put("kept", b"x")
        for number in range(20 * LEAST_LOOKED_AT):
            clock.now = number
            await store.put(str(number), b"x", ttl=100)
        assert len(store) <= 2 * LEAST_LOOKED_AT
        assert await store.get("kept") == b"x"

    run(use())


# -- events


def after(log: MemoryEventLog, stream: str, number: int) -> Any:
    return run(log.after(stream, number))


def filled(count: int, **bounds: Any) -> MemoryEventLog:
    log = MemoryEventLog(LogBounds(**bounds))
    for number in range(1, count + 1):
        log.append("s", number, b"%d" % number, 0.0)
    return log


def test_the_events_after_a_number_are_given_in_order() -> None:
    """SSEV-08."""
    log = filled(5)
    assert after(log, "s", 0) == [b"1", b"2", b"3", b"4", b"5"]
    assert after(log, "s", 3) == [b"4", b"5"]
    assert after(log, "s", 5) == []


@pytest.mark.parametrize(("stream", "number"), [("other", 0), ("s", 6), ("s", 10**9), ("s", -2)])
def test_what_is_not_known_is_nothing_at_all(stream: str, number: int) -> None:
    assert after(filled(5), stream, number) is None


def test_only_so_many_events_of_a_stream_are_kept() -> None:
    """SSEV-12: the oldest is forgotten first, and whoever missed it is told so."""
    log = filled(10, events=3)
    assert after(log, "s", 6) is None
    assert after(log, "s", 7) == [b"8", b"9", b"10"]
    assert log.size == 4


def test_only_so_many_bytes_of_a_stream_are_kept_but_always_the_newest_event() -> None:
    log = MemoryEventLog(LogBounds(bytes=10))
    for number, event in enumerate((b"aaaa", b"bbbb", b"cccc"), 1):
        log.append("s", number, event, 0.0)
    assert after(log, "s", 0) is None
    assert after(log, "s", 1) == [b"bbbb", b"cccc"]
    log.append("s", 4, b"x" * 1000, 0.0)
    assert after(log, "s", 3) == [b"x" * 1000]
    assert log.size == 1000


def test_over_the_whole_bound_whoever_holds_most_loses_the_stream_silent_longest() -> None:
    log = MemoryEventLog(LogBounds(total=100))
    log.append("quiet.1", 1, b"x" * 10, 0.0)
    for number in range(1, 10):
        log.append(f"loud.{number}", 1, b"x" * 10, 0.0)
    log.append("loud.1", 2, b"x" * 10, 0.0)
    assert [after(log, f"loud.{number}", 0) for number in (1, 2, 3)] == [[b"x" * 10] * 2, None, [b"x" * 10]]
    assert after(log, "quiet.1", 0) == [b"x" * 10]
    assert log.size == 100


def test_over_the_whole_bound_whoever_holds_most_in_one_stream_loses_its_oldest_event() -> None:
    log = MemoryEventLog(LogBounds(total=100))
    log.append("quiet.1", 1, b"x" * 10, 0.0)
    for number in range(1, 1001):
        log.append("loud.1", number, b"y" * 10, 0.0)
    assert after(log, "quiet.1", 0) == [b"x" * 10]
    assert (after(log, "loud.1", 990), after(log, "loud.1", 991)) == (None, [b"y" * 10] * 9)


def test_one_session_does_not_push_out_what_is_kept_for_others() -> None:
    """The bounds are the usual ones: a flood of a hundred streams costs the flooder alone."""
    log = MemoryEventLog()
    for number in range(200):
        log.append(f"session{number}.1", 1, b"x" * 1000, 0.0)
    for stream in range(100):
        for number in range(1, 9):
            log.append(f"flood.{stream}", number, b"y" * 500_000, 0.0)
    assert log.size <= LogBounds().total
    assert all(after(log, f"session{number}.1", 0) == [b"x" * 1000] for number in range(200))


def test_only_so_many_bytes_of_one_owner_are_kept_but_always_the_newest_event() -> None:
    log = MemoryEventLog(LogBounds(owner=25))
    for stream in "abc":
        log.append(f"me.{stream}", 1, b"x" * 10, 0.0)
        log.append(f"{stream}.me", 1, b"x" * 10, 0.0)
    assert [after(log, f"me.{stream}", 0) for stream in "abc"] == [None, [b"x" * 10], [b"x" * 10]]
    log.append("me.d", 1, b"y" * 100, 0.0)
    assert after(log, "me.d", 0) == [b"y" * 100]
    assert log.size == 130


def test_nothing_of_an_owner_is_left_when_its_last_stream_is_forgotten() -> None:
    log = MemoryEventLog()
    log.append("me.a", 1, b"x", 0.0)
    log.append("me.b", 1, b"", 0.0)
    log.forget("me.a")
    log.forget("me.b")
    assert (len(log), log.size, log._owned, len(log._shares)) == (0, 0, {}, 0)


def test_streams_that_were_silent_for_too_long_are_swept() -> None:
    """RES-08: ages are counted by whoever tells the time, never by the clock on the wall."""
    log = MemoryEventLog(LogBounds(age=60))
    log.append("old", 1, b"x", 0.0)
    log.append("young", 1, b"x", 0.0)
    log.append("young", 2, b"x", 30.0)
    log.sweep(59.0)
    assert len(log) == 2
    log.sweep(61.0)
    assert (after(log, "old", 0), after(log, "young", 1)) == (None, [b"x"])
    log.sweep(91.0)
    assert (len(log), log.size) == (0, 0)


def test_a_stream_goes_on_after_it_was_forgotten() -> None:
    log = filled(3)
    log.forget("s")
    log.forget("s")
    log.append("s", 4, b"4", 0.0)
    assert after(log, "s", 3) == [b"4"]
    assert after(log, "s", 2) is None


@given(
    st.lists(st.tuples(st.sampled_from(["a.1", "a.2", "b", "c"]), st.integers(0, 40)), max_size=120),
    st.integers(1, 5),
    st.integers(1, 60),
    st.integers(1, 100),
    st.integers(1, 100),
)
def test_a_log_never_holds_more_than_it_may_and_never_gives_a_gap(
    said: list[tuple[str, int]], events: int, size: int, total: int, owner: int
) -> None:
    log = MemoryEventLog(LogBounds(events=events, bytes=size, total=total, owner=owner))
    numbers: dict[str, int] = {}
    for stream, length in said:
        number = numbers[stream] = numbers.get(stream, 0) + 1
        log.append(stream, number, b"%03d" % number + b"x" * length, 0.0)
        assert log.size <= max(total, 43)
    for stream, last in numbers.items():
        for number in range(last + 1):
            found = run_now(log.after(stream, number))
            if found is not None:
                assert [int(event[:3]) for event in found] == list(range(number + 1, last + 1))


def run_now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


def test_a_stream_is_shortened_to_what_may_not_have_been_heard_and_a_little_more() -> None:
    async def use() -> None:
        for unacknowledged, spare, expected in (
            (0, 0, []),
            (0, 9, []),
            (0, 10, [5]),
            (0, 35, [3, 4, 5]),
            (1, 0, [5]),
            (10, 0, [5]),
            (11, 0, [4, 5]),
            (11, 10, [3, 4, 5]),
            (1000, 0, [1, 2, 3, 4, 5]),
        ):
            log = MemoryEventLog()
            log.append("other", 1, b"o", 0.0)
            for number in range(1, 6):
                log.append("a", number, b"%010d" % number, 0.0)
            log.shorten("a", unacknowledged, spare)
            log.shorten("unknown", unacknowledged, spare)
            assert log.size == 1 + 10 * len(expected)
            log.append("a", 6, b"6", 1.0)
            first = min([*expected, 6])
            assert await log.after("a", first - 1) == [*(b"%010d" % number for number in expected), b"6"]
            assert await log.after("a", first - 2) is None

    run(use())
