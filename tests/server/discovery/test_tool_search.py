"""Two fixed tools in front of a large catalogue."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client, Context, Http, HttpFailed, PeerError, Server, SetupError, ToolError


def app_of(**options: object) -> Server:
    app = Server("many")

    @app.tool
    async def send_mail(to: str, ctx: Context) -> str:
        """Send a message."""
        return f"{await ctx.ask('sure?', str)} {to}"

    @app.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @app.tool(visible=lambda ctx: False)
    def hidden() -> str:
        """Send a hidden message."""
        return "hidden"

    @app.tool(scopes=["admin"])
    def guarded() -> str:
        """Send a guarded message."""
        return "guarded"

    for number in range(50):
        app.add_tool(f"part_{number}", lambda: "part", description=f"Build part number {number}.")
    app.tool_search(**options)  # type: ignore[arg-type]
    return app


async def found(client: Client, prefix: str = "", **arguments: object) -> list[str]:
    result = await client.call_tool(f"{prefix}search_tools", arguments)
    return [tool["name"] for tool in result.data["tools"]]


async def test_tools_are_found_and_called_through_two_tools_and_the_rest_is_not_listed(era: str) -> None:
    app = app_of(always_visible=["add"])
    async with Client(app, mode=era, elicitation=lambda question: {"value": "yes"}) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add", "search_tools", "call_tool"]
        assert [tool.name for tool in app.list_tools()] == ["add", "search_tools", "call_tool"]
        assert await found(client, query="add numbers", limit=1) == ["add"]
        assert len(await found(client, query="build a part")) == 5
        assert (await found(client, query="part 17"))[0] == "part_17"
        one = (await client.call_tool("search_tools", {"query": "add"})).data["tools"][0]
        assert one["inputSchema"]["required"] == ["a", "b"]
        assert (await client.call_tool("call_tool", {"name": "add", "arguments": {"a": 1, "b": 2}})).data == 3
        mail = {"name": "send_mail", "arguments": {"to": "Ada"}}
        assert (await client.call_tool("call_tool", mail)).data == "yes Ada"
        assert (await client.call_tool("part_3")).data == "part"
        app.add_tool("late_comer", lambda: "late")
        assert await found(client, query="late comer") == ["late_comer"]


async def test_what_a_caller_may_not_see_or_use_is_neither_found_nor_called(era: str) -> None:
    app = app_of()
    host = Server("host")
    host.mount(app, prefix="in")
    async with Client(app, mode=era) as client, Client(host, mode=era) as outside:
        assert "hidden" not in await found(client, query="hidden message", limit=50)
        assert "hidden" not in await found(outside, "in_", query="hidden message", limit=50)
        with pytest.raises(PeerError, match="Unknown tool: hidden"):
            await client.call_tool("call_tool", {"name": "hidden"})
        with pytest.raises(ToolError, match="there is no tool 'hidden'"):
            await outside.call_tool("in_call_tool", {"name": "hidden"})
        listeners = [Http(port=0), Http(port=0)]
        serving = []
        for server, listener in zip((app, host), listeners, strict=True):
            ready = asyncio.Event()
            serving.append(asyncio.create_task(server.serve(listener, ready=ready.set)))
            await ready.wait()
        for listener, prefix in zip(listeners, ("", "in_"), strict=True):
            # Whoever is in the same process has every scope; over a socket nobody has one unasked.
            async with Client(listener.url, mode=era) as caller:
                with pytest.raises(HttpFailed, match="this needs the scopes admin"):
                    await caller.call_tool(f"{prefix}call_tool", {"name": "guarded"})
                assert (await caller.call_tool(f"{prefix}call_tool", {"name": "part_1"})).data == "part"
        await asyncio.gather(app.stop(), host.stop())
        await asyncio.gather(*serving)


async def test_bad_arguments_are_told_to_the_model() -> None:
    async with Client(app_of()) as client:
        for name, arguments, said in [
            ("search_tools", {}, "missing required field `query`"),
            ("search_tools", {"query": "x" * 2000}, "longer than 1000 characters"),
            ("call_tool", {"name": "call_tool"}, "cannot be called by call_tool"),
            ("call_tool", {"name": "add", "arguments": {"a": 1}}, "Invalid arguments for the tool add"),
        ]:
            with pytest.raises(ToolError, match=said):
                await client.call_tool(name, arguments)
    with pytest.raises(SetupError, match="max_results must be from 1 to 50, not 0"):
        app_of(max_results=0)
    with pytest.raises(SetupError, match=r"always_visible is a list of tools: write \['add'\]"):
        app_of(always_visible="add")
