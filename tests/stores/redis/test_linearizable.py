"""The session store is linearizable: what clients are told could have happened one after another."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import msgspec
import pytest
from linearizable import Operation, is_linearizable
from pace import LONG
from redis_server import RedisServer, needs_redis

from ferrule.errors import StoreUnavailable
from ferrule.stores.contracts import SessionRecord
from ferrule.stores.stores import Stores

CLIENTS = 8
SECONDS = 600.0 if LONG else 6.0


Histories = dict[str, list[Operation]]
MOST_UNKNOWN = 10
"""Operations of one history that got no answer: each could have happened or not, which doubles the work of judging."""


class Client:
    """Does this and that to sessions, and writes down what it was told."""

    def __init__(self, number: int, stores: Stores, histories: Histories, chance: random.Random) -> None:
        self.node = f"n{number}"
        self.stores = stores
        self.histories = histories
        self.chance = chance
        self.known: dict[str, SessionRecord] = {}

    async def act(self, key: str) -> None:
        name = self.chance.choice(["get", "get", "create", "claim", "save", "save", "save", "delete"])
        argument: Any = self.node
        if name == "save":
            if key not in self.known:
                return
            content = str(self.chance.random())
            self.known[key] = msgspec.structs.replace(self.known[key], log_level=content)
            argument = (self.known[key].owner, self.known[key].epoch, content)
        began = time.monotonic()
        try:
            result = await self.told(name, key)
        except StoreUnavailable:
            self.histories[key].append(Operation(name, argument, None, began, float("inf"), is_known=False))
        else:
            self.histories[key].append(Operation(name, argument, result, began, time.monotonic()))

    async def told(self, name: str, key: str) -> Any:
        sessions = self.stores.sessions
        if name == "get":
            found = await sessions.get(key)
            return None if found is None else (found.owner, found.epoch, found.log_level or "")
        if name == "create":
            made = await sessions.create(SessionRecord(id=key, revision="r", owner=self.node))
            if made is not None:
                self.known[key] = made
            return made is not None
        if name == "claim":
            claimed = await sessions.claim(key, self.node)
            if claimed is None:
                raise StoreUnavailable("there is none, or another claimed it at once: it is not known which")
            self.known[key] = claimed
            return claimed.epoch
        if name == "save":
            return await sessions.save(self.known[key])
        await sessions.delete(key)
        return True


async def nemesis(redis: RedisServer, chance: random.Random) -> None:
    """Freeze Redis, cut its connections, kill it, and let it be, in turns."""
    while True:
        await asyncio.sleep(chance.uniform(0.1, 0.4))
        trouble = chance.random()
        if trouble < 0.1:
            # What it has acknowledged is on its disk, and there again.
            redis.kill()
            redis.start()
        elif trouble < 0.5:
            redis.pause()
            await asyncio.sleep(chance.uniform(0.05, 0.8))
            redis.resume()
        else:
            redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def test_clu_10_sessions_are_linearizable_under_faults() -> None:
    """Eight nodes create, read, claim, change and delete the same sessions while Redis is frozen, cut off and killed.

    What a failover may lose is shown by CLU-05.
    """
    needs_redis()
    with RedisServer("--appendonly", "yes", "--appendfsync", "always") as redis:
        assert judged_operations(redis) >= 200


def judged_operations(redis: RedisServer) -> int:
    """Let clients use sessions under faults, judge what they were told, and return of how many operations."""

    async def use() -> int:
        chance = random.Random(10)
        histories: Histories = {}
        stores = [Stores.redis(redis.url, node=f"n{number}") for number in range(CLIENTS)]
        await asyncio.gather(*[each.open() for each in stores])
        clients = [Client(number, each, histories, chance) for number, each in enumerate(stores)]
        troubles = asyncio.ensure_future(nemesis(redis, chance))
        until = time.monotonic() + SECONDS
        key = ""

        async def live(client: Client) -> None:
            while time.monotonic() < until:
                await client.act(key)
                await asyncio.sleep(client.chance.uniform(0, 0.02))

        lives = [asyncio.ensure_future(live(client)) for client in clients]
        while time.monotonic() < until:
            # A key is used for a short while, so that its history can be judged.
            key = f"s{len(histories)}"
            histories[key] = []
            await asyncio.sleep(0.15)
        await asyncio.gather(*lives)
        troubles.cancel()
        redis.resume()
        await asyncio.gather(*[each.close() for each in stores])
        judged = 0
        for history in histories.values():
            if sum(not operation.is_known for operation in history) <= MOST_UNKNOWN:
                assert is_linearizable(history), history
                judged += len(history)
        return judged

    return asyncio.run(use())


def op(name: str, argument: Any, result: Any, began: float, ended: float) -> Operation:
    return Operation(name, argument, result, began, ended)


@pytest.mark.parametrize(
    ("history", "holds"),
    [
        ([op("create", "a", True, 0, 2), op("create", "b", False, 1, 3), op("get", 0, ("a", 1, ""), 4, 5)], True),
        ([op("create", "a", True, 0, 2), op("create", "b", True, 1, 3)], False),
        ([op("create", "a", True, 0, 1), op("get", 0, None, 2, 3)], False),
        ([op("create", "a", True, 0, 3), op("get", 0, None, 1, 2)], True),
        ([op("create", "a", True, 0, 1), op("claim", "b", 2, 2, 3), op("save", ("a", 1, "x"), True, 4, 5)], False),
        ([op("create", "a", True, 0, 1), Operation("delete", 0, None, 2, 9e9, False), op("get", 0, None, 3, 4)], True),
    ],
)
def test_the_checker_knows_what_cannot_be(history: list[Operation], holds: bool) -> None:
    assert is_linearizable(history) is holds
