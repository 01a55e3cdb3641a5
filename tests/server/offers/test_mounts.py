"""Mounting: one server's things in another, under a prefix, live."""

import asyncio
import contextlib
import threading

import pytest

from ferrule import Context, Depends, Middleware, PeerError, Server, SetupError, ToolError, transformed
from ferrule.errors import InvalidParams, ToolNotFound
from ferrule.schema.content import ResourceContents, ResourceLink
from ferrule.schema.resources import ReadResourceResult
from ferrule.server.offers.mount_point import MountPoint
from ferrule.testing import pair


def weather(**options):
    app = Server("weather", **options)

    @app.tool
    async def forecast(city: str) -> str:
        """Tell the weather."""
        return f"sun in {city}"

    @app.tool
    def plain(ctx: Context) -> str:
        return f"{ctx.server.name} {ctx.call.params.name}"

    @app.resource("cities://all")
    async def cities() -> str:
        return "Rome"

    @app.resource("city://{name}/now")
    async def city(name: str, uri: str) -> str:
        return f"{name} at {uri}"

    @app.prompt
    async def advise(city: str) -> str:
        return f"What to wear in {city}?"

    @app.completion("advise.city")
    async def names(value, ctx: Context):
        return [f"{ctx.server.name}:{value}"]

    return app


def hosting(child=None, prefix="weather"):
    app = Server("host")

    @app.tool
    async def own() -> str:
        return "own"

    app.mount(child or weather(), prefix=prefix)
    return app


class TestNames:
    """What is mounted has the prefix in its name."""

    async def test_everything_of_the_child_is_listed_by_the_host(self, era):
        async with pair(hosting(), era) as client:
            assert [tool.name for tool in await client.list_tools()] == ["own", "weather_forecast", "weather_plain"]
            assert [resource.uri for resource in await client.list_resources()] == ["cities://weather/all"]
            (template,) = await client.list_resource_templates()
            assert template.uri_template == "city://weather/{name}/now"
            assert [prompt.name for prompt in await client.list_prompts()] == ["weather_advise"]

    async def test_everything_of_the_child_is_used_through_the_host(self, era):
        async with pair(hosting(), era) as client:
            assert (await client.call_tool("weather_forecast", {"city": "Rome"})).data == "sun in Rome"
            assert (await client.read_resource("cities://weather/all")).text == "Rome"
            read = await client.read_resource("city://weather/Rome/now")
            assert read.text == "Rome at city://Rome/now", "a handler is told the URI it was written for"
            assert read.contents[0].uri == "city://weather/Rome/now"
            prompt = await client.get_prompt("weather_advise", {"city": "Rome"})
            assert prompt.messages[0].content.text == "What to wear in Rome?"
            reference = {"type": "ref/prompt", "name": "weather_advise"}
            assert (await client.complete(reference, {"name": "city", "value": "R"})).values == ["weather:R"]

    async def test_without_a_prefix_names_stay(self, era):
        async with pair(hosting(prefix=""), era) as client:
            assert [tool.name for tool in await client.list_tools()] == ["own", "forecast", "plain"]
            assert (await client.read_resource("city://Rome/now")).text == "Rome at city://Rome/now"

    async def test_a_mount_within_a_mount_has_both_prefixes(self, era):
        outer = Server("outer")
        outer.mount(hosting(), "in")
        async with pair(outer, era) as client:
            assert (await client.call_tool("in_weather_forecast", {"city": "Rome"})).data == "sun in Rome"
            assert (await client.read_resource("city://in/weather/Rome/now")).text == "Rome at city://Rome/now"
            reference = {"type": "ref/prompt", "name": "in_weather_advise"}
            assert (await client.complete(reference, {"name": "city", "value": "R"})).values == ["weather:R"]

    @pytest.mark.parametrize(
        ("uri", "placed"),
        [("a://b/c", "a://p/b/c"), ("urn:isbn:1", "urn:p/isbn:1"), ("file:///x", "file://p//x"), ("a://", "a://p/")],
    )
    def test_a_uri_is_placed_and_found_again(self, uri, placed):
        point = MountPoint(Server("child").offers, "p")
        assert point.placed(uri) == placed
        assert point.own_uri(placed) == uri

    async def test_errors_name_the_tool_as_the_client_does(self, era):
        async with pair(hosting(), era) as client:
            with pytest.raises((ToolError, PeerError), match="weather_forecast"):
                await client.call_tool("weather_forecast", {"town": "Rome"})
            with pytest.raises(PeerError, match="weather_forecast"):
                await client.call_tool("weather_forecas")


