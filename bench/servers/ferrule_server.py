"""Contestant: Ferrule, through its public names only."""

import os

from catalogue import STATIC_TEXT, STATIC_URI, extra_tools, options, search
from protection import protection

from ferrule import Server

MANY = 10_000
"""As many as all listeners of a process take together."""

chosen = options()
app = Server("bench", version="1", **protection())


@app.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@app.tool
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


@app.resource(STATIC_URI)
async def static() -> str:
    """A text that never changes."""
    return STATIC_TEXT


# A long list has exactly the tools it was asked for.
for tool in extra_tools(chosen.tools) or [bump, search]:
    app.add_tool(tool)

if __name__ == "__main__":
    if chosen.transport == "stdio":
        app.run()
    elif chosen.transport in ("tcp", "ws"):
        app.run(chosen.transport, port=chosen.port, max_connections=MANY)
    else:
        response = {"session-json": "json", "session-sse": "sse", "stateless": "auto"}[chosen.mode]
        several = {}
        if "BENCH_WORKERS" in os.environ:  # a checkout of long ago has no such option
            several["workers"] = int(os.environ["BENCH_WORKERS"])
        app.run("http", port=chosen.port, response=response, **several)
