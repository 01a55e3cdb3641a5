"""A long job in three ways: one that tells how far it is, one that is called off, and one that goes on as a task."""

from __future__ import annotations

import asyncio

from ferrule import Client, Context, Server, TimedOut

app = Server("jobs")

stopped = asyncio.Event()


@app.tool(task="optional")
async def count(to: int, ctx: Context) -> int:
    """Count slowly, telling each step."""
    try:
        for step in range(1, to + 1):
            await asyncio.sleep(0.02)
            await ctx.report_progress(step, to, f"at {step}")
    except asyncio.CancelledError:
        stopped.set()
        raise
    return to


async def watch_to_its_end(client: Client) -> None:
    """Show each step while the call runs."""
    told: list[str | None] = []
    result = await client.call_tool("count", {"to": 3}, on_progress=lambda done, total, text: told.append(text))
    print(f"counted to {result.data}; was told: {', '.join(filter(None, told))}")


async def call_off(client: Client) -> None:
    """Give up: by cancelling the call, and by a limit of time."""
    job = asyncio.create_task(client.call_tool("count", {"to": 1000}))
    await asyncio.sleep(0.1)
    job.cancel()
    await asyncio.wait([job])
    await asyncio.wait_for(stopped.wait(), 5)
    print("called off: the handler was cancelled")
    try:
        await client.call_tool("count", {"to": 1000}, timeout=0.1)
    except TimedOut:
        print("too slow: the caller stopped waiting, and the server was told")


async def leave_and_come_back(client: Client) -> None:
    """Start it as a task; its id is all one needs to find it again, also from another connection."""
    started = await client.start_task("count", {"to": 5})
    found = client.task(started.id)
    print(f"the task ended with {(await found.result()).data}")


async def main() -> None:
    """Do all three."""
    async with Client(app) as client:
        await watch_to_its_end(client)
        await call_off(client)
        await leave_and_come_back(client)


if __name__ == "__main__":
    asyncio.run(main())
