"""A tool that tells how far it is."""

from __future__ import annotations

import asyncio

from ferrule import Client, Context, Server

app = Server("worker")


@app.tool
async def long_running(name: str, steps: int, ctx: Context) -> str:
    """Do something in steps."""
    for step in range(steps):
        await ctx.report_progress((step + 1) / steps, total=1.0, message=f"step {step + 1} of {steps}")
    return f"{name} is done"


async def main() -> None:
    """Watch it work."""

    def show(progress: float, total: float | None, message: str | None) -> None:
        print(f"{progress:.0%} {message}")

    async with Client(app) as client:
        result = await client.call_tool("long_running", {"name": "tidying", "steps": 4}, on_progress=show)
        print(result.data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# 25% step 1 of 4
# 50% step 2 of 4
# 75% step 3 of 4
# 100% step 4 of 4
# tidying is done
