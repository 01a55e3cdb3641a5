"""What every test stands on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ferrule.client.link.era_memory import known_eras
from ferrule.testing import ERAS
from nobody_left import left_since, present

# A shell starts background jobs with SIGINT ignored, and children inherit that: tests that press Ctrl-C would press it
# in vain. A handler of our own is not inherited, so that children start with the default again.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What a slow machine takes its time for is no fault, and what is tried is the same each time; `make fuzz` tries more.
settings.register_profile(
    "ferrule",
    deadline=None,
    derandomize=not os.environ.get("FERRULE_LONG"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ferrule")

TURNS = 20
"""More turns of the loop than anything takes that goes from one end of a link to the other within a process."""
_sleep = asyncio.sleep


def sleep(delay: float, result: Any = None) -> Coroutine[Any, Any, Any]:
    """Wait as `asyncio.sleep` does, and in a test for some turns of the loop as well.

    On a machine that stands still for a moment a short time may pass in which the loop has not turned at all, and what
    a test waits for has had no chance to happen.
    """
    package, _, rest = str(sys._getframe(1).f_globals.get("__name__")).partition(".")
    tested = package == "ferrule" and not rest.startswith("testing.")
    return _sleep(delay, result) if delay <= 0 or tested else _turns_later(delay, result)


async def _turns_later(delay: float, result: Any) -> Any:
    await _sleep(delay)
    for _ in range(TURNS):
        await _sleep(0)
    return result


asyncio.sleep = sleep


@pytest.fixture(autouse=True)
def _no_era_is_known() -> None:
    """Let no test know what another found out at a port that is used again."""
    known_eras.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were skipped, one line for each reason with its count."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("skipped, by reason")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5} {reason}")


def _reason(report: pytest.TestReport) -> str:
    place, _, reason = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
    return reason.removeprefix("Skipped: ") or f"no reason given in {place}"


@pytest.fixture(scope="module", autouse=True)
def nobody_is_left_behind() -> Iterator[None]:
    """What a module of tests starts it also ends: the tests of the next would count it as theirs."""
    before = present()
    yield
    left = left_since(before)
    assert not left, f"left behind by the tests of this module: {left}"


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """Each protocol generation in turn: a handler cannot tell them apart."""
    return str(request.param)


@pytest.fixture
def virtual_time() -> None:
    """Let time pass only when nobody has anything left to do, where the folder's tests are run so."""
