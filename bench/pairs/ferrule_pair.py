"""Contestant: Ferrule's client, of its own server in memory or of one at a URL, on the loop `Server.run` chooses."""

import uvloop
from pair_load import measure, options

from ferrule import Client, Server

chosen = options()
app = Server("bench", version="1")


@app.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def main() -> None:
    """Measure calls from this client."""
    async with Client(chosen.url or app) as client:

        async def call(tool: str, arguments: dict) -> object:
            return (await client.call_tool(tool, arguments)).structured_content

        await measure(call, chosen)


uvloop.run(main())
