"""A tool of another server, forwarded by an entry of thirty lines: every caller gets the form of its own revision."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ferrule import Client, Context, PeerError, Refusal, Server, ToolError
from ferrule.protocol.call import Call
from ferrule.protocol.foreign import Foreign
from ferrule.protocol.needs import Question
from ferrule.testing import ERAS, Recorder, pair
from ferrule.transports.memory import Memory
from ferrule.types import Tool

SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class ForwardedTool:
    """A tool of another server."""

    def __init__(self, upstream: Client, tool: Tool) -> None:
        self.tool = tool
        self._upstream = upstream

    async def call(self, call: Call) -> Foreign:
        params = {"name": call.params.name, "arguments": call.params.arguments}
        try:
            return await self._upstream.forward("tools/call", msgspec.json.encode(params), caller=call)
        except PeerError as error:
            raise Refusal.relay(error) from None


def new_upstream() -> Server:
    app = Server("behind", version="1")

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fail() -> None:
        raise ToolError("no paper")

    @app.tool
    async def refuse() -> None:
        raise Refusal("not today", {"until": "tomorrow"}, code=-31999)

    @app.tool
    async def greet(ctx: Context) -> str:
        return f"Hello, {await ctx.ask('Who are you?', str)}"

    return app


@asynccontextmanager
async def forwarding(behind: str, prefix: str = "") -> AsyncIterator[Server]:
    """A server that forwards all tools of another, which speaks the era `behind`."""

    async def ask_the_caller(question: Any) -> Any:
        asked_on = upstream.asked_on
        assert asked_on is not None
        call = asked_on.caller
        assert isinstance(call, Call)
        params = json.loads(msgspec.json.encode(question))
        (answer,) = call.era.ask(call, [("who", Question("elicitation/create", params))])
        return json.loads(bytes(await answer))

    front = Server("front", version="2")
    async with pair(new_upstream(), behind, elicitation=ask_the_caller) as upstream:  # type: ignore[arg-type]
        inner = Server("inner") if prefix else front
        for tool in await upstream.list_tools():
            inner.add_tool(ForwardedTool(upstream, tool))
        if prefix:
            front.mount(inner, prefix)
        yield front


@pytest.mark.parametrize("behind", ERAS)
async def test_a_result_has_the_form_of_the_callers_era(era: str, behind: str) -> None:
    async with forwarding(behind) as front:
        recorder = Recorder(Memory(front))
        async with Client(recorder, mode=era) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        (written,) = (
            each["result"] for each in recorder.sent("server") if "structuredContent" in each.get("result", ())
        )
    if era == "stateless":
        assert written["resultType"] == "complete"
        assert written["_meta"][SERVER_INFO] == {"name": "front", "version": "2"}
    else:
        assert "resultType" not in written
        assert SERVER_INFO not in written.get("_meta", {})
    assert written["content"] == [{"type": "text", "text": "3"}]


@pytest.mark.parametrize("behind", ERAS)
async def test_failures_and_errors_reach_the_caller_as_they_were_said(era: str, behind: str) -> None:
    async with forwarding(behind) as front, pair(front, era) as client:  # type: ignore[arg-type]
        with pytest.raises(ToolError, match="no paper"):
            await client.call_tool("fail")
        with pytest.raises(PeerError, match="not today") as caught:
            await client.call_tool("refuse")
        assert (caught.value.code, caught.value.data) == (-31999, {"until": "tomorrow"})


@pytest.mark.parametrize("behind", ERAS)
async def test_it_is_listed_and_hidden_and_mounted_like_any_tool(era: str, behind: str) -> None:
    async with forwarding(behind, prefix="far") as front, pair(front, era) as client:  # type: ignore[arg-type]
        assert "far_add" in {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("far_add", {"a": 2, "b": 2})).data == 4
        front.disable("far_add")
        with pytest.raises(PeerError):
            await client.call_tool("far_add", {"a": 2, "b": 2})


@pytest.mark.parametrize("behind", ERAS)
async def test_a_question_of_the_server_behind_reaches_the_caller_it_is_about(behind: str) -> None:
    """In the handshake era the caller waits while it is asked, whichever way the server behind asks."""

    async def ada(_: Any) -> Any:
        return {"action": "accept", "content": {"value": "Ada"}}

    async with forwarding(behind) as front, pair(front, "handshake", elicitation=ada) as client:
        assert (await client.call_tool("greet")).data == "Hello, Ada"
