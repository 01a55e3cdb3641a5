"""What nodes do when one of them, or the Redis they share, is killed, emptied or cut off."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest
from balancer import Balancer
from node_program import NodeProcesses
from nodes import Node, Nodes, new_app
from pace import LONG, prompt
from plain_http import delete, initialize, post
from redis_server import RedisServer

from ferrule import Client
from ferrule.errors import FerruleError
from ferrule.stores.stores import Stores

PATIENCE = 20.0
LEASE = 1.0


async def test_a_stopped_and_a_killed_node_lose_what_ran_in_them_and_nothing_else(redis: RedisServer) -> None:
    """CLU-09, CRA-04 over Redis: within a lease their sessions go on elsewhere, with their state and streams."""
    with NodeProcesses(redis.url, lease=LEASE) as processes:
        await a_stopped_node_comes_back_to_nothing(processes)
        async with (
            Balancer(processes.ports, each_request=True) as balancer,
            Client(balancer.url, mode="handshake") as client,
            client.subscribe("notes://1") as changes,
            Client(balancer.url, mode="handshake") as other,
        ):
            for expected in (1, 2, 3):
                assert (await client.call_tool("count")).data == expected
            await asyncio.sleep(0.1)  # what was written behind is there
            owner = (await client.call_tool("node")).data
            running = asyncio.create_task(client.call_tool("slow", {"steps": 1000}, timeout=PATIENCE))
            await asyncio.sleep(0.2)
            processes.kill(owner)
            balancer.ports = [processes.ports[1 - owner]]
            began = time.monotonic()
            assert (await client.call_tool("count", timeout=PATIENCE)).data == 4
            assert time.monotonic() - began < 10 * LEASE
            assert (await client.call_tool("node")).data == 1 - owner
            assert await asyncio.wait_for(anext(changes), PATIENCE) == "notes://1"
            assert (await other.call_tool("node")).data == 1 - owner
            assert isinstance((await asyncio.gather(running, return_exceptions=True))[0], FerruleError)


async def a_stopped_node_comes_back_to_nothing(processes: NodeProcesses) -> None:
    """One that slept through its lease lets go of what others have, and forwards to them."""
    first, second = (f"http://127.0.0.1:{port}/mcp" for port in processes.ports)
    session = await initialize(first)
    os.kill(processes.each[0].pid, signal.SIGSTOP)
    assert await asyncio.wait_for(post(second, "", session), PATIENCE) == 200
    os.kill(processes.each[0].pid, signal.SIGCONT)
    until = time.monotonic() + PATIENCE
    while await post(first, "", session) != 200:
        assert time.monotonic() < until
    assert await delete(first, "", session) == 204
    assert await post(second, "", session) == 404


async def test_a_killed_redis_leaves_local_sessions_serving(redis: RedisServer) -> None:
    """CLU-02: cluster calls fail in 0.6 s; when Redis is back, and empty, sessions are any node's again within 2 s."""
    async with Nodes(redis.url) as nodes:
        first, second = nodes.each
        session = await initialize(first.url)
        other = await initialize(second.url)
        assert await post(second.url, "", session) == 200
        redis.kill()
        answered = time.monotonic() + (10.0 if LONG else 2.0)
        while time.monotonic() < answered:
            assert await post(first.url, "", session) == 200
            began = time.monotonic()
            assert await post(second.url, "", session) in (502, 503)
            assert time.monotonic() - began <= prompt(0.6)
            alone = await initialize(first.url)
            await asyncio.sleep(0.02)
        assert second.app.host.monitor().health.not_ready() == []
        redis.start()
        began = time.monotonic()
        for identity in (session, alone):
            while await post(second.url, "", identity) != 200:
                assert time.monotonic() - began < prompt(2.0)
                await asyncio.sleep(0.02)
        assert await post(first.url, "", other) == 200
        assert await delete(second.url, "", session) == 204
        while (status := await post(first.url, "", session)) != 404:
            assert status == 503, "for a moment it may not be known yet"
            await asyncio.sleep(0.05)


TAKES_NO_WRITES = {
    "it is full": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    "it became a replica": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
}


@pytest.mark.parametrize("fault", TAKES_NO_WRITES)
async def test_a_redis_that_takes_no_writes_leaves_local_sessions_serving(redis: RedisServer, fault: str) -> None:
    """Nobody can claim a session there, so its owner goes on, however long that lasts; then all is as before."""
    begin, end = TAKES_NO_WRITES[fault]
    nodes = [Node(new_app(number, stores=Stores.redis(redis.url, lease=LEASE))) for number in range(2)]
    await asyncio.gather(*(node.start() for node in nodes))
    first, second = nodes
    try:
        session = await initialize(first.url)
        assert await post(second.url, "", session) == 200
        redis.command(*begin)
        until = time.monotonic() + 3 * LEASE
        while time.monotonic() < until:
            assert await post(first.url, "", session) == 200
            await asyncio.sleep(0.05)
        for node in nodes:
            assert node.app.host.monitor().health.not_ready() == []
        redis.command(*end)
        until = time.monotonic() + PATIENCE
        while await post(second.url, "", session) != 200:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
    finally:
        redis.command(*end)
        await asyncio.gather(*(node.stop(0.5) for node in nodes))


async def test_a_node_cut_off_stops_serving_what_others_may_own(redis: RedisServer) -> None:
    """CLU-08: at any time at most one of the two executes calls of the session, and the other says so."""
    async with Balancer([redis.port]) as way:
        cut_off = Node(new_app(0, stores=Stores.redis(f"redis://127.0.0.1:{way.port}/0", lease=LEASE)))
        well = Node(new_app(1, stores=Stores.redis(redis.url, lease=LEASE)))
        await asyncio.gather(cut_off.start(), well.start())
        try:
            session = await initialize(cut_off.url)
            assert await post(well.url, "", session) == 200
            way.freeze()
            began = time.monotonic()
            moved = asyncio.create_task(post(well.url, "", session))
            while await post(cut_off.url, "", session) == 200:
                assert not moved.done(), "both have executed a call"
                await asyncio.sleep(0.01)
            assert time.monotonic() - began < LEASE + 1
            assert cut_off.app.host.monitor().health.not_ready() != []
            assert await asyncio.wait_for(moved, PATIENCE) == 200
            assert await post(cut_off.url, "", session) == 503
            way.thaw()
            while await post(cut_off.url, "", session) != 200:
                assert time.monotonic() - began < PATIENCE
                await asyncio.sleep(0.05)
            assert well.app.host.node.sessions.owns(session)
            assert not cut_off.app.host.node.sessions.owns(session)
        finally:
            way.thaw()
            await asyncio.gather(cut_off.stop(0.5), well.stop(0.5))
