"""A supervisor starts children in order, restarts those that die by its plan, and stops them in reverse."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from supervised import Crash, Loop, Worker, tasks_left, timers_left, told, turns

from ferrule.errors import SetupError, SupervisorFailed
from ferrule.supervision.child import Child
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.supervisor import Supervisor, SupervisorEvent
from ferrule.testing import run_in_virtual_time

PATIENT = RestartPlan(intensity=1000, period=1.0, delay=0.0)
"""Restarts at once, as often as needed."""


def never() -> float:
    """Leave every delay as it is."""
    return 0.0


def workers(log: list[str]) -> list[Worker]:
    """Return three workers that write into one log."""
    return [Worker(name, log) for name in "abc"]


def states(tree: Supervisor) -> dict[str, str]:
    """Return the state of each child."""
    return {child.name: child.state for child in tree.children}


# Start and stop


async def test_children_start_in_order_and_stop_in_reverse() -> None:
    log: list[str] = []
    async with Supervisor("app", *[worker.child() for worker in workers(log)]) as tree:
        assert log == ["a starts", "b starts", "c starts"]
        assert states(tree) == {"a": "running", "b": "running", "c": "running"}
        log.clear()
    assert log == ["c ends", "b ends", "a ends"]
    assert states(tree) == {"a": "stopped", "b": "stopped", "c": "stopped"}
    assert tasks_left() == []


@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one", "one_for_all"])
def test_a_child_starts_when_the_former_is_ready(strategy: Any) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        started: dict[str, float] = {}

        def slow(name: str) -> Child:
            async def run(ready: Callable[[], None]) -> None:
                started[name] = loop.time()
                await asyncio.sleep(10)
                ready()
                await asyncio.sleep(1000)

            return Child(name, run)

        async with Supervisor("app", slow("a"), slow("b"), slow("c"), strategy=strategy):
            assert loop.time() == 30
        assert started == {"a": 0, "b": 10, "c": 20}

    run_in_virtual_time(scene())


@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one", "one_for_all"])
async def test_an_end_before_ready_stops_those_that_were_started_in_reverse(strategy: Any) -> None:
    log: list[str] = []
    a, b, _ = workers(log)
    broken = Loop(is_ready=False)
    tree = Supervisor("app", a.child(), b.child(), Child("broken", broken.run), strategy=strategy)
    with pytest.raises(SupervisorFailed, match=r"^app: child 'broken' could not be started: Crash: start 1$") as caught:
        await tree.run()
    assert log == ["a starts", "b starts", "b ends", "a ends"]
    assert isinstance(caught.value.__cause__, Crash)
    assert (caught.value.path, len(broken.starts)) == ("app", 1)
    assert tasks_left() == []


async def test_a_child_that_returns_before_it_is_ready_could_not_be_started() -> None:
    async def run(ready: Callable[[], None]) -> None:
        pass

    with pytest.raises(SupervisorFailed, match=r"it ended before it called ready\(\)"):
        async with Supervisor("app", Child("hasty", run, significant=True)):
            pytest.fail("it was entered")


def test_a_child_that_is_not_ready_in_time_could_not_be_started() -> None:
    async def scene() -> None:
        log: list[str] = []

        async def run(ready: Callable[[], None]) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                log.append("slow ends")

        a = Worker("a", log)
        with pytest.raises(SupervisorFailed, match=r"TimeoutError: it did not call ready\(\) within 7 s"):
            await Supervisor("app", a.child(), Child("slow", run, ready_timeout=7)).run()
        assert asyncio.get_running_loop().time() == 7
        assert log == ["a starts", "slow ends", "a ends"]
        assert tasks_left() == []

    run_in_virtual_time(scene())


async def test_what_may_fail_for_ever_does_not_hold_up_the_start() -> None:
    """A child outside is never given up, also when it was never there."""
    broken = Loop(is_ready=False)
    outside = RestartPlan(give_up=False)
    a = Worker("a")
    async with Supervisor("app", Child("outside", broken.run, plan=outside), a.child()) as tree:
        assert a.alive == 1
        await turns()
        assert states(tree)["outside"] == "restarting"


def test_a_child_that_ignores_its_cancellation_is_abandoned_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    async def deep_inside() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
                return
            except asyncio.CancelledError:
                continue

    async def stubborn(ready: Callable[[], None]) -> None:
        ready()
        await deep_inside()

    async def scene() -> None:
        events: list[SupervisorEvent] = []
        a = Worker("a")
        async with Supervisor("app", a.child(), Child("stubborn", stubborn), on_event=events.append):
            pass
        assert asyncio.get_running_loop().time() == 5
        assert a.alive == 0
        assert told(events)[-2:] == ["abandoned app/stubborn", "ended app/a"]
        gc.collect()
        await asyncio.sleep(4000)
        assert tasks_left() == []

    with caplog.at_level(logging.ERROR, "ferrule.supervision"):
        run_in_virtual_time(scene())
    [record] = caplog.records
    assert "app/stubborn is still running 5 s after it was cancelled; abandoning it" in record.message
    assert "in stubborn" in record.message
    assert "in deep_inside" in record.message


@pytest.mark.parametrize(("own", "of_tree", "expected"), [(None, 5.0, 5), (None, 2.0, 2), (9.0, 2.0, 9), (0.0, 2.0, 0)])
def test_the_grace_of_a_child_is_its_own_or_its_supervisors(own: float | None, of_tree: float, expected: float) -> None:
    """SUPV-06: five seconds by default."""

    async def stubborn(ready: Callable[[], None]) -> None:
        ready()
        end = asyncio.get_running_loop().time() + 100
        while asyncio.get_running_loop().time() < end:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue

    async def scene() -> None:
        async with Supervisor("app", Child("stubborn", stubborn, grace=own), grace=of_tree):
            pass
        assert asyncio.get_running_loop().time() == expected

    run_in_virtual_time(scene())


async def test_run_returns_when_the_tree_is_stopped() -> None:
    a = Worker("a")
    tree = Supervisor("app", a.child())
    ready = asyncio.Event()
    running = asyncio.create_task(tree.run(ready.set))
    await ready.wait()
    await tree.stop()
    await running
    assert (a.runs, a.alive) == (1, 0)


async def test_a_supervisor_can_be_run_again() -> None:
    a = Worker("a")
    tree = Supervisor("app", a.child())
    for _ in range(3):
        async with tree:
            assert a.alive == 1
    assert (a.runs, a.alive) == (3, 0)


async def test_a_supervisor_runs_once_at_a_time() -> None:
    a = Worker("a")
    tree = Supervisor("app", a.child())
    async with tree:
        with pytest.raises(SetupError, match="runs already"):
            async with tree:
                pass
        assert a.alive == 1


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
async def test_a_tree_can_be_stopped_while_it_starts(strategy: Any) -> None:
    async def never_ready(ready: Callable[[], None]) -> None:
        await asyncio.sleep(1000)

    log: list[str] = []
    a, _, c = workers(log)
    timers = timers_left()
    tree = Supervisor("app", a.child(), Child("b", never_ready), c.child(), strategy=strategy)
    running = asyncio.create_task(tree.run(lambda: log.append("app is ready")))
    await turns()
    assert states(tree)["b"] == "starting"
    await tree.stop()
    await running
    assert log == ["a starts", "a ends"]
    assert tasks_left() == []
    assert timers_left() == timers


async def test_entering_a_tree_that_is_stopped_meanwhile_fails() -> None:
    async def never_ready(ready: Callable[[], None]) -> None:
        await asyncio.sleep(1000)

    tree = Supervisor("app", Child("b", never_ready))

    async def enter() -> None:
        async with tree:
            pytest.fail("it was entered")

    entering = asyncio.create_task(enter())
    await turns()
    await tree.stop()
    with pytest.raises(SupervisorFailed, match="stopped while it started"):
        await entering


async def test_a_run_that_is_cancelled_while_it_starts_stops_what_was_started() -> None:
    async def never_ready(ready: Callable[[], None]) -> None:
        await asyncio.sleep(1000)

    a = Worker("a")
    running = asyncio.create_task(Supervisor("app", a.child(), Child("b", never_ready)).run())
    await turns()
    assert a.alive == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert a.alive == 0
    assert tasks_left() == []


def test_a_run_that_is_cancelled_twice_still_stops_everything() -> None:
    async def slow_to_end(ready: Callable[[], None]) -> None:
        ready()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)

    async def scene() -> None:
        a = Worker("a")
        running = asyncio.create_task(Supervisor("app", a.child(), Child("slow", slow_to_end)).run())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert a.alive == 0
        assert asyncio.get_running_loop().time() == 4
        assert tasks_left() == []

    run_in_virtual_time(scene())


def test_a_tree_can_be_stopped_while_a_child_waits_for_its_restart() -> None:
    async def scene() -> None:
        loop = Loop(lives=1.0)
        a = Worker("a")
        async with Supervisor("app", a.child(), Child("loop", loop.run), chance=never) as tree:
            await asyncio.sleep(2.5)
            assert states(tree)["loop"] == "restarting"
        assert len(loop.starts) == 2
        assert tasks_left() == []
        assert timers_left() == 0

    run_in_virtual_time(scene())


# Restarts


async def test_a_crashed_child_is_restarted_and_its_siblings_live() -> None:
    """SUPV-01"""
    log: list[str] = []
    a, b, c = workers(log)
    async with Supervisor("app", a.child(), b.child(), c.child()) as tree:
        b.crash()
        await turns()
        assert (a.runs, b.runs, c.runs) == (1, 2, 1)
        assert (a.alive, b.alive, c.alive) == (1, 1, 1)
        assert [child.restarts for child in tree.children] == [0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "after_crash", "after_end"),
    [("permanent", 2, 2), ("transient", 2, 1), ("temporary", 1, 1)],
)
async def test_which_ends_are_followed_by_a_restart(kind: Any, after_crash: int, after_end: int) -> None:
    """SUPV-02: the registry is permanent, clients and servers are transient."""
    for end, runs in (("crash", after_crash), ("end", after_end)):
        a = Worker("a")
        async with Supervisor("app", a.child(restart=kind)):
            getattr(a, end)()
            await turns()
            assert a.runs == runs


async def test_a_transient_child_that_ended_stays_in_the_tree_and_a_temporary_one_does_not() -> None:
    a, b, _ = workers([])
    async with Supervisor("app", a.child(restart="transient"), b.child(restart="temporary")) as tree:
        a.end()
        b.end()
        await turns()
        assert states(tree) == {"a": "ended"}
        tree.add(b.child(restart="temporary"))
        await turns()
        assert states(tree) == {"a": "ended", "b": "running"}


SEVERAL = BaseExceptionGroup("several", [SystemExit(1), KeyboardInterrupt()])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), SEVERAL])
async def test_whatever_a_child_raises_is_a_crash_that_stays_in_the_tree(error: BaseException) -> None:
    async def run(ready: Callable[[], None]) -> None:
        ready()
        runs.append(True)
        await asyncio.sleep(0)
        if len(runs) < 4:
            raise error
        await asyncio.sleep(1000)

    runs: list[bool] = []
    a = Worker("a")
    async with Supervisor("app", a.child(), Child("odd", run, restart="transient"), plan=PATIENT):
        await turns()
        assert len(runs) == 4
        assert a.runs == 1


async def test_a_child_that_cancels_itself_is_restarted() -> None:
    async def run(ready: Callable[[], None]) -> None:
        ready()
        runs.append(True)
        if len(runs) < 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(1000)

    runs: list[bool] = []
    async with Supervisor("app", Child("odd", run, restart="transient"), plan=PATIENT):
        await turns()
        assert len(runs) == 3


def test_the_delays_grow_and_the_sixth_crash_within_a_minute_fails_the_supervisor() -> None:
    """SUPV-06: sibling children are stopped in reverse first."""

    async def scene() -> None:
        log: list[str] = []
        a, b, _ = workers(log)
        loop = Loop()
        tree = Supervisor("app", a.child(), Child("loop", loop.run), b.child(), chance=never)
        with pytest.raises(SupervisorFailed) as caught:
            await tree.run()
        assert loop.starts == [0, 0, 1, 3, 7, 15]
        assert caught.value.reason == (
            "gave up after 5 restarts within 60 s: child 'loop' failed again: Crash: start 6"
        )
        assert log == ["a starts", "b starts", "b ends", "a ends"]

    run_in_virtual_time(scene())


def test_crashes_of_different_children_count_together() -> None:
    """SUPV-06"""

    async def scene() -> None:
        a, b, c = workers([])
        tree = Supervisor("app", a.child(), b.child(), c.child(), chance=never)
        running = asyncio.create_task(tree.run())
        for worker in (a, b, c, a, b, c):
            await asyncio.sleep(5)
            worker.crash()
        with pytest.raises(SupervisorFailed, match="child 'c' failed again"):
            await running

    run_in_virtual_time(scene())


def test_a_child_with_a_plan_of_its_own_is_counted_by_itself() -> None:
    async def scene() -> None:
        a, b, _ = workers([])
        own = RestartPlan(intensity=100)
        async with Supervisor("app", a.child(), b.child(plan=own), chance=never):
            for _ in range(20):
                await asyncio.sleep(40)
                b.crash()
            await asyncio.sleep(40)
            a.crash()
            await asyncio.sleep(1)
            assert (a.runs, b.runs) == (2, 21)

    run_in_virtual_time(scene())


def test_crashes_far_apart_are_restarted_at_once_for_ever() -> None:
    async def scene() -> None:
        loop = Loop(lives=61.0)
        async with Supervisor("app", Child("loop", loop.run), chance=never):
            await asyncio.sleep(61 * 50 + 1)
            assert loop.starts == [61.0 * number for number in range(51)]

    run_in_virtual_time(scene())


def test_what_is_never_given_up_is_failed_and_tried_every_thirty_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """100 crashes in a row, one line of log for each, and the first alone has a traceback."""

    async def scene() -> None:
        loop = Loop()
        a = Worker("a")
        async with Supervisor(
            "app", a.child(), Child("loop", loop.run), plan=RestartPlan(give_up=False), chance=never
        ) as tree:
            await asyncio.sleep(16)
            assert states(tree)["loop"] == "failed"
            await asyncio.sleep(30 * 94)
            assert loop.starts[:8] == [0, 0, 1, 3, 7, 15, 45, 75]
            assert len(loop.starts) == 100
            assert loop.starts[-1] - loop.starts[-2] == 30
            assert a.runs == 1
            a.crash()
            await asyncio.sleep(0.001)
            assert a.runs == 2
        assert timers_left() == 0

    with caplog.at_level(logging.INFO, "ferrule.supervision"):
        run_in_virtual_time(scene())
    lines = [record for record in caplog.records if "app/loop" in record.message]
    assert len(lines) == 100
    assert [record.exc_info is not None for record in lines] == [True] + [False] * 99
    assert lines[5].message == "app/loop failed (Crash: start 6); restart 6 in 30 s"


def test_a_failed_child_that_was_calm_begins_again() -> None:
    async def scene() -> None:
        fails = [True] * 8

        async def run(ready: Callable[[], None]) -> None:
            ready()
            if fails:
                fails.pop()
                raise Crash
            await asyncio.sleep(100)
            fails.append(True)
            raise Crash

        plan = RestartPlan(give_up=False)
        async with Supervisor("app", Child("loop", run), plan=plan, chance=never) as tree:
            await asyncio.sleep(110)
            assert states(tree) == {"loop": "running"}
            await asyncio.sleep(100)
            assert states(tree) == {"loop": "running"}
            assert tree.children[0].restarts == 10

    run_in_virtual_time(scene())


# The strategies


async def test_one_for_one_restarts_the_dead_child_alone() -> None:
    log: list[str] = []
    a, b, c = workers(log)
    async with Supervisor("app", a.child(), b.child(), c.child(), plan=PATIENT):
        log.clear()
        b.crash()
        await turns()
        assert log == ["b ends", "b starts"]


async def test_one_for_all_restarts_all_in_order_and_counts_once() -> None:
    log: list[str] = []
    a, b, c = workers(log)
    plan = RestartPlan(intensity=2, delay=0.0)
    tree = Supervisor("app", a.child(), b.child(), c.child(), strategy="one_for_all", plan=plan)
    running = asyncio.create_task(tree.run())
    await turns()
    for _ in range(2):
        log.clear()
        b.crash()
        await turns()
        assert log == ["b ends", "c ends", "a ends", "a starts", "b starts", "c starts"]
    log.clear()
    b.crash()
    with pytest.raises(SupervisorFailed, match="gave up after 2 restarts"):
        await running
    assert log == ["b ends", "c ends", "a ends"]


async def test_rest_for_one_restarts_the_dead_child_and_those_behind_it() -> None:
    log: list[str] = []
    a, b, c = workers(log)
    d = Worker("d", log)
    tree = Supervisor("app", a.child(), b.child(), c.child(), d.child(), strategy="rest_for_one", plan=PATIENT)
    async with tree:
        log.clear()
        b.crash()
        await turns()
        assert log == ["b ends", "d ends", "c ends", "b starts", "c starts", "d starts"]
        log.clear()
        d.crash()
        await turns()
        assert log == ["d ends", "d starts"]


def test_rest_for_one_attends_to_an_earlier_child_that_dies_during_the_delay() -> None:
    async def scene() -> None:
        log: list[str] = []
        a, b, c = workers(log)
        plan = RestartPlan(first=10.0, delay=10.0)
        tree = Supervisor("app", a.child(), b.child(), c.child(), strategy="rest_for_one", plan=plan, chance=never)
        async with tree:
            b.crash()
            await asyncio.sleep(4)
            assert states(tree) == {"a": "running", "b": "restarting", "c": "restarting"}
            a.crash()
            await asyncio.sleep(9)
            assert (a.alive, b.alive, c.alive) == (0, 0, 0)
            await asyncio.sleep(2)
            assert (a.runs, b.runs, c.runs) == (2, 2, 2)
            assert log[-3:] == ["a starts", "b starts", "c starts"]

    run_in_virtual_time(scene())


async def test_a_death_while_others_are_restarted_begins_again_from_the_dead_child() -> None:
    gate = asyncio.Event()
    starts = 0

    async def gated(ready: Callable[[], None]) -> None:
        nonlocal starts
        starts += 1
        if starts == 2:
            await gate.wait()
        ready()
        await asyncio.sleep(1000)

    log: list[str] = []
    a, _, c = workers(log)
    tree = Supervisor("app", a.child(), Child("b", gated), c.child(), strategy="one_for_all", plan=PATIENT)
    async with tree:
        c.crash()
        await turns()
        assert states(tree) == {"a": "running", "b": "starting", "c": "waiting"}
        a.crash()
        await turns()
        assert states(tree) == {"a": "running", "b": "running", "c": "running"}
        assert (a.runs, starts, c.runs) == (3, 3, 2)


async def test_a_group_that_is_restarted_starts_what_had_ended_and_drops_what_was_temporary() -> None:
    log: list[str] = []
    a, b, c = workers(log)
    tree = Supervisor(
        "app",
        a.child(),
        b.child(restart="transient"),
        c.child(restart="temporary"),
        strategy="one_for_all",
        plan=PATIENT,
    )
    async with tree:
        b.end()
        await turns()
        a.crash()
        await turns()
        assert (a.alive, b.alive, c.alive) == (1, 1, 0)
        assert states(tree) == {"a": "running", "b": "running"}


# Significant children


async def test_the_normal_end_of_a_significant_child_ends_the_tree() -> None:
    log: list[str] = []
    a, b, c = workers(log)
    tree = Supervisor("app", a.child(), b.child(restart="transient", significant=True), c.child())
    running = asyncio.create_task(tree.run())
    await turns()
    b.crash()
    await turns()
    assert (b.runs, running.done()) == (2, False)
    log.clear()
    b.end()
    await running
    assert log == ["b ends", "c ends", "a ends"]
    assert states(tree) == {"a": "stopped", "b": "ended", "c": "stopped"}


ALL: dict[str, Any] = {"auto_shutdown": "all_significant", "plan": PATIENT}


@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one"])
async def test_a_tree_may_end_with_the_last_of_its_significant_children(strategy: Any) -> None:
    """By itself, or because somebody stopped it; a child that is not significant does not count."""
    log: list[str] = []
    a, b, c = workers(log)
    children = [a.child(restart="transient", significant=True), b.child(), c.child(significant=True)]
    running = asyncio.create_task((tree := Supervisor("app", *children, strategy=strategy, **ALL)).run())
    await turns()
    a.end()
    await turns()
    assert states(tree) == {"a": "ended", "b": "running", "c": "running"}
    b.crash()
    await turns()
    assert not running.done()
    await tree.stop("c")
    await running
    assert states(tree) == {"a": "ended", "b": "stopped", "c": "stopped"}
    assert tasks_left() == []


async def test_a_significant_child_that_is_restarted_is_not_gone() -> None:
    a, b = Worker("a"), Worker("b")
    children = [each.child(restart="transient", significant=True) for each in (a, b)]
    running = asyncio.create_task(Supervisor("app", *children, **ALL).run())
    await turns()
    b.crash()
    a.end()
    await turns()
    assert not running.done()
    b.end()
    await running


async def test_a_tree_that_ends_with_its_last_significant_child_fails_where_one_has() -> None:
    """Those that are left go on first."""
    a, b = Worker("a"), Worker("b")
    children = [each.child(restart="temporary", significant=True) for each in (a, b)]
    running = asyncio.create_task((tree := Supervisor("app", *children, **ALL)).run())
    await turns()
    a.crash()
    await turns()
    assert states(tree) == {"a": "ended", "b": "running"}
    b.end()
    with pytest.raises(SupervisorFailed, match="significant child 'a' failed: Crash: a") as failed:
        await running
    assert not failed.value.gave_up


async def test_a_tree_whose_last_significant_child_is_removed_ends() -> None:
    a, b = Worker("a"), Worker("b")
    tree = Supervisor("app", a.child(), b.child(significant=True), **ALL)
    running = asyncio.create_task(tree.run())
    await turns()
    await tree.remove("b")
    await running


async def test_a_tree_that_ends_with_its_significant_children_ends_at_once_without_any() -> None:
    """And says that it was ready, so that the supervisor above takes it for a normal end."""
    inner = Supervisor("inner", auto_shutdown="all_significant")
    await asyncio.wait_for(Supervisor("app", Child("inner", inner, significant=True)).run(), 10)


async def test_a_significant_child_that_ends_as_soon_as_it_is_ready_is_no_failed_start() -> None:
    """Also two supervisors above."""

    async def hasty(ready: Callable[[], None]) -> None:
        ready()

    inner = Supervisor("inner", Child("hasty", hasty, significant=True), auto_shutdown="all_significant")
    middle = Supervisor("middle", Child("inner", inner, significant=True))
    await asyncio.wait_for(Supervisor("app", Child("middle", middle, significant=True)).run(), 10)


def test_an_unknown_auto_shutdown_is_refused() -> None:
    with pytest.raises(SetupError, match="auto_shutdown must be one of any_significant, all_significant, not 'never'"):
        Supervisor("app", auto_shutdown="never")  # type: ignore[arg-type]


async def test_a_significant_child_that_crashes_and_is_not_restarted_fails_the_tree() -> None:
    a = Worker("a")
    running = asyncio.create_task(Supervisor("app", a.child(restart="temporary", significant=True)).run())
    await turns()
    a.crash()
    with pytest.raises(SupervisorFailed, match="significant child 'a' failed: Crash: a"):
        await running


# Trees of trees


async def test_a_supervisor_that_gives_up_is_one_crash_for_the_one_above() -> None:
    """SUPV-06: it stops its own children first, then it fails, then the one above acts."""
    events: list[SupervisorEvent] = []
    log: list[str] = []
    a, b, c = workers(log)
    inner = Supervisor("inner", a.child(), b.child(), plan=RestartPlan(intensity=1))
    async with Supervisor("app", c.child(), inner, on_event=events.append, plan=PATIENT) as tree:
        assert [child.path for child in tree.children[1].children] == ["app/inner/a", "app/inner/b"]
        a.crash()
        await turns()
        events.clear()
        log.clear()
        a.crash()
        await turns()
        assert told(events) == [
            "ended app/inner/a",
            "gave_up app/inner",
            "ended app/inner/b",
            "ended app/inner",
            "restarting app/inner",
            "started app/inner",
            "started app/inner/a",
            "ready app/inner/a",
            "started app/inner/b",
            "ready app/inner/b",
            "ready app/inner",
        ]
        assert log == ["a ends", "b ends", "a starts", "b starts"]
        assert isinstance(events[3].error, SupervisorFailed)
        assert events[3].error.path == "app/inner"
        assert (c.runs, tree.children[1].restarts) == (1, 1)


async def test_a_failure_climbs_to_the_top_when_every_supervisor_gives_up() -> None:
    stingy = RestartPlan(intensity=1)
    loop = Loop(lives=0.001)
    log: list[str] = []
    a, b, _ = workers(log)
    inner = Supervisor("inner", a.child(), Child("loop", loop.run), plan=stingy)
    tree = Supervisor("app", b.child(), inner, plan=stingy)
    with pytest.raises(SupervisorFailed) as caught:
        await tree.run()
    assert caught.value.path == "app"
    assert "child 'inner' failed again: SupervisorFailed: app/inner: gave up after 1 restarts" in caught.value.reason
    assert len(loop.starts) == 4
    assert log == ["b starts", "a starts", "a ends", "a starts", "a ends", "b ends"]
    assert tasks_left() == []


async def test_a_nested_tree_is_stopped_in_reverse_too() -> None:
    log: list[str] = []
    a, b, c = workers(log)
    d = Worker("d", log)
    inner = Supervisor("inner", b.child(), c.child())
    async with Supervisor("app", a.child(), inner, d.child()):
        assert log == ["a starts", "b starts", "c starts", "d starts"]
        log.clear()
    assert log == ["d ends", "c ends", "b ends", "a ends"]


def test_a_nested_tree_has_as_long_to_start_and_to_stop_as_its_children() -> None:
    async def slow(ready: Callable[[], None]) -> None:
        await asyncio.sleep(29)
        ready()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(4)

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        inner = Supervisor("inner", *[Child(name, slow) for name in "abc"])
        async with Supervisor("app", inner):
            assert loop.time() == 87
        assert loop.time() == 99
        assert tasks_left() == []

    run_in_virtual_time(scene())


async def test_a_nested_tree_whose_significant_child_ends_can_end_the_whole() -> None:
    a, b, _ = workers([])
    inner = Supervisor("inner", a.child(restart="transient", significant=True))
    tree = Supervisor("app", b.child(), Child("inner", inner, restart="transient", significant=True))
    running = asyncio.create_task(tree.run())
    await turns()
    a.end()
    await running
    assert b.alive == 0


# By hand


async def test_children_can_be_added_while_the_supervisor_runs() -> None:
    for strategy in ("one_for_one", "one_for_all"):
        a, b, c = workers([])
        async with Supervisor("app", a.child(), strategy=strategy) as tree:
            tree.add(b.child())
            inner = Supervisor("inner", c.child())
            tree.add(inner)
            await turns()
            assert states(tree) == {"a": "running", "b": "running", "inner": "running"}
            assert inner.path == "app/inner"
            b.crash()
            await turns()
            assert b.runs == 2


def test_a_child_that_is_added_and_cannot_be_started_is_restarted_by_the_plan() -> None:
    async def scene() -> None:
        for strategy in ("one_for_one", "rest_for_one", "one_for_all"):
            a = Worker("a")
            broken = Loop(is_ready=False)
            async with Supervisor("app", a.child(), strategy=strategy, plan=RestartPlan(jitter=0.0)) as tree:
                tree.add(Child("broken", broken.run))
                await asyncio.sleep(2)
                assert len(broken.starts) == 3
                assert states(tree)["broken"] == "restarting"
                assert a.runs == (3 if strategy == "one_for_all" else 1)

    run_in_virtual_time(scene())


async def test_a_temporary_child_can_be_restarted_by_hand_and_stays_temporary() -> None:
    a, b, _ = workers([])
    for strategy in ("one_for_one", "one_for_all"):
        tree = Supervisor("app", a.child(restart="temporary"), b.child(), strategy=strategy)
        async with tree:
            before = a.runs
            await tree.restart("a")
            assert a.runs == before + 1
            a.crash()
            await turns()
            assert "a" not in states(tree)


async def test_a_child_that_was_stopped_stays_stopped_until_it_is_restarted() -> None:
    for strategy in ("one_for_one", "one_for_all", "rest_for_one"):
        a, b, c = workers([])
        async with Supervisor("app", a.child(), b.child(), c.child(), strategy=strategy, plan=PATIENT) as tree:
            await tree.stop("b")
            assert states(tree) == {"a": "running", "b": "stopped", "c": "running"}
            a.crash()
            await turns()
            assert states(tree) == {"a": "running", "b": "stopped", "c": "running"}
            await tree.restart("b")
            await turns()
            assert states(tree) == {"a": "running", "b": "running", "c": "running"}


def test_a_child_can_be_stopped_while_it_waits_for_its_restart() -> None:
    async def scene() -> None:
        loop = Loop(lives=1.0)
        async with Supervisor("app", Child("loop", loop.run), chance=never) as tree:
            await asyncio.sleep(2.5)
            await tree.stop("loop")
            assert states(tree) == {"loop": "stopped"}
            await asyncio.sleep(100)
            assert len(loop.starts) == 2
            assert timers_left() == 0

    run_in_virtual_time(scene())


def test_a_failed_child_that_is_restarted_by_hand_begins_again() -> None:
    async def scene() -> None:
        loop = Loop()
        plan = RestartPlan(give_up=False)
        async with Supervisor("app", Child("loop", loop.run), plan=plan, chance=never) as tree:
            await asyncio.sleep(20)
            assert states(tree) == {"loop": "failed"}
            await tree.restart("loop")
            await asyncio.sleep(16)
            assert loop.starts[6:] == [20, 20, 21, 23, 27, 35]

    run_in_virtual_time(scene())


async def test_a_running_child_can_be_restarted() -> None:
    log: list[str] = []
    a, b, c = workers(log)
    async with Supervisor("app", a.child(), b.child(), c.child()) as tree:
        log.clear()
        await tree.restart("b")
        assert log == ["b ends", "b starts"]
    log.clear()
    async with Supervisor("app", a.child(), b.child(), c.child(), strategy="rest_for_one") as tree:
        log.clear()
        await tree.restart("b")
        await turns()
        assert log == ["c ends", "b ends", "b starts", "c starts"]


async def test_a_restart_that_fails_is_told() -> None:
    starts = 0

    async def once(ready: Callable[[], None]) -> None:
        nonlocal starts
        starts += 1
        if starts == 2:
            raise Crash("not again")
        ready()
        await asyncio.sleep(1000)

    async with Supervisor("app", Child("once", once)) as tree:
        with pytest.raises(SupervisorFailed, match="app/once: it was restarted and is not ready: Crash: not again"):
            await tree.restart("once")
        await turns()
        assert states(tree) == {"once": "running"}


async def test_a_restart_that_the_end_of_the_tree_overtakes_is_told() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    starts = 0

    async def gated(ready: Callable[[], None]) -> None:
        nonlocal starts
        starts += 1
        if starts == 2:
            await gate
        ready()
        await asyncio.sleep(1000)

    async with Supervisor("app", Child("gated", gated)) as tree:
        restarting = asyncio.create_task(tree.restart("gated"))
        await turns()
        await tree.stop()
        with pytest.raises(SupervisorFailed, match="the supervisor has stopped"):
            await restarting


async def test_a_removed_child_is_stopped_and_forgotten() -> None:
    for strategy in ("one_for_one", "one_for_all"):
        a, b, _ = workers([])
        tree = Supervisor("app", a.child(), b.child(), strategy=strategy)
        async with tree:
            await tree.remove("a")
            assert (a.alive, states(tree)) == (0, {"b": "running"})
        await tree.remove("b")
        assert states(tree) == {}


async def test_a_child_may_stop_itself_and_the_whole_tree() -> None:
    async def suicidal(ready: Callable[[], None]) -> None:
        ready()
        await asyncio.sleep(0)
        await tree.stop("me")

    async def last(ready: Callable[[], None]) -> None:
        ready()
        await asyncio.sleep(0.01)
        await tree.stop()

    tree = Supervisor("app", Child("me", suicidal), Child("last", last))
    await tree.run()
    assert states(tree) == {"me": "stopped", "last": "stopped"}
    assert tasks_left() == []


def test_who_stops_waiting_for_a_stop_does_not_undo_it() -> None:
    async def slow_to_end(ready: Callable[[], None]) -> None:
        ready()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)

    async def scene() -> None:
        async with Supervisor("app", Child("slow", slow_to_end)) as tree:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tree.stop("slow"), 1)
            assert states(tree) == {"slow": "stopping"}
            await asyncio.sleep(3)
            assert states(tree) == {"slow": "stopped"}

    run_in_virtual_time(scene())


@pytest.mark.parametrize("what", ["stop", "restart", "remove"])
async def test_a_child_that_is_not_there_is_named_with_those_that_are(what: str) -> None:
    a, b, _ = workers([])
    tree = Supervisor("app", a.child(), b.child())
    with pytest.raises(SetupError, match="has no child 'x': it has a, b"):
        await getattr(tree, what)("x")
    async with tree:
        with pytest.raises(SetupError, match="has no child 'x': it has a, b"):
            await getattr(tree, what)("x")


async def test_nothing_can_be_stopped_or_restarted_where_nothing_runs() -> None:
    tree = Supervisor("app", Worker("a").child())
    await tree.stop()
    with pytest.raises(SetupError, match="does not run"):
        await tree.restart("a")
    assert states(tree) == {"a": "waiting"}


# The body of `async with`


async def test_a_tree_that_fails_cancels_the_body_and_raises() -> None:
    a = Worker("a")

    async def body() -> None:
        async with Supervisor("app", a.child(), plan=RestartPlan(intensity=0)):
            a.crash()
            await asyncio.sleep(1000)

    with pytest.raises(SupervisorFailed):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_tree_that_fails_at_the_end_of_the_body_raises_too() -> None:
    a = Worker("a")

    async def body() -> None:
        async with Supervisor("app", a.child(), plan=RestartPlan(intensity=0)) as tree:
            a.crash()
            with suppress(asyncio.CancelledError):
                await turns()
            assert states(tree) == {"a": "ended"}

    with pytest.raises(SupervisorFailed):
        await body()
    await asyncio.sleep(0)
    assert a.alive == 0


async def test_the_body_may_wait_for_the_end() -> None:
    a = Worker("a")

    async def body() -> None:
        async with Supervisor("app", a.child(), plan=RestartPlan(intensity=0)) as tree:
            asyncio.get_running_loop().call_soon(a.crash)
            await tree.run()

    with pytest.raises(SupervisorFailed):
        await body()
    b = Worker("b")
    async with Supervisor("app", b.child(significant=True)) as tree:
        asyncio.get_running_loop().call_soon(b.end)
        await tree.run()
    await asyncio.sleep(0)
    assert (a.alive, b.alive) == (0, 0)


async def test_a_body_that_raises_stops_the_tree() -> None:
    a = Worker("a")
    with pytest.raises(KeyError):
        async with Supervisor("app", a.child()):
            raise KeyError
    assert a.alive == 0


async def test_a_body_that_others_cancel_is_cancelled() -> None:
    a = Worker("a")

    async def body() -> None:
        async with Supervisor("app", a.child()):
            await asyncio.sleep(1000)

    task = asyncio.create_task(body())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert a.alive == 0


async def test_a_stop_can_be_asked_for_without_waiting_for_it() -> None:
    """As from inside a child, which could not wait for its own end."""
    a, b = Worker("a"), Worker("b")
    tree = Supervisor("app", a.child(), b.child())
    tree.request_stop()
    running = asyncio.create_task(tree.run())
    await turns()
    tree.request_stop()
    assert a.alive == 1
    await running
    assert states(tree) == {"a": "stopped", "b": "stopped"}


async def test_a_stop_that_is_asked_for_during_the_start_is_no_failure() -> None:
    told_ready: list[str] = []

    async def slow(ready: Callable[[], None]) -> None:
        await asyncio.sleep(1000)

    tree = Supervisor("app", Child("slow", slow))
    running = asyncio.create_task(tree.run(lambda: told_ready.append("ready")))
    await turns()
    tree.request_stop()
    await running
    assert told_ready == []


def test_a_child_may_have_any_time_to_start_and_to_end() -> None:
    async def main() -> None:
        async def slow(ready: Callable[[], None]) -> None:
            await asyncio.sleep(3600)
            ready()
            try:
                await asyncio.sleep(1_000_000)
            finally:
                await asyncio.sleep(3600)

        child = Child("slow", slow, grace=math.inf, ready_timeout=math.inf)
        async with Supervisor("app", child):
            assert asyncio.get_running_loop().time() >= 3600
        assert asyncio.get_running_loop().time() >= 7200
        assert tasks_left() == []

    run_in_virtual_time(main())


# Events


async def test_events_tell_the_life_of_a_child() -> None:
    events: list[SupervisorEvent] = []
    a = Worker("a")
    async with Supervisor("app", a.child(), on_event=events.append):
        a.crash()
        await turns()
    assert told(events) == [
        *("started app/a", "ready app/a", "ended app/a", "restarting app/a"),
        *("started app/a", "ready app/a", "ended app/a"),
    ]
    assert [event.restarts for event in events] == [0, 0, 0, 1, 1, 1, 1]
    assert isinstance(events[2].error, Crash)
    assert events[-1].error is None


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
async def test_who_hears_events_cannot_hurt_the_tree(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """SUPV-03"""

    def broken(event: SupervisorEvent) -> None:
        raise error

    a, b, _ = workers([])
    async with Supervisor("app", a.child(), b.child(), on_event=broken):
        a.crash()
        await turns()
        assert (a.runs, b.runs) == (2, 1)
    assert "on_event of supervisor app failed, which was ignored" in caplog.text


def test_an_exporter_that_raises_or_hangs_leaves_the_rest_alone() -> None:
    """SUPV-03: telemetry is a child like others, never given up."""

    async def hanging(ready: Callable[[], None]) -> None:
        ready()
        await asyncio.Event().wait()

    async def scene() -> None:
        loop = Loop(lives=0.5)
        serving = Worker("serving")
        plan = RestartPlan(give_up=False)
        telemetry = Supervisor("telemetry", Child("raises", loop.run), Child("hangs", hanging), plan=plan)
        async with Supervisor("app", serving.child(), telemetry) as tree:
            await asyncio.sleep(3600)
            assert (serving.runs, serving.alive) == (1, 1)
            assert tree.children[1].restarts == 0
            assert len(loop.starts) > 100

    run_in_virtual_time(scene())


# Leaks


@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one", "one_for_all"])
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("step", ["at once", "before ready", "at ready", "after ready"])
async def test_a_hundred_crashes_in_a_row_at_every_step_leave_nothing(strategy: Any, position: int, step: str) -> None:
    """Tasks, timers and dead runs do not grow."""
    runs: list[weakref.ref[Any]] = []
    up = asyncio.Event()

    async def broken(ready: Callable[[], None]) -> None:
        runs.append(weakref.ref(asyncio.current_task()))
        if len(runs) > 100 or len(runs) == 1:
            ready()
            if len(runs) > 100:
                up.set()
                await asyncio.sleep(1000)
            raise Crash
        if step == "before ready":
            await asyncio.sleep(0)
        if step in ("at ready", "after ready"):
            ready()
        if step == "after ready":
            await asyncio.sleep(0)
        raise Crash

    children = [worker.child() for worker in workers([])]
    children[position] = Child("broken", broken)
    timers = timers_left()
    async with Supervisor("app", *children, strategy=strategy, plan=PATIENT) as tree:
        await up.wait()
        await turns()
        assert set(states(tree).values()) == {"running"}
        assert len(tasks_left()) == 3 + (3 if strategy == "one_for_one" else 1)
        assert timers_left() <= timers + 1
        assert tree.children[position].restarts == 100
    gc.collect()
    assert tasks_left() == []
    assert timers_left() == timers
    assert len(runs) == 101
    assert [run for run in runs if run() is not None] == []


async def test_ten_thousand_temporary_children_leave_nothing() -> None:
    async def brief(ready: Callable[[], None]) -> None:
        ready()
        await asyncio.sleep(0)
        if odd():
            raise Crash

    count = 0

    def odd() -> bool:
        nonlocal count
        count += 1
        return bool(count % 2)

    async with Supervisor("links") as tree:
        for number in range(10_000):
            tree.add(Child(f"link {number}", brief, restart="temporary"))
            if number % 100 == 0:
                await turns(10)
        await turns()
        assert tree.children == []
        assert tasks_left() == []
        assert (len(tree._members), len(tree._groups), len(tree._jobs), len(tree._keepers)) == (0, 0, 0, 0)
    assert count == 10_000


# Wrong use


async def nothing(ready: Callable[[], None]) -> None:
    """Never runs."""


async def hear(event: SupervisorEvent) -> None:
    """Never called."""


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Child("", nothing), "without '/'"),
        (lambda: Child("a/b", nothing), "without '/'"),
        (lambda: Child("a", nothing, restart="sometimes"), "permanent, transient, temporary"),  # type: ignore[arg-type]
        (lambda: Child("a", 7), "must be an async function"),  # type: ignore[arg-type]
        (lambda: Supervisor("app", strategy="all"), "one_for_one, rest_for_one, one_for_all"),  # type: ignore[arg-type]
        (lambda: Supervisor("app", on_event=hear), "plain function"),  # type: ignore[arg-type]
        (lambda: Supervisor("app", Child("a", nothing), Child("a", nothing)), "has a child 'a' already"),
    ],
)
def test_wrong_use_is_told_at_once(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(SetupError, match=match):
        make()


def test_a_run_that_is_no_coroutine_is_a_failed_start() -> None:
    def plain(ready: Callable[[], None]) -> Coroutine[Any, Any, None]:
        return None  # type: ignore[return-value]

    with pytest.raises(SupervisorFailed, match="TypeError"):
        asyncio.run(Supervisor("app", Child("plain", plain)).run())


# Rare moments


def test_a_body_that_is_cancelled_while_the_tree_stops_is_cancelled_after_it() -> None:
    async def slow_to_end(ready: Callable[[], None]) -> None:
        ready()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)

    async def body() -> None:
        async with Supervisor("app", Child("slow", slow_to_end)):
            pass

    async def scene() -> None:
        task = asyncio.create_task(body())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() == 3
        assert tasks_left() == []

    run_in_virtual_time(scene())


def test_a_run_that_is_cancelled_while_it_stops_is_cancelled_after_it() -> None:
    async def slow_to_end(ready: Callable[[], None]) -> None:
        ready()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)

    async def scene() -> None:
        tree = Supervisor("app", Child("slow", slow_to_end))
        running = asyncio.create_task(tree.run())
        await asyncio.sleep(1)
        stopping = asyncio.create_task(tree.stop())
        await asyncio.sleep(1)
        with pytest.raises(SetupError, match="is stopping: no child can be added"):
            tree.add(Worker("late").child())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await stopping
        assert asyncio.get_running_loop().time() == 4
        assert tasks_left() == []

    run_in_virtual_time(scene())


async def test_a_body_that_others_cancel_while_the_tree_fails_is_cancelled() -> None:
    a = Worker("a")

    async def body() -> None:
        async with Supervisor("app", a.child(), plan=RestartPlan(intensity=0)):
            await asyncio.sleep(1000)

    task = asyncio.create_task(body())
    await turns()
    a.crash()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert a.alive == 0


def test_a_stop_of_one_child_that_is_under_way_is_waited_for_at_the_end() -> None:
    async def slow_to_end(ready: Callable[[], None]) -> None:
        ready()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)

    async def scene() -> None:
        for what in ("stop", "remove"):
            begin = asyncio.get_running_loop().time()
            async with Supervisor("app", Child("slow", slow_to_end)) as tree:
                stopping = asyncio.create_task(getattr(tree, what)("slow"))
                await asyncio.sleep(1)
            assert asyncio.get_running_loop().time() == begin + 3
            assert tasks_left() == []
            await stopping

    run_in_virtual_time(scene())


async def test_a_child_that_fails_while_it_is_stopped_is_logged_and_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async def clumsy(ready: Callable[[], None]) -> None:
        ready()
        try:
            await asyncio.sleep(1000)
        finally:
            raise Crash("while cleaning up")

    async with Supervisor("app", Child("clumsy", clumsy)) as tree:
        await tree.stop("clumsy")
        assert states(tree) == {"clumsy": "stopped"}
        assert tree.children[0].error == "Crash: while cleaning up"
    assert "app/clumsy failed while it was stopped" in caplog.text


async def test_a_run_that_others_cancel_before_its_first_step_is_a_crash() -> None:
    events: list[SupervisorEvent] = []
    a = Worker("a")
    async with Supervisor("app", Worker("b").child(), on_event=events.append) as tree:
        tree.add(a.child())
        for _ in range(3):
            for task in asyncio.all_tasks():
                if task.get_name() == "child app/a":
                    task.cancel()
            await asyncio.sleep(0)
        await turns()
        [ended] = [event for event in events if told([event]) == ["ended app/a"]]
        assert isinstance(ended.error, asyncio.CancelledError)
        assert (a.runs, a.alive) == (1, 1)


async def test_paths_go_through_all_levels_in_whatever_order_a_tree_is_built() -> None:
    events: list[SupervisorEvent] = []
    a = Worker("a")
    lowest = Supervisor("lowest")
    middle = Supervisor("middle", lowest)
    top = Supervisor("top", middle, on_event=events.append)
    lowest.add(a.child())
    async with top:
        assert (lowest.path, middle.path) == ("top/middle/lowest", "top/middle")
    assert "ready top/middle/lowest/a" in told(events)


async def test_an_error_of_the_supervisor_itself_fails_it_instead_of_being_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*values: object) -> float:
        raise ZeroDivisionError

    a = Worker("a")
    tree = Supervisor("app", a.child())
    running = asyncio.create_task(tree.run())
    await turns()
    monkeypatch.setattr("ferrule.supervision.restart.RestartHistory.next_delay", broken)
    a.crash()
    with pytest.raises(SupervisorFailed, match="an error of its own: ZeroDivisionError"):
        await running
    assert tasks_left() == []