class TestCosts:
    """A call of a mounted tool is a call like any other."""

    def test_a_mounted_tool_is_found_in_the_host_s_own_table_and_run_directly(self):
        app = hosting()
        entry = app.offers.tools.catalogue.get("weather_forecast")
        assert entry.handler is None
        (mount,) = app.mounts
        assert (
            entry.look_for_fast_path().invoke is mount.child.tools.catalogue.get("forecast").look_for_fast_path().invoke
        )

    async def test_a_limit_holds_for_a_tool_s_own_server_and_its_host_together(self):
        app = Server("host")
        child = Server("child")
        child.add_tool("work", lambda: "done", max_concurrent=2)
        app.mount(child, "c")
        mounted = app.offers.tools.catalogue.get("c_work")
        assert mounted.slots is child.offers.tools.catalogue.get("work").slots
        assert mounted.slots.limit == 2

    async def test_the_list_is_encoded_once(self, wire):
        app = hosting()
        async with wire(app) as peer:
            await peer.request("tools/list")
            page = dict(app.offers.tools.catalogue._pages)
            await peer.request("tools/list")
            assert app.offers.tools.catalogue._pages == page
            assert len(page) == 1


class TestContext:
    """A handler has its own server, and the client of the host."""

    async def test_its_server_is_its_own_and_the_session_is_the_host_s(self, era):
        child = Server("child")

        @child.tool
        async def talk(ctx: Context) -> str:
            await ctx.report_progress(1, 2)
            await ctx.info("hello")
            name = await ctx.ask("Name?", str)
            return f"{ctx.server.name} {name} {(await ctx.read_resource('x://y')).text}"

        @child.tool
        def blocking(ctx: Context) -> str:
            return ctx.sync.ask("Name?", str)

        @child.tool
        async def count(ctx: Context) -> int:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            return ctx.state["n"]

        child.add_resource("x://y", lambda: "read")
        app = Server("host")
        app.mount(child, "c")
        progress = []
        async with pair(app, era, elicitation=lambda params: {"value": "ada"}) as client:
            result = await client.call_tool("c_talk", on_progress=lambda *args: progress.append(args[0]))
            assert result.data == "child ada read"
            assert (await client.call_tool("c_blocking")).data == "ada"
            if era == "handshake":
                assert [(await client.call_tool("c_count")).data for _ in range(2)] == [1, 2]
        assert progress
        assert set(progress) == {1}

    async def test_dependencies_and_time_limits_work_as_at_home(self, era):
        child = Server("child")

        def who(ctx: Context):
            return ctx.server.name

        @child.tool
        async def name(whose: str = Depends(who)) -> str:
            return whose

        @child.tool(timeout=0.05)
        async def slow() -> str:
            await asyncio.sleep(60)
            return ""

        app = Server("host")
        app.mount(child, "c")
        async with pair(app, era) as client:
            assert (await client.call_tool("c_name")).data == "child"
            with pytest.raises(ToolError, match="c_slow did not finish"):
                await client.call_tool("c_slow")

    @pytest.mark.parametrize("layered", [False, True])
    async def test_a_large_result_is_kept_where_the_client_reads_it(self, era, layered):
        """Also where callers see different things: what was kept for one is in no list."""
        child, host = Server("child", middleware=[Renaming([])] if layered else []), Server("host")

        @child.tool(result_limit=1000, result_policy="spill")
        async def large() -> str:
            return "x" * 5000

        host.mount(child, "c")
        host.visible(lambda ctx, component: True)
        async with pair(host, era) as client:
            result = await client.call_tool("c_large")
            (link,) = [block for block in result.content if isinstance(block, ResourceLink)]
            assert "x" * 5000 in (await client.read_resource(link.uri)).text
            assert (len(host.host.services.kept_results), len(child.host.services.kept_results)) == (1, 0)

    async def test_a_page_is_found_where_the_host_has_it(self, era):
        child, host = Server("child"), Server("host")
        child.page("ui://charts/pie", "<!DOCTYPE html><p>pie</p>")
        child.add_tool("pie", lambda: "pie", ui="ui://charts/pie")
        host.mount(child, "c")
        (tool,) = host.list_tools()
        assert tool.meta["ui"]["resourceUri"] == "ui://c/charts/pie"
        async with pair(host, era) as client:
            assert (await client.read_resource("ui://c/charts/pie")).text == "<!DOCTYPE html><p>pie</p>"
            assert (await client.call_tool("c_pie")).text == "pie"


