"""Resources and prompts, for clients that know tools alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ferrule import Client, Middleware, PeerError, Server, ToolError
from ferrule.schema.content import EmbeddedResource, ImageContent, TextContent


class Counting(Middleware):
    """Counts what is read."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    async def on_read_resource(self, call: Any, proceed: Callable[[Any], Awaitable[Any]]) -> Any:
        self.reads.append(call.params.uri)
        return await proceed(call)


def library(layer: Counting) -> Server:
    app = Server("library", middleware=[layer])
    app.add_resource("books://one", lambda: "one", name="first book")
    app.add_resource("books://{title}", lambda title: f"about {title}")
    app.add_resource("pic://logo", lambda: b"png", mime_type="image/png")
    app.add_resource("raw://bytes", lambda: b"raw", mime_type="application/x")
    app.add_resource("books://secret", lambda: "secret", visible=lambda ctx: False)

    @app.prompt
    def review(book: str) -> str:
        """Review a book."""
        return f"Review {book}."

    app.offer_as_tools()
    return app


async def test_resources_and_prompts_are_listed_and_used_by_tools(era: str) -> None:
    layer = Counting()
    app = library(layer)
    async with Client(app, mode=era) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["list_resources", "read_resource", "list_prompts", "get_prompt"]
        listed = (await client.call_tool("list_resources")).data
        assert [each["uri"] for each in listed["resources"]] == ["books://one", "pic://logo", "raw://bytes"]
        assert listed["resourceTemplates"][0]["uriTemplate"] == "books://{title}"
        some = (await client.call_tool("list_resources", {"contains": "First"})).data
        assert [each["uri"] for each in some["resources"]] == ["books://one"]
        with pytest.raises(ToolError, match="`contains` is longer than 1000 characters"):
            # BUD-23: it is looked for in every item, so a megabyte of it would cost a megabyte an item.
            await client.call_tool("list_resources", {"contains": "x" * 1001})
        assert (await client.call_tool("list_prompts", {"contains": "x" * 1000})).data == {"prompts": []}
        blocks = []
        for uri in ("books://one", "books://two", "pic://logo", "raw://bytes"):
            blocks += (await client.call_tool("read_resource", {"uri": uri})).content
        assert [type(block) for block in blocks] == [TextContent, TextContent, ImageContent, EmbeddedResource]
        assert layer.reads[1] == "books://two"
        assert (await client.call_tool("list_prompts")).data["prompts"][0]["arguments"][0]["name"] == "book"
        filled = (await client.call_tool("get_prompt", {"name": "review", "arguments": {"book": "Emma"}})).data
        assert filled["messages"][0]["content"]["text"] == "Review Emma."


async def test_what_a_caller_does_not_see_is_not_read_and_a_mounted_server_speaks_of_its_host(era: str) -> None:
    app = library(Counting())
    host = Server("host")
    host.mount(app, prefix="in")
    async with Client(app, mode=era) as client, Client(host, mode=era) as outside:
        with pytest.raises(PeerError, match="Unknown prompt: none"):
            await client.call_tool("get_prompt", {"name": "none"})
        # The template fits it, as it does for whoever reads it directly.
        assert (await client.call_tool("read_resource", {"uri": "books://secret"})).text == "about secret"
        uris = [each["uri"] for each in (await outside.call_tool("in_list_resources")).data["resources"]]
        assert uris[0] == "books://in/one"
        assert (await outside.call_tool("in_read_resource", {"uri": uris[0]})).text == "one"
        with pytest.raises(ToolError, match="Invalid arguments for the tool read_resource"):
            await client.call_tool("read_resource", {"url": "x"})
