"""What a server lists: pages, cursors, and one encoding for all who ask."""

import asyncio
import base64
from types import SimpleNamespace

import pytest

from ferrule import PeerError, Server, SetupError
from ferrule.errors import InvalidParams
from ferrule.protocol.call import Peer
from ferrule.protocol.handshake import NEWEST, OLDEST
from ferrule.schema.model import ClientCapabilities, Page
from ferrule.testing import pair


def crowded(count=25, **options):
    """A server with `count` of everything, ten to a page."""
    app = Server("crowded", **{"page_size": 10, **options})
    for number in range(count):
        app.add_tool(f"tool-{number}", lambda: None, title=f"Tool {number}")
        app.add_prompt(f"prompt-{number}", lambda: "")
        app.add_resource(f"x://{number}", lambda: "")
        app.add_resource(f"y{number}://{{a}}", lambda a: "")
    return app


def asking(app, cursor=None, revision=NEWEST):
    """A call for a page."""
    return SimpleNamespace(
        peer=Peer(revision, ClientCapabilities()), params=Page(cursor=cursor), era=app.host.services.handshake, id=1
    )


LISTS = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
]


class TestPages:
    """Long lists come in pages."""

    @pytest.mark.parametrize(("method", "member"), LISTS)
    async def test_a_list_goes_on_while_there_is_a_cursor(self, era, wire, method, member):
        """PAGE-1, PAGE-3, SPEC-08, TOOL-2, RES-2, TMPL-1, PROMPT-2, RSRC-04"""
        async with wire(crowded(), era) as peer:
            sizes, cursor = [], None
            while True:
                page = (await peer.request(method, {} if cursor is None else {"cursor": cursor}))["result"]
                sizes.append(len(page[member]))
                cursor = page.get("nextCursor")
                if cursor is None:
                    break
        assert sizes == [10, 10, 5]

    async def test_a_client_gets_all_pages(self, era):
        """PAGE-3, SPEC-08"""
        async with pair(crowded(250, page_size=100), era) as client:
            assert [tool.name for tool in await client.list_tools()] == [f"tool-{number}" for number in range(250)]
            assert len(await client.list_resources()) == 250
            assert len(await client.list_resource_templates()) == 250
            assert len(await client.list_prompts()) == 250

    @pytest.mark.parametrize("count", [1, 9, 10, 20])
    async def test_a_full_last_page_has_no_cursor(self, era, wire, count):
        """PAGE-3"""
        async with wire(crowded(count), era) as peer:
            first = (await peer.request("tools/list"))["result"]
        assert ("nextCursor" in first) is (count > 10)

    @pytest.mark.parametrize(
        "cursor",
        [
            "",
            "nonsense",
            "10",
            "%%%",
            "YWZ0ZXI6MA==",
            "YWZ0ZXI6MTA=\n",
            base64.urlsafe_b64encode(b"after:999").decode(),
        ],
    )
    @pytest.mark.parametrize("method", [method for method, _ in LISTS])
    async def test_a_cursor_we_never_gave_is_refused(self, era, wire, method, cursor):
        """PAGE-4, SPEC-08"""
        async with wire(crowded(), era) as peer:
            error = (await peer.request(method, {"cursor": cursor}))["error"]
        assert error["code"] == -32602
        assert "cursor" in error["message"].lower()

    @pytest.mark.parametrize("mark", [b"after:11", b"after:010", b"after:+10", b"after:1_0", b"after:" + b"0" * 5000])
    def test_only_our_own_spelling_of_a_place_is_taken(self, mark):
        app = crowded()
        with pytest.raises(InvalidParams):
            app.offers.tools.catalogue.page(asking(app, base64.urlsafe_b64encode(mark).decode()))

    async def test_a_cursor_that_is_no_text_is_refused(self, era, wire):
        """PAGE-4"""
        async with wire(crowded(), era) as peer:
            assert (await peer.request("tools/list", {"cursor": 10}))["error"]["code"] == -32602

    async def test_a_cursor_stays_usable_while_the_list_grows(self, era, wire):
        """PAGE-4"""
        app = crowded()
        async with wire(app, era) as peer:
            cursor = (await peer.request("tools/list"))["result"]["nextCursor"]
            app.add_tool("late", lambda: None)
            page = (await peer.request("tools/list", {"cursor": cursor}))["result"]
        assert page["tools"][0]["name"] == "tool-10"

    async def test_a_cursor_beyond_a_shrunken_list_is_refused(self, era):
        """PAGE-4"""
        app = crowded(11)
        async with pair(app, era) as client:
            tools = client.iter_tools()
            for _ in range(10):
                await anext(tools)
            app.remove_tool("tool-10")
            with pytest.raises(PeerError, match="Invalid cursor"):
                await anext(tools)

    async def test_every_page_has_the_same_cache_hints(self, wire):
        """CACHE-1, CACHE-4, TOOL-2"""
        app = crowded(cache_ttl=1.5, cache_scope="public")
        async with wire(app, "stateless") as peer:
            for method, _ in LISTS:
                first = (await peer.request(method))["result"]
                second = (await peer.request(method, {"cursor": first["nextCursor"]}))["result"]
                for page in (first, second):
                    assert (page["resultType"], page["ttlMs"], page["cacheScope"]) == ("complete", 1500, "public")

    async def test_results_are_kept_by_nobody_unless_allowed(self, wire):
        """CACHE-1"""
        async with wire(crowded(1), "stateless") as peer:
            for method, params in (("tools/list", {}), ("server/discover", {}), ("resources/read", {"uri": "x://0"})):
                result = (await peer.request(method, params))["result"]
                assert (result["ttlMs"], result["cacheScope"]) == (0, "private")

    async def test_the_handshake_era_has_no_hints(self, wire):
        async with wire(crowded(1, cache_ttl=60)) as peer:
            result = (await peer.request("tools/list"))["result"]
        assert result.keys() == {"tools"}


