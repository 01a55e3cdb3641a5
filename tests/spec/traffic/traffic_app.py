"""The server whose traffic is judged: it offers everything a server can say. Run as a program it serves stdio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ferrule import Context, Server, ToolError
from ferrule import errors as ferrule_errors
from ferrule.errors import Refusal, UrlElicitationRequired
from ferrule.schema.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.schema.model import Annotations, Icon
from ferrule.schema.prompts import GetPromptResult, PromptArgument, PromptMessage
from ferrule.schema.sampling import ModelHint, ModelPreferences, SamplingMessage, ToolChoice
from ferrule.schema.tools import CallToolResult, Tool

META = {"com.example/note": {"kept": True}}
ICONS = [Icon(src="https://example.com/icon.png", mime_type="image/png", sizes=["48x48"], theme="light")]
HINTS = Annotations(audience=["user", "assistant"], priority=0.5, last_modified="2025-01-12T15:00:58Z")
BASE64 = "aGVsbG8="
COUNTER = "traffic://counter"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

CAPABILITIES = ServerCapabilities(
    tools=ListCapability(list_changed=True),
    prompts=ListCapability(list_changed=True),
    resources=ResourcesCapability(subscribe=True, list_changed=True),
    completions={},
    logging={},
    experimental={"com.example/experiment": {"on": True}},
    extensions={"com.example/extension": {}},
)

FORM = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "title": "Mail", "description": "Where to", "format": "email", "minLength": 3},
        "name": {"type": "string", "maxLength": 40, "default": "nobody"},
        "ratio": {"type": "number", "minimum": 0.5, "maximum": 2.5, "default": 1.5},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "sure": {"type": "boolean", "title": "Sure?", "default": True},
        "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
    },
    "required": ["mail", "ratio"],
}

CHOICES = {
    "type": "object",
    "properties": {
        "plain": {
            "type": "array",
            "title": "Plain",
            "items": {"type": "string", "enum": ["a", "b"]},
            "minItems": 1,
            "maxItems": 2,
            "default": ["a"],
        },
        "titled": {
            "type": "array",
            "description": "With titles",
            "items": {"anyOf": [{"const": "x", "title": "Ex"}, {"const": "y", "title": "Why"}]},
        },
        "old": {"type": "string", "enum": ["o", "p"], "enumNames": ["Oh", "Pee"]},
    },
}

WEATHER = Tool(
    name="weather",
    description="Tells the weather.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@dataclass
class Person:
    """Somebody."""

    name: str
    age: int = 1


def refusals(kind: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    """Yield every kind of refusal the error tree has."""
    for child in kind.__subclasses__():
        if child.__module__ == ferrule_errors.__name__:
            yield child
        yield from refusals(child)


SPECIAL_REFUSALS: dict[str, Callable[[], Refusal]] = {
    "MessageTooLarge": lambda: ferrule_errors.MessageTooLarge(1024),
    "MissingCapability": lambda: ferrule_errors.MissingCapability({"sampling": {"tools": {}}}),
    "UnsupportedVersion": lambda: ferrule_errors.UnsupportedVersion("1900-01-01", ["2026-07-28"]),
    "ResourceNotFound": lambda: ferrule_errors.ResourceNotFound("traffic://gone"),
    "ToolNotFound": lambda: ferrule_errors.ToolNotFound("gone"),
    "PromptNotFound": lambda: ferrule_errors.PromptNotFound("gone"),
    "InvalidUri": lambda: ferrule_errors.InvalidUri("gone", "it has no scheme"),
    "UrlElicitationRequired": lambda: UrlElicitationRequired(
        "Sign in first",
        {
            "elicitations": [
                {"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "e-1"}
            ]
        },
    ),
}


def everything() -> list[Any]:
    """Return one block of every kind, with all its members."""
    said = {"annotations": HINTS, "meta": META}
    text = ResourceContents(uri="traffic://text", mime_type="text/plain", text="inside", meta=META)
    blob = ResourceContents(uri="traffic://blob", mime_type="application/octet-stream", blob=BASE64, meta=META)
    link = ResourceLink("traffic://linked", "linked", "Linked", "A link", "text/plain", 3, HINTS, ICONS, META)
    return [
        TextContent("text", **said),
        ImageContent(BASE64, "image/png", **said),
        AudioContent(BASE64, "audio/wav", **said),
        EmbeddedResource(text, **said),
        EmbeddedResource(blob, **said),
        link,
    ]


def make_app(**options: Any) -> Server:
    """Make the server with all it offers."""
    settings: dict[str, Any] = {
        "title": "Traffic",
        "description": "Says everything.",
        "website_url": "https://example.com",
        "icons": ICONS,
        "capabilities": CAPABILITIES,
        "page_size": 2,
        "keepalive_interval": 0.2,
        "list_changed_interval": 0.02,
        "cache_ttl": 0.001,
        **options,
    }
    app = Server("traffic", version="1.2.3", instructions="Ask for anything.", **settings)
    for offer in (
        offer_plain_tools,
        offer_failing_tools,
        offer_talking_tools,
        offer_asking_tools,
        offer_changing_tools,
    ):
        offer(app)
    offer_resources(app)
    offer_prompts(app)
    offer_completions(app)

    @app.method("com.example/echo")
    async def echo_method(params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent("echoed")])

    return app


def offer_plain_tools(app: Server) -> None:
    """Tools that only give results."""

    @app.tool(
        title="Add",
        annotations={
            "title": "Adding",
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
        icons=ICONS,
        meta=META,
    )
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @app.tool
    async def person() -> Person:
        return Person("Ada", 36)

    @app.tool
    async def blocks() -> Any:
        return everything()

    @app.tool
    async def nothing() -> None:
        return None

    @app.tool
    async def marked() -> CallToolResult:
        return CallToolResult(content=[TextContent("marked")], structured_content={"a": None}, meta=META)

    @app.tool
    async def numbers() -> CallToolResult:
        return CallToolResult(content=[TextContent("[1,2]")], structured_content=[1, 2])

    @app.tool(schema={"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"})
    async def given(arguments: Any) -> str:
        return str(arguments)


def offer_failing_tools(app: Server) -> None:
    """Tools that fail in every way."""

    @app.tool
    async def fail() -> str:
        raise ToolError("deliberate failure")

    @app.tool
    async def crash() -> str:
        raise RuntimeError("the model must not read this")

    @app.tool(timeout=0.02)
    async def late() -> str:
        await asyncio.sleep(5)
        return "never"

    @app.tool
    async def unwritable() -> Any:
        return {"value": float("nan")}

    @app.tool
    async def refuse(kind: str) -> str:
        special = SPECIAL_REFUSALS.get(kind)
        raise special() if special is not None else getattr(ferrule_errors, kind)()


def offer_talking_tools(app: Server) -> None:
    """Tools that send notices while they run."""

    @app.tool
    async def progress(ctx: Context) -> str:
        await ctx.report_progress(1)
        await ctx.report_progress(1.5, 3)
        await ctx.report_progress(3, 3, "done")
        return "progressed"

    @app.tool
    async def log(ctx: Context) -> str:
        for level in LOG_LEVELS:
            await ctx.log(level, {"at": level}, "traffic")
        await ctx.error("plain")
        await ctx.error(None)
        return "logged"

    @app.tool
    async def wait() -> str:
        await asyncio.sleep(30)
        return "never"


def offer_asking_tools(app: Server) -> None:
    """Tools that ask the client."""

    @app.tool
    async def ask_form(ctx: Context) -> str:
        return (await ctx.elicit("Fill in", FORM)).action

    @app.tool
    async def ask_choices(ctx: Context) -> str:
        return (await ctx.elicit("Choose", CHOICES)).action

    @app.tool
    async def ask_typed(ctx: Context) -> str:
        answers = await ctx.ask_all({"who": ("Who?", Person), "when": ("When?", Literal["now", "later"])})
        return str(answers["when"])

    @app.tool
    async def ask_yes(ctx: Context) -> str:
        return (await ctx.elicit("decline this")).action

    @app.tool
    async def ask_url(ctx: Context) -> str:
        answer = await ctx.elicit("Sign in", url="https://example.com/sign-in", elicitation_id="sign-in")
        await ctx.elicitation_complete("sign-in")
        return answer.action

    @app.tool
    async def ask_forever(ctx: Context) -> str:
        return (await ctx.sample("wait for ever")).text

    @app.tool
    async def ask_model(ctx: Context) -> str:
        wishes = ModelPreferences(
            hints=[ModelHint(name="small")], cost_priority=0.1, speed_priority=1.0, intelligence_priority=0.5
        )
        answer = await ctx.sample(
            conversation(),
            max_tokens=7,
            model_preferences=wishes,
            system_prompt="Be brief.",
            include_context="none",
            temperature=0.5,
            stop_sequences=["end"],
            metadata={"com.example/run": 1},
        )
        return answer.text

    @app.tool
    async def ask_model_refused(ctx: Context) -> str:
        return (await ctx.sample("refuse this")).text

    @app.tool
    async def ask_model_with_context(ctx: Context) -> str:
        return (await ctx.sample("with context", include_context="thisServer")).text

    @app.tool
    async def ask_model_with_tools(ctx: Context) -> str:
        answer = await ctx.sample(tool_conversation(), tools=[WEATHER], tool_choice=ToolChoice(mode="auto"))
        return str(answer.stop_reason)

    @app.tool
    async def ask_roots(ctx: Context) -> str:
        return ",".join(root.uri for root in await ctx.list_roots())

    @app.tool
    async def ask_everything(ctx: Context) -> str:
        """Three rounds, with a deed between them."""
        name = await ctx.ask("Your name?", str, key="name")
        await ctx.step("greet", lambda: f"hello {name}")
        roots = await ctx.list_roots(key="roots")
        return f"{name} {len(roots)} {(await ctx.sample('hello', key='model')).text}"


def conversation() -> Sequence[Any]:
    """A conversation of one message for each kind of content that every revision may have."""
    return [
        "text",
        SamplingMessage(role="assistant", content=TextContent("annotated", annotations=HINTS, meta=META), meta=META),
        SamplingMessage(role="user", content=ImageContent(BASE64, "image/png")),
    ]


def tool_conversation() -> Sequence[Any]:
    """A conversation in which a tool was used, with sound."""
    answer = ToolResultContent(
        "use-1", [TextContent("rain")], structured_content={"sky": "grey"}, is_error=False, meta=META
    )
    return [
        SamplingMessage(role="user", content=[TextContent("weather?"), AudioContent(BASE64, "audio/wav")]),
        SamplingMessage(role="assistant", content=[ToolUseContent("use-1", "weather", {"city": "Ulm"}, META)]),
        SamplingMessage(role="user", content=[answer]),
    ]


def offer_changing_tools(app: Server) -> None:
    """Tools that change what is offered, and end a listening."""

    @app.tool
    async def touch() -> str:
        app.notify_resource_updated(COUNTER)
        return "touched"

    @app.tool
    async def touch_with_note() -> str:
        app.notify_resource_updated(COUNTER, **META)
        return "touched"

    @app.tool
    async def grow() -> str:
        app.add_tool(lambda: "grown", name="grown")
        app.add_prompt(lambda: "grown", name="grown")
        app.add_resource("traffic://grown", lambda: "grown", name="grown")
        return "grew"

    @app.tool
    async def shrink() -> str:
        app.remove_tool("grown")
        app.remove_prompt("grown")
        app.remove_resource("traffic://grown")
        return "shrank"


def offer_resources(app: Server) -> None:
    """Resources and templates of every kind."""
    described = {"title": "Counter", "description": "Counts.", "annotations": HINTS, "icons": ICONS, "meta": META}

    @app.resource(COUNTER, mime_type="text/plain", size=1, **described)
    async def counter() -> str:
        return "1"

    @app.resource("traffic://bytes")
    async def as_bytes() -> bytes:
        return b"\x00\xff"

    @app.resource("traffic://parts")
    async def parts() -> list[ResourceContents]:
        return [
            ResourceContents(uri="traffic://parts/1", text="one", meta=META),
            ResourceContents(uri="traffic://parts/2", blob=BASE64, meta=META),
        ]

    @app.resource("traffic://broken")
    async def broken() -> str:
        raise RuntimeError("the client must not read this")

    @app.resource("traffic://asking")
    async def asking(ctx: Context) -> str:
        return (await ctx.elicit("May I?")).action

    @app.resource("traffic://items/{id}", mime_type="application/json", **described)
    async def item(id: int) -> dict[str, int]:  # noqa: A002
        return {"id": id}

    @app.resource("traffic://notes/{name}")
    async def note(name: str) -> str:
        return name

    @app.resource("traffic://pages/{name}")
    async def page(name: str) -> str:
        return name


def offer_prompts(app: Server) -> None:
    """Prompts of every kind."""
    arguments = [PromptArgument(name="style", title="Style", description="How", required=True)]

    @app.prompt(title="Show", description="Shows all.", arguments=arguments, icons=ICONS, meta=META)
    async def show(style: str) -> GetPromptResult:
        messages = [PromptMessage(role="assistant", content=block) for block in everything()]
        return GetPromptResult(description=style, messages=messages, meta=META)

    @app.prompt
    async def greet(name: str, tone: Literal["formal", "casual"] = "formal") -> str:
        return f"{tone}: {name}"

    @app.prompt
    async def broken_prompt() -> str:
        raise RuntimeError("the client must not read this")

    @app.prompt
    async def asking_prompt(ctx: Context) -> str:
        return (await ctx.elicit("May I?")).action


def offer_completions(app: Server) -> None:
    """Completions of a prompt's argument and a template's variable."""

    @app.completion("show.style")
    async def styles(value: str) -> list[str]:
        return [f"{value}{number}" for number in range(150)]

    @app.completion("traffic://items/{id}")
    async def ids(value: str) -> list[str]:
        return ["1", "2"]


if __name__ == "__main__":
    make_app(keepalive_interval=float(sys.argv[1]) if len(sys.argv) > 1 else 0.2).run()
