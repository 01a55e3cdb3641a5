"""Contestant: Ferrule's client and server, connected in memory, on the loop `Server.run` chooses."""

import uvloop
from pair_load import measure

from ferrule import Client, Server

app = Server("bench", version="1")


@app.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def main() -> None:
    """Measure calls from this client to that server."""
    async with Client(app) as client:

        async def call(tool: str, arguments: dict) -> object:
            return (await client.call_tool(tool, arguments)).structured_content

        await measure(call)


uvloop.run(main())
