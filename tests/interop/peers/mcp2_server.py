"""The interop server, written with the official Python SDK 2.x (`MCPServer`)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import anyio
import serving
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    Completion,
    CreateMessageResult,
    EmptyResult,
    ListRootsResult,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel

STEP_SECONDS = 0.02
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

app = MCPServer("interop", instructions="Interop test server.", log_level="ERROR")


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


def who_are_you() -> Elicit[Person]:
    return Elicit("Who are you?", Person)


@app.tool(structured_output=False)
def ask(person: Annotated[Person, Resolve(who_are_you)]) -> str:
    return f"{person.name} is {person.age}"


def ask_the_model(prompt: str) -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(text=prompt))], max_tokens=100)


@app.tool(structured_output=False)
def sample(prompt: str, answer: Annotated[CreateMessageResult, Resolve(ask_the_model)]) -> str:
    return answer.content.text


def ask_for_roots() -> ListRoots:
    return ListRoots()


@app.tool(structured_output=False)
def roots(listed: Annotated[ListRootsResult, Resolve(ask_for_roots)]) -> str:
    return ",".join(str(root.uri) for root in listed.roots)


@app.tool(structured_output=False)
async def touch(ctx: Context) -> str:
    State.touches += 1
    await ctx.notify_resource_updated("test://counter")
    if "test://counter" in State.subscribed:
        await ctx.session.send_resource_updated("test://counter")
    return "touched"


@app.tool(structured_output=False)
async def log(level: str, message: str, ctx: Context) -> str:
    if LEVELS.index(level) >= LEVELS.index(State.log_level):
        await ctx.log(level, message)
    return "logged"


@app.tool(structured_output=False)
async def grow(ctx: Context) -> str:
    app.add_tool(lambda: "grown", name="grown", structured_output=False)
    await ctx.notify_tools_changed()
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


async def subscribe(ctx, params: SubscribeRequestParams) -> EmptyResult:
    State.subscribed.add(params.uri)
    return EmptyResult()


async def unsubscribe(ctx, params: UnsubscribeRequestParams) -> EmptyResult:
    State.subscribed.discard(params.uri)
    return EmptyResult()


async def set_level(ctx, params: SetLevelRequestParams) -> EmptyResult:
    State.log_level = params.level
    return EmptyResult()


# MCPServer serves these three handshake-era methods only through its low-level server.
app._lowlevel_server.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
app._lowlevel_server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
app._lowlevel_server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)

if __name__ == "__main__":
    serving.run(app.run, app.streamable_http_app)
