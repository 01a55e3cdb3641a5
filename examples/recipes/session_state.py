"""Values that a session keeps between calls."""

from __future__ import annotations

import asyncio

from ferrule import Client, Context, Server

app = Server("counters")


@app.tool
def count(ctx: Context) -> int:
    """Count the calls of this session."""
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    return int(ctx.state["count"])


async def main() -> None:
    """Two sessions do not see each other's values."""
    async with Client(app, mode="handshake") as one, Client(app, mode="handshake") as other:
        print((await one.call_tool("count")).data, (await one.call_tool("count")).data)
        print((await other.call_tool("count")).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# 1 2
# 1
