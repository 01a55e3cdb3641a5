"""Async tests of this folder, in virtual time when they are marked so; and servers in this process that can fail."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from ferrule.testing import run_in_virtual_time

PATIENCE = 120.0

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "transports" / "tcp")]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Run a test on each event loop."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_test(test: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test, PATIENCE))

    return run_test


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_time: an async test whose timers cost no time")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test to its end, and find the tasks it left."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    if pyfuncitem.get_closest_marker("virtual_time"):
        run_in_virtual_time(_leaving_no_task(pyfuncitem.obj(**arguments)))
    else:
        asyncio.run(_leaving_no_task(asyncio.wait_for(pyfuncitem.obj(**arguments), PATIENCE)))
    return True


async def _leaving_no_task(test: Awaitable[None]) -> None:
    await test
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"left running: {left}"
