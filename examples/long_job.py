"""A job that tells how far it is, and one that is called off in the middle."""

from __future__ import annotations

import asyncio

from ferrule import Client, Context, Server, TimedOut

app = Server("jobs")

stopped = asyncio.Event()


@app.tool
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


async def main() -> None:
    """Watch one job to its end, and give up on another."""
    async with Client(app) as client:
        told: list[str | None] = []
        result = await client.call_tool("count", {"to": 3}, on_progress=lambda done, total, text: told.append(text))
        print(f"counted to {result.data}; was told: {', '.join(filter(None, told))}")
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


if __name__ == "__main__":
    asyncio.run(main())
