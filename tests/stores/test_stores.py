"""Stores, named once: what each way of keeping gives, and what is said where something is missing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from redis_server import needs_redis

from ferrule.errors import SetupError
from ferrule.stores.stores import Stores
from uncounted import uncounted_environment

PARTS = ("sessions", "events", "tasks", "values", "bus", "limits", "seen", "nodes", "directory", "locks", "backend")


def test_every_way_of_keeping_has_every_part(tmp_path: Path) -> None:
    needs_redis()
    for stores in (Stores.memory(), Stores.sqlite(tmp_path / "s.db"), Stores.redis("redis://127.0.0.1:1")):
        for part in PARTS:
            assert getattr(stores, part) is not None
    assert list(tmp_path.iterdir()) == [], "nothing is touched before it is opened"


def test_stores_in_memory_need_no_opening() -> None:
    async def use() -> None:
        async with Stores.memory() as stores:
            assert stores.backend.state == "ready"
            await stores.values.put("a", b"1")
            assert await stores.seen.add("jti", 10)
            assert not await stores.seen.add("jti", 10)

    asyncio.run(use())


@pytest.mark.parametrize("namespace", ["", "a b", "a:b", "{a}", "ä", "*"])
def test_a_namespace_that_would_mix_keys_is_refused(namespace: str) -> None:
    needs_redis()
    with pytest.raises(SetupError, match="namespace"):
        Stores.redis("redis://127.0.0.1", namespace=namespace)


def test_redis_without_its_library_says_what_to_install() -> None:
    program = (
        "import sys\nsys.modules['redis'] = None\nfrom ferrule.stores.stores import Stores\n"
        "try:\n    Stores.redis('redis://127.0.0.1')\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("SetupError")
    assert "ferrule[redis]" in done.stdout


def test_naming_stores_loads_no_library() -> None:
    program = (
        "import sys\nfrom ferrule.stores.stores import Stores\nStores.memory()\n"
        "print([name for name in ('redis', 'hiredis', 'sqlite3', 'hashlib') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    environment = uncounted_environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
