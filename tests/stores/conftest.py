"""What the tests of stores stand on: a real Redis, started once for a module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from redis_server import RedisServer, needs_redis


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
