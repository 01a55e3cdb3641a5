"""Tools made of other tools."""

import asyncio
import itertools
from dataclasses import dataclass
from enum import Enum

import pytest

from ferrule import Arg, Context, Depends, Middleware, PeerError, Server, SetupError, ToolError, transformed
from ferrule.schema.tools import Tool
from ferrule.testing import pair


@dataclass
class Place:
    """Where to look."""

    city: str


class Depth(Enum):
    SHALLOW = "shallow"
    DEEP = "deep"


async def search(q: str, limit: int = 10, key: str = "none", *, place: Place | None = None) -> str:
    """Search everything.

    Args:
        q: What to look for.
        limit: How many.
    """
    return f"{q} {limit} {key} {place.city if place else '-'}"


SIMPLER = {"q": Arg(name="query", description="Words"), "limit": Arg(preset=3), "key": Arg(hide=True)}


async def told(client, tool, arguments):
    """The words of a refusal, in either form."""
    with pytest.raises((ToolError, PeerError)) as caught:
        await client.call_tool(tool, arguments)
    return str(caught.value)


class TestShape:
    """A tool is renamed, its arguments renamed, hidden or preset."""

    async def test_its_schema_is_that_of_what_is_left(self, era):
        app = Server("s")
        app.add_tool(transformed(search, name="find", description="Find it.", arguments=SIMPLER))
        async with pair(app, era) as client:
            (tool,) = await client.list_tools()
            assert (tool.name, tool.description) == ("find", "Find it.")
            assert tool.input_schema["properties"].keys() == {"query", "place"}
            assert tool.input_schema["properties"]["query"]["description"] == "Words"
            assert tool.input_schema["required"] == ["query"]
            assert (await client.call_tool("find", {"query": "tea"})).data == "tea 3 none -"
            found = await client.call_tool("find", {"query": "tea", "place": {"city": "Rome"}})
            assert found.data == "tea 3 none Rome"

    @pytest.mark.parametrize("name", ["q", "limit", "key", "nonsense"])
    async def test_what_is_hidden_cannot_be_given_by_its_old_name(self, era, name):
        app = Server("s")
        app.add_tool(transformed(search, arguments=SIMPLER))
        async with pair(app, era) as client:
            assert name in await told(client, "search", {"query": "a", name: "x"})

    async def test_a_wrong_argument_is_told_by_its_new_name(self, era):
        app = Server("s")
        app.add_tool(transformed(search, arguments=SIMPLER))
        async with pair(app, era) as client:
            words = await told(client, "search", {"query": 5})
            assert "query" in words
            assert "/q " not in words
            assert "query" in await told(client, "search", {})

    async def test_a_default_may_change_and_be_overruled(self, era):
        app = Server("s")
        changes = {"limit": Arg(default=5, schema={"maximum": 50}), "key": Arg(preset="k")}
        app.add_tool(transformed(search, arguments=changes))
        async with pair(app, era) as client:
            (tool,) = await client.list_tools()
            assert tool.input_schema["properties"]["limit"]["default"] == 5
            assert tool.input_schema["properties"]["limit"]["maximum"] == 50
            assert (await client.call_tool("search", {"q": "a"})).data == "a 5 k -"
            assert (await client.call_tool("search", {"q": "a", "limit": 7})).data == "a 7 k -"
            assert "limit" in await told(client, "search", {"q": "a", "limit": 51}), "what is added is kept to"

    async def test_a_preset_may_be_made_for_each_call(self, era):
        app, counter = Server("s"), itertools.count(1)
        app.add_tool(transformed(search, arguments={"key": Arg(preset_factory=lambda: f"k{next(counter)}")}))
        async with pair(app, era) as client:
            assert (await client.call_tool("search", {"q": "a"})).data == "a 10 k1 -"
            assert (await client.call_tool("search", {"q": "a"})).data == "a 10 k2 -"

    async def test_definitions_of_hidden_arguments_are_not_listed(self, era):
        app = Server("s")

        @app.tool
        async def look(place: Place, second: Place, depth: Depth) -> str:
            return f"{place.city} {depth.value}"

        hidden = {"place": Arg(preset={"city": "Rome"}), "second": Arg(preset=Place("Oslo"))}
        app.add_tool(transformed(app.get_tool("look"), name="look_here", arguments=hidden))
        async with pair(app, era) as client:
            tool = next(tool for tool in await client.list_tools() if tool.name == "look_here")
            assert "Place" not in str(tool.input_schema)
            assert (await client.call_tool("look_here", {"depth": "deep"})).data == "Rome deep"


