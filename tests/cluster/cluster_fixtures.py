"""What the tests of clusters stand on: a real Redis, started once for a module, and both eras."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest
from redis_server import RedisServer, needs_redis

PATIENCE = 280


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), PATIENCE))
    return True


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    """A Redis that all tests of a module share."""
    needs_redis()
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    """That Redis, running and empty."""
    redis_server.revive()
    redis_server.command("FLUSHALL")
    return redis_server


@pytest.fixture(params=["handshake", "stateless"])
def era(request: pytest.FixtureRequest) -> str:
    """Each protocol generation."""
    return str(request.param)