class Renaming(Middleware):
    """Writes down under which names calls come by."""

    def __init__(self, log):
        self.log = log

    async def on_call_tool(self, call, proceed):
        self.log.append(call.params.name)
        return await proceed(call)

    async def on_read_resource(self, call, proceed):
        self.log.append(call.params.uri)
        return await proceed(call)

    async def on_get_prompt(self, call, proceed):
        self.log.append(call.params.name)
        return await proceed(call)

    async def on_complete(self, call, proceed):
        ref = call.params.ref
        self.log.append(getattr(ref, "name", None) or ref.uri)
        return await proceed(call)


class TestMiddleware:
    """The middleware of a mounted server surrounds its own things, in its own words."""

    async def test_each_server_s_layers_see_its_own_names(self, era):
        outer_log, middle_log, inner_log = [], [], []
        inner = weather(middleware=[Renaming(inner_log)])
        middle = Server("middle", middleware=[Renaming(middle_log)])
        middle.mount(inner, "w")
        outer = Server("outer", middleware=[Renaming(outer_log)])
        outer.mount(middle, "m")
        async with pair(outer, era) as client:
            assert (await client.call_tool("m_w_forecast", {"city": "Rome"})).data == "sun in Rome"
            read = await client.read_resource("city://m/w/Rome/now")
            assert (read.text, read.contents[0].uri) == ("Rome at city://Rome/now", "city://m/w/Rome/now")
            await client.get_prompt("m_w_advise", {"city": "Rome"})
            reference = {"type": "ref/prompt", "name": "m_w_advise"}
            assert (await client.complete(reference, {"name": "city", "value": "R"})).values == ["weather:R"]
        assert outer_log == ["m_w_forecast", "city://m/w/Rome/now", "m_w_advise", "m_w_advise"]
        assert middle_log == ["w_forecast", "city://w/Rome/now", "w_advise", "w_advise"]
        assert inner_log == ["forecast", "city://Rome/now", "advise", "advise"]

    @pytest.mark.parametrize("fails", [False, True])
    async def test_a_layer_of_the_host_sees_the_host_s_names_after_the_call_too(self, era, fails):
        """What the child renames for itself is as it was when the call comes back."""
        seen = []

        class Around(Middleware):
            async def on_request(self, call, proceed):
                before = call.params
                try:
                    return await proceed(call)
                finally:
                    if call.method in ("tools/call", "prompts/get", "resources/read", "completion/complete"):
                        seen.append((call.method, call.params is before, getattr(call.params, "name", "")))

        class Inside(Middleware):
            async def on_request(self, call, proceed):
                if fails:
                    raise InvalidParams("no")
                return await proceed(call)

        child = weather()
        child.add_middleware(Inside())
        app = Server("host")
        app.mount(child, "w")
        app.add_middleware(Around())
        async with pair(app, era) as client:
            with contextlib.suppress(PeerError, ToolError):
                await client.call_tool("w_forecast", {"city": "Rome"})
            with contextlib.suppress(PeerError):
                await client.get_prompt("w_advise", {"city": "Rome"})
            with contextlib.suppress(PeerError):
                await client.read_resource("city://w/Rome/now")
        assert seen == [
            ("tools/call", True, "w_forecast"),
            ("prompts/get", True, "w_advise"),
            ("resources/read", True, ""),
        ]

    async def test_the_child_s_layers_leave_the_host_s_own_alone(self, era):
        log = []
        async with pair(hosting(weather(middleware=[Renaming(log)])), era) as client:
            assert (await client.call_tool("own")).data == "own"
            assert (await client.call_tool("weather_plain")).data == "weather plain"
        assert log == ["plain"]

    async def test_a_layer_that_joins_the_child_later_is_there_at_once(self, era):
        child, log = weather(), []
        app = hosting(child)
        async with pair(app, era) as client:
            names = [tool.name for tool in await client.list_tools()]
            child.middleware(Renaming(log))
            await client.call_tool("weather_forecast", {"city": "Rome"})
            assert [tool.name for tool in await client.list_tools()] == names
        assert log == ["forecast"]

    async def test_a_child_may_mend_its_own_errors(self, era):
        class Mending(Middleware):
            def on_error(self, call, error):
                return ToolError("no such city")

        child = Server("child", middleware=[Mending()])

        @child.tool
        async def find() -> str:
            raise KeyError("x")

        app = Server("host")
        app.mount(child, "c")
        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="no such city"):
                await client.call_tool("c_find")

    async def test_a_tool_made_of_one_that_the_host_has_removed_is_surrounded_too(self, era):
        """Nobody tells it of middleware that its server is given later."""
        log = []
        child, middle, app = weather(), Server("middle"), Server("host")
        middle.mount(child, "m")
        middle.add_tool(transformed(middle.get_tool("m_forecast"), name="find"))
        middle.remove_tool("m_forecast")
        app.mount(middle, "a")
        app.add_tool(transformed(app.get_tool("a_find"), name="look"))
        app.remove_tool("a_find")
        child.add_middleware(Renaming(log))
        async with pair(app, era) as client:
            assert (await client.call_tool("look", {"city": "Rome"})).data == "sun in Rome"
        assert log == ["forecast"]


