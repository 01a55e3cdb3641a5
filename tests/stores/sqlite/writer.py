"""A process that writes to a store file until it is killed; says what is kept as soon as it knows.

python writer.py PATH
"""

from __future__ import annotations

import asyncio
import sys

from ferrule.stores.contracts import SessionRecord, StoredTask
from ferrule.stores.stores import Stores


async def write(path: str) -> None:
    async with Stores.sqlite(path) as stores:
        print("open", flush=True)
        for number in range(1, 10**9):
            name = str(number)
            for part in range(10):
                stores.events.append("ann.1", (number - 1) * 10 + part + 1, b"x" * (number % 2000), 0.0)
            await asyncio.gather(
                stores.sessions.create(SessionRecord(id=name, revision="r", owner="n1", log_level=name)),
                stores.values.put(name, name.encode() * 100),
                stores.tasks.create(task(name), 1.0),
            )
            print(number, flush=True)


def task(name: str) -> StoredTask:
    return StoredTask(
        id=name, owner="", tool=name, created=float(name), updated=1.0, ttl=None, poll_interval=1.0, status="completed"
    )


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
