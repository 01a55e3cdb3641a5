"""Every store of ours keeps the rules of the kit; "sessions claimed once" is about nodes that die with leases.

Proves: CLU-09
"""

from __future__ import annotations

import pytest
from our_stores import Memory, Redis, Sqlite
from redis_server import RedisServer

from ferrule.testing.store_kit import store_tests

OURS = (Memory(), Sqlite(), Redis())


@pytest.fixture(autouse=True)
def _with_redis(request: pytest.FixtureRequest) -> None:
    """Start Redis when the first of its rules is judged."""
    callspec = getattr(request.node, "callspec", None)
    maker = callspec.params.get("maker") if callspec is not None else None
    if isinstance(maker, Redis):
        server: RedisServer = request.getfixturevalue("redis_server")
        maker.server = server


test_stores_keep_the_rules = store_tests(*OURS)
