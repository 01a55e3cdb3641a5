"""Contestant: Ferrule, through its public names only."""

import os

from catalogue import MORE, STATIC_TEXT, STATIC_URI, extra_tools, options, search
from protection import protection

from ferrule import Context, Server

MANY = 10_000
"""As many as all listeners of a process take together."""

LARGEST = 64 << 20
UNLIMITED = 1_000_000_000

chosen = options()
server_options = protection()
if chosen.more:
    server_options["progress_rate"] = UNLIMITED
    server_options["max_concurrent_per_session"] = 1024  # as the guide says of tools that wait; no peer has a limit
    server_options["keepalive_interval"] = None  # slow peers have long turns, and nobody answers a ping meanwhile
if chosen.tools + 3 > 1000:
    server_options["page_size"] = chosen.tools + 3  # a list is one answer, as the peers give it
app = Server("bench", version="1", **server_options)


@app.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@app.tool(inline=chosen.inline)
def add_sync(a: int, b: int) -> int:
    """Add two integers in a plain function."""
    return a + b


@app.tool
async def echo(text: str) -> str:
    """Return the text back."""
    return text


async def bump() -> str:
    """Return who listens that the text changed."""
    app.notify_resource_updated(STATIC_URI)
    return "ok"


async def steps(count: int, ctx: Context) -> str:
    """Report progress so many times."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count)
    return "ok"


@app.resource(STATIC_URI)
async def static() -> str:
    """A text that never changes."""
    return STATIC_TEXT


# A long list has exactly the tools it was asked for.
for tool in extra_tools(chosen.tools) or [bump, search]:
    app.add_tool(tool)
if chosen.more:
    for tool in (*MORE, steps):
        app.add_tool(tool)

if __name__ == "__main__":
    several = {}
    if chosen.transport == "stdio":
        if chosen.more:
            several["max_message_size"] = LARGEST
        app.run("stdio", **several)
    elif chosen.transport in ("tcp", "ws"):
        app.run(chosen.transport, port=chosen.port, max_connections=MANY)
    else:
        response = {"session-json": "json", "session-sse": "sse", "stateless": "auto"}[chosen.mode]
        if chosen.more:
            several["max_body_size"] = LARGEST
        if "BENCH_WORKERS" in os.environ:  # a checkout of long ago has no such option
            several["workers"] = int(os.environ["BENCH_WORKERS"])
        app.run("http", port=chosen.port, response=response, **several)
