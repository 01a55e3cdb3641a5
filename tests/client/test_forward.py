"""Forwarding: params go out as they were written, results come back so, and questions know on which call they came."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from msgspec import Meta, Raw

from ferrule import Client, Context, Http, Server
from ferrule.errors import EncodeError, PeerError
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

Region = Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]
VERSIONS = {"handshake": "2025-11-25", "stateless": "2026-07-28"}
FOREIGN_META = {
    "io.modelcontextprotocol/protocolVersion": "1999-01-01",
    "io.modelcontextprotocol/clientInfo": {"name": "somebody", "version": "0"},
    "progressToken": "theirs",
    "example.com/trace": "t-1",
}


def new_app() -> Server:
    app = Server("behind")

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def greet(ctx: Context, greeting: str) -> str:
        return f"{greeting}, {await ctx.ask('Who?', str)}"

    @app.resource("note://one")
    async def note() -> str:
        return "one"

    return app


@contextlib.asynccontextmanager
async def served(app: Server) -> AsyncIterator[str]:
    listener = Http(port=0)
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await asyncio.wait([serving, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield listener.url
    finally:
        await app.stop(grace=0.0)
        await serving


def written(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


async def test_a_result_comes_back_as_the_server_wrote_it(era):
    async with pair(new_app(), era) as client:
        foreign = await client.forward("tools/call", written({"name": "add", "arguments": {"a": 1, "b": 2}}))
        assert foreign.version == VERSIONS[era]
        result = json.loads(bytes(foreign.raw))
        assert result["structuredContent"] == {"result": 3}
        assert ("resultType" in result) is (era == "stateless")
        read = json.loads(bytes((await client.forward("resources/read", b'{"uri": "note://one"}')).raw))
        assert read["contents"][0]["text"] == "one"
        assert json.loads(bytes((await client.forward("tools/list")).raw))["tools"]


async def test_what_the_params_say_of_another_connection_is_replaced(era):
    recorder = Recorder(Memory(new_app()))
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": FOREIGN_META}
    async with Client(recorder, mode=era) as client:
        await client.forward("tools/call", written(params))
    (sent,) = (message["params"] for message in recorder.sent("client") if message["method"] == "tools/call")
    meta = sent["_meta"]
    assert meta.pop("example.com/trace") == "t-1"
    assert "progressToken" not in meta
    if era == "handshake":
        assert meta == {}
    else:
        assert meta["io.modelcontextprotocol/protocolVersion"] == VERSIONS[era]
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "ferrule"


async def test_an_error_of_the_server_is_raised_as_it_is(era):
    async with pair(new_app(), era) as client:
        with pytest.raises(PeerError, match="nothing"):
            await client.forward("tools/call", written({"name": "nothing", "arguments": {}}))
        with pytest.raises(EncodeError, match="not a JSON object"):
            await client.forward("tools/call", b"[1]")


async def test_progress_of_a_forwarded_call_is_told(era):
    app = Server("behind")
    told = []

    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        return "done"

    async with pair(app, era) as client:
        await client.forward(
            "tools/call", written({"name": "work"}), on_progress=lambda done, total, text: told.append((done, total))
        )
    assert told == [(1, 2)]


async def test_a_forwarded_call_is_mirrored_in_headers():
    app = Server("behind")

    @app.tool
    async def route(ctx: Context, region: Region) -> str:
        return str((ctx.headers or {}).get("mcp-param-region"))

    async with served(app) as url, Client(url, mode="stateless") as client:
        await client.list_tools()
        foreign = await client.forward("tools/call", written({"name": "route", "arguments": {"region": "eu"}}))
        assert json.loads(bytes(foreign.raw))["structuredContent"] == {"result": "eu"}


@pytest.mark.parametrize("carrier", ["memory", "http"])
async def test_a_question_knows_on_which_call_it_came(era, carrier):
    """Several calls run at once over HTTP; in memory one after another, where only one call can be meant."""
    asked: list[Any] = []

    async def user(_: Any) -> dict[str, str]:
        asked_on = client.asked_on
        asked.append((asked_on.caller, asked_on.method, asked_on.subject))
        pending = [each.id for each in client.pending]
        assert era == "stateless" or asked_on.id in pending
        assert asked_on.id is not None
        await asyncio.sleep(0.05)
        return {"value": asked_on.caller}

    app = new_app()
    async with contextlib.AsyncExitStack() as stack:
        target: Any = app
        if carrier == "http":
            target = await stack.enter_async_context(served(app))
        client = await stack.enter_async_context(Client(target, mode=era, elicitation=user))
        params = written({"name": "greet", "arguments": {"greeting": "Hello"}})
        calls = [client.forward("tools/call", params, caller=name) for name in ("Ann", "Ben", "Eve")]
        if carrier == "http":
            answers = await asyncio.gather(*calls)
        else:
            answers = [await call for call in calls]
        said = [json.loads(bytes(each.raw))["structuredContent"]["result"] for each in answers]
        assert said == ["Hello, Ann", "Hello, Ben", "Hello, Eve"]
        assert client.asked_on is None
    assert sorted(asked) == [(name, "tools/call", "greet") for name in ("Ann", "Ben", "Eve")]


async def test_a_question_that_may_belong_to_two_calls_belongs_to_none(raw):
    server = raw("handshake", {"tools/call": None})
    seen = []

    def sample(_: Any) -> str:
        seen.append(client.asked_on)
        return "x"

    async with Client(server, mode="handshake", sampling=sample) as client:
        calls = [asyncio.ensure_future(client.call_tool(name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1})
        await server.replied()
        calls[0].cancel()
        await asyncio.sleep(0)
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "q2")
        await server.replied("q2")
        calls[1].cancel()
    assert seen[0] is None
    assert (seen[1].method, seen[1].subject) == ("tools/call", "b")
