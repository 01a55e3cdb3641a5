"""A resource that changes, and a client that hears of it; the same code in both protocol generations."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server
from ferrule.testing import ERAS

app = Server("board")

notes = {"shopping": "buy bread"}


@app.resource("notes://{name}")
async def note(name: str) -> str:
    """One note."""
    return notes[name]


@app.tool
async def write(name: str, text: str) -> None:
    """Change a note and tell whoever listens to it."""
    notes[name] = text
    app.notify_resource_updated(f"notes://{name}")


async def main() -> None:
    """Listen to one note while it is rewritten."""
    for era in ERAS:
        async with Client(app, mode=era) as client, client.subscribe("notes://shopping") as changes:
            await client.call_tool("write", {"name": "shopping", "text": f"written in the {era} era"})
            changed = await anext(changes)
            print(f"{changed}: {(await client.read_resource(changed)).text}")


if __name__ == "__main__":
    asyncio.run(main())
