"""Ten nodes in processes of their own, one Redis, and clients that change node at every request: nothing is lost."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest
from balancer import Balancer
from node_program import NodeProcesses
from pace import LONG
from redis_server import RedisServer

from ferrule import Client
from ferrule.errors import FerruleError

CLIENTS = 10
SECONDS = 60.0
PATIENCE = 30.0


class User:
    """A client that does a bit of everything, and knows what it must be answered."""

    def __init__(self, number: int, url: str, era: str) -> None:
        self.name = f"user {number}"
        self._url = url
        self._era = era
        self.done = 0
        self.lost: list[str] = []
        self.foreign: list[str] = []

    async def _answer(self, question: Any) -> dict[str, str]:
        return {"value": self.name}

    async def live(self, until: float) -> None:
        """Ask until the time is over; a session that is lost is begun anew."""
        while time.monotonic() < until:
            try:
                async with Client(self._url, mode=self._era, elicitation=self._answer) as client:
                    await self._ask(client, until)
            except FerruleError as error:
                self.lost.append(f"{self.name}: {error!r}")

    async def _ask(self, client: Client, until: float) -> None:
        counted = 0
        while time.monotonic() < until:
            said = str((await client.call_tool("order", timeout=PATIENCE)).data)
            if not said.startswith(f"{self.name} from"):
                self.foreign.append(said)
            served = str((await client.call_tool("serve", task=True, timeout=PATIENCE)).data)
            if not served.startswith(f"{self.name} from"):
                self.foreign.append(served)
            if self._era == "handshake":
                counted += 1
                found = (await client.call_tool("count", timeout=PATIENCE)).data
                if found != counted:
                    self.foreign.append(f"{self.name} has counted {counted}, not {found}")
            await client.call_tool("slow", {"steps": 3, "pause": 0.02}, timeout=PATIENCE)
            self.done += 1


@pytest.mark.skipif(not LONG, reason="ten processes for a minute: FERRULE_LONG=1 runs them")
async def test_clients_that_change_node_at_every_request_lose_nothing(redis: RedisServer) -> None:
    """Both eras: sessions, streams, questions and tasks; 0 lost, 0 foreign while nothing fails.

    Then one node is killed: only what ran there may be lost, and nobody is ever answered with another's answer.
    """
    with NodeProcesses(redis.url, count=10, lease=2.0) as nodes:
        async with Balancer(nodes.ports, each_request=True) as balancer:
            users = [User(number, balancer.url, ("handshake", "stateless")[number % 2]) for number in range(CLIENTS)]
            until = time.monotonic() + SECONDS / 2
            await asyncio.gather(*(user.live(until) for user in users))
            assert [user.lost for user in users if user.lost] == []
            assert [user.foreign for user in users if user.foreign] == []
            assert sum(user.done for user in users) >= CLIENTS
            until = time.monotonic() + SECONDS / 2
            living = asyncio.gather(*(user.live(until) for user in users))
            await asyncio.sleep(SECONDS / 10)
            nodes.kill(random.Random(1).randrange(10))
            await living
            assert [user.foreign for user in users if user.foreign] == []
            assert sum(len(user.lost) for user in users) <= CLIENTS
