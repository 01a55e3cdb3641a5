"""The server the official conformance suite is run against: what its scenarios call, and nothing else.

Names, texts and schemas are the suite's. Written with the public surface only, as any user's server.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import wave
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ferrule import Context, Refusal, Server, ToolError, Tracing
from ferrule.schema.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent, ResourceContents


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, help="serve by so many processes")
    parser.add_argument("--watched", metavar="FOLDER", help="record spans, metrics, and receipts in a folder")
    return parser.parse_args()


def recording(folder: str) -> dict[str, Any]:
    """Return the options of a server that records all it can, with the real OpenTelemetry SDK."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return {
        "tracing": Tracing(ratio=1.0, provider=provider),
        "receipts": folder,
        "metrics": True,
        "rate": {"server": "100000/s"},
        "log_format": "json",
    }


chosen = options() if __name__ == "__main__" else argparse.Namespace(watched=None)
app = Server(
    "ferrule-conformance",
    version="1.0.0",
    instructions="Does what the conformance suite asks for.",
    **(recording(chosen.watched) if chosen.watched else {}),
)

PAUSE = 0.05
PIXEL = base64.b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
IMAGE = ImageContent(base64.b64encode(PIXEL).decode(), "image/png")


def silence() -> AudioContent:
    """Return a moment of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(bytes([128]) * 80)
    return AudioContent(base64.b64encode(file.getvalue()).decode(), "audio/wav")


def embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    """Put a text resource into a message."""
    return EmbeddedResource(ResourceContents(uri=uri, mime_type=mime_type, text=text))


# -- tools that answer at once; the first listed one must take no arguments


@app.tool
def test_simple_text() -> str:
    """Return some text."""
    return "This is a simple text response for testing."


@app.tool
def test_image_content() -> ImageContent:
    """Return an image."""
    return IMAGE


@app.tool
def test_audio_content() -> AudioContent:
    """Return a sound."""
    return silence()


@app.tool
def test_embedded_resource() -> EmbeddedResource:
    """Return a resource."""
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@app.tool
def test_multiple_content_types() -> list[str | ContentBlock]:
    """Return text, an image and a resource."""
    data = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return ["Multiple content types test:", IMAGE, data]


@app.tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@app.tool(
    schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Take what a schema of many keywords allows."""
    return f"Got {', '.join(sorted(arguments))}"


@app.tool
def give_back(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})] = "") -> str:
    """Return back an argument that a header mirrors."""
    return region


# -- tools that tell while they run


@app.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three times."""
    await ctx.info("Tool execution started")
    await asyncio.sleep(PAUSE)
    await ctx.info("Tool processing data")
    await asyncio.sleep(PAUSE)
    await ctx.info("Tool execution completed")
    return "Logged three times."


@app.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log once."""
    await ctx.info("A line for those who asked for it")
    return "Logged once."


@app.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Tell of progress three times."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await asyncio.sleep(PAUSE)
    return "Done."


@app.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream of this call, and give the result to whoever comes back for it."""
    await ctx.info("Closing the stream")
    await ctx.close_stream()
    await asyncio.sleep(4 * PAUSE)
    await ctx.info("Still at work")
    return "The result was kept for you."


@app.tool
def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    app.add_tool(test_simple_text, name="test_passing_tool")
    app.remove_tool("test_passing_tool")
    return "The list of tools has changed."


@app.tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    app.add_prompt(test_simple_prompt, name="test_passing_prompt")
    app.remove_prompt("test_passing_prompt")
    return "The list of prompts has changed."


# -- tools that ask


class Account(Struct):
    """Who someone is."""

    username: str
    email: str


class Profile(Struct):
    """A form with a default for every field."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


class Name(Struct):
    """A form for a name."""

    name: str


class Color(Struct):
    """A form for a color."""

    color: str


class Confirmation(Struct):
    """A form for a yes."""

    ok: bool


class Topic(Struct):
    """A form for what a prompt is about."""

    context: str


OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Value {n}"} for n in (1, 2, 3)]
CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option 1", "Option 2", "Option 3"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}


@app.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


@app.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the client's user who they are."""
    answer = await ctx.elicit(message, Account)
    return f"User response: {answer.action}, {answer.data}"


@app.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask for a form that is filled in already."""
    answer = await ctx.elicit("Please check your profile", Profile)
    return f"User response: {answer.action}, {answer.data}"


@app.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask for choices, in each way a form can offer them."""
    answer = await ctx.elicit("Please choose", CHOICES)
    return f"User response: {answer.action}, {answer.data}"


@app.tool
async def test_missing_capability(ctx: Context) -> str:
    """Ask the client's model, which the client may not have."""
    answer = await ctx.sample("Are you there?", max_tokens=10)
    return f"LLM response: {answer.text}"


