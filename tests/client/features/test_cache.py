"""Results kept as long as the server allows, and dropped when it says they changed."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from ferrule import Client, PeerError
from ferrule.client.features.cache import Cache
from ferrule.errors import EncodeError, NotConnected
from ferrule.schema.notices import RESOURCE_UPDATED, TOOLS_CHANGED

TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
NOTE = {"contents": [{"uri": "x://1", "text": "one"}]}


def kept_for(ttl, **members):
    return {"resultType": "complete", "ttlMs": ttl, "cacheScope": "private", **members}


def raw_result(**members) -> Raw:
    return Raw(json.dumps(members).encode())


# The cache by itself


@pytest.mark.parametrize("scope", ["private", "public", "odd", None])
def test_a_result_is_fresh_for_its_time_and_not_a_moment_longer(scope):
    """CACHE-2, CACHE-3: one client is one authorization, so both scopes are served here alike."""
    cache = Cache()
    cache.keep("tools/list", {}, raw_result(ttlMs=1500, cacheScope=scope, tools=[]), now=10.0)
    assert cache.find("tools/list", {}, now=11.499) is not None
    assert cache.find("tools/list", {}, now=11.5) is None
    assert (cache.hits, cache.misses) == (1, 1)


@pytest.mark.parametrize("ttl", [0, -1, None, "soon", 1.5, True, [], {}, "1000"])
def test_a_time_that_is_none_keeps_nothing(ttl):
    """CACHE-2"""
    cache = Cache()
    cache.keep("tools/list", {}, raw_result(ttlMs=ttl, tools=[]), now=0.0)
    assert len(cache) == 0


def test_a_time_of_thousands_of_digits_is_no_time():
    """A hint that cannot be read means only that nothing is kept: the caller still gets its result."""
    cache = Cache()
    cache.keep("tools/list", {}, Raw(b'{"tools":[],"ttlMs":' + b"9" * 5000 + b"}"), now=0.0)
    assert len(cache) == 0


def test_a_result_without_a_time_is_not_kept():
    """CACHE-2"""
    cache = Cache()
    cache.keep("tools/list", {}, raw_result(tools=[]), now=0.0)
    assert len(cache) == 0


def test_an_enormous_time_is_just_very_long():
    cache = Cache()
    cache.keep("tools/list", {}, raw_result(ttlMs=10**400, tools=[]), now=0.0)
    assert cache.find("tools/list", {}, now=1e9) is not None


@pytest.mark.parametrize("kind", ["input_required", "task", ""])
def test_only_complete_results_are_kept(kind):
    """MRTR-11"""
    cache = Cache()
    cache.keep("resources/read", {"uri": "x"}, raw_result(resultType=kind, ttlMs=1000), now=0.0)
    assert len(cache) == 0


def test_a_result_serves_only_equal_questions():
    """CACHE-3"""
    cache = Cache()
    cache.keep("resources/read", {"uri": "x://1", "b": 1}, raw_result(ttlMs=1000, n=1), now=0.0)
    assert cache.find("resources/read", {"b": 1, "uri": "x://1"}, now=0.0) is not None
    assert cache.find("resources/read", {"uri": "x://1"}, now=0.0) is None
    assert cache.find("resources/read", {"uri": "x://1", "b": True}, now=0.0) is None
    assert cache.find("resources/list", {"uri": "x://1", "b": 1}, now=0.0) is None


def test_a_change_drops_all_pages_of_its_lists_and_nothing_else():
    """CACHE-4"""
    cache = Cache()
    methods = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    for method in methods:
        for params in ({}, {"cursor": "2"}):
            cache.keep(method, params, raw_result(ttlMs=1000), now=0.0)
    cache.drop("notifications/tools/list_changed")
    assert [method for method, _ in cache._kept] == [m for m in methods[1:] for _ in range(2)]
    cache.drop("notifications/resources/list_changed")
    assert [method for method, _ in cache._kept] == ["prompts/list"] * 2 + ["resources/read"] * 2
    cache.drop("notifications/message")
    cache.drop_pages("prompts/list")
    assert [method for method, _ in cache._kept] == ["resources/read"] * 2
    cache.clear()
    assert len(cache) == 0


def test_an_update_drops_the_one_resource():
    """CACHE-4"""
    cache = Cache()
    for uri in ("x://1", "x://2"):
        cache.keep("resources/read", {"uri": uri}, raw_result(ttlMs=1000), now=0.0)
    cache.drop("notifications/resources/updated", "x://1")
    assert cache.find("resources/read", {"uri": "x://1"}, now=0.0) is None
    assert cache.find("resources/read", {"uri": "x://2"}, now=0.0) is not None


def test_a_full_cache_forgets_the_oldest():
    cache = Cache(limit=3)
    for number in range(5):
        cache.keep("resources/read", {"uri": str(number)}, raw_result(ttlMs=1000), now=0.0)
    cache.keep("resources/read", {"uri": "4"}, raw_result(ttlMs=1000), now=0.0)
    assert len(cache) == 3
    assert cache.find("resources/read", {"uri": "2"}, now=0.0) is not None
    assert cache.find("resources/read", {"uri": "1"}, now=0.0) is None


# The cache in a client

CACHED = {
    "tools/list": (lambda client: client.list_tools(), TOOLS),
    "prompts/list": (lambda client: client.list_prompts(), {"prompts": []}),
    "resources/list": (lambda client: client.list_resources(), {"resources": []}),
    "resources/templates/list": (lambda client: client.list_resource_templates(), {"resourceTemplates": []}),
    "resources/read": (lambda client: client.read_resource("x://1"), NOTE),
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("method", CACHED)
async def test_lists_and_reads_are_served_from_the_cache_while_fresh(method, raw):
    """CACHE-2"""
    deed, result = CACHED[method]
    server = raw("stateless", {method: kept_for(10_000, **result)})
    async with Client(server, mode="stateless") as client:
        first = await deed(client)
        await asyncio.sleep(9)
        assert await deed(client) == first
        assert len(server.sent(method)) == 1
        await asyncio.sleep(1)
        await deed(client)
        assert len(server.sent(method)) == 2


ODD_HINTS = [{"ttlMs": "soon"}, {"ttlMs": 1.5}, {"cacheScope": "odd"}, {"ttlMs": [], "cacheScope": 7}]


@pytest.mark.parametrize("hints", ODD_HINTS)
async def test_hints_that_make_no_sense_do_not_spoil_the_result(hints, raw):
    """CACHE-2"""
    server = raw("stateless", {"tools/list": {**TOOLS, **hints}})
    async with Client(server, mode="stateless") as client:
        for _ in range(2):
            assert [tool.name for tool in await client.list_tools()] == ["t"]
    assert len(server.sent("tools/list")) == 2


async def test_the_handshake_era_keeps_nothing(raw):
    server = raw(answers={"tools/list": kept_for(10_000, **TOOLS)})
    async with Client(server, mode="handshake") as client:
        await client.list_tools()
        await client.list_tools()
    assert len(server.sent("tools/list")) == 2


async def test_keeping_can_be_switched_off(raw):
    server = raw("stateless", {"tools/list": kept_for(10_000, **TOOLS)})
    async with Client(server, mode="stateless", cache=False) as client:
        await client.list_tools()
        await client.list_tools()
    assert len(server.sent("tools/list")) == 2


async def test_calls_are_never_kept(raw):
    server = raw("stateless", {"tools/call": kept_for(10_000, content=[])})
    async with Client(server, mode="stateless") as client:
        await client.call_tool("x")
        await client.call_tool("x")
    assert len(server.sent("tools/call")) == 2


async def test_what_took_rounds_of_input_is_not_kept(raw):
    """MRTR-11"""
    form = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    ask = {"resultType": "input_required", "inputRequests": {"who": form}, "requestState": "s", "ttlMs": 10_000}

    def answer(request):
        return kept_for(10_000, **NOTE) if "inputResponses" in request["params"] else ask

    server = raw("stateless", {"resources/read": answer})
    async with Client(server, mode="stateless", elicitation=lambda p: {}) as client:
        for _ in range(2):
            assert (await client.read_resource("x://1")).text == "one"
    assert len(server.sent("resources/read")) == 4


async def test_a_changed_list_is_asked_for_again(raw):
    """CACHE-4, NOTI-10"""
    server = raw("stateless", {"tools/list": kept_for(10_000, **TOOLS)})
    async with Client(server, mode="stateless") as client:
        await client.list_tools()
        server.tell("notifications/tools/list_changed")
        await client.list_tools()
    assert len(server.sent("tools/list")) == 2


async def test_an_updated_resource_is_read_again_and_others_are_not(raw):
    """CACHE-4"""
    server = raw("stateless", {"resources/read": kept_for(10_000, **NOTE)})
    async with Client(server, mode="stateless") as client:
        for uri in ("x://1", "x://2"):
            await client.read_resource(uri)
        server.tell("notifications/resources/updated", {"uri": "x://1"})
        for uri in ("x://1", "x://2"):
            await client.read_resource(uri)
    assert [request["params"]["uri"] for request in server.sent("resources/read")] == ["x://1", "x://2", "x://1"]


async def test_an_answer_that_was_overtaken_by_a_change_is_not_kept(raw):
    """CACHE-4"""
    server = raw("stateless")

    def answer(request):
        server.tell("notifications/tools/list_changed")
        return kept_for(10_000, **TOOLS)

    server.answers["tools/list"] = answer
    async with Client(server, mode="stateless") as client:
        await client.list_tools()
        await client.list_tools()
    assert len(server.sent("tools/list")) == 2


def tool_named(name):
    return {"name": name, "inputSchema": {"type": "object"}}


class PagesThatMove:
    """A list of two pages whose cursor is good for the newest first page only."""

    def __init__(self, refused):
        self.refused = refused
        self.edition = 0

    def __call__(self, request):
        cursor = request["params"].get("cursor")
        if cursor is None:
            return kept_for(10_000, tools=[tool_named(f"first of {self.edition}")], nextCursor=f"c{self.edition}")
        if cursor != f"c{self.edition}":
            return self.refused(-32602, "Invalid cursor")
        return kept_for(0, tools=[tool_named(f"second of {self.edition}")])


async def test_a_cursor_gone_stale_in_the_cache_starts_the_list_over(raw, refused):
    """CACHE-4"""
    pages = PagesThatMove(refused)
    async with Client(raw("stateless", {"tools/list": pages}), mode="stateless") as client:
        assert [tool.name for tool in await client.list_tools()] == ["first of 0", "second of 0"]
        pages.edition = 1
        assert [tool.name for tool in await client.list_tools()] == ["first of 1", "second of 1"]


async def test_a_cursor_that_is_refused_though_nothing_was_cached_is_an_error(raw, refused):
    """CACHE-4: and no page of that list is kept."""
    pages = PagesThatMove(refused)
    server = raw("stateless", {"tools/list": pages})
    async with Client(server, mode="stateless") as client:
        listing = client.iter_tools()
        await anext(listing)
        pages.edition = 1
        with pytest.raises(PeerError, match="Invalid cursor"):
            await anext(listing)
        assert len(client.cache) == 0


async def test_a_closed_client_serves_nothing_from_its_cache(raw):
    server = raw("stateless", {"tools/list": kept_for(10_000, **TOOLS)})
    async with Client(server, mode="stateless") as client:
        await client.list_tools()
    with pytest.raises(NotConnected):
        await client.list_tools()


async def test_a_new_conversation_starts_with_an_empty_cache(raw):
    server = raw("stateless", {"tools/list": kept_for(10_000, **TOOLS)})
    client = Client(server, mode="stateless")
    await client.connect()
    await client.list_tools()
    await client.reconnect()
    await client.list_tools()
    await client.close()
    assert len(server.sent("tools/list")) == 2


async def test_a_request_that_cannot_be_written_is_refused_the_same_way_in_both_eras(era, raw):
    """FRM-04"""
    server = raw(era, {})
    async with Client(server, mode=era) as client:
        with pytest.raises(EncodeError, match="surrogates not allowed"):
            await client.read_resource("r://\ud800")


def kept(text: str) -> Raw:
    return Raw(b'{"ttlMs":1000,"x":"%b"}' % text.encode())


def test_a_cache_is_bounded_in_bytes() -> None:
    cache = Cache(max_bytes=10_000)
    for number in range(100):
        cache.keep("resources/read", {"uri": str(number)}, kept("x" * 900), 0.0)
    assert 9 <= len(cache) <= 10
    assert cache.find("resources/read", {"uri": "99"}, 0.0) is not None
    assert cache.find("resources/read", {"uri": "0"}, 0.0) is None


def test_one_large_result_does_not_push_the_others_out() -> None:
    cache = Cache(max_bytes=10_000, max_entry=2_000)
    cache.keep("resources/read", {"uri": "a"}, kept("x"), 0.0)
    cache.keep("resources/read", {"uri": "b"}, kept("x" * 2_000), 0.0)
    assert cache.find("resources/read", {"uri": "a"}, 0.0) is not None
    assert cache.find("resources/read", {"uri": "b"}, 0.0) is None


@pytest.mark.parametrize("way", ["a notice", "an update", "a stale cursor", "all", "again"])
def test_what_is_dropped_makes_room_again(way) -> None:
    cache = Cache(max_bytes=1_000)
    cache.keep("tools/list", {}, kept("x" * 450), 0.0)
    cache.keep("resources/read", {"uri": "a"}, kept("x" * 450), 0.0)
    if way == "a notice":
        cache.drop(TOOLS_CHANGED)
    elif way == "an update":
        cache.drop(RESOURCE_UPDATED, "a")
    elif way == "a stale cursor":
        cache.drop_pages("tools/list")
    elif way == "all":
        cache.clear()
    else:
        cache.keep("tools/list", {}, kept("x"), 0.0)
    before = len(cache)
    cache.keep("prompts/list", {}, kept("x" * 400), 0.0)
    assert len(cache) == before + 1
