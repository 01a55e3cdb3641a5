"""The link of those who ask without a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from ferrule import Context, Server
from ferrule.wire.channel import ChannelDefaults, Origin
from ferrule.wire.codec import encode

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Exchange(ChannelDefaults):
    """A way back that remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send(self, message: Any) -> None:
        self.heard.append(json.loads(encode(message)))

    async def wait_writable(self) -> None: ...

    def close(self, reason: str = "") -> None: ...


class HttpExchange(Server):
    """A server whose calls wait for a gate."""

    def __init__(self, **options: Any) -> None:
        super().__init__("asked", **options)
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.gate = asyncio.Event()
        self.add_tool(self.hold)

    async def hold(self, name: str) -> str:
        self.begun.append(name)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        return name


def ask(link: Any, name: str, identity: Any = 1, tool: str = "hold") -> Exchange:
    exchange = Exchange()
    params = {"name": tool, "arguments": {"name": name} if tool == "hold" else {}, "_meta": MODERN}
    message = {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}
    assert link.frame_received(json.dumps(message).encode(), exchange)
    return exchange


async def test_everyone_is_answered_on_the_way_they_came(settle: Callable[..., Any]) -> None:
    app = HttpExchange()
    link = app.host.sessionless_link(Origin("test"))
    exchanges = [ask(link, name) for name in "abc"]
    await settle()
    app.gate.set()
    await settle()
    assert [exchange.heard[0]["result"]["content"][0]["text"] for exchange in exchanges] == ["a", "b", "c"]
    assert link.session.running == {}


async def test_who_is_gone_is_cancelled_and_nobody_else(settle: Callable[..., Any]) -> None:
    """HTM-8, CANC-7."""
    app = HttpExchange()
    link = app.host.sessionless_link(Origin("test"))
    gone, stays = ask(link, "gone"), ask(link, "stays")
    await settle()
    link.channel_lost(gone, None)
    link.channel_lost(gone, None)
    link.channel_lost(Exchange(), None)
    await settle()
    assert app.cancelled == ["gone"]
    app.gate.set()
    await settle()
    assert (gone.heard, len(stays.heard)) == ([], 1)
    assert not link.closed


async def test_the_call_of_who_is_gone_knows_that_it_is_cancelled(settle: Callable[..., Any]) -> None:
    """CANC-7."""
    app = HttpExchange()
    seen: list[bool] = []

    @app.tool(name="look")
    async def look(ctx: Context) -> None:
        seen.append(ctx.cancelled)
        try:
            await app.gate.wait()
        finally:
            seen.append(ctx.cancelled)

    link = app.host.sessionless_link(Origin("test"))
    exchange = ask(link, "x", tool="look")
    await settle()
    (call,) = link.session.running.values()
    link.channel_lost(exchange, None)
    await settle()
    assert seen == [False, True]
    assert call.reason == "the client closed the connection"


async def test_who_is_gone_makes_room_for_who_waits_in_line(settle: Callable[..., Any]) -> None:
    app = HttpExchange(max_concurrent=1)
    link = app.host.sessionless_link(Origin("test"))
    first, second, third = (ask(link, name) for name in "abc")
    await settle()
    assert app.begun == ["a"]
    link.channel_lost(second, None)
    link.channel_lost(first, None)
    await settle()
    assert app.begun == ["a", "c"]
    app.gate.set()
    await settle()
    assert (first.heard, second.heard, len(third.heard)) == ([], [], 1)


async def test_the_link_shares_one_bound_and_is_told_when_it_is_full(settle: Callable[..., Any]) -> None:
    app = HttpExchange(max_concurrent=2, max_waiting=1)
    link = app.host.sessionless_link(Origin("test"))
    exchanges = [ask(link, str(number)) for number in range(5)]
    await settle()
    assert app.begun == ["0", "1"]
    assert ["error" in exchange.heard[0] if exchange.heard else None for exchange in exchanges] == [
        *(None, None, None),
        *(True, True),
    ]
    app.gate.set()
    await settle()
    assert all(len(exchange.heard) == 1 for exchange in exchanges)


async def test_the_link_is_over_with_the_channel_that_stands_for_all(settle: Callable[..., Any]) -> None:
    app = HttpExchange()
    link, everyone = app.host.sessionless_link(Origin("test")), Exchange()
    link.channel_opened(everyone)
    asked = ask(link, "a")
    await settle()
    link.channel_lost(everyone, None)
    await settle()
    assert (app.cancelled, asked.heard, list(app.host.links)) == (["a"], [], [])


async def test_what_is_no_request_is_not_answered() -> None:
    """HTM-3."""
    link, exchange = HttpExchange().host.sessionless_link(Origin("test")), Exchange()
    for frame in (b'{"jsonrpc":"2.0","method":"notifications/x"}', b'{"jsonrpc":"2.0","id":1,"result":{}}'):
        assert not link.frame_received(frame, exchange)
    assert exchange.heard == []


async def test_what_cannot_be_read_is_answered_where_it_came_from() -> None:
    link, exchange = HttpExchange().host.sessionless_link(Origin("test")), Exchange()
    assert link.frame_received(b"{", exchange)
    assert exchange.heard[0]["error"]["code"] == -32700
    assert "id" not in exchange.heard[0]


@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
async def test_a_link_of_one_revision_needs_no_metadata(settle: Callable[..., Any], version: str) -> None:
    app = HttpExchange()
    app.gate.set()
    link, exchange = app.host.sessionless_link(Origin("test"), version), Exchange()
    params = {"name": "hold", "arguments": {"name": "x"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    link.frame_received(json.dumps(message).encode(), exchange)
    await settle()
    assert exchange.heard[0]["result"]["content"][0]["text"] == "x"
    assert "resultType" not in exchange.heard[0]["result"]


async def test_a_drained_link_answers_what_runs_and_takes_nothing_new(settle: Callable[..., Any]) -> None:
    app = HttpExchange()
    link = app.host.sessionless_link(Origin("test"))
    running = ask(link, "a")
    await settle()
    draining = asyncio.ensure_future(link.drain(10))
    await settle()
    late = ask(link, "late")
    assert "stopping" in late.heard[0]["error"]["message"]
    app.gate.set()
    await draining
    assert running.heard[0]["result"]["content"][0]["text"] == "a"
