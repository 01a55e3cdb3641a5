"""How authorization is tested: async tests have a loop of their own, and no text may hold a secret of the run."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    *(str(HERE.parent / name) for name in ("identity", "transports", "faults", "telemetry", "stores")),
]

from leaks import no_text_holds_a_secret, secrets_of_the_run  # noqa: E402, F401 - the path above leads to them

PATIENCE = 120.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), PATIENCE))
    return True
