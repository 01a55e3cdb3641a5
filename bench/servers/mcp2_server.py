"""Contestant: the official Python SDK, 2.x."""

import contextlib

from catalogue import MORE, STATIC_TEXT, STATIC_URI, extra_tools, options, search
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

# The SDK starts its own loop: where uvloop is installed, it is used only when it is made the policy.
with contextlib.suppress(ImportError):
    import uvloop

    uvloop.install()

chosen = options()
server = MCPServer("bench", log_level="ERROR")
joined = []


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


async def join(ctx: Context) -> str:
    """Let this session hear of updates."""
    joined.append(ctx.session)
    return "ok"


async def bump(ctx: Context) -> str:
    """Return who listens that the text changed."""
    await ctx.notify_resource_updated(STATIC_URI)
    for session in joined:
        await session.send_resource_updated(STATIC_URI)
    return "ok"


@server.resource(STATIC_URI)
async def static() -> str:
    """A text that never changes."""
    return STATIC_TEXT


# A long list has exactly the tools it was asked for.
for tool in extra_tools(chosen.tools) or [join, bump, search]:
    server.add_tool(tool)
if chosen.more:
    for tool in (*MORE, steps):
        server.add_tool(tool)

if chosen.transport == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=chosen.port, json_response=chosen.mode != "session-sse")
