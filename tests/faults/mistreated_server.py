"""A server on stdio for the tests that treat it badly."""

from __future__ import annotations

import asyncio
import time

from ferrule import Server

app = Server("hostile", version="1")


@app.tool
async def echo(text: str) -> str:
    """Return the text back."""
    return text


@app.tool
async def sleep(ms: float) -> str:
    """Wait without blocking."""
    await asyncio.sleep(ms / 1000)
    return "slept"


@app.tool
def block(ms: float) -> str:
    """Wait in a thread."""
    time.sleep(ms / 1000)
    return "blocked"


@app.tool
async def big(size: int) -> str:
    """Return a long text."""
    return "x" * size


if __name__ == "__main__":
    app.run()
