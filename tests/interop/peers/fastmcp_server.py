"""The interop server, written with FastMCP 4."""

from __future__ import annotations

import anyio
import mcp_types as types
import serving
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool
from pydantic import BaseModel

STEP_SECONDS = 0.02

app = FastMCP("interop", instructions="Interop test server.")


class State:
    cancelled_calls = 0
    touches = 0


class Person(BaseModel):
    name: str
    age: int


def is_modern(ctx: Context) -> bool:
    return ctx.request_context.protocol_version >= "2026"


def need_input(request: types.InputRequest) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests={"answer": request})


def answer_to(ctx: Context):
    return (ctx.input_responses or {}).get("answer")


@app.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool(output_schema=None)
def echo(text: str) -> str:
    return text


@app.tool(output_schema=None)
def fail() -> str:
    raise ToolError("deliberate failure")


@app.tool(output_schema=None)
async def count(n: int, ctx: Context) -> str:
    for done in range(1, n + 1):
        await ctx.report_progress(done, n)
        await anyio.sleep(STEP_SECONDS)
    return str(n)


@app.tool(output_schema=None)
async def slow(ms: int) -> str:
    try:
        await anyio.sleep(ms / 1000)
    except anyio.get_cancelled_exc_class():
        State.cancelled_calls += 1
        raise
    return "done"


@app.tool(output_schema=None)
def cancelled_calls() -> str:
    return str(State.cancelled_calls)


@app.tool(output_schema=None)
async def ask(ctx: Context) -> str | types.InputRequiredResult:
    if not is_modern(ctx):
        person = (await ctx.elicit("Who are you?", Person)).data
    elif answer := answer_to(ctx):
        person = Person.model_validate(answer.content)
    else:
        params = types.ElicitRequestFormParams(message="Who are you?", requested_schema=Person.model_json_schema())
        return need_input(types.ElicitRequest(params=params))
    return f"{person.name} is {person.age}"


@app.tool(output_schema=None)
async def sample(prompt: str, ctx: Context) -> str | types.InputRequiredResult:
    messages = [types.SamplingMessage(role="user", content=types.TextContent(text=prompt))]
    if not is_modern(ctx):
        return (await ctx.session.create_message(messages, max_tokens=100)).content.text
    if answer := answer_to(ctx):
        return answer.content.text
    params = types.CreateMessageRequestParams(messages=messages, max_tokens=100)
    return need_input(types.CreateMessageRequest(params=params))


@app.tool(output_schema=None)
async def roots(ctx: Context) -> str | types.InputRequiredResult:
    if not is_modern(ctx):
        listed = await ctx.session.list_roots()
    elif not (listed := answer_to(ctx)):
        return need_input(types.ListRootsRequest())
    return ",".join(str(root.uri) for root in listed.roots)


@app.tool(output_schema=None)
async def touch(ctx: Context) -> str:
    State.touches += 1
    params = types.ResourceUpdatedNotificationParams(uri="test://counter")
    await ctx.send_notification(types.ResourceUpdatedNotification(params=params))
    return "touched"


@app.tool(output_schema=None)
async def log(level: str, message: str, ctx: Context) -> str:
    await ctx.log(message, level=level)
    return "logged"


@app.tool(output_schema=None)
async def grow(ctx: Context) -> str:
    app.add_tool(Tool.from_function(lambda: "grown", name="grown", output_schema=None))
    await ctx.send_notification(types.ToolListChangedNotification())
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


@app.completion
def complete(ref, argument, context):
    if argument.name != "style":
        return None
    return [style for style in ("formal", "casual") if style.startswith(argument.value)]


if __name__ == "__main__":
    serving.run(lambda: app.run(show_banner=False, log_level="ERROR"), app.http_app)
