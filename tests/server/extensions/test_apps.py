"""The MCP Apps extension: pages, the tools they belong to, and what clients see that show no pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule import Context, Server, SetupError
from ferrule.schema.apps import APPS, PAGE_TYPE, ui_of
from ferrule.server.extensions.apps import Apps
from ferrule.testing import pair

BOARD = "ui://weather/board"
HTML = "<!DOCTYPE html><html><title>Weather</title></html>"
SHOWS = {APPS: {"mimeTypes": [PAGE_TYPE]}}


def weather(**options: Any) -> Server:
    app = Server("weather")
    app.page(BOARD, HTML, **options)

    @app.tool(ui=BOARD)
    async def forecast(city: str, ctx: Context) -> str:
        return f"{city}: sun ({'page' if app.host.extensions[APPS].shown(ctx) else 'text'})"

    @app.tool(ui={"resource_uri": BOARD, "visibility": ["app"]})
    async def refresh() -> str:
        return "fresh"

    @app.tool
    async def plain() -> str:
        return "plain"

    return app


class TestShowing:
    """What a host that shows pages gets."""

    async def test_a_tool_names_its_page_and_the_page_is_read(self, era):
        asks = {"csp": {"connect_domains": ["https://api.example.com"]}, "permissions": ["camera", "clipboard_write"]}
        app = weather(**asks, prefers_border=False, domain="a.example.com", description="The board")
        meta = {
            "csp": {"connectDomains": ["https://api.example.com"]},
            "permissions": {"camera": {}, "clipboardWrite": {}},
            "domain": "a.example.com",
            "prefersBorder": False,
        }
        async with pair(app, era, extensions=SHOWS) as client:
            assert client.extension(APPS) == {}
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert tools["forecast"].meta == {"ui": {"resourceUri": BOARD}}
            assert tools["refresh"].meta == {"ui": {"resourceUri": BOARD, "visibility": ["app"]}}
            assert tools["plain"].meta is None
            page = await client.read_resource(ui_of(tools["forecast"]).resource_uri)
            assert (page.text, page.contents[0].mime_type, page.contents[0].meta) == (HTML, PAGE_TYPE, {"ui": meta})
            (listed,) = await client.list_resources()
            assert (listed.name, listed.mime_type, listed.meta) == ("board", PAGE_TYPE, {"ui": meta})
            assert (await client.call_tool("forecast", {"city": "Rome"})).text == "Rome: sun (page)"

    async def test_a_page_that_asks_for_nothing_says_nothing(self, era):
        async with pair(weather(), era, extensions=SHOWS) as client:
            page = await client.read_resource(BOARD)
            assert page.contents[0].meta is None

    async def test_a_page_may_be_a_file_or_made_by_a_function(self, era, tmp_path):
        file = tmp_path / "board.html"
        file.write_text(HTML)
        app = Server("weather")
        app.page(BOARD, file)

        @app.page("ui://weather/today", prefers_border=True)
        def today(ctx: Context) -> str:
            return f"{HTML}<!-- {ctx.server.name} -->"

        async with pair(app, era) as client:
            assert (await client.read_resource(BOARD)).text == HTML
            file.write_text(HTML + "changed")
            assert (await client.read_resource(BOARD)).text == HTML + "changed"
            made = await client.read_resource("ui://weather/today")
            assert made.text.endswith("<!-- weather -->")
            assert made.contents[0].meta == {"ui": {"prefersBorder": True}}


class TestFallingBack:
    """What a client gets that shows no pages."""

    @pytest.mark.parametrize("extensions", [None, {APPS: {"mimeTypes": ["text/uri-list"]}}])
    async def test_it_sees_plain_tools_and_none_that_only_pages_use(self, era, extensions):
        """EXT-2"""
        async with pair(weather(), era, extensions=extensions) as client:
            tools = await client.list_tools()
            assert [(tool.name, tool.meta) for tool in tools] == [("forecast", None), ("plain", None)]
            assert (await client.call_tool("forecast", {"city": "Rome"})).text == "Rome: sun (text)"

    async def test_each_client_of_one_server_gets_its_own_list(self, era):
        app = weather()
        async with pair(app, era) as plain, pair(app, era, extensions=SHOWS) as shows:
            for _ in range(2):
                assert len(await plain.list_tools()) == 2
                assert len(await shows.list_tools()) == 3

    async def test_its_pages_are_whole(self, era):
        app = Server("weather", page_size=1)
        app.page(BOARD, HTML)
        for name in ("a", "b", "c", "d"):
            visibility = ["app"] if name in "bc" else ["model", "app"]
            app.add_tool(name, lambda: "", ui={"resource_uri": BOARD, "visibility": visibility})
        async with pair(app, era) as client:
            assert [tool.name for tool in await client.list_tools()] == ["a", "d"]

    async def test_who_never_said_what_it_shows_sees_everything(self, wire):
        """Without a session, a client of the handshake era is not known."""
        app = weather()
        async with wire(app) as peer:
            peer.link.session.peer = app.host.services.handshake.stranger(peer.version)
            assert len((await peer.request("tools/list"))["result"]["tools"]) == 3


class TestMistakes:
    """Wrong use is told when it is made."""

    @pytest.mark.parametrize("uri", ["http://weather/board", "ui://", "weather", "ui://weather/{id}", 7])
    def test_a_page_has_a_uri_of_its_scheme(self, uri):
        with pytest.raises(SetupError, match="not a valid URI of a page"):
            Apps().page(uri, HTML)
        with pytest.raises(SetupError, match="not a valid URI of a page"):
            Server("x").add_tool("forecast", lambda: "", ui={"resource_uri": uri})

    @pytest.mark.parametrize("html", ["board.html", "<p>a fragment</p>", ""])
    def test_a_page_is_a_whole_document(self, html):
        with pytest.raises(SetupError, match="begins with <!DOCTYPE html>"):
            Apps().page(BOARD, html)

    def test_a_files_absence_is_told(self):
        with pytest.raises(SetupError, match="there is no file"):
            Apps().page(BOARD, Path("nowhere.html"))

    @pytest.mark.parametrize(
        "origin",
        [
            "api.example.com",
            "https://a.com; script-src *",
            "*",
            "https://*",
            "'unsafe-eval'",
            "https://a.com/x",
            "data:",
        ],
    )
    def test_a_domain_is_an_origin_and_cannot_end_its_rule(self, origin):
        with pytest.raises(SetupError, match="write an origin"):
            Apps().page(BOARD, HTML, csp={"connect_domains": [origin]})

    def test_wildcards_and_ports_are_origins(self):
        origins = ["https://*.example.com", "wss://a.example.com:8443", "http://localhost:5173"]
        Apps().page(BOARD, HTML, csp={"resource_domains": origins, "frame_domains": origins})

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"csp": {"connectDomains": []}}, "there is no connectDomains"),
            ({"permissions": ["usb"]}, "there is no 'usb'"),
        ],
    )
    def test_what_a_page_cannot_ask_for_is_told(self, options, why):
        with pytest.raises(SetupError, match=why):
            Apps().page(BOARD, HTML, **options)

    @pytest.mark.parametrize("ui", [{"visibility": ["user"]}, {"visibility": []}, {"uri": BOARD}])
    def test_what_a_tool_cannot_say_is_told(self, ui):
        with pytest.raises(SetupError, match="ui: "):
            Server("x").add_tool("forecast", lambda: "", ui=ui)

    def test_a_page_is_offered_once(self):
        apps = Apps()
        apps.page(BOARD, HTML)
        with pytest.raises(SetupError, match="already"):
            apps.page(BOARD, HTML)

    async def test_a_page_that_is_not_there_is_told_before_anyone_is_served(self, era):
        app = Server("weather")
        app.add_tool(lambda: "", name="forecast", ui=BOARD)
        with pytest.raises(SetupError, match="'forecast' names the page ui://weather/board"):
            async with pair(app, era):
                pass
