"""Contestant: the official Python SDK, 2.x."""

from catalogue import STATIC_TEXT, STATIC_URI, extra_tools, options
from mcp.server import MCPServer

chosen = options()
server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
def add_sync(a: int, b: int) -> int:
    """Add two integers in a plain function."""
    return a + b


@server.tool()
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.resource(STATIC_URI)
async def static() -> str:
    """A text that never changes."""
    return STATIC_TEXT


for tool in extra_tools(chosen.tools):
    server.add_tool(tool)

server.run(chosen.transport)
