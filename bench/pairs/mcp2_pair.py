"""Contestant: the client and server of the official Python SDK 2.x, connected in memory."""

import asyncio

from mcp.client import Client
from mcp.server import MCPServer
from pair_load import measure

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def main() -> None:
    """Measure calls from this client to that server."""
    async with Client(server) as client:

        async def call(tool: str, arguments: dict) -> object:
            return (await client.call_tool(tool, arguments)).structured_content

        await measure(call)


asyncio.run(main())
