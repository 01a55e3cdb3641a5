"""Async tests of this folder run on asyncio's own loop, and once more on uvloop where there is one."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

try:
    import uvloop
except ImportError:
    uvloop = None

sys.path.insert(0, str(Path(__file__).resolve().parent))

LIMIT = 30.0


def loops() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    """The loops to run on."""
    return [asyncio.new_event_loop, *([uvloop.new_event_loop] if uvloop else [])]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on each loop; one that hangs fails."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for loop in loops():
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(asyncio.wait_for(pyfuncitem.obj(**given), LIMIT))
    return True
