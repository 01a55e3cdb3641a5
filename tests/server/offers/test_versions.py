"""Several versions of one tool or prompt."""

from __future__ import annotations

import pytest

from ferrule import Client, Context, PeerError, Server, SetupError
from ferrule.server.offers.versions import order_of


def app_of() -> Server:
    app = Server("shop")

    @app.tool(name="price", version="2")
    async def price_with_tax(item: str) -> str:
        return f"{item}: 12"

    @app.tool(version="10", scopes=["admin"])
    async def price(item: str, currency: str) -> str:
        return f"{item}: 12 {currency}"

    @app.tool(name="price", version="1")
    async def old_price() -> dict[str, int]:
        return {"cents": 10}

    @app.tool
    async def plain() -> str:
        return "plain"

    @app.prompt(version="1.0")
    def review() -> str:
        return "review"

    app.add_prompt("review", lambda: "review better", version="1.1")
    return app


@pytest.mark.parametrize("prefix", ["", "in_"])
async def test_the_newest_is_listed_and_any_can_be_asked_for(era: str, prefix: str) -> None:
    app = app_of()
    if prefix:
        host = Server("host")
        host.mount(app, prefix="in")
        app = host
    name = f"{prefix}price"
    async with Client(app, mode=era) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools) == [name, f"{prefix}plain"]
        assert tools[name].input_schema["required"] == ["item", "currency"]
        assert tools[name].meta == {"ferrule/version": "10", "ferrule/versions": ["10", "2", "1"]}
        assert (await client.call_tool(name, {"item": "tea", "currency": "€"})).data == "tea: 12 €"
        assert (await client.call_tool(f"{name}@2", {"item": "tea"})).data == "tea: 12"
        assert (await client.call_tool(name, meta={"ferrule/version": "1"})).data == {"cents": 10}
        assert (await client.call_tool(name, {"item": "t"}, meta={"fastmcp": {"version": "2"}})).data == "t: 12"
        assert (await client.call_tool(f"{prefix}plain", meta={"ferrule/version": "7"})).data == "plain"
        assert (await client.call_tool(f"{prefix}plain", meta={"fastmcp": "odd"})).data == "plain"
        with pytest.raises(PeerError, match=f"Unknown tool: {name}@3"):
            await client.call_tool(name, meta={"ferrule/version": "3"})
        [prompt] = await client.list_prompts()
        assert prompt.meta == {"ferrule/version": "1.1", "ferrule/versions": ["1.1", "1.0"]}
        texts = []
        for asked in (f"{prefix}review", f"{prefix}review@1.0"):
            texts.append((await client.get_prompt(asked)).messages[0].content.text)  # type: ignore[union-attr]
        assert texts == ["review better", "review"]


async def test_a_handler_and_a_search_see_the_newest_alone(era: str) -> None:
    app = app_of()

    @app.tool
    async def names(ctx: Context) -> list[str]:
        return [each.name for each in (*await ctx.list_tools(), *await ctx.list_prompts())]

    app.tool_search()
    async with Client(app, mode=era) as client:
        seen = ["price", "plain", "names", "search_tools", "call_tool", "review"]
        assert (await client.call_tool("names")).data == seen
        found = (await client.call_tool("search_tools", {"query": "price", "limit": 50})).data["tools"]
        assert [tool["name"] for tool in found] == ["price"]
        asked = {"name": "price@2", "arguments": {"item": "tea"}}
        assert (await client.call_tool("call_tool", asked)).data == "tea: 12"


async def test_rules_and_switches_for_a_name_hold_for_all_its_versions(era: str) -> None:
    app = app_of()
    async with Client(app, mode=era) as client:
        app.disable("price")
        for name in ("price", "price@2", "price@1"):
            with pytest.raises(PeerError, match="Unknown tool"):
                await client.call_tool(name)
        app.enable("price")
        assert (await client.call_tool("price@1")).data == {"cents": 10}
        app.visible(lambda ctx, component: component.name != "price")
        for name in ("price", "price@1"):
            with pytest.raises(PeerError, match="Unknown tool"):
                await client.call_tool(name)


async def test_versions_come_and_go(era: str) -> None:
    app = app_of()
    async with Client(app, mode=era) as client:
        app.remove_tool("price@10")
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["price"].meta == {"ferrule/version": "2", "ferrule/versions": ["2", "1"]}
        app.remove_tool("price")
        assert [tool.name for tool in app.list_tools()] == ["plain"]
        with pytest.raises(PeerError, match="Unknown tool"):
            await client.call_tool("price@1")
        app.add_tool("price", lambda: "new")
        assert [tool.name for tool in app.list_tools()] == ["plain", "price"]


def test_what_cannot_be_a_version_is_refused() -> None:
    app = app_of()
    with pytest.raises(SetupError, match="there is a version 2 of the tool 'price' already"):
        app.add_tool("price", lambda: "", version="v2.0")
    with pytest.raises(SetupError, match="there is a tool 'price' already"):
        app.add_tool("price", lambda: "")
    with pytest.raises(SetupError, match="there is a tool 'plain' already"):
        app.add_tool("plain", lambda: "", version="2")
    with pytest.raises(SetupError, match="version='a@b' must be 1 to 64 of letters"):
        app.add_tool("other", lambda: "", version="a@b")


def test_versions_are_ordered_as_people_read_them() -> None:
    versions = ["beta", "0.9", "v1", "1.0.1", "2.0rc1", "2.0", "10", "2024-12-01", "2025-01-15"]
    shuffled = [*versions[4:], *versions[:4]]
    assert sorted(shuffled, key=order_of) == versions
