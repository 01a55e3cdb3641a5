"""Resources whose reads are kept for a while."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Context, Server, SetupError
from ferrule.testing import pair, run_in_virtual_time


def test_a_kept_read_is_used_again_until_it_is_too_old_updated_or_removed(era: str) -> None:
    """RSRC-13"""
    app = Server("kept")
    reads = []

    async def clock() -> str:
        reads.append(1)
        return f"read {len(reads)}"

    app.add_resource("clock://now", clock, ttl=10.0)

    async def scenario() -> list[str]:
        async with pair(app, era, cache=False) as client:  # type: ignore[arg-type]
            texts = [(await client.read_resource("clock://now")).text for _ in range(3)]
            app.notify_resource_updated("clock://now")
            texts.append((await client.read_resource("clock://now")).text)
            await asyncio.sleep(11)
            texts.append((await client.read_resource("clock://now")).text)
            app.remove_resource("clock://now")
            app.add_resource("clock://now", clock, ttl=10.0)
            texts.append((await client.read_resource("clock://now")).text)
            return texts

    assert run_in_virtual_time(scenario()) == ["read 1", "read 1", "read 1", "read 2", "read 3", "read 4"]


def test_how_long_a_read_may_be_kept_is_told_to_the_client() -> None:
    """CACHE-1"""
    app = Server("kept")
    app.add_resource("clock://now", lambda: "tick", ttl=2.5)

    async def scenario() -> int | None:
        async with pair(app, "stateless") as client:
            return (await client.read_resource("clock://now")).ttl_ms

    assert asyncio.run(scenario()) == 2500


def test_a_resource_that_looks_at_its_caller_cannot_be_kept() -> None:
    app = Server("kept")

    async def mine(ctx: Context) -> str:
        return str(ctx.principal)

    with pytest.raises(SetupError, match="cannot take a Context"):
        app.add_resource("mine://x", mine, ttl=1.0)
