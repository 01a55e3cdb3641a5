"""The interop server, written with the official Python SDK 1.x (`FastMCP` of the `mcp` package)."""

from __future__ import annotations

from typing import ClassVar

import anyio
import serving
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import Completion, SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel

STEP_SECONDS = 0.02
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

app = FastMCP("interop", instructions="Interop test server.", log_level="ERROR")


class State:
    cancelled_calls = 0
    touches = 0
    log_level = "debug"
    subscribed: ClassVar[set[str]] = set()


class Person(BaseModel):
    name: str
    age: int


@app.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool(structured_output=False)
def echo(text: str) -> str:
    return text


@app.tool(structured_output=False)
def fail() -> str:
    raise ToolError("deliberate failure")


@app.tool(structured_output=False)
async def count(n: int, ctx: Context) -> str:
    for done in range(1, n + 1):
        await ctx.report_progress(done, n)
        await anyio.sleep(STEP_SECONDS)
    return str(n)


@app.tool(structured_output=False)
async def slow(ms: int) -> str:
    try:
        await anyio.sleep(ms / 1000)
    except anyio.get_cancelled_exc_class():
        State.cancelled_calls += 1
        raise
    return "done"


@app.tool(structured_output=False)
def cancelled_calls() -> str:
    return str(State.cancelled_calls)


@app.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Person)
    if answer.action != "accept":
        return answer.action
    return f"{answer.data.name} is {answer.data.age}"


@app.tool(structured_output=False)
async def sample(prompt: str, ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    answer = await ctx.session.create_message([message], max_tokens=100)
    return answer.content.text


@app.tool(structured_output=False)
async def roots(ctx: Context) -> str:
    return ",".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@app.tool(structured_output=False)
async def touch(ctx: Context) -> str:
    State.touches += 1
    if "test://counter" in State.subscribed:
        await ctx.session.send_resource_updated(AnyUrl("test://counter"))
    return "touched"


@app.tool(structured_output=False)
async def log(level: str, message: str, ctx: Context) -> str:
    if LEVELS.index(level) >= LEVELS.index(State.log_level):
        await ctx.session.send_log_message(level, message, related_request_id=ctx.request_id)
    return "logged"


@app.tool(structured_output=False)
async def grow(ctx: Context) -> str:
    app.add_tool(lambda: "grown", name="grown", structured_output=False)
    await ctx.session.send_tool_list_changed()
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


@app.prompt()
def greet(name: str, style: str = "formal") -> str:
    return f"Hi {name}!" if style == "casual" else f"Good day, {name}."


@app.completion()
async def complete(ref, argument, context):
    if argument.name != "style":
        return None
    return Completion(values=[style for style in ("formal", "casual") if style.startswith(argument.value)])


# FastMCP offers these three methods only through its low-level server.
@app._mcp_server.subscribe_resource()
async def subscribe(uri: AnyUrl) -> None:
    State.subscribed.add(str(uri))


@app._mcp_server.unsubscribe_resource()
async def unsubscribe(uri: AnyUrl) -> None:
    State.subscribed.discard(str(uri))


@app._mcp_server.set_logging_level()
async def set_level(level: str) -> None:
    State.log_level = level


if __name__ == "__main__":
    serving.run(app.run, app.streamable_http_app)
