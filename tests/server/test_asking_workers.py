"""A call whose rounds are answered by different workers, over real HTTP: what travels with it is sealed state only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ferrule import Context, Http, Server
from ferrule.protocol.stateless import NEWEST

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST.version,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
YES = {"action": "accept", "content": {"value": True}}


def worker(charges: list[str], name: str, **options: Any) -> Server:
    """One of several processes behind one address: they share keys, and nothing else."""
    app = Server("shop", **{"request_state_keys": (KEY,), **options})

    @app.tool
    async def buy(item: str, ctx: Context) -> str:
        receipt = await ctx.step("charge", lambda: charges.append(name) or f"{item} charged by {name}")
        wrapped = await ctx.ask("Wrap it?", bool, key="wrap")
        sent = await ctx.ask("Send it?", bool, key="send")
        return f"{receipt}; wrapped {wrapped}, sent {sent}, finished by {name}"

    return app


@contextlib.asynccontextmanager
async def served(app: Server) -> AsyncIterator[str]:
    listener, ready = Http(port=0), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    try:
        yield f"http://127.0.0.1:{listener.address[1]}/mcp"
    finally:
        await app.stop(grace=0)
        await serving


async def post(http: httpx.AsyncClient, url: str, item: str = "tea", **more: Any) -> dict[str, Any]:
    """Send one round of the call to one worker."""
    params = {"name": "buy", "arguments": {"item": item}, "_meta": META, **more}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": NEWEST.version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "buy",
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer: dict[str, Any] = (await http.post(url, json=request, headers=headers)).json()
    return answer


async def test_every_round_may_be_answered_by_another_worker():
    """MRTR-8, STL-8"""
    charges: list[str] = []
    async with (
        served(worker(charges, "one")) as one,
        served(worker(charges, "two")) as two,
        httpx.AsyncClient(timeout=20) as http,
    ):
        first = (await post(http, one))["result"]
        assert first["inputRequests"].keys() == {"wrap"}
        state = {"requestState": first["requestState"]}
        second = (await post(http, two, inputResponses={"wrap": YES}, **state))["result"]
        assert second["inputRequests"].keys() == {"send"}
        state = {"requestState": second["requestState"]}
        third = (await post(http, one, inputResponses={"send": YES}, **state))["result"]
    assert third["content"][0]["text"] == "tea charged by one; wrapped True, sent True, finished by one"
    assert charges == ["one"]


@pytest.mark.parametrize("change", ["tampered", "expired", "foreign", "for another call", "invented"])
async def test_state_that_is_not_this_calls_own_is_refused_by_every_worker(change):
    """MRTR-6, MRTR-7"""
    charges: list[str] = []
    lifetime = 0.0 if change == "expired" else 600.0
    key = OTHER_KEY if change == "foreign" else KEY
    async with (
        served(worker(charges, "one", request_state_lifetime=lifetime)) as one,
        served(worker(charges, "two", request_state_keys=(key,))) as two,
        httpx.AsyncClient(timeout=20) as http,
    ):
        state = (await post(http, one))["result"]["requestState"]
        if change == "tampered":
            state = state[:-4] + ("AAAA" if state[-4:] != "AAAA" else "BBBB")
        if change == "invented":
            state = "AAAA"
        item = "gold" if change == "for another call" else "tea"
        answer = await post(http, two, item, inputResponses={"wrap": YES}, requestState=state)
    assert answer["error"]["code"] == -32602
    assert charges == ["one"]


async def test_a_key_may_be_replaced_while_calls_are_under_way():
    """The first key seals; the others still open."""
    charges: list[str] = []
    async with (
        served(worker(charges, "old")) as old,
        served(worker(charges, "new", request_state_keys=(OTHER_KEY, KEY))) as new,
        httpx.AsyncClient(timeout=20) as http,
    ):
        state = (await post(http, old))["result"]["requestState"]
        result = (await post(http, new, inputResponses={"wrap": YES}, requestState=state))["result"]
        assert result["inputRequests"].keys() == {"send"}
        refused = await post(http, old, inputResponses={"send": YES}, requestState=result["requestState"])
        assert refused["error"]["code"] == -32602
    assert charges == ["old"]
