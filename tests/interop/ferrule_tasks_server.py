"""A server on stdio whose tools run as tasks, for the clients of other SDKs."""

from __future__ import annotations

import asyncio

from ferrule import Context, Server, ToolError
from ferrule.runtime.tasks.settings import TaskSettings

app = Server("ferrule-tasks", tasks=TaskSettings(poll_interval=0.05))


@app.tool(task="optional")
async def greet(ctx: Context) -> str:
    """Ask for a name, and greet."""
    name = await ctx.ask("Who are you?", str)
    return f"Hello, {name}!"


@app.tool(task="required")
async def fail() -> str:
    """Fail in words for the model."""
    raise ToolError("no luck")


@app.tool(task="optional")
async def wait() -> str:
    """Take for ever."""
    await asyncio.sleep(3600)
    return "late"


if __name__ == "__main__":
    app.run()