class TestLive:
    """What changes in the child changes in the host."""

    async def test_what_is_added_and_removed_later_shows_and_is_told(self, era, wire):
        child = weather()
        async with wire(hosting(child), era) as peer:
            await peer.watch(toolsListChanged=True)
            child.add_tool("wind", lambda: "strong")
            await peer.hear("notifications/tools/list_changed")
            assert (await peer.call("weather_wind"))["result"]["content"][0]["text"] == "strong"
            child.remove_tool("forecast")
            listed = (await peer.request("tools/list"))["result"]["tools"]
            assert [tool["name"] for tool in listed] == ["own", "weather_plain", "weather_wind"]
            assert "error" in await peer.call("weather_forecast", {"city": "Rome"})

    async def test_a_changed_resource_is_told_under_the_host_s_uri(self, era, wire):
        child = weather()
        async with wire(hosting(child), era) as peer:
            await peer.watch("city://weather/Rome/now")
            child.notify_resource_updated("city://Rome/now")
            told = await peer.hear("notifications/resources/updated")
            assert told["params"]["uri"] == "city://weather/Rome/now"

    async def test_from_another_thread_too(self, era, wire):
        child = weather()
        async with wire(hosting(child), era) as peer:
            await peer.watch(toolsListChanged=True)
            thread = threading.Thread(target=lambda: child.add_tool("wind", lambda: ""))
            thread.start()
            await peer.hear("notifications/tools/list_changed")
            thread.join()

    async def test_an_imported_server_is_not_followed(self, era):
        child, app = weather(), Server("host")
        app.import_server(child, "w")
        child.add_tool("wind", lambda: "")
        child.remove_tool("plain")
        async with pair(app, era) as client:
            assert [tool.name for tool in await client.list_tools()] == ["w_forecast", "w_plain"]

    @pytest.mark.parametrize("change", ["remove", "surround", "unmount"])
    def test_what_the_host_has_removed_is_the_child_s_no_more(self, change):
        child, app = weather(), Server("host")
        app.mount(child)
        app.remove_tool("forecast")
        app.remove_tool("plain")
        app.add_tool("plain", lambda: "the host's own")
        own = app.get_tool("plain")
        if change == "remove":
            child.remove_tool("forecast")
            child.remove_tool("plain")
        elif change == "surround":
            child.add_middleware(Renaming([]))
        else:
            app.unmount(child)
        assert dict(app.offers.tools.catalogue.registered) == {"plain": own}

    def test_what_the_host_has_removed_does_not_come_back_as_another_version(self):
        child, app = Server("child"), Server("host")
        for name in ("taken", "away", "kept"):
            child.add_tool(name, lambda: "first", version="1")
        app.mount(child)
        app.remove_tool("taken")
        app.remove_tool("away")
        app.add_tool("taken", lambda: "the host's own")
        for name in ("taken", "away", "kept"):
            child.add_tool(name, lambda: "second", version="2")
        offered = app.offers.tools.catalogue.registered
        assert [name for name in offered if "@" not in name] == ["kept", "taken"]
        assert offered["taken"].mount_path == ()
        assert offered["kept"].tool.meta["ferrule/versions"] == ["2", "1"]
        child.remove_tool("taken")
        assert "taken" in offered

    async def test_an_unmounted_server_is_gone(self, era):
        child = weather()
        app = hosting(child)
        async with pair(app, era) as client:
            await client.call_tool("weather_forecast", {"city": "Rome"})
            app.unmount(child)
            assert [tool.name for tool in await client.list_tools()] == ["own"]
            with pytest.raises(PeerError):
                await client.read_resource("cities://weather/all")
        child.add_tool("wind", lambda: "")
        assert [tool.name for tool in app.list_tools()] == ["own"]
        with pytest.raises(SetupError, match="'weather' is not mounted in 'host'"):
            app.unmount(child)

    async def test_the_same_server_can_be_mounted_twice(self, era):
        child = weather()
        app = hosting(child)
        app.mount(child, "again")
        async with pair(app, era) as client:
            assert (await client.call_tool("again_forecast", {"city": "Rome"})).data == "sun in Rome"
            app.unmount(child)
            assert len(await client.list_tools()) == 1

    async def test_a_call_of_this_process_reaches_mounted_tools(self):
        app = hosting()
        assert (await app.call_tool("weather_forecast", {"city": "Rome"})).data == "sun in Rome"
        assert (await app.read_resource("cities://weather/all")).text == "Rome"
        with pytest.raises(ToolNotFound):
            await app.call_tool("forecast", {"city": "Rome"})


