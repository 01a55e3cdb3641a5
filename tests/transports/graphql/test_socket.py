"""The subprotocol `graphql-transport-ws`, message by message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from graphql_desk import new_app, serving
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from ferrule import Graphql
from ferrule.budgets import process

SUBSCRIBE = {"type": "subscribe", "id": "1", "payload": {"query": "subscription { listChanged { list } }"}}
HANG = {"type": "subscribe", "id": "1", "payload": {"query": 'mutation { callTool(name: "hang") { isError } }'}}


@asynccontextmanager
async def opened(listener: Graphql, *, ready: bool = True) -> AsyncIterator[ClientConnection]:
    """Open a WebSocket, and initialise it."""
    url = listener.url.replace("http://", "ws://")
    async with connect(url, subprotocols=[Subprotocol("graphql-transport-ws")], proxy=None) as peer:
        assert peer.subprotocol == "graphql-transport-ws"
        if ready:
            await say(peer, {"type": "connection_init", "payload": {"ignored": True}})
            assert await hear(peer) == {"type": "connection_ack"}
        yield peer


async def say(peer: ClientConnection, message: Any) -> None:
    """Send a message."""
    await peer.send(json.dumps(message))


async def hear(peer: ClientConnection) -> Any:
    """Receive a message."""
    return json.loads(await asyncio.wait_for(peer.recv(), 10))


async def close_code(peer: ClientConnection) -> int:
    """Wait until the WebSocket is closed, and return its code."""
    with suppress(ConnectionClosed):
        while True:
            await asyncio.wait_for(peer.recv(), 10)
    assert peer.close_code is not None
    return peer.close_code


async def test_a_ping_is_answered_at_any_time() -> None:
    async with serving() as listener, opened(listener, ready=False) as peer:
        await say(peer, {"type": "ping"})
        assert await hear(peer) == {"type": "pong"}
        await say(peer, {"type": "pong"})
        await say(peer, {"type": "connection_init"})
        assert await hear(peer) == {"type": "connection_ack"}


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([SUBSCRIBE], 4401),
        (["nonsense"], 4400),
        ([{"type": "start"}], 4400),
        ([{"type": "connection_init"}, {"type": "connection_init"}], 4429),
        ([{"type": "connection_init"}, {**SUBSCRIBE, "id": ""}], 4400),
        ([{"type": "connection_init"}, {**SUBSCRIBE, "id": "x" * 10_000}], 4400),
        ([{"type": "connection_init"}, SUBSCRIBE, SUBSCRIBE], 4409),
    ],
)
async def test_what_breaks_the_protocol_closes_the_websocket_with_its_code(messages: list[Any], code: int) -> None:
    async with serving() as listener, opened(listener, ready=False) as peer:
        for message in messages:
            await say(peer, message)
        assert await close_code(peer) == code


async def test_who_does_not_begin_is_closed_with_4408() -> None:
    async with serving(init_timeout=0.05) as listener, opened(listener, ready=False) as peer:
        assert await close_code(peer) == 4408


async def test_a_refused_operation_is_an_error_and_the_websocket_lives_on() -> None:
    async with serving() as listener, opened(listener) as peer:
        await say(peer, {**SUBSCRIBE, "payload": {"query": "{ missing }"}})
        answer = await hear(peer)
        assert (answer["type"], answer["id"]) == ("error", "1")
        assert answer["payload"][0]["extensions"]["code"] == "GRAPHQL_VALIDATION_FAILED"
        await say(peer, {**SUBSCRIBE, "payload": {"query": "{ __typename }"}})
        assert await hear(peer) == {"type": "next", "id": "1", "payload": {"data": {"__typename": "Query"}}}
        assert await hear(peer) == {"type": "complete", "id": "1"}


async def test_a_subscription_that_the_server_does_not_grant_is_an_error() -> None:
    async with serving(new_app(capabilities=None)) as listener, opened(listener) as peer:
        query = "subscription { resourceUpdated(uris: []) { uri } }"
        await say(peer, {**SUBSCRIBE, "payload": {"query": query}})
        answer = await hear(peer)
        assert answer["type"] == "error"
        assert answer["payload"][0]["extensions"]["code"] == "METHOD_NOT_FOUND"


async def test_complete_cancels_an_operation() -> None:
    app = new_app()
    async with serving(app) as listener, opened(listener) as peer:
        await say(peer, HANG)
        await app.begun.wait()  # type: ignore[attr-defined]
        await say(peer, {"type": "complete", "id": "1"})
        await app.cancelled.wait()  # type: ignore[attr-defined]
        await say(peer, {"type": "complete", "id": "none"})
        await say(peer, {"type": "ping"})
        assert await hear(peer) == {"type": "pong"}


async def test_a_lost_websocket_cancels_what_runs_on_it() -> None:
    app = new_app()
    async with serving(app) as listener:
        async with opened(listener) as peer:
            await say(peer, HANG)
            await app.begun.wait()  # type: ignore[attr-defined]
        await app.cancelled.wait()  # type: ignore[attr-defined]


async def test_one_operation_too_many_is_an_error() -> None:
    async with serving(max_subscriptions=1) as listener, opened(listener) as peer:
        await say(peer, SUBSCRIBE)
        await say(peer, {**SUBSCRIBE, "id": "2"})
        answer = await hear(peer)
        assert (answer["type"], answer["id"]) == ("error", "2")


async def test_an_id_that_is_used_again_names_the_operation_that_has_it_now() -> None:
    app = new_app()
    async with serving(app, max_subscriptions=1) as listener:
        async with opened(listener) as peer:
            await say(peer, HANG)
            await app.begun.wait()  # type: ignore[attr-defined]
            await say(peer, {"type": "complete", "id": "1"})
            await say(peer, HANG)
            await app.cancelled.wait()  # type: ignore[attr-defined]
            await say(peer, {**HANG, "id": "2"})
            answer = await hear(peer)
            assert (answer["type"], answer["id"]) == ("error", "2")
            app.cancelled.clear()  # type: ignore[attr-defined]
        await asyncio.wait_for(app.cancelled.wait(), 10)  # type: ignore[attr-defined]


async def test_what_operations_hold_is_bounded_and_let_go_when_they_end() -> None:
    """BUD-09"""
    app = new_app()
    before = process.requests.held
    large = {**HANG["payload"], "variables": {"padding": "x" * 5_000_000}}  # type: ignore[dict-item]
    async with serving(app) as listener:
        async with opened(listener) as peer:
            for number in range(8):
                await say(peer, {**HANG, "id": str(number), "payload": large})
            refused = [(await hear(peer))["id"] for _ in range(7)]
            assert refused == ["1", "2", "3", "4", "5", "6", "7"]
            assert process.requests.held - before <= 17_000_000
            await say(peer, {**SUBSCRIBE, "id": "small", "payload": {"query": "{ __typename }"}})
            assert (await hear(peer))["type"] == "next"
        while process.requests.held != before:
            await asyncio.sleep(0.01)


async def test_a_message_of_many_values_is_refused_before_it_is_read() -> None:
    """BUD-21: 6 MB of empty objects would be 150 MB."""
    heavy = '{"type":"subscribe","id":"1","payload":{"query":"{ __typename }","variables":{"a":[' + "{}," * 2_000_000
    async with serving() as listener, opened(listener) as peer:
        await peer.send(heavy + "1]}}}")
        answer = await hear(peer)
        assert answer["payload"][0]["extensions"]["code"] == "OPERATION_TOO_COMPLEX"


async def test_a_subscription_is_completed_when_the_server_stops() -> None:
    app = new_app()
    async with serving(app) as listener, opened(listener) as peer:
        await say(peer, SUBSCRIBE)
        while not len(app.host.services.subscriptions):
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(listener.close(grace=1.0))
        assert await hear(peer) == {"type": "complete", "id": "1"}
        assert await close_code(peer) == 1001
        await closing


async def test_a_slow_subscriber_hears_of_each_thing_once() -> None:
    app = new_app()
    async with serving(app) as listener, opened(listener) as peer:
        await say(peer, SUBSCRIBE)
        while not len(app.host.services.subscriptions):
            await asyncio.sleep(0.01)
        for _ in range(200):
            app.host.services.subscriptions.changed("notifications/tools/list_changed")
        heard = 0
        while True:
            try:
                await asyncio.wait_for(peer.recv(), 0.3)
            except TimeoutError:
                break
            heard += 1
        assert 1 <= heard < 100
