"""Contestant: the client of the official Python SDK 2.x, of its own server in memory or of one at a URL."""

import asyncio
import contextlib

from mcp.client import Client
from mcp.server import MCPServer
from pair_load import add, measure, options, search

with contextlib.suppress(ImportError):
    import uvloop

    uvloop.install()

chosen = options()
server = MCPServer("bench", log_level="ERROR")
server.add_tool(add)
server.add_tool(search)


async def main() -> None:
    """Measure calls from this client."""
    async with Client(chosen.url or server) as client:

        async def call(tool: str, arguments: dict) -> object:
            return (await client.call_tool(tool, arguments)).structured_content

        await measure(call, chosen)


asyncio.run(main())