class TestMistakes:
    """What cannot be mounted is refused, and both sides stay as they were."""

    def test_a_name_that_is_taken_names_both(self):
        app = Server("host")
        app.add_tool("weather_forecast", lambda: None)
        with pytest.raises(SetupError, match=r"'forecast' of the server 'weather' .* a tool 'weather_forecast'"):
            app.mount(weather(), "weather")
        assert [tool.name for tool in app.list_tools()] == ["weather_forecast"]
        assert list(app.mounts) == []

    def test_the_host_cannot_take_a_name_of_the_child(self):
        app = hosting()
        with pytest.raises(SetupError, match=r"which is 'forecast' of the mounted server 'weather'"):
            app.add_tool("weather_forecast", lambda: None)

    def test_the_child_cannot_take_a_name_of_the_host_later(self):
        child = weather()
        app = hosting(child)
        app.add_tool("weather_wind", lambda: None)
        with pytest.raises(SetupError, match="'wind' of the server 'weather' cannot be mounted in 'host'"):
            child.add_tool("wind", lambda: None)
        assert "wind" not in [tool.name for tool in child.list_tools()]

    def test_two_children_with_one_name(self):
        app = hosting()
        with pytest.raises(SetupError, match="of the mounted server 'weather'"):
            app.mount(weather(), "weather")

    def test_a_server_in_itself(self):
        app, child = Server("a"), Server("b")
        app.mount(child)
        with pytest.raises(SetupError, match="it is, or holds, that server"):
            child.mount(app)
        with pytest.raises(SetupError, match="it is, or holds, that server"):
            app.mount(app)

    def test_the_prefix_where_the_server_belongs(self):
        with pytest.raises(SetupError, match="takes the server first"):
            Server("a").mount("b", Server("c"))

    @pytest.mark.parametrize("prefix", [".", ".."])
    def test_a_prefix_that_is_a_step_in_a_path(self, prefix):
        with pytest.raises(SetupError, match="part of names and URIs"):
            hosting(prefix=prefix)

    def test_a_prefix_that_is_no_name(self):
        with pytest.raises(SetupError, match="part of names and URIs"):
            hosting(prefix="a b/c")


@pytest.mark.parametrize("layers", [[], [Renaming([])]])
async def test_contents_a_handler_names_itself_are_named_as_the_host_does(era, layers):
    child = Server("child", middleware=layers)

    @child.resource("x://both")
    async def both() -> ReadResourceResult:
        return ReadResourceResult(contents=[ResourceContents(uri="x://both", text="1")])

    app = Server("host")
    app.mount(child, "c")
    async with pair(app, era) as client:
        assert (await client.read_resource("x://c/both")).contents[0].uri == "x://c/both"


@pytest.mark.parametrize("late", [False, True])
async def test_a_mounted_tool_runs_as_a_task_also_where_it_is_the_first_that_may(era, late):
    child, host = Server("child"), hosting()

    @child.tool(task="optional")
    async def slow(ctx: Context) -> bool:
        return ctx.task_id is not None

    if not late:
        host.mount(child, prefix="child")
    async with pair(host, era=era) as before:
        await before.call_tool("own")
        if late:
            host.mount(child, prefix="child")
        async with pair(host, era=era) as client:
            assert (await client.call_tool("child_slow", task=True)).data is True
            assert (await client.call_tool("child_slow")).data is False


async def test_what_was_kept_of_a_server_is_not_read_of_the_next_one_in_its_place(era):
    host = Server("host")

    def child(text):
        app = Server(text)
        app.add_resource("x://text", lambda: text, ttl=1000)
        return app

    for text in ("one", "two"):
        mounted = host.mount(child(text), "p")
        async with pair(host, era) as client:
            assert (await client.read_resource("x://p/text")).text == text
        host.unmount(mounted)
