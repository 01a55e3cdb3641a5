"""What nodes keep and count together: large results, and how often handlers may be asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nodes import Node, Nodes, new_app
from plain_http import CALL, initialize, post, send
from redis_server import RedisServer

from ferrule import Client, Server
from ferrule.errors import SetupError
from ferrule.schema.content import ResourceLink
from ferrule.stores.leases import NodeLease


async def test_a_result_that_is_kept_can_be_read_at_another_node(redis: RedisServer) -> None:
    async with Nodes(redis.url, result_limit=10_000, result_policy="spill") as nodes:
        first, second = nodes.each
        async with Client(first.url, mode="stateless") as asking, Client(second.url, mode="stateless") as reading:
            content = (await asking.call_tool("large")).content
            links = [block for block in content if isinstance(block, ResourceLink)]
            assert len(links) == 1
            await asyncio.sleep(0.1)  # it is on its way to the store
            read = await reading.read_resource(links[0].uri)
            assert "x" * 100_000 in str(read.contents[0])


async def test_the_store_keeps_no_more_results_than_its_nodes(redis: RedisServer) -> None:
    """Whoever calls again and again would else fill it for as long as results are kept."""
    options = {"result_limit": 10_000, "result_policy": "spill", "max_kept_bytes": 1_000_000}
    async with Nodes(redis.url, 1, **options) as nodes, Client(nodes.each[0].url, mode="stateless") as client:
        for _ in range(20):
            await client.call_tool("large")
        await asyncio.sleep(0.2)
        kept = redis.command("KEYS", "f:ferrule:v:result:*")
        assert 1 <= len(kept) <= 10


async def test_a_rate_holds_for_all_nodes_together(redis: RedisServer) -> None:
    """Forty a minute for the server: two nodes let those through, and one lease each beyond; then none."""
    async with Nodes(redis.url, rate={"server": "40/min burst 40"}) as nodes:
        sessions = [await initialize(node.url) for node in nodes.each]
        granted = 0
        for turn in range(100):
            node = nodes.each[turn % 2]
            _, _, said = await send(node.url, "POST", "", sessions[turn % 2], CALL)
            granted += b'"result"' in said
            await asyncio.sleep(0.01)
        assert 40 <= granted <= 40 + 2 * 10 + 2


async def test_sessions_in_a_file_survive_a_restart(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'notes.db'}"
    before = Node(new_app(0, stores=address))
    await before.start()
    session = await initialize(before.url)
    await before.stop(0.5)
    after = Node(new_app(1, stores=address))
    await after.start()
    try:
        assert await post(after.url, "", session) == 200
        assert await post(after.url, "", "unknown") == 404
    finally:
        await after.stop(0.5)


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_a_start_that_does_not_succeed_leaves_nothing_of_the_node(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store is open and its tasks run before it holds its lease."""
    host = Server("notes", stores=f"sqlite:{tmp_path / 'notes.db'}")._runner._host
    node = host.node
    assert node is not None
    before = asyncio.all_tasks()
    asked = asyncio.Event()

    async def renew(lease: NodeLease) -> None:
        asked.set()
        if how == "failed":
            raise OSError("broken")
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(NodeLease, "renew", renew)
        user = asyncio.create_task(host.enter())
        await asked.wait()
        if how == "cancelled":
            user.cancel()
        await asyncio.wait([user])
    assert user.cancelled() or isinstance(user.exception(), OSError)
    assert node.sessions is None
    assert node.stores.backend._thread is None  # type: ignore[attr-defined]
    assert asyncio.all_tasks() == before
    await host.enter()
    assert node.sessions is not None
    await host.leave()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("address", ["http://example.com", "sqlite:", 3])
def test_an_address_that_is_none_of_a_store_is_refused_without_its_secrets(address: object) -> None:
    with pytest.raises(SetupError, match="stores") as refused:
        Server("notes", stores=address)  # type: ignore[arg-type]
    assert "example" not in str(refused.value)
