"""Tasks of one node at another: asked about, waited for, answered, cancelled, listened to."""

from __future__ import annotations

import asyncio
from typing import Any

from balancer import Balancer
from nodes import Nodes
from redis_server import RedisServer

from ferrule import Client
from ferrule.client.features.tasks import Task

PATIENCE = 20.0


async def answer(question: Any) -> dict[str, str]:
    """The answer of a user to any question."""
    return {"value": "tea"}


async def statuses(task: Task) -> list[str]:
    """Return how a task stood, until its end."""
    return [state.status async for state in task]


async def test_a_task_is_the_same_at_every_node(redis: RedisServer, era: str) -> None:
    """A client that changes node at every request starts, asks about, answers, waits for and cancels tasks."""
    async with Nodes(redis.url) as nodes, Balancer(nodes.ports, each_request=True) as balancer:
        async with Client(balancer.url, mode=era, elicitation=answer) as client:
            for _ in range(4):
                assert (await client.call_tool("work", {"seconds": 0.05}, task=True, timeout=PATIENCE)).data in (0, 1)
            served = await client.call_tool("serve", task=True, timeout=PATIENCE)
            assert str(served.data).startswith("tea from")
            endless = await client.start_task("work", {"seconds": 1000})
            assert (await client.get_task(endless.id)).status == "working"
            await client.cancel_task(endless.id)
            for _ in range(2):
                assert (await client.get_task(endless.id)).status == "cancelled"
        running = [node.app.host.tasks for node in nodes.each]
        async with asyncio.timeout(PATIENCE):
            while any(tasks.live for tasks in running):
                await asyncio.sleep(0.01)


async def test_a_cancelled_task_ends_at_the_node_that_runs_it(redis: RedisServer) -> None:
    """Whoever listens at the other node is told, and the work is stopped."""
    async with (
        Nodes(redis.url) as nodes,
        Client(nodes.each[0].url, mode="stateless") as starter,
        Client(nodes.each[1].url, mode="stateless") as other,
    ):
        task = await starter.start_task("work", {"seconds": 1000})
        assert list(nodes.each[0].app.host.tasks.live) == [task.id]
        following = asyncio.create_task(statuses(other.task(task.id)))
        while not nodes.each[1].app.host.services.subscriptions.watched_tasks:
            await asyncio.sleep(0.01)
        await starter.cancel_task(task.id)
        assert (await asyncio.wait_for(following, PATIENCE))[-1] == "cancelled"
        second = await starter.start_task("work", {"seconds": 1000})
        await other.cancel_task(second.id)
        async with asyncio.timeout(PATIENCE):
            while nodes.each[0].app.host.tasks.live:
                await asyncio.sleep(0.01)
