"""Contestant: the official Python SDK, 1.x."""

from catalogue import MORE, STATIC_TEXT, STATIC_URI, extra_tools, options, search
from mcp.server.fastmcp import Context, FastMCP

chosen = options()
server = FastMCP("bench", log_level="ERROR")


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
    """Return the text back."""
    return text


async def steps(count: int, ctx: Context) -> str:
    """Report progress so many times."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count)
    return "ok"


@server.resource(STATIC_URI)
async def static() -> str:
    """A text that never changes."""
    return STATIC_TEXT


# A long list has exactly the tools it was asked for.
for tool in extra_tools(chosen.tools) or [search]:
    server.add_tool(tool)
if chosen.more:
    for tool in (*MORE, steps):
        server.add_tool(tool)

server.run(chosen.transport)
