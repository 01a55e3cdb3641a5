"""Extensions: what a server declares and answers once it is told to, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Context, Extension, PeerError, Server, SetupError
from ferrule.schema.lifecycle import ListCapability, ServerCapabilities
from ferrule.schema.model import Params, Result
from ferrule.testing import pair

MAPS = "com.example/maps"


class Place(Params, kw_only=True):
    """Where to look."""

    city: str


class Found(Result, kw_only=True):
    """What is there."""

    streets: int


def maps(**options: Any) -> Extension:
    extension = Extension(MAPS, {"zoom": 9}, **options)

    @extension.method("maps/find", params=Place, result=Found)
    async def find(params: Place) -> Found:
        return Found(streets=len(params.city))

    return extension


def served(extension: Extension) -> Server:
    app = Server("mapped")
    app.extend(extension)
    return app


class TestDeclaring:
    """What both sides say of an extension."""

    async def test_both_sides_see_each_others_settings(self, era):
        """EXT-1: in `initialize` as in `server/discover`."""
        app = served(maps())

        @app.tool
        async def zoom(ctx: Context) -> str:
            return str(ctx.extension(MAPS))

        async with pair(app, era, extensions={MAPS: {"tiles": True}}) as client:
            assert client.extension(MAPS) == {"zoom": 9}
            assert client.extension("com.example/other") is None
            assert "extensions.com.example/maps" in client.negotiated
            assert (await client.call_tool("zoom")).text == "{'tiles': True}"
        async with pair(app, era) as client:
            assert (await client.call_tool("zoom")).text == "None"

    async def test_an_extension_of_the_stateless_era_is_neither_declared_nor_served_in_the_other(self, era):
        """TASK-1"""
        async with pair(served(maps(handshake=False)), era) as client:
            if era == "stateless":
                assert (await client.request("maps/find", {"city": "Bonn"}))["streets"] == 4
            else:
                assert client.extension(MAPS) is None
                with pytest.raises(PeerError) as caught:
                    await client.request("maps/find", {"city": "Bonn"})
                assert caught.value.code == -32601

    async def test_what_a_client_declares_of_a_later_era_is_not_said_in_the_handshake(self, wire):
        app = Server("plain")
        declared = {MAPS: {}, "io.modelcontextprotocol/tasks": {}}
        seen = []

        @app.tool
        async def look(ctx: Context) -> str:
            seen.append(ctx.peer.capabilities.extensions)
            return ""

        for era in ("handshake", "stateless"):
            async with pair(app, era, extensions=declared) as client:
                await client.call_tool("look")
        assert seen == [{MAPS: {}}, declared]

    async def test_settings_that_are_no_object_declare_nothing(self, era, wire):
        """EXT-5"""
        app = served(maps(required=True))
        async with wire(app, era, capabilities={"extensions": {MAPS: True}}) as peer:
            assert "error" in await peer.request("maps/find", {"city": "Bonn"})

    def test_it_stands_beside_capabilities_that_were_given_whole(self):
        app = Server("told", capabilities=ServerCapabilities(tools=ListCapability()), extensions={"com.example/a": {}})
        app.extend(maps())
        assert app.host.capabilities.extensions == {"com.example/a": {}, MAPS: {"zoom": 9}}
        assert app.host.capabilities.tools is not None


class TestAnswering:
    """Methods of an extension."""

    async def test_a_method_is_answered_in_both_eras(self, era):
        """EXT-4"""
        async with pair(served(maps()), era) as client:
            assert (await client.request("maps/find", {"city": "Rome"}))["streets"] == 4

    async def test_a_server_that_was_not_extended_does_not_know_it(self, era):
        """EXT-3"""
        maps()
        async with pair(Server("plain"), era) as client:
            with pytest.raises(PeerError) as caught:
                await client.request("maps/find", {"city": "Rome"})
        assert caught.value.code == -32601

    async def test_a_method_that_needs_the_client_to_have_it_is_refused_to_others(self, era, wire):
        """EXT-2: -32021 names the extension; the handshake era has no number for it."""
        app = served(maps(required=True))
        async with wire(app, era) as lacking, wire(app, era, capabilities={"extensions": {MAPS: {}}}) as having:
            error = (await lacking.request("maps/find", {"city": "Rome"}))["error"]
            assert error["code"] == (-32021 if era == "stateless" else -32600)
            assert error["data"] == {"requiredCapabilities": {"extensions": {MAPS: {}}}}
            assert MAPS in error["message"]
            assert (await having.request("maps/find", {"city": "Rome"}))["result"]["streets"] == 4

    async def test_one_method_may_demand_less_than_the_others(self, era, wire):
        extension = maps(required=True)

        @extension.method("maps/hello", required=False)
        def hello(params: Any, ctx: Context) -> dict[str, Any]:
            return {"declared": extension.settings_of(ctx) is not None}

        async with wire(served(extension), era) as peer:
            assert (await peer.request("maps/hello"))["result"]["declared"] is False

    async def test_bad_params_are_refused_before_the_handler_runs(self, era):
        """EXT-5"""
        async with pair(served(maps()), era) as client:
            with pytest.raises(PeerError, match="Invalid params"):
                await client.request("maps/find", {"city": 7})

    async def test_a_method_may_be_added_after_the_extension_has_joined(self, era):
        extension = maps()
        app = served(extension)

        @extension.method("maps/late")
        async def late(params: Any) -> dict[str, Any]:
            return {"late": True}

        async with pair(app, era) as client:
            assert (await client.request("maps/late"))["late"] is True


class TestTelling:
    """Notifications of an extension, both ways."""

    async def test_both_sides_hear_each_other(self, era):
        """EXT-4"""
        extension = maps()
        heard: asyncio.Queue[Any] = asyncio.Queue()

        @extension.notification("notifications/maps/moved", params=dict[str, int])
        async def moved(params: dict[str, int]) -> None:
            await heard.put(params)

        @extension.method("maps/follow")
        async def follow(params: Any, ctx: Context) -> None:
            await ctx.notify("notifications/maps/there", {"x": 1})
            await ctx.notify("notifications/maps/done")

        async with pair(served(extension), era) as client:
            told: asyncio.Queue[Any] = asyncio.Queue()
            client.on_notification("notifications/maps/there", told)
            client.on_notification("notifications/maps/done", told)
            await client.notify("notifications/maps/moved", {"x": "far"})
            await client.notify("notifications/maps/moved", {"x": 3})
            assert await heard.get() == {"x": 3}
            await client.request("maps/follow")
            assert await told.get() == ("notifications/maps/there", {"x": 1})
            assert await told.get() == ("notifications/maps/done", {})

    async def test_a_listener_that_fails_hurts_nobody(self, era, caplog):
        extension = maps()
        app = served(extension)
        tried = asyncio.Event()
        loop = asyncio.get_running_loop()

        @extension.notification("notifications/maps/moved")
        def moved(params: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(tried.set)
            raise RuntimeError("lost")

        async with pair(app, era) as client:
            await client.notify("notifications/maps/moved", {"x": 3})
            await tried.wait()
            assert (await client.request("maps/find", {"city": "Rome"}))["streets"] == 4


class TestMistakes:
    """Wrong use is told when it is made."""

    @pytest.mark.parametrize("name", ["maps", "com.example/", "/maps", "com..example/maps", "com.example/ma ps"])
    def test_a_name_has_a_prefix(self, name):
        """EXT-1"""
        with pytest.raises(SetupError, match="not a valid extension name"):
            Extension(name)

    def test_settings_are_an_object(self):
        with pytest.raises(SetupError, match="are an object"):
            Extension(MAPS, settings=True)  # type: ignore[arg-type]

    def test_an_extension_joins_once(self):
        app = served(maps())
        with pytest.raises(SetupError, match="joined this server already"):
            app.extend(maps())

    def test_an_extension_is_declared_in_one_place(self):
        app = Server("x", extensions={MAPS: {}})
        with pytest.raises(SetupError, match="leave it out there"):
            app.extend(maps())

    @pytest.mark.parametrize("name", ["tools/call", "sampling/createMessage"])
    def test_the_protocols_own_methods_are_not_taken(self, name):
        with pytest.raises(SetupError, match="of the protocol itself"):
            maps().method(name)

    def test_the_protocols_own_notifications_are_not_taken(self):
        with pytest.raises(SetupError, match="of the protocol itself"):
            maps().notification("notifications/progress")

    def test_what_a_server_cannot_take_is_named(self):
        with pytest.raises(SetupError, match=r"app\.extend takes an Extension, not 'com\.example/maps'"):
            Server("s").extend("com.example/maps")
        with pytest.raises(SetupError, match="tools/list is a method of the protocol itself"):
            Server("s").method("tools/list")
        with pytest.raises(SetupError, match="needs the name"):
            Server("s").method(lambda params: None)

    def test_a_method_has_one_answer(self):
        extension = maps()
        with pytest.raises(SetupError, match="there is a method maps/find already"):
            extension.method("maps/find")
        app = Server("x")
        app.method("maps/find")(lambda params: None)
        with pytest.raises(SetupError, match=r"app\.method has the method maps/find already"):
            app.extend(extension)
        assert MAPS not in app.host.extensions
        assert app.host.capabilities.extensions is None

    def test_a_notification_has_one_listener(self):
        one, other = Extension("com.example/one"), Extension("com.example/other")
        one.notification("notifications/x")(print)
        other.notification("notifications/x")(print)
        app = served(one)
        with pytest.raises(SetupError, match="has the notification notifications/x already"):
            app.extend(other)

    def test_an_extension_that_cannot_join_leaves_no_trace(self):
        class Broken(Extension):
            def joined(self, server: Server) -> None:
                raise SetupError("no folder")

        app = Server("x")
        with pytest.raises(SetupError, match="no folder"):
            app.extend(Broken("com.example/broken"))
        assert "com.example/broken" not in app.host.extensions