class TestSources:
    """Functions, tools of this server, of a mounted one, of another."""

    async def test_a_tool_of_this_server_stays_beside_what_is_made_of_it(self, era):
        app = Server("s")
        listed = app.add_tool(search, title="Search", annotations={"readOnlyHint": True})
        app.add_tool(transformed(listed, name="find", arguments={"q": Arg(name="query")}))
        async with pair(app, era) as client:
            first, second = await client.list_tools()
            assert (first.name, second.name, second.title) == ("search", "find", "Search")
            assert second.annotations.read_only_hint is True
            assert (await client.call_tool("search", {"q": "a"})).data == "a 10 none -"
            assert (await client.call_tool("find", {"query": "a"})).data == "a 10 none -"

    async def test_options_of_add_tool_count_too(self, era):
        app = Server("s")
        app.add_tool(transformed(search), name="find", tags={"beta"})
        app.disable(tags={"beta"})
        async with pair(app, era) as client:
            assert await client.list_tools() == []

    async def test_its_context_providers_limit_and_questions_are_as_they_were(self, era):
        app = Server("s")

        def limit(ctx: Context):
            return ctx.server.name

        @app.tool(timeout=0.05)
        async def slow(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return ""

        @app.tool
        async def mark(mark: str, ctx: Context, whose: str = Depends(limit)) -> str:
            return f"{whose} {ctx.request_id is not None}{mark}"

        @app.tool
        def ask(question: str, ctx: Context) -> str:
            return ctx.sync.ask(question, str)

        app.add_tool(transformed(app.get_tool("slow"), name="sleepy", arguments={"seconds": Arg(preset=60)}))
        app.add_tool(transformed(app.get_tool("mark"), name="quick", arguments={"mark": Arg(preset="!")}))
        app.add_tool(transformed(app.get_tool("ask"), name="name", arguments={"question": Arg(preset="Name?")}))
        async with pair(app, era, elicitation=lambda params: {"value": params.message}) as client:
            assert "did not finish" in await told(client, "sleepy", {})
            assert (await client.call_tool("quick")).data == "s True!"
            assert (await client.call_tool("name")).data == "Name?"

    async def test_a_mounted_tool_with_the_layers_of_its_server(self, era):
        seen = []

        class Watching(Middleware):
            async def on_call_tool(self, call, proceed):
                seen.append((call.params.name, bytes(call.params.arguments)))
                return await proceed(call)

        child, host = Server("child", middleware=[Watching()]), Server("host")
        child.add_tool(search)
        host.mount(child, "c")
        host.add_tool(transformed(host.get_tool("c_search"), name="find", arguments=SIMPLER))
        outer = Server("outer")
        outer.mount(host, "h")
        async with pair(host, era) as client:
            assert (await client.call_tool("find", {"query": "a"})).data == "a 3 none -"
        async with pair(outer, era) as client:
            assert (await client.call_tool("h_find", {"query": "a"})).data == "a 3 none -"
        assert seen == [("search", b'{"q":"a","limit":3}')] * 2, "the child sees its own tool and arguments"

    async def test_a_tool_made_of_a_made_one_is_mounted_with_all_it_was_made_of(self, era):
        child, host = Server("child"), Server("host")
        seen = []

        @child.tool(result_limit=10, result_policy="spill")
        async def long(n: int, ctx: Context) -> str:
            await ctx.report_progress(1, 2)
            seen.append((ctx.server is child, await ctx.ask("Which?", int)))
            return "x" * n

        child.add_tool(transformed(child.get_tool("long"), name="longer", arguments={"n": Arg(name="m")}))
        child.add_tool(transformed(child.get_tool("longer"), name="longest", arguments={"m": Arg(name="k")}))
        host.mount(child, "c")
        async with pair(host, era, elicitation=lambda question: {"value": 4}) as client:
            result = await client.call_tool("c_longest", {"k": 50})
            assert (await client.read_resource(result.content[1].uri)).text == "x" * 50
        assert seen == [(True, 4)]

    async def test_errors_of_a_tool_made_of_a_made_one_are_mended_by_its_servers(self, era):
        class Mender(Middleware):
            def on_error(self, call, error):
                return ToolError("mended") if isinstance(error, KeyError) else None

        child, host = Server("child"), Server("host")
        child.middleware(Mender())

        @child.tool
        async def fail(n: int) -> str:
            raise KeyError(n)

        host.mount(child, "c")
        host.add_tool(transformed(host.get_tool("c_fail"), name="one"))
        host.add_tool(transformed(host.get_tool("one"), name="two"))
        async with pair(host, era) as client:
            for name in ("one", "two"):
                with pytest.raises(ToolError, match="mended"):
                    await client.call_tool(name, {"n": 1})

    async def test_layers_that_a_mounted_server_gets_later_surround_what_was_made_of_its_tools(self, era):
        child, host, outer, heard = Server("child"), Server("host"), Server("outer"), []
        child.add_tool(search)
        host.mount(child, "c")
        host.add_tool(transformed(host.get_tool("c_search"), name="one"))
        host.add_tool(transformed(host.get_tool("one"), name="two"))
        outer.mount(host, "h")

        class Listening(Middleware):
            async def on_call_tool(self, call, proceed):
                heard.append(call.params.name)
                return await proceed(call)

        child.middleware(Listening())
        for app, prefix in ((host, ""), (outer, "h_")):
            async with pair(app, era) as client:
                for name in ("one", "two"):
                    assert (await client.call_tool(prefix + name, {"q": "tea"})).data == "tea 10 none -"
        assert heard == ["search"] * 4

    async def test_options_hold_for_a_tool_that_is_made_of_a_function(self, era):
        app, heard = Server("s"), []

        async def layer(call, proceed):
            heard.append(call.params.name)
            return await proceed(call)

        app.add_tool(
            transformed(search, name="find", arguments=SIMPLER),
            middleware=[layer],
            annotations={"readOnlyHint": True},
            task=True,
            timeout=5.0,
        )
        foreign = Tool(name="far", input_schema={"type": "object"})

        async def call(arguments):
            return "far away"

        app.add_tool(transformed(foreign, call=call), middleware=[layer], tags=["t"])
        async with pair(app, era) as client:
            listed = {tool.name: tool for tool in await client.list_tools()}
            assert listed["find"].annotations.read_only_hint
            assert (await client.call_tool("find", {"query": "tea"})).data == "tea 3 none -"
            assert (await client.call_tool("far")).text == "far away"
        assert len(heard) == 2

    def test_a_tool_that_is_offered_already_keeps_its_options(self):
        app = Server("s")
        app.add_tool(search)
        with pytest.raises(SetupError, match="'search' keeps its timeout"):
            app.add_tool(transformed(app.get_tool("search"), name="x"), timeout=5.0)

    async def test_a_transformed_tool_is_mounted_with_the_context_of_the_host(self, era):
        child, host = Server("child"), Server("host")

        async def progress(steps: int, ctx: Context) -> str:
            await ctx.report_progress(steps)
            return ctx.server.name

        child.add_tool(transformed(progress, arguments={"steps": Arg(preset=2)}))
        host.mount(child, "c")
        told_of = []
        async with pair(host, era) as client:
            result = await client.call_tool("c_progress", on_progress=lambda *args: told_of.append(args[0]))
        assert (result.data, told_of) == ("child", [2])

    async def test_a_tool_of_another_server_is_called_as_one_says(self, era):
        remote, app = Server("remote"), Server("s")
        remote.add_tool(search)
        async with pair(remote, era) as far:
            (listed,) = await far.list_tools()

            async def call(arguments):
                return await far.call_tool("search", arguments)

            app.add_tool(transformed(listed, name="find", arguments=SIMPLER, call=call))
            async with pair(app, era) as client:
                assert (await client.call_tool("find", {"query": "a"})).data == "a 3 none -"
                assert "query" in await told(client, "find", {})


class TestMistakes:
    """What cannot be done is said when the tool is added."""

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ({"x": Arg(name="y")}, r"has no argument 'x' to transform; it has q, limit"),
            ({"q": {"hide": True}}, r"what becomes of 'q' is said by an Arg"),
            ({"q": Arg(hide=True)}, r"'q' is required, so it cannot be hidden without a value: give preset"),
            ({"q": Arg(name="limit")}, r"two arguments would be called 'limit'"),
            ({"q": Arg(preset=1, preset_factory=int)}, r"both preset and preset_factory"),
            ({"q": Arg(preset=object())}, r"its preset cannot be written as JSON"),
            ({"limit": Arg(hide=True, name="n")}, r"is hidden, so it needs no name"),
            ({"limit": Arg(preset=1, default=2)}, r"is hidden, so it needs no name and no default"),
            ({"limit": Arg(schema={"type": 5})}, r"schema"),
            ({"limit": Arg(preset="many")}, r"its preset does not fit: \"many\" is not of type \"integer\""),
            ({"limit": Arg(default=1.5)}, r"its default does not fit: 1.5 is not of type"),
        ],
    )
    def test_a_change_that_makes_no_sense(self, arguments, reason):
        app = Server("s")
        with pytest.raises(SetupError, match=rf"tool 'search'.*{reason}"):
            app.add_tool(transformed(search, arguments=arguments))
        assert app.list_tools() == []

    def test_a_schema_that_ties_arguments_together(self):
        app = Server("s")
        schema = {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}]}
        app.add_tool("tied", lambda **kwargs: None, schema=schema)
        with pytest.raises(SetupError, match=r"ties arguments together \(anyOf\), so 'a'"):
            app.add_tool(transformed(app.get_tool("tied"), name="x", arguments={"a": Arg(preset=1)}))
        app.add_tool(transformed(app.get_tool("tied"), name="y", arguments={"a": Arg(description="A")}))

    def test_a_name_that_is_taken(self):
        app = Server("s")
        app.add_tool(search)
        with pytest.raises(SetupError, match="there is a tool 'search' already"):
            app.add_tool(transformed(app.get_tool("search")))

    def test_what_is_no_tool(self):
        with pytest.raises(SetupError, match="neither a tool nor a function"):
            transformed("search")
        app = Server("s")
        app.add_tool(search)
        with pytest.raises(SetupError, match="no tool 'serch'; did you mean"):
            app.get_tool("serch")

    def test_a_listed_tool_that_nobody_can_call(self):
        with pytest.raises(SetupError, match="'x' is not one of 's'"):
            Server("s").add_tool(transformed(Tool(name="x", input_schema={"type": "object"})))