@app.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask in the midst of work that is being told of."""
    await ctx.report_progress(1, 2)
    answer = await ctx.elicit("Shall I go on?", Confirmation)
    return f"User response: {answer.action}"


@app.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Greet the user by name."""
    answer = await ctx.ask("What is your name?", Name, key="user_name")
    return f"Hello, {answer.name}!"


@app.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the model for a capital."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {answer.text}"


@app.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's folders."""
    roots = await ctx.list_roots(key="client_roots")
    return f"{len(roots)} roots: {', '.join(root.uri for root in roots)}"


@app.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a yes, and trust the state that comes back with it."""
    answer = await ctx.ask("Please confirm", Confirmation, key="confirm")
    return f"state-ok, confirmed {answer.ok}"


@app.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for three things in one round."""
    async with asyncio.TaskGroup() as group:
        name = group.create_task(ctx.ask("What is your name?", Name, key="user_name"))
        greeting = group.create_task(ctx.sample("Generate a greeting", max_tokens=50, key="greeting"))
        roots = group.create_task(ctx.list_roots(key="client_roots"))
    return f"{greeting.result().text} {name.result().name}, {len(roots.result())} roots"


@app.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask for one thing after the other."""
    first = await ctx.ask("What is your name?", Name, key="step1")
    second = await ctx.ask("What is your favorite color?", Color, key="step2")
    return f"{first.name} likes {second.color}"


@app.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for a yes, and notice when the state was changed on its way."""
    answer = await ctx.ask("Please confirm", Confirmation, key="confirm")
    return f"The state is whole, confirmed {answer.ok}"


@app.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask whoever the client has: its user, else its model."""
    if ctx.peer.capabilities.elicitation is not None:
        return f"Hello, {(await ctx.ask('What is your name?', Name, key='user_name')).name}!"
    return (await ctx.sample("Invent a name", max_tokens=50, key="invented_name")).text


# -- tools that run as tasks


class Deletion(Struct):
    """A form for a yes to a deletion."""

    confirm: bool


@app.tool
def greet(name: str) -> str:
    """Greet at once; this is never a task."""
    return f"Hello, {name}!"


@app.tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds:g} seconds"


@app.tool(task="required")
async def failing_job() -> str:
    """Fail after a while, in words for the model."""
    await asyncio.sleep(4 * PAUSE)
    raise ToolError("This job always fails")


@app.tool(task="optional")
async def protocol_error_job() -> str:
    """Be refused after a while."""
    await asyncio.sleep(PAUSE)
    raise Refusal("This job cannot be done")


@app.tool(task="optional")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before a file would be deleted."""
    answer = await ctx.ask(f"Delete {filename}?", Deletion)
    return f"{'Deleted' if answer.confirm else 'Kept'} {filename}"


@app.tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Ask for two things at once, which may be answered one after the other."""
    async with asyncio.TaskGroup() as group:
        name = group.create_task(ctx.ask("What is your name?", Name, key="name"))
        consent = group.create_task(ctx.ask("Shall I go on?", Deletion, key="consent"))
    return f"{name.result().name}: {consent.result().confirm}"


@app.tool(task="required", task_start="handler")
async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name in the call itself, and go on as a task."""
    answer = await ctx.ask("What is your name?", Name, key="user_name")
    await ctx.start_task(f"Preparing a greeting for {answer.name}")
    await asyncio.sleep(PAUSE)
    return f"Hello, {answer.name}!"


# -- resources


@app.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Some text."""
    return "This is the content of the static text resource."


@app.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture."""
    return PIXEL


@app.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """Something to subscribe to."""
    return "This resource may be watched."


@app.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:  # noqa: A002  the suite's name
    """Data made up for an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# -- prompts


@app.prompt
def test_simple_prompt() -> str:
    """Say something simple."""
    return "This is a simple prompt for testing."


@app.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Say what was given."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@app.prompt
def test_prompt_with_embedded_resource(
    resourceUri: str,
) -> list[str | ContentBlock]:
    """Show a resource."""
    shown = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [shown, "Please process the embedded resource above."]


@app.prompt
def test_prompt_with_image() -> list[str | ContentBlock]:
    """Show an image."""
    return [IMAGE, "Please analyze the image above."]


@app.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask what to talk about."""
    answer = await ctx.ask("What context should the prompt use?", Topic, key="user_context")
    return f"Use this context: {answer.context}"


@app.completion("test_prompt_with_arguments")
def suggest(value: str) -> list[str]:
    """Complete what was typed."""
    return [word for word in ("testing", "tested", "paris") if word.startswith(value)]


# -- skills

app.skills(Path(__file__).parent / "skills")


if __name__ == "__main__":
    # A short wait before a client comes back for its stream, so that the scenario on polling is quick.
    app.run("http", host="127.0.0.1", port=chosen.port, path="/mcp", retry=0.1, workers=chosen.workers)
