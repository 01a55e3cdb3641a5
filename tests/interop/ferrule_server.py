"""The interop server, written with Ferrule. It offers what every program in `peers/*_server.*` offers."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass

from ferrule import Context, Server, ToolError

STEP_SECONDS = 0.1

app = Server("interop", version="1.0.0", instructions="Interop test server.")


class State:
    cancelled_calls = 0
    touches = 0


@dataclass
class Person:
    name: str
    age: int


@app.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
def echo(text: str) -> str:
    return text


@app.tool
def fail() -> str:
    raise ToolError("deliberate failure")


@app.tool
async def count(n: int, ctx: Context) -> str:
    for done in range(1, n + 1):
        await ctx.report_progress(done, n)
        await asyncio.sleep(STEP_SECONDS)
    return str(n)


@app.tool
async def slow(ms: int) -> str:
    try:
        await asyncio.sleep(ms / 1000)
    except asyncio.CancelledError:
        State.cancelled_calls += 1
        raise
    return "done"


@app.tool
def cancelled_calls() -> str:
    return str(State.cancelled_calls)


@app.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Person)
    if answer.action != "accept":
        return answer.action
    return f"{answer.data.name} is {answer.data.age}"


@app.tool
async def sample(prompt: str, ctx: Context) -> str:
    return (await ctx.sample(prompt, max_tokens=100)).text


@app.tool
async def roots(ctx: Context) -> str:
    return ",".join(root.uri for root in await ctx.list_roots())


@app.tool
def touch() -> str:
    State.touches += 1
    app.notify_resource_updated("test://counter")
    return "touched"


@app.tool
async def log(level: str, message: str, ctx: Context) -> str:
    await ctx.log(level, message)
    return "logged"


@app.tool
def grow() -> str:
    app.add_tool(lambda: "grown", name="grown")
    return "grew"


@app.resource("test://static", mime_type="text/plain")
def static() -> str:
    return "static text"


@app.resource("test://binary", mime_type="application/octet-stream")
def binary() -> bytes:
    return bytes(range(256))


@app.resource("test://counter", mime_type="text/plain")
def counter() -> str:
    return str(State.touches)


@app.resource("test://items/{id}", mime_type="text/plain")
def item(id: str) -> str:  # noqa: A002
    return f"item {id}"


@app.prompt
def greet(name: str, style: str = "formal") -> str:
    return f"Hi {name}!" if style == "casual" else f"Good day, {name}."


@app.completion("greet.style")
def styles(value: str) -> list[str]:
    return [style for style in ("formal", "casual") if style.startswith(value)]


if __name__ == "__main__":
    if "--http" in sys.argv[1:]:
        # The log says where it serves.
        logging.basicConfig(level="INFO", stream=sys.stdout)
        app.run("http", port=0)
    else:
        app.run()
