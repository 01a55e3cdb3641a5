"""Contestant: the client of FastMCP 4.x, of its own server in memory."""

import asyncio

from fastmcp import Client, FastMCP
from pair_load import add, measure, options, search

chosen = options()
server = FastMCP("bench")
server.tool(add)
server.tool(search)


async def main() -> None:
    """Measure calls from this client."""
    async with Client(server) as client:

        async def call(tool: str, arguments: dict) -> object:
            return (await client.call_tool(tool, arguments)).structured_content

        await measure(call, chosen)


asyncio.run(main())
