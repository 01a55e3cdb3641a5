"""Lists in pages."""

from __future__ import annotations

import pytest

from ferrule import Client, PeerError, Server
from ferrule.client.features import requests as fetching
from ferrule.errors import InvalidAnswer
from ferrule.testing import pair

LISTS = {
    "tools/list": ("tools", "list_tools", "iter_tools", lambda n: {"name": n, "inputSchema": {"type": "object"}}),
    "prompts/list": ("prompts", "list_prompts", "iter_prompts", lambda n: {"name": n}),
    "resources/list": ("resources", "list_resources", "iter_resources", lambda n: {"name": n, "uri": f"x://{n}"}),
    "resources/templates/list": (
        "resourceTemplates",
        "list_resource_templates",
        "iter_resource_templates",
        lambda n: {"name": n, "uriTemplate": "x://{n}"},
    ),
}


def paged(member, item, *pages):
    """Answer with these pages: each a list of names and the cursor of the next, or none."""
    left = iter(pages)

    def answer(request):
        names, cursor = next(left)
        page = {member: [item(name) for name in names]}
        return page if cursor is None else {**page, "nextCursor": cursor}

    return answer


def cursors(server, method):
    return [request.get("params", {}).get("cursor", "none") for request in server.sent(method)]


@pytest.mark.parametrize("method", LISTS)
async def test_a_list_is_gathered_from_all_its_pages(method, era, raw):
    """PAGE-1, PAGE-2, PAGE-3, SPEC-08"""
    member, listed, _, item = LISTS[method]
    pages = [("ab", "a cursor {}\u2028"), ("", "next"), ("c", None)]
    server = raw(era, {method: paged(member, item, *pages)})
    async with Client(server, mode=era) as client:
        assert [found.name for found in await getattr(client, listed)()] == ["a", "b", "c"]
    assert cursors(server, method) == ["none", "a cursor {}\u2028", "next"]


@pytest.mark.parametrize("method", LISTS)
async def test_pages_are_fetched_as_they_are_wanted(method, era, raw):
    member, _, iterated, item = LISTS[method]
    server = raw(era, {method: paged(member, item, ("ab", "2"), ("c", None))})
    async with Client(server, mode=era) as client:
        listing = getattr(client, iterated)()
        assert [(await anext(listing)).name for _ in range(2)] == ["a", "b"]
        assert len(server.sent(method)) == 1
        assert (await anext(listing)).name == "c"
        with pytest.raises(StopAsyncIteration):
            await anext(listing)


@pytest.mark.parametrize("method", LISTS)
async def test_an_empty_cursor_is_a_cursor(method, era, raw):
    """PAGE-2"""
    member, listed, _, item = LISTS[method]
    server = raw(era, {method: paged(member, item, ("a", ""), ("b", None))})
    async with Client(server, mode=era) as client:
        assert [found.name for found in await getattr(client, listed)()] == ["a", "b"]
    assert cursors(server, method) == ["none", ""]


@pytest.mark.parametrize("loop", [["x", "x"], ["x", "y", "x"], ["", "", ""]])
async def test_a_list_that_goes_in_circles_is_refused(loop, era, raw):
    member, _, _, item = LISTS["tools/list"]
    server = raw(era, {"tools/list": paged(member, item, *((str(n), cursor) for n, cursor in enumerate(loop)))})
    async with Client(server, mode=era) as client:
        with pytest.raises(InvalidAnswer, match="the same cursor again"):
            await client.list_tools()


async def test_a_list_without_end_is_refused(era, raw, monkeypatch):
    monkeypatch.setattr(fetching, "MAX_PAGES", 5)
    server = raw(era)
    server.answers["tools/list"] = lambda request: {"tools": [], "nextCursor": str(request["id"])}
    async with Client(server, mode=era) as client:
        with pytest.raises(InvalidAnswer, match="more than 5 pages"):
            await client.list_tools()
    assert len(server.sent("tools/list")) == 5


async def test_a_page_that_is_refused_fails_the_list(era, raw, refused):
    answers = iter([{"tools": [], "nextCursor": "2"}, refused(-32602, "Invalid cursor")])
    async with Client(raw(era, {"tools/list": lambda request: next(answers)}), mode=era) as client:
        with pytest.raises(PeerError, match="Invalid cursor"):
            await client.list_tools()


async def test_the_pages_of_our_own_server_make_one_list(era):
    """PAGE-1"""
    app = Server("many", page_size=7)
    for number in range(100):
        app.add_tool(f"tool-{number:03}", lambda: "x")
    async with pair(app, era) as client:
        assert [tool.name for tool in await client.list_tools()] == [f"tool-{number:03}" for number in range(100)]


async def test_a_list_is_bounded_in_items(era, raw):
    """A list without end ends by its number of items, on few pages or many; the error names the option."""
    item = {"name": "t", "inputSchema": {"type": "object"}}
    server = raw(era)
    server.answers["tools/list"] = lambda request: {"tools": [item] * 10, "nextCursor": str(request["id"])}
    async with Client(server, mode=era, max_list_items=95) as client:
        with pytest.raises(InvalidAnswer, match=r"more than 95 items; see Client\(max_list_items=…\)"):
            await client.list_tools()
    assert len(server.sent("tools/list")) == 10


async def test_a_list_is_bounded_in_bytes(era, raw):
    """What many small pages take together counts, cursors included."""
    server = raw(era)
    server.answers["tools/list"] = lambda request: {"tools": [], "nextCursor": str(request["id"]) + "x" * 10_000}
    async with Client(server, mode=era, max_list_bytes=1_000_000) as client:
        with pytest.raises(InvalidAnswer, match=r"more than 1000000 bytes.*Client\(max_list_bytes=…\)"):
            await client.list_tools()
    assert len(server.sent("tools/list")) < 60
