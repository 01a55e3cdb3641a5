"""Lets the tests of this folder share the raw peer; async tests run in a loop of their own, or in virtual time."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from raw_websocket import run_unhurried

PATIENCE = 120.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test; on the virtual clock if it uses `virtual_time`, where waiting for nothing fails at once."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    if "virtual_time" in pyfuncitem.fixturenames:
        run_unhurried(pyfuncitem.obj(**given))
    else:
        asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), PATIENCE))
    return True
