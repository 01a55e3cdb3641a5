"""Middleware: hooks by kind of call, composed once; what is not used is not there."""

import logging

import pytest

from ferrule import Context, Middleware, PeerError, Server, SetupError, ToolError
from ferrule.errors import Forbidden
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.results import unstructured
from ferrule.server.offers.tools import Tools
from ferrule.testing import pair


def shop(**options):
    app = Server("shop", **options)

    @app.tool
    async def buy(what: str = "tea") -> str:
        return f"bought {what}"

    @app.resource("stock://{what}")
    async def stock(what: str) -> str:
        return f"3 {what}"

    @app.prompt
    async def advise(what: str) -> str:
        return f"Which {what}?"

    @app.completion("advise.what")
    async def whats(value):
        return ["tea"]

    return app


class Watching(Middleware):
    """Writes down which hook saw what."""

    def __init__(self):
        self.seen = []

    async def on_call_tool(self, call, proceed):
        self.seen.append(("tool", call.params.name))
        return await proceed(call)

    async def on_read_resource(self, call, proceed):
        self.seen.append(("resource", call.params.uri))
        return await proceed(call)

    async def on_get_prompt(self, call, proceed):
        self.seen.append(("prompt", call.params.name))
        return await proceed(call)

    async def on_complete(self, call, proceed):
        self.seen.append(("completion", call.params.argument.value))
        return await proceed(call)

    async def on_list_tools(self, call, proceed):
        self.seen.append(("list", call.method))
        return await proceed(call)

    async def on_list_resources(self, call, proceed):
        self.seen.append(("list", call.method))
        return await proceed(call)

    async def on_list_resource_templates(self, call, proceed):
        self.seen.append(("list", call.method))
        return await proceed(call)

    async def on_list_prompts(self, call, proceed):
        self.seen.append(("list", call.method))
        return await proceed(call)

    def on_notification(self, note, proceed):
        self.seen.append(("note", note.method))
        proceed(note)


class TestNothingUsed:
    """A server without middleware is as it was."""

    def test_the_handlers_are_the_server_s_own(self):
        app = shop()
        handlers = app.host.dispatcher.handlers
        assert handlers["tools/call"].__func__ is Tools.call
        assert handlers["tools/call"].__self__ is app.offers.tools
        assert handlers["resources/read"] == app.offers.resources.read
        assert handlers["prompts/get"] == app.offers.prompts.fill
        assert handlers["completion/complete"] == app.offers.completions.complete
        assert {"tools/list", "ping", "initialize"} <= app.host.dispatcher.instant.keys()

    def test_a_tool_without_anything_special_has_no_detour(self):
        entry = shop().get_tool("buy")
        assert (entry.handler, entry.mount_path, entry.layers) == (None, (), [])

    def test_hooks_that_are_not_overridden_are_not_composed(self):
        class Resources(Middleware):
            async def on_read_resource(self, call, proceed):
                return await proceed(call)

        app = shop(middleware=[Resources()])
        assert app.host.dispatcher.handlers["tools/call"] == app.offers.tools.call
        assert app.host.dispatcher.handlers["prompts/get"] == app.offers.prompts.fill
        assert app.host.dispatcher.handlers["resources/read"] != app.offers.resources.read
        assert "tools/list" in app.host.dispatcher.instant, "what nobody surrounds needs no task"

    def test_only_surrounded_lists_are_no_longer_instant(self):
        class Lists(Middleware):
            async def on_list_tools(self, call, proceed):
                return await proceed(call)

        app = shop(middleware=[Lists()])
        assert "tools/list" not in app.host.dispatcher.instant
        assert {"ping", "prompts/list", "initialize"} <= app.host.dispatcher.instant.keys()


