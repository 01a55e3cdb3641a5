"""Contestant: the client of the official Python SDK 1.x, of its own server in memory."""

import asyncio

from mcp.server.fastmcp import FastMCP
from mcp.shared.memory import create_connected_server_and_client_session
from pair_load import add, measure, options, search

chosen = options()
server = FastMCP("bench", log_level="ERROR")
server.add_tool(add)
server.add_tool(search)


async def main() -> None:
    """Measure calls from this client."""
    async with create_connected_server_and_client_session(server._mcp_server) as client:

        async def call(tool: str, arguments: dict) -> object:
            return (await client.call_tool(tool, arguments)).structuredContent

        await measure(call, chosen)


asyncio.run(main())
