"""How identity is tested: each way a server is reached, each kind of verifier, and a loop for each test."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "transports")]

from identity_desk import HTTP_WAYS, SPOKEN  # noqa: E402 - the path above leads to it

PATIENCE = 120.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), PATIENCE))
    return True


@pytest.fixture(params=SPOKEN, ids=" ".join)
def spoken(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each way by which others reach a server, with each era it has."""
    way, era = request.param
    return way, era


@pytest.fixture(params=HTTP_WAYS, ids=" ".join)
def http_way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each way of Streamable HTTP, with each era."""
    way, era = request.param
    return way, era


@pytest.fixture(params=[None, 0.01], ids=["at once", "awaited"])
def pause(request: pytest.FixtureRequest) -> float | None:
    """A verifier that answers at once, and one that waits."""
    value: float | None = request.param
    return value