class TestHooks:
    """One hook for each kind of call."""

    async def test_each_hook_sees_its_own_kind(self, era):
        layer = Watching()
        async with pair(shop(middleware=[layer]), era) as client:
            layer.seen.clear()
            await client.call_tool("buy")
            await client.read_resource("stock://tea")
            await client.get_prompt("advise", {"what": "tea"})
            await client.complete({"type": "ref/prompt", "name": "advise"}, {"name": "what", "value": "t"})
            await client.list_tools()
            await client.list_resources()
            await client.list_resource_templates()
            await client.list_prompts()
        assert layer.seen[:4] == [
            ("tool", "buy"),
            ("resource", "stock://tea"),
            ("prompt", "advise"),
            ("completion", "t"),
        ]
        assert layer.seen[4:] == [
            ("list", "tools/list"),
            ("list", "resources/list"),
            ("list", "resources/templates/list"),
            ("list", "prompts/list"),
        ]

    async def test_notifications_are_seen_known_or_not(self, wire):
        layer = Watching()
        async with wire(shop(middleware=[layer])) as peer:
            peer.notify("notifications/roots/list_changed")
            peer.notify("notifications/of/nobody")
            await peer.request("ping")
        assert [method for kind, method in layer.seen if kind == "note"] == [
            "notifications/initialized",
            "notifications/roots/list_changed",
            "notifications/of/nobody",
        ]

    async def test_a_request_hook_is_outside_of_the_kind_s_own(self, era):
        order = []

        class Both(Middleware):
            async def on_request(self, call, proceed):
                order.append(call.method)
                return await proceed(call)

            async def on_call_tool(self, call, proceed):
                order.append("tool")
                result = await proceed(call)
                assert isinstance(result, CallToolResult), "what is looked into is not written ahead"
                return unstructured(result.text.upper())

        async with pair(shop(middleware=[Both()]), era) as client:
            order.clear()
            assert (await client.call_tool("buy")).text == "BOUGHT TEA"
        assert order == ["tools/call", "tool"]

    async def test_the_handshake_can_be_refused(self):
        class Door(Middleware):
            async def on_initialize(self, call, proceed):
                raise Forbidden("closed on Sundays")

        with pytest.raises(Exception, match="closed on Sundays"):
            async with pair(shop(middleware=[Door()]), "handshake"):
                pass

    async def test_a_layer_that_joins_later_surrounds_those_who_are_connected(self, era):
        app, layer = shop(), Watching()
        async with pair(app, era) as client:
            await client.call_tool("buy")
            assert app.add_middleware(layer) is layer
            await client.call_tool("buy")
        assert ("tool", "buy") in layer.seen
        assert layer.seen.count(("tool", "buy")) == 1

    async def test_a_layer_learns_whose_it_is(self):
        class Joining(Middleware):
            def joined(self, server):
                self.server = server

        layer = Joining()
        app = shop(middleware=[layer])
        assert layer.server is app

    async def test_what_a_handler_raised_can_be_mended(self, era, caplog):
        class Mending(Middleware):
            def on_error(self, call, error):
                return ToolError(f"mended {error}") if isinstance(error, KeyError) else None

        app = Server("s", middleware=[Mending()])

        @app.tool
        async def lookup(key: str) -> str:
            return {}[key]

        @app.tool
        async def divide() -> float:
            return 1 / 0

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="mended 'a'"):
                await client.call_tool("lookup", {"key": "a"})
            with pytest.raises(ToolError, match="reference"), caplog.at_level(logging.CRITICAL):
                await client.call_tool("divide")


class TestOneTool:
    """Middleware around a single tool."""

    async def test_it_surrounds_that_tool_only_and_sees_what_it_raises(self, era):
        seen = []
        app = Server("s")

        async def watch(call, proceed):
            try:
                return await proceed(call)
            except ZeroDivisionError:
                seen.append("division")
                raise ToolError("not by zero") from None

        @app.tool(middleware=[watch])
        async def divide(by: int, ctx: Context) -> float:
            return 1 / by

        @app.tool
        async def other() -> int:
            return 1

        async with pair(app, era) as client:
            assert (await client.call_tool("divide", {"by": 2})).data == 0.5
            with pytest.raises(ToolError, match="not by zero"):
                await client.call_tool("divide", {"by": 0})
            assert (await client.call_tool("other")).data == 1
        assert seen == ["division"]
        assert app.get_tool("other").handler is None

    async def test_it_is_outside_of_the_time_limit(self, era):
        times = []
        app = Server("s")

        async def watch(call, proceed):
            result = await proceed(call)
            times.append(result.is_error)
            return result

        @app.tool(middleware=[watch], timeout=0.02)
        async def slow(ctx: Context) -> str:
            import asyncio

            await asyncio.sleep(60)
            return ""

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="did not finish"):
                await client.call_tool("slow")
        assert times == [True]


