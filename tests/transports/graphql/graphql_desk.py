"""A server that speaks GraphQL, and how the tests ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from ferrule import Context, Graphql, Server, ToolError


def new_app(**options: Any) -> Server:
    """Make a server that offers one of each."""
    app = Server("desk", **options)
    app.begun = asyncio.Event()  # type: ignore[attr-defined]
    app.cancelled = asyncio.Event()  # type: ignore[attr-defined]

    @app.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @app.tool
    def fail() -> str:
        """Fail as a tool does."""
        raise ToolError("out of paper")

    @app.tool
    async def hang() -> str:
        """Wait until cancelled."""
        app.begun.set()  # type: ignore[attr-defined]
        try:
            await asyncio.Event().wait()
        finally:
            app.cancelled.set()  # type: ignore[attr-defined]
        return ""

    @app.tool
    def who(ctx: Context) -> str:
        """Name the transport and the caller."""
        return f"{ctx.transport} {ctx.principal}"

    @app.tool
    def long(size: int) -> str:
        """Answer with so many characters."""
        return "x" * size

    @app.resource("note://today")
    def today() -> str:
        """The note of today."""
        return "sunny"

    @app.resource("note://broken")
    def broken() -> str:
        """Cannot be read."""
        raise RuntimeError("secret of the house")

    @app.resource("note://{day}")
    def note(day: str) -> str:
        """The note of a day."""
        return day

    @app.prompt
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Say hello to {name}"

    return app


@asynccontextmanager
async def serving(app: Server | None = None, **options: Any) -> AsyncIterator[Graphql]:
    """Serve GraphQL at a free port."""
    listener = Graphql(port=0, **options)
    ready = asyncio.Event()
    task = asyncio.create_task((app or new_app()).serve(listener, ready=ready.set))
    await asyncio.wait([task, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield listener
    finally:
        await listener.close(grace=1.0)
        await task


async def post(listener: Graphql, query: str, **variables: Any) -> dict[str, Any]:
    """Send an operation and return its answer."""
    async with httpx.AsyncClient() as client:
        answer = await client.post(listener.url, json={"query": query, "variables": variables}, timeout=30)
    found: dict[str, Any] = answer.json()
    return found


def codes(answer: dict[str, Any]) -> list[str]:
    """Return the codes of an answer's errors."""
    return [error["extensions"]["code"] for error in answer["errors"]]
