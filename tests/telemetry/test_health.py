"""Health checks run at their intervals, and what they find is told as healthy, degraded or unhealthy."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.telemetry.health import CheckRecord, CheckResult, HealthMonitor, LoopLag, judge_lag, judge_share
from ferrule.telemetry.process import memory_limit
from ferrule.testing import run_in_virtual_time

FAILED = CheckResult("fail", "", "refused")
PASSED = CheckResult()


def record(**options: Any) -> CheckRecord:
    """Return the state of a check with the usual options."""
    return CheckRecord(
        "db", **{"interval": 30, "timeout": 5, "failures": 3, "recovery": 10, "required": False, **options}
    )


def scene(work: Coroutine[Any, Any, None]) -> None:
    """Run a scene in virtual time."""
    run_in_virtual_time(asyncio.wait_for(work, 100_000))


async def while_running(monitor: HealthMonitor, work: Coroutine[Any, Any, None]) -> None:
    """Do something while a monitor runs."""
    running = asyncio.create_task(monitor.run())
    try:
        await work
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


# One check


def test_three_failures_in_a_row_are_unhealthy_and_one_success_is_healthy() -> None:
    """OBSV-04, OBSV-07"""
    check = record()
    assert [check.record(result, 0.0) for result in (PASSED, FAILED, FAILED, FAILED, FAILED, PASSED)] == [
        *("pass", "warn", "warn", "fail", "fail", "pass"),
    ]


def test_a_check_that_fails_is_repeated_sooner() -> None:
    """OBSV-07"""
    check = record()
    pauses = []
    for result in (PASSED, FAILED, FAILED, FAILED, PASSED, CheckResult("warn")):
        check.record(result, 0.0)
        pauses.append(check.pause)
    assert pauses == [30, 10, 10, 10, 30, 30]


def test_a_warning_is_degraded_and_never_adds_up() -> None:
    check = record()
    assert {check.record(CheckResult("warn"), 0.0) for _ in range(10)} == {"warn"}
    assert check.record(FAILED, 0.0) == "warn"


@pytest.mark.parametrize("wrong", [{"interval": 0}, {"timeout": -1}, {"recovery": 0}, {"failures": 0}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(SetupError, match=f"check 'db': {name} must be"):
        record(**wrong)


# The monitor


def test_checks_run_every_thirty_seconds_and_every_ten_while_they_fail() -> None:
    """OBSV-07"""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        times: list[float] = []
        monitor = HealthMonitor()

        def check() -> bool:
            times.append(loop.time())
            return not 60 <= loop.time() < 90

        async def watch() -> None:
            monitor.register("db", check, required=True)
            words = {}
            for _ in range(145):
                await asyncio.sleep(1)
                words[loop.time()] = monitor.word
            assert (words[59], words[61], words[79], words[81], words[89], words[91]) == (
                *("healthy", "degraded", "degraded", "unhealthy", "unhealthy", "healthy"),
            )

        await while_running(monitor, watch())
        assert times == [0, 30, 60, 70, 80, 90, 120]

    scene(work())


def test_a_check_that_hangs_fails_after_five_seconds_and_holds_up_no_other() -> None:
    """OBSV-07"""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        times: list[float] = []
        monitor = HealthMonitor()

        async def hangs() -> None:
            await asyncio.sleep(1_000)

        monitor.register("hangs", hangs)
        monitor.register("quick", lambda: times.append(loop.time()))

        async def watch() -> None:
            await asyncio.sleep(4.9)
            assert monitor.status == "pass"
            await asyncio.sleep(0.2)
            assert monitor.status == "warn"
            assert monitor.report()["checks"]["hangs"][0]["output"] == "no answer within 5 s"
            await asyncio.sleep(60)

        await while_running(monitor, watch())
        assert times == [0, 30, 60]

    scene(work())


def test_a_check_that_ignores_its_cancellation_is_not_run_twice() -> None:
    async def work() -> None:
        starts = 0
        monitor = HealthMonitor()

        async def stubborn() -> None:
            nonlocal starts
            starts += 1
            end = asyncio.get_running_loop().time() + 100
            while asyncio.get_running_loop().time() < end:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(100)

        monitor.register("stubborn", stubborn)

        async def watch() -> None:
            await asyncio.sleep(50)
            assert starts == 1
            assert monitor.report()["checks"]["stubborn"][0]["output"] == "the check before this one has not ended"
            await asyncio.sleep(100)
            assert starts == 2

        await while_running(monitor, watch())

    scene(work())


@pytest.mark.parametrize(
    ("error", "output"),
    [
        (OSError("refused"), "OSError: refused"),
        (SystemExit(), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_whatever_a_check_raises_is_a_failure(error: BaseException, output: str) -> None:
    """SUPV-03"""

    async def work() -> None:
        monitor = HealthMonitor()

        def plain() -> None:
            raise error

        async def awaited() -> None:
            raise error

        monitor.register("plain", plain)
        monitor.register("awaited", awaited)
        await while_running(monitor, asyncio.sleep(0.001))
        checks = monitor.report()["checks"]
        assert (checks["plain"][0]["output"], checks["awaited"][0]["output"]) == (output, output)

    scene(work())


def test_what_a_check_may_return() -> None:
    async def work() -> None:
        monitor = HealthMonitor()
        found: dict[str, Any] = {"none": None, "true": True, "false": False, "half": CheckResult("warn", "1/2", "one")}
        for name, value in found.items():
            monitor.register(name, lambda value=value: value)
        await while_running(monitor, asyncio.sleep(0.001))
        checks = monitor.report()["checks"]
        assert [checks[name][0]["status"] for name in found] == ["pass", "pass", "warn", "warn"]
        assert (checks["half"][0]["observedValue"], checks["half"][0]["output"]) == ("1/2", "one")

    scene(work())


def test_only_a_required_check_makes_the_whole_unhealthy_and_not_ready() -> None:
    """OBSV-04: healthy, degraded, unhealthy."""
    monitor = HealthMonitor()
    optional = monitor.register("cache", lambda: None)
    required = monitor.register("db", lambda: None, required=True)
    assert (monitor.status, monitor.word, monitor.not_ready()) == ("pass", "healthy", [])
    for _ in range(3):
        optional.record(FAILED, 0.0)
    assert (monitor.status, monitor.word, monitor.not_ready()) == ("warn", "degraded", [])
    for _ in range(3):
        required.record(FAILED, 0.0)
    assert (monitor.status, monitor.word, monitor.not_ready()) == ("fail", "unhealthy", ["db: refused"])
    monitor.draining = True
    assert monitor.not_ready() == ["draining", "db: refused"]


def test_a_report_is_json_of_the_known_form() -> None:
    monitor = HealthMonitor(version="1.2", generation=7)
    monitor.register("upstream:db", lambda: None).record(CheckResult("warn", "1/2", "refused"), 0.0)
    monitor.draining = True
    assert json.loads(json.dumps(monitor.report())) == {
        "status": "warn",
        "version": "1.2",
        "generation": 7,
        "notes": ["draining"],
        "checks": {
            "upstream:db": [
                {
                    "status": "warn",
                    "observedValue": "1/2",
                    "time": "1970-01-01T00:00:00.000+00:00",
                    "output": "refused",
                }
            ]
        },
    }


def test_checks_come_and_go_while_the_monitor_runs() -> None:
    async def work() -> None:
        monitor = HealthMonitor()
        runs: list[str] = []

        async def watch() -> None:
            monitor.register("a", lambda: runs.append("a"), interval=1)
            with pytest.raises(SetupError, match="a check 'a' already"):
                monitor.register("a", lambda: None)
            await asyncio.sleep(2.5)
            assert runs == ["a", "a", "a"]
            monitor.unregister("a")
            monitor.unregister("a")
            await asyncio.sleep(10)
            assert runs == ["a", "a", "a"]
            assert monitor.report()["checks"] == {}

        await while_running(monitor, watch())
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert [name for name in names if name.startswith("check")] == []

    scene(work())


def test_a_change_of_health_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        monitor = HealthMonitor()
        loop = asyncio.get_running_loop()
        monitor.register("db", lambda: loop.time() >= 100)
        await while_running(monitor, asyncio.sleep(300))

    with caplog.at_level(logging.INFO, "ferrule.telemetry"):
        scene(work())
    assert [record.message for record in caplog.records] == [
        "health check db is degraded: the check returned False",
        "health check db is unhealthy: the check returned False",
        "health check db is healthy: passed",
    ]


def test_the_monitor_is_a_child_that_says_when_it_is_ready() -> None:
    async def work() -> None:
        ready = asyncio.Event()
        running = asyncio.create_task(HealthMonitor().run(ready.set))
        await ready.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    scene(work())


# The system


@pytest.mark.parametrize(
    ("used", "limit", "status"),
    [(84, 100, "pass"), (85, 100, "warn"), (94, 100, "warn"), (95, 100, "fail"), (200, 100, "fail"), (200, 0, "pass")],
)
def test_memory_warns_at_85_and_fails_at_95_percent(used: int, limit: int, status: str) -> None:
    """OBSV-07"""
    assert judge_share(used, limit, "memory").status == status


@pytest.mark.parametrize(("lag", "status"), [(0.0, "pass"), (0.9, "pass"), (1.0, "warn"), (5.0, "fail")])
def test_a_late_loop_is_noticed(lag: float, status: str) -> None:
    assert judge_lag(lag).status == status


def test_the_system_is_looked_at_every_fifteen_seconds() -> None:
    """OBSV-07"""

    async def work() -> None:
        monitor = HealthMonitor()
        monitor.register_system()
        assert [check.interval for check, _ in monitor._checks.values()] == [15, 15, 15]
        await while_running(monitor, asyncio.sleep(1))
        checks = monitor.report()["checks"]
        assert list(checks) == ["memory", "descriptors", "event loop"]
        assert {name: check[0]["status"] for name, check in checks.items() if name != "memory"} == {
            "descriptors": "pass",
            "event loop": "pass",
        }
        assert monitor.is_alive()

    scene(work())


async def _blocked() -> None:
    monitor = HealthMonitor()
    loop: Any = asyncio.get_running_loop()

    async def block() -> None:
        await asyncio.sleep(1)
        loop.advance(6)
        await asyncio.sleep(0.6)
        assert not monitor.is_alive()
        await asyncio.sleep(10)
        assert monitor.is_alive()

    await while_running(monitor, block())


def test_a_loop_that_was_blocked_for_six_seconds_is_not_alive_for_ten() -> None:
    scene(_blocked())


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 10)), max_size=50))
def test_the_longest_lag_of_the_window_is_found(measured: list[tuple[float, float]]) -> None:
    lag = LoopLag(window=10.0)
    now = 0.0
    known: list[tuple[float, float]] = []
    for pause, late in measured:
        now += pause
        lag.record(late, now)
        known.append((now, late))
        assert lag.longest(now) == max(late for when, late in known if when > now - 10)
    assert lag.longest(now + 10.1) == 0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"proc/meminfo": "MemTotal:  2048 kB\n"}, 2048 * 1024),
        ({"proc/meminfo": "MemTotal:  2048 kB\n", "sys/fs/cgroup/memory.max": "max\n"}, 2048 * 1024),
        ({"proc/meminfo": "MemTotal:  2048 kB\n", "sys/fs/cgroup/memory.max": "1000\n"}, 1000),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "500\n", "sys/fs/cgroup/memory.max": "x"},
            500,
        ),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "400\n"}, 400),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "300\n"}, 300),
        (
            {
                "proc/self/cgroup": "5:cpu,memory:/docker/x\n3:pids:/y\n",
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "200\n",
            },
            200,
        ),
    ],
)
def test_the_limit_of_memory_is_that_of_the_control_group(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    """OBSV-07: control groups of both versions."""
    for name, text in files.items():
        place = tmp_path / name
        os.makedirs(place.parent, exist_ok=True)
        place.write_text(text)
    assert memory_limit(tmp_path) == expected


def test_this_machine_has_a_limit_of_memory() -> None:
    assert memory_limit() > 1e6
