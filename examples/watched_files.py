"""Files as resources: whoever subscribed to one hears of it when the file changes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from ferrule import Client, Server

FOLDER = Path(tempfile.mkdtemp())
PAUSE = 0.05
"""Seconds between two looks; a library such as watchfiles tells without looking."""


def stamps() -> dict[str, int]:
    """Return when each file was written last."""
    return {path.name: path.stat().st_mtime_ns for path in FOLDER.iterdir()}


async def watch(server: Server, known: dict[str, int]) -> None:
    """Tell subscribers of every file that was written since it was `known`."""
    while True:
        await asyncio.sleep(PAUSE)
        found = await asyncio.to_thread(stamps)
        for name, written in found.items():
            if known.get(name) != written:
                server.notify_resource_updated(f"notes://{name}")
        if found.keys() != known.keys():
            server.notify_resources_changed()
        known = found


@contextlib.asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[None]:
    """Watch the folder while anyone uses the server."""
    watching = asyncio.create_task(watch(server, stamps()))
    try:
        yield
    finally:
        watching.cancel()


app = Server("notes", lifespan=lifespan)


@app.resource("notes://{name}")
def note(name: str) -> str:
    """One file of the folder."""
    return (FOLDER / Path(name).name).read_text()


async def main() -> None:
    """Write to a file that a client listens to."""
    path = FOLDER / "today.txt"
    path.write_text("rain")
    async with Client(app) as client, client.subscribe("notes://today.txt") as changes:
        path.write_text("sunshine")
        changed = await asyncio.wait_for(anext(changes), 10)
        print(f"{changed} has changed: {(await client.read_resource(changed)).text}")
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    asyncio.run(main())
