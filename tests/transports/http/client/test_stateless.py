"""The stateless era over HTTP as a client has it: mirrored headers, tools that cannot be called, listening."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client
from ferrule.errors import PeerError
from ferrule.protocol.stateless import NEWEST
from ferrule.schema.model import VERSION_KEY

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site, tool

REGION = {"type": "string", "x-mcp-header": "Region"}
COUNT = {"type": "integer", "x-mcp-header": "Count"}


def client(site: Site, **options: Any) -> Client:
    """Return a client of the site that loses no time."""
    return Client(site.url, http={"retry_delay": 0.01, "jitter": 0.0}, **options)


async def test_every_request_is_mirrored() -> None:
    """HTM-4, HDR-1, HDR-2, HDR-3, STL-1."""
    async with Site(resources={}, prompts={}) as site, client(site) as one:
        site.on("resources/read", lambda seen: seen.result({"contents": []}))
        site.on("prompts/get", lambda seen: seen.result({"messages": []}))
        await one.call_tool("日本")
        await one.read_resource("file:///a")
        await one.get_prompt("p")
        await one.list_tools()
    for seen in site.seen:
        assert seen.verb == "POST"
        assert seen.headers["mcp-protocol-version"] == seen.message["params"]["_meta"][VERSION_KEY] == NEWEST.version
        assert seen.headers["mcp-method"] == seen.method
    names = {seen.method: seen.headers.get("mcp-name") for seen in site.seen}
    assert names == {
        "server/discover": None,
        "tools/call": "=?base64?5pel5pys?=",
        "resources/read": "file:///a",
        "prompts/get": "p",
        "tools/list": None,
    }


async def test_there_is_no_session_no_standing_stream_and_no_farewell() -> None:
    """HTM-1, HTM-2."""
    async with Site() as site:
        site.on("tools/call", lambda seen: seen.result({"content": []}, mcp_session_id="unasked"))
        async with client(site) as one:
            await one.call_tool("t")
            await one.call_tool("t")
        assert {seen.verb for seen in site.seen} == {"POST"}
        assert not any("mcp-session-id" in seen.headers for seen in site.seen)


async def test_a_call_with_progress_is_mirrored_too() -> None:
    async with Site() as site, client(site) as one:
        await one.call_tool("t", on_progress=lambda *told: None)
        assert site.got("tools/call")[0].headers["mcp-name"] == "t"


async def test_annotated_arguments_are_mirrored_once_the_tool_was_listed() -> None:
    """HDR-10, HDR-12."""
    async with Site() as site, client(site) as one:
        listed = [tool("t", properties={"region": REGION, "count": COUNT, "plain": {"type": "string"}})]
        site.on("tools/list", lambda seen: seen.result({"tools": listed}))
        arguments = {"region": " eu", "count": 3, "plain": "x"}
        await one.call_tool("t", arguments)
        await one.list_tools()
        await one.call_tool("t", arguments)
        await one.call_tool("t", {"count": None})
        before, after, absent = (seen.headers for seen in site.got("tools/call"))
        assert not any(name.startswith("mcp-param-") for name in before)
        assert after["mcp-param-region"] == "=?base64?IGV1?="
        assert after["mcp-param-count"] == "3"
        assert not any(name.startswith("mcp-param-") for name in absent)


async def test_a_tool_that_cannot_be_called_is_left_out_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """HDR-9."""
    async with Site() as site, client(site, cache=False) as one:
        bad = tool("bad", properties={"x": {"type": "number", "x-mcp-header": "X"}})
        odd = {**tool("good"), "odd": {"kept": [1, 2.5, None]}}
        site.on("tools/list", lambda seen: seen.result({"tools": [bad, odd], "odd": 1}))
        with caplog.at_level(logging.WARNING):
            listed = await one.request("tools/list")
        assert [each["name"] for each in listed["tools"]] == ["good"]
        assert listed["tools"][0]["odd"] == {"kept": [1, 2.5, None]}
        assert listed["odd"] == 1
        assert "'bad'" in caplog.text
        assert "only a string" in caplog.text


async def test_in_the_handshake_era_annotations_mean_nothing() -> None:
    async with Site("handshake") as site, client(site, mode="handshake") as one:
        listed = [
            tool("bad", properties={"x": {"type": "number", "x-mcp-header": "X"}}),
            tool("t", properties={"r": REGION}),
        ]
        site.on("tools/list", lambda seen: seen.result({"tools": listed}))
        assert len(await one.list_tools()) == 2
        await one.call_tool("t", {"r": "eu"})
        assert not any(name.startswith(("mcp-param-", "mcp-name")) for name in site.got("tools/call")[0].headers)


async def test_a_call_whose_headers_are_refused_is_repeated_once_with_the_newest_list() -> None:
    """HDR-12."""
    async with Site() as site, client(site) as one:

        def strict(seen: Seen) -> None:
            if seen.headers.get("mcp-param-region") == "eu":
                seen.text("routed")
            else:
                seen.error(-32020, "Header mismatch: Mcp-Param-Region is missing", 400)

        pages = [
            lambda seen: seen.result({"tools": [tool("other")], "nextCursor": "2"}),
            lambda seen: seen.result({"tools": [tool("t", properties={"region": REGION})]}),
        ]
        site.on("tools/list", *pages)
        site.on("tools/call", strict)
        assert (await one.call_tool("t", {"region": "eu"})).text == "routed"
        assert [seen.message["params"].get("cursor") for seen in site.got("tools/list")] == [None, "2"]
        assert (await one.call_tool("t", {"region": "eu"})).text == "routed"
        assert len(site.got("tools/call")) == 3


async def test_headers_that_are_refused_again_are_the_callers_error() -> None:
    async with Site() as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.error(-32020, "Header mismatch", 400))
        with pytest.raises(PeerError, match="Header mismatch"):
            await one.call_tool("t")
        assert len(site.got("tools/call")) == 2
        assert len(site.got("tools/list")) == 1


async def test_a_list_that_cannot_be_had_leaves_the_servers_first_word() -> None:
    async with Site() as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.error(-32020, "Header mismatch", 400))
        site.on("tools/list", lambda seen: seen.status(500))
        with pytest.raises(PeerError, match="Header mismatch"):
            await one.call_tool("t")
        assert len(site.got("tools/call")) == 1


async def test_notifications_name_the_version_too() -> None:
    """HDR-1."""
    async with Site() as site, client(site) as one:
        await one.notify("vendor/told")
        told = await site.heard("vendor/told")
        assert (told.headers["mcp-protocol-version"], told.headers["mcp-method"]) == (NEWEST.version, "vendor/told")


async def test_a_subscription_has_a_connection_of_its_own_and_ends_with_its_stream() -> None:
    """SUB-1."""
    async with Site(resources={"subscribe": True}) as site:
        left = asyncio.Event()

        async def listen(seen: Seen) -> None:
            meta = {"io.modelcontextprotocol/subscriptionId": seen.id}
            wanted = seen.message["params"]["notifications"]
            seen.stream()
            acknowledged = {"_meta": meta, "notifications": wanted}
            seen.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": acknowledged})
            updated = {"_meta": meta, "uri": "file:///a"}
            seen.event({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": updated})
            await seen.flushed()
            await seen.gone()
            left.set()

        site.on("subscriptions/listen", listen)
        async with Client(site.url, http={"pool_size": 1}) as one:
            async with one.subscribe("file:///a") as changes:
                assert await anext(changes) == "file:///a"
                assert (await one.call_tool("t")).text == "done"
            await left.wait()
        assert site.got("notifications/cancelled") == []