class TestMistakes:
    """Wrong layers are refused when they are added."""

    def test_a_class_instead_of_an_object(self):
        with pytest.raises(SetupError, match=r"give an object, Watching\(\)"):
            Server("s", middleware=[Watching])

    def test_something_else(self):
        with pytest.raises(SetupError, match="neither a Middleware nor a function"):
            Server("s").middleware(3)

    def test_a_hook_that_must_wait_and_does_not(self):
        class Wrong(Middleware):
            def on_call_tool(self, call, proceed): ...

        with pytest.raises(SetupError, match=r"Wrong\.on_call_tool must be an `async def`"):
            Server("s").middleware(Wrong())

    def test_a_hook_that_must_not_wait_and_does(self):
        class Wrong(Middleware):
            async def on_notification(self, note, proceed): ...

        with pytest.raises(SetupError, match=r"Wrong\.on_notification must be a plain `def`"):
            Server("s").middleware(Wrong())

    @pytest.mark.parametrize(("written", "meant"), [("on_call_tol", "on_call_tool"), ("on_message", "on_request")])
    def test_a_hook_that_is_not_quite_one(self, written, meant):
        async def never_called(self, call, proceed): ...

        wrong = type("Wrong", (Middleware,), {written: never_called})
        with pytest.raises(SetupError, match=rf"Wrong\.{written} is not a hook; did you mean {meant}"):
            Server("s").middleware(wrong())

    def test_a_method_of_its_own_is_nobodys_mistake(self):
        class Own(Middleware):
            def on_closing_time(self): ...

        app, own = Server("s"), Own()
        assert app.middleware(own) is own

    def test_a_function_that_cannot_be_given_the_call_and_how_to_proceed(self):
        async def short(call): ...

        with pytest.raises(SetupError, match=r"app\.middleware: .*short must take two arguments: async def .*proceed"):
            Server("s").middleware(short)

    async def test_a_wrong_layer_of_a_tool_names_the_tool(self):
        app = Server("s")
        with pytest.raises(SetupError, match="tool 'buy'"):
            app.add_tool("buy", lambda: None, middleware=[None])

    async def test_a_refusal_is_told_as_it_is(self, era):
        class Guard(Middleware):
            async def on_call_tool(self, call, proceed):
                raise Forbidden("not today")

        async with pair(shop(middleware=[Guard()]), era) as client:
            with pytest.raises(PeerError, match="not today"):
                await client.call_tool("buy")


async def test_what_a_layer_wants_the_model_to_read_is_a_result(era):
    """A layer of the server, of a tool or of a mounted server: the same."""

    async def closed(call, proceed):
        if call.method == "tools/call":
            raise ToolError("closed on Sundays")
        return await proceed(call)

    async def hello() -> str:
        return "hello"

    around, of_tool, child, host = Server("around", middleware=[closed]), Server("t"), Server("child"), Server("host")
    around.add_tool(hello, task=True)
    of_tool.add_tool(hello, middleware=[closed])
    child.add_tool(hello)
    child.middleware(closed)
    host.mount(child)
    for app in (around, of_tool, host):
        async with pair(app, era) as client:
            result = await client.call_tool("hello", raise_on_error=False)
            assert (result.is_error, result.text) == (True, "closed on Sundays")
    async with pair(around, era) as client:
        with pytest.raises(ToolError, match="closed on Sundays"):
            await client.call_tool("hello", task=True)
