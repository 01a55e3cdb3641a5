"""A tool that asks in which folders the client works."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from ferrule import Client, Context, Server

app = Server("folders")


@app.tool
async def where(ctx: Context) -> list[str]:
    """Tell where the client works."""
    return [root.name or root.uri for root in await ctx.list_roots()]


async def main() -> None:
    """Offer two folders."""
    with tempfile.TemporaryDirectory() as folder:
        roots = [{"uri": Path(folder).as_uri(), "name": "the project"}, "/"]
        async with Client(app, roots=roots) as client:
            print((await client.call_tool("where")).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['the project', 'file:///']
