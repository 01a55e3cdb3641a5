"""Where a request becomes a WebSocket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from raw_websocket import ACCEPT, RawWebSocket, message, new_server, opening, ping_message, serving, text

from ferrule import Context, Server
from ferrule.transports.http.listener import Http
from ferrule.transports.sockets.admission import process_admission


async def test_a_right_opening_is_answered_with_101() -> None:
    """WEBS-01, WEBS-03."""
    async with serving() as listener:
        peer = await RawWebSocket.open(listener, opening(Sec_WebSocket_Protocol="mcp"))
        assert peer.headers["sec-websocket-accept"] == ACCEPT.decode()
        assert peer.headers["sec-websocket-protocol"] == "mcp"
        assert "content-length" not in peer.headers
        assert "transfer-encoding" not in peer.headers
        await peer.leave()


async def test_a_handler_sees_where_its_caller_comes_from() -> None:
    server = new_server()

    @server.tool
    async def whence(ctx: Context) -> str:
        return ctx.headers.get("X-Tenant", "nowhere")

    async with serving(server) as listener:
        peer = await (await RawWebSocket.open(listener, opening(X_Tenant="blue"))).greet()
        peer.send(text(message(1, "tools/call", {"name": "whence", "arguments": {}})))
        assert (await peer.answer())["result"]["content"][0]["text"] == "blue"
        await peer.leave()


async def test_a_bad_opening_leaves_the_connection_to_http() -> None:
    """WEBS-03: after the refusal the same connection can try again."""
    async with serving() as listener:
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(opening(Sec_WebSocket_Version="12")) == 400
        await peer.reader.readexactly(int(peer.headers["content-length"]))
        assert await peer.ask(opening()) == 101
        peer.send(text(ping_message(1)))
        assert (await peer.answer())["id"] == 1
        await peer.leave()


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://app.example", 101), ("https://app.example.evil", 403), ("null", 403), ("http://127.0.0.1", 101)],
)
async def test_pages_of_allowed_origins_only_may_open_one(origin: str, status: int) -> None:
    """WEBS-17."""
    async with serving(allowed_origins=("https://app.example",)) as listener:
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(opening(Origin=origin)) == status
        await peer.leave()


async def test_everyone_may_where_that_was_asked_for_but_with_one_origin() -> None:
    """WEBS-17."""
    async with serving(allowed_origins=("*",)) as listener:
        for origin, status in (("https://any.example", 101), ("https://a.example, https://b.example", 403)):
            peer = await RawWebSocket.connect(listener)
            assert await peer.ask(opening(Origin=origin)) == status
            await peer.leave()


async def test_the_websocket_over_the_limit_is_refused_and_a_place_that_is_left_is_free() -> None:
    """WEBS-18."""
    async with serving(max_connections=2) as listener:
        first, second = await RawWebSocket.open(listener), await RawWebSocket.open(listener)
        third = await RawWebSocket.connect(listener)
        assert await third.ask(opening()) == 503
        assert third.headers["retry-after"] == "1"
        await first.leave()
        while len(listener._endpoint.channels) > 1:
            await asyncio.sleep(0.001)
        fourth = await RawWebSocket.open(listener)
        for peer in (second, third, fourth):
            await peer.leave()


async def test_limt_02_a_place_is_given_back_when_no_link_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIMT-02."""
    server = new_server()

    def broken(origin: Any) -> Any:
        raise RuntimeError("broken on purpose")

    async with serving(server, max_connections=2) as listener:
        with monkeypatch.context() as patch:
            patch.setattr(server.host, "link", broken)
            for _ in range(3):
                peer = await RawWebSocket.connect(listener)
                assert await peer.ask(opening()) == 500
                await peer.leave()
        peers = [await RawWebSocket.open(listener) for _ in range(2)]
        for peer in peers:
            await peer.leave()


async def test_limt_08_websockets_count_among_all_connections_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIMT-08, LIMT-05."""
    async with serving() as listener, serving() as other:
        here = process_admission.occupancy.current
        monkeypatch.setattr(process_admission, "limit", here + 1)
        first = await RawWebSocket.open(listener)
        second = await RawWebSocket.connect(other)
        assert await second.ask(opening()) == 503
        said = await second.reader.readexactly(int(second.headers["content-length"]))
        assert f"this process takes {here + 1} connections at once".encode() in said
        await first.leave()
        while process_admission.occupancy.current > here:
            await asyncio.sleep(0.001)
        assert await second.ask(opening()) == 101
        await second.leave()


async def test_a_websocket_that_is_turned_away_is_counted() -> None:
    server = Server("few", metrics=True)
    async with serving(server, max_connections=1) as listener:
        first = await RawWebSocket.open(listener)
        second = await RawWebSocket.connect(listener)
        assert await second.ask(opening()) == 503
        refused = server.metrics.counter("ferrule_connections_refused_total").children
        assert {labels: child.value for labels, child in refused.items()} == {("websocket", "too_many_connections"): 1}
        await first.leave()
        await second.leave()


async def test_http_and_websocket_share_a_port() -> None:
    """WEBS-01."""
    async with serving(kind=Http, websocket=True) as listener:
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") == 200
        await peer.reader.readexactly(int(peer.headers["content-length"]))
        assert await peer.ask(opening()) == 101
        peer.send(text(ping_message(1)))
        assert (await peer.answer())["id"] == 1
        await peer.leave()


async def test_where_it_is_not_switched_on_there_is_no_websocket() -> None:
    async with serving(kind=Http) as listener:
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(opening()) == 404
        await peer.leave()


@pytest.mark.parametrize("kind", ["alone", "beside HTTP"])
async def test_at_shutdown_calls_are_answered_and_then_websockets_are_closed_with_1001(kind: str) -> None:
    """WEBS-13, WEBS-19, SHUT-04, SHUT-01: and nobody new is let in."""
    server, running = new_server(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        running.set()
        await asyncio.sleep(0.2)
        return "done"

    options = {} if kind == "alone" else {"kind": Http, "websocket": True}
    async with serving(server, **options) as listener:  # type: ignore[arg-type]
        peer = await (await RawWebSocket.open(listener)).greet()
        peer.send(text(message(1, "tools/call", {"name": "slow", "arguments": {}})))
        await running.wait()
        closing = asyncio.ensure_future(listener.close(2))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await RawWebSocket.connect(listener)
        assert (await peer.answer())["result"]["content"][0]["text"] == "done"
        assert await peer.closed_with() == 1001
        await peer.leave()
        await asyncio.wait_for(closing, 8)


async def test_http_1_0_cannot_become_a_websocket() -> None:
    """WEBS-03."""
    async with serving() as listener:
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(opening().replace(b"HTTP/1.1", b"HTTP/1.0")) == 400


async def test_a_peer_that_does_not_say_goodbye_does_not_hold_the_server() -> None:
    """WEBS-14."""
    async with serving() as listener:
        peer = await RawWebSocket.open(listener)
        began = asyncio.get_running_loop().time()
        await listener.close(0.3)
        assert asyncio.get_running_loop().time() - began < 8
        assert await peer.closed_with() == 1001


async def test_who_comes_during_shutdown_is_sent_away() -> None:
    async with serving() as listener:
        listener._endpoint.draining = True
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(opening()) == 503
        await peer.leave()
