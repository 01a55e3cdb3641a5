"""Lets the tests of this folder and those below it share how certificates are made, and run on each event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent))

PATIENCE = 120.0


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    """Each event loop in turn."""
    return str(request.param)


@pytest.fixture
def run(request: pytest.FixtureRequest, loop: str) -> Callable[[Awaitable[None]], None]:
    """Run a test on each event loop, for as long as its module's PATIENCE says."""
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    patience = getattr(request.module, "PATIENCE", PATIENCE)

    def run_test(test: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test, patience))

    return run_test