class TestEncodedOnce:
    """A page is written once and kept until something changes."""

    def test_the_same_bytes_serve_everyone(self):
        app = crowded()
        catalogue = app.offers.tools.catalogue
        page = catalogue.page(asking(app))
        assert catalogue.page(asking(app)) is page
        assert catalogue.page(asking(app, revision=OLDEST)) is not page
        assert catalogue.page(asking(app, revision=OLDEST)) is catalogue.page(asking(app, revision=OLDEST))

    def test_a_change_makes_them_anew(self):
        app = crowded()
        catalogue = app.offers.tools.catalogue
        before = catalogue.page(asking(app))
        app.remove_tool("tool-0")
        after = catalogue.page(asking(app))
        assert b"tool-0" in bytes(before)
        assert b'"tool-0"' not in bytes(after)

    def test_no_more_is_kept_than_there_are_pages(self):
        app = crowded()
        catalogue = app.offers.tools.catalogue
        for place in range(30):
            cursor = base64.urlsafe_b64encode(f"after:{place}".encode()).decode()
            try:
                catalogue.page(asking(app, cursor))
            except InvalidParams:
                continue
        assert len(catalogue._pages) == 2

    async def test_ovl_07_ten_thousand_tools_are_paged_and_delay_nobody(self, era):
        """OVL-07"""
        app = Server("huge")
        for number in range(10_000):
            app.add_tool(f"tool-{number}", lambda: None)
        async with pair(app, era, request_timeout=30) as client:
            assert len(await client.list_tools()) == 10_000
            listing = asyncio.ensure_future(client.list_tools())
            worst = 0.0
            while not listing.done():
                worst = max(worst, await client.ping(timeout=60))
                await asyncio.sleep(0)
            assert len(await listing) == 10_000
        assert worst < 10


def test_what_is_there_twice_and_what_is_not_there_is_named():
    app = crowded(1)
    with pytest.raises(SetupError, match="there is a tool 'tool-0' already: choose another name or remove the first"):
        app.add_tool("tool-0", lambda: None)
    with pytest.raises(SetupError, match="there is no prompt 'prompt-9'; did you mean 'prompt-0'"):
        app.remove_prompt("prompt-9")
    assert "tool-0" in app.offers.tools.catalogue
    assert len(app.offers.tools.catalogue) == 1
