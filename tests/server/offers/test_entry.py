"""Tools, resources and prompts that are objects and not functions: a forwarded tool is one."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ferrule import Arg, Client, Context, Middleware, PeerError, Server, SetupError, ToolError, transformed
from ferrule.protocol.call import Call
from ferrule.server.offers.entry import is_prompt, is_resource, is_tool
from ferrule.testing import pair
from ferrule.types import (
    CallToolResult,
    GetPromptResult,
    Prompt,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
    Tool,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}


class ForwardedTool:
    """A tool of another server, under a name of its own."""

    def __init__(self, upstream: Client, tool: Tool) -> None:
        self.tool = tool
        self._upstream = upstream
        self.names: list[str] = []

    async def call(self, call: Call) -> CallToolResult:
        self.names.append(call.params.name)
        arguments = msgspec.json.decode(call.params.arguments)
        return await self._upstream.call_tool(call.params.name, arguments, raise_on_error=False)


class Echo:
    """Answers with what it was asked."""

    tool = Tool(name="echo", description="Say it again.", input_schema=SCHEMA)

    async def call(self, call: Call) -> CallToolResult:
        return CallToolResult(content=[TextContent(f"{call.params.name}: {bytes(call.params.arguments).decode()}")])


class Failing:
    """Raises what it was made with."""

    tool = Tool(name="fail", input_schema={"type": "object"})

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def call(self, call: Call) -> CallToolResult:
        raise self._error


class Note:
    """A resource that reads itself."""

    def __init__(self, resource: Resource | ResourceTemplate) -> None:
        self.resource = resource

    async def read(self, uri: str, call: Call) -> ReadResourceResult:
        return ReadResourceResult(contents=[ResourceContents(uri=uri, text=f"{call.method} of {uri}")])


class Greeting:
    """A prompt that fills itself in."""

    prompt = Prompt(name="greet", description="Greet somebody.")

    async def get(self, call: Call) -> GetPromptResult:
        said = f"{call.params.name} {call.params.arguments['name']}"
        return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(said))])


async def test_a_forwarded_tool_is_listed_and_called(era: str) -> None:
    origin = Server("origin")

    @origin.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with pair(origin) as upstream:
        app = Server("front")
        for tool in await upstream.list_tools():
            app.add_tool(ForwardedTool(upstream, tool))
        async with pair(app, era) as client:
            assert await client.list_tools() == await upstream.list_tools()
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            with pytest.raises(ToolError, match="Invalid arguments"):
                await client.call_tool("add", {"a": 1, "b": "two"})
            with pytest.raises(PeerError, match="did you mean 'add'"):
                await client.call_tool("ad", {})


async def test_the_result_is_sealed_in_the_era_of_the_caller(era: str, wire: Any) -> None:
    app = Server("front")
    app.add_tool(Echo())
    async with wire(app, era) as peer:
        answered = (await peer.call("echo", {"city": "Rome"}))["result"]
        assert answered["content"] == [{"type": "text", "text": 'echo: {"city":"Rome"}'}]
        assert ("resultType" in answered) is (era == "stateless")


async def test_it_is_hidden_and_shown_like_any_other(era: str) -> None:
    app = Server("front")
    app.add_tool(Echo(), tags={"loud"}, visible=lambda ctx: ctx.client is not None)
    app.disable(tags={"loud"})
    async with pair(app, era) as client:
        assert await client.list_tools() == []
        with pytest.raises(PeerError, match="echo"):
            await client.call_tool("echo", {})
        app.enable("echo")
        assert [tool.name for tool in await client.list_tools()] == ["echo"]
        assert (await client.call_tool("echo", {})).text == "echo: {}"


async def test_who_may_not_see_it_cannot_call_it(era: str) -> None:
    app = Server("front")
    app.add_tool(Echo(), visible=lambda ctx: False)
    async with pair(app, era) as client:
        assert await client.list_tools() == []
        with pytest.raises(PeerError, match="echo"):
            await client.call_tool("echo", {})


async def test_mounted_it_has_a_prefix_and_is_called_by_its_own_name(era: str) -> None:
    inner = Server("inner")
    inner.add_tool(Echo())
    middle = Server("middle")
    middle.mount(inner, "in")
    app = Server("outer")
    app.mount(middle, "mid")
    async with pair(app, era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["mid_in_echo"]
        assert (await client.call_tool("mid_in_echo", {"city": "Oslo"})).text == 'echo: {"city":"Oslo"}'


async def test_a_removed_one_is_refused(era: str) -> None:
    app = Server("front")
    app.add_tool(Echo())
    async with pair(app, era) as client:
        app.remove_tool("echo")
        with pytest.raises(PeerError, match="echo"):
            await client.call_tool("echo", {})


async def test_a_tool_may_be_made_of_it(era: str) -> None:
    app = Server("front")
    app.add_tool(Echo())
    app.add_tool(transformed(app.get_tool("echo"), name="weather", arguments={"city": Arg(name="town")}))
    async with pair(app, era) as client:
        assert (await client.call_tool("weather", {"town": "Bonn"})).text == 'echo: {"city":"Bonn"}'


async def test_middleware_surrounds_it_and_sees_its_result(era: str) -> None:
    seen = []

    class Looking(Middleware):
        async def on_call_tool(self, call: Call, proceed: Any) -> Any:
            result = await proceed(call)
            seen.append((call.params.name, result.text))
            return result

    app = Server("front", middleware=[Looking()])
    app.add_tool(Echo(), middleware=[Looking()])
    async with pair(app, era) as client:
        await client.call_tool("echo", {})
    assert seen == [("echo", "echo: {}")] * 2


async def test_its_errors_are_told_and_masked_like_any_other(era: str) -> None:
    for error, told in ((ToolError("no such city"), "no such city"), (ValueError("secret"), "failed: Internal error")):
        app = Server("front")
        app.add_tool(Failing(error))
        async with pair(app, era) as client:
            result = await client.call_tool("fail", {}, raise_on_error=False)
            assert result.is_error
            assert told in result.text
            assert "secret" not in result.text


async def test_it_ends_when_its_time_is_up(era: str) -> None:
    class Slow(Echo):
        async def call(self, call: Call) -> CallToolResult:
            await asyncio.Event().wait()
            return CallToolResult()

    app = Server("front")
    app.add_tool(Slow(), timeout=0.05)
    async with pair(app, era) as client:
        with pytest.raises(ToolError, match=r"echo did not finish within 0\.05 seconds"):
            await client.call_tool("echo", {})


def test_its_mirrored_arguments_are_known() -> None:
    app = Server("front")
    app.add_tool(Echo())
    assert app.host.mirrored("echo") == {"City": ("city",)}


async def test_resources_and_templates_read_themselves(era: str) -> None:
    inner = Server("inner")
    inner.add_resource(Note(Resource(uri="notes://one", name="one")))
    inner.add_resource(Note(ResourceTemplate(uri_template="notes://by/{name}", name="by")))
    app = Server("front")
    app.mount(inner, "p")

    @inner.tool
    async def read(ctx: Context) -> str:
        return (await ctx.read_resource("notes://one")).text or ""

    async with pair(app, era) as client:
        assert [each.uri for each in await client.list_resources()] == ["notes://p/one"]
        assert [each.uri_template for each in await client.list_resource_templates()] == ["notes://p/by/{name}"]
        found = await client.read_resource("notes://p/by/ann")
        assert (found.text, found.contents[0].uri) == ("resources/read of notes://by/ann", "notes://p/by/ann")
        assert (await client.read_resource("notes://p/one")).text == "resources/read of notes://one"
        assert (await client.call_tool("p_read", {})).text == "tools/call of notes://one"
        with pytest.raises(PeerError):
            await client.read_resource("notes://p/two")
    assert (await inner.read_resource("notes://one")).text == "resources/read of notes://one"


async def test_prompts_fill_themselves_in(era: str) -> None:
    inner = Server("inner")
    inner.add_prompt(Greeting())
    app = Server("front")
    app.mount(inner, "p")
    async with pair(app, era) as client:
        assert [each.name for each in await client.list_prompts()] == ["p_greet"]
        filled = await client.get_prompt("p_greet", {"name": "Ann"})
        assert filled.messages[0].content.text == "greet Ann"


@pytest.mark.parametrize("option", [{"name": "other"}, {"description": "x"}, {"task": True}, {"max_threads": 2}])
def test_options_of_functions_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=rf"the tool echo says itself how it is listed: {next(iter(option))}="):
        Server("front").add_tool(Echo(), **option)


def test_a_template_needs_variables_and_a_resource_has_none() -> None:
    with pytest.raises(SetupError, match="a ResourceTemplate has variables"):
        Server("front").add_resource(Note(Resource(uri="notes://{name}", name="x")))
    with pytest.raises(SetupError, match="needs a scheme"):
        Server("front").add_resource(Note(Resource(uri="notes", name="x")))
    with pytest.raises(SetupError, match="needs a URI and a function"):
        Server("front").add_resource("notes://x")


def test_what_is_a_tool_says_so_whole() -> None:
    class Half:
        tool = Echo.tool

    class Other:
        tool = "a hammer"

        async def call(self, call: Call) -> None: ...

    assert is_tool(Echo())
    assert not is_tool(Half())
    assert not is_tool(Other())
    assert is_resource(Note(Resource(uri="a://b", name="b")))
    assert not is_resource(Echo())
    assert is_prompt(Greeting())
    assert not is_prompt(len)
