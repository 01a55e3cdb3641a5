"""A long call that becomes a task: started, left, and come back to by its id."""

from __future__ import annotations

import asyncio

from ferrule import Client, Context, Server

app = Server("reports")


@app.tool(task="optional")
async def report(year: int, ctx: Context) -> str:
    """Write a report, which takes a while."""
    for month in range(1, 13):
        await ctx.report_progress(month, 12, f"month {month}")
    return f"The report of {year}"


async def main() -> None:
    """Start a task, then find it again, in both generations of the protocol."""
    for mode in ("handshake", "stateless"):
        async with Client(app, mode=mode) as client:
            started = await client.start_task("report", {"year": 2026})
            found = client.task(started.id)
            print((await found.result()).text)
            print((await client.call_tool("report", {"year": 1999})).text)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# The report of 2026
# The report of 1999
# The report of 2026
# The report of 1999
