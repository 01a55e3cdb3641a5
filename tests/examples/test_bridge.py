"""The example of a bridge offers over stdio what a server offers over HTTP, in both generations on either side."""

from __future__ import annotations

import asyncio
import sys

import pytest
from example_files import EXAMPLES

from ferrule import Client, Context, Http, PeerError, Server, ToolError
from patience import PATIENT


def behind() -> Server:
    app = Server("behind", instructions="Add things.")

    @app.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @app.tool
    async def greet(ctx: Context) -> str:
        return f"Hello, {await ctx.ask('Who are you?', str)}"

    @app.tool
    async def fail() -> None:
        raise ToolError("no paper")

    @app.resource("notes://{name}")
    async def note(name: str) -> str:
        return f"about {name}"

    @app.prompt
    async def review(language: str) -> str:
        return f"Review this {language}:"

    return app


async def test_everything_passes_the_bridge(era: str) -> None:
    listener, ready = Http(port=0), asyncio.Event()
    serving = asyncio.create_task(behind().serve(listener, ready=ready.set))
    await ready.wait()
    command = [sys.executable, str(EXAMPLES / "bridge.py"), listener.url]
    async with Client(command, mode=era, elicitation=lambda _: {"value": "Ada"}, **PATIENT) as client:
        assert client.instructions == "Add things."
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert (await client.call_tool("greet")).text == "Hello, Ada"
        with pytest.raises(ToolError, match="no paper"):
            await client.call_tool("fail")
        assert (await client.read_resource("notes://tea")).text == "about tea"
        assert (await client.get_prompt("review", {"language": "C"})).messages[0].content.text == "Review this C:"
        with pytest.raises((PeerError, ToolError)):
            await client.call_tool("add", {"a": "one"})
    await listener.close(grace=1)
    await serving
