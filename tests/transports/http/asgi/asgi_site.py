"""What real ASGI servers run for the tests: one MCP server, alone; `asgi_mounted.py` has it inside FastAPI.

What happens inside is written, a word a line, into the file that ASGI_SITE_DIARY names.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ferrule import Context, Server

DIARY = Path(os.environ["ASGI_SITE_DIARY"])


def note(word: str) -> None:
    """Write a word into the diary."""
    with DIARY.open("a", encoding="utf-8") as diary:
        diary.write(f"{word}\n")


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[None]:
    """Note the beginning and the end, and that both are in one task."""
    task = asyncio.current_task()
    note("started")
    await asyncio.sleep(0.05)
    yield
    note("stopped" if asyncio.current_task() is task else "stopped by another task")


app = Server("site", lifespan=lifespan)


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
async def steps(count: int, pause: float, ctx: Context) -> str:
    """Report progress step by step."""
    for number in range(count):
        await ctx.report_progress(number + 1, count)
        await asyncio.sleep(pause)
    return "all steps"


@app.tool
async def wait(name: str, seconds: float) -> str:
    """Wait, and note how it ended."""
    note(f"{name} begun")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note(f"{name} cancelled")
        raise
    note(f"{name} done")
    return name


@app.tool
async def flood(size: int, ctx: Context) -> str:
    """Write more than a reader takes, as fast as it is let."""
    note("flood begun")
    try:
        for number in itertools.count(1):
            await ctx.report_progress(number, None, "x" * size)
    finally:
        note("flood ended")
    return "never"


@app.tool
def grow(name: str) -> str:
    """Offer one more tool."""
    app.add_tool(name, lambda: "new")
    return name


alone = app.asgi(websocket=True)
