"""Who is let in as a WebSocket by the ASGI app, and how those inside are sent home."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgi_desk import Desk, site
from raw_websocket import message, new_server

from ferrule.errors import SetupError

REFUSED = {
    "another path": ({"path": "/mcp"}, 404),
    "a page that may not": ({"headers": {"origin": "https://evil.example"}}, 403),
    "no page at all": ({"headers": {"origin": "null"}}, 403),
    "two pages": ({"headers": {"origin": "https://good.example, https://evil.example"}}, 403),
    "another host": ({"headers": {"host": "evil.example"}}, 403),
    "a session of HTTP": ({"headers": {"host": "here", "mcp-session-id": "x"}}, 409),
}


@pytest.mark.parametrize(("changes", "status"), REFUSED.values(), ids=REFUSED)
async def test_wsk_02_wsk_12_a_bad_opening_is_refused_with_its_status(changes: dict[str, Any], status: int) -> None:
    """WEBS-03, WEBS-17."""
    async with site(allowed_hosts=("here",), allowed_origins=("https://good.example",)) as app:
        desk = Desk(app, **{"headers": {"host": "here"}, **changes})
        if "origin" in changes.get("headers", {}):
            desk.scope["headers"].append((b"host", b"here"))
        assert (await desk.hear())["status"] == status
        assert (await desk.hear())["body"]
        await desk.running


async def test_a_server_that_cannot_say_the_status_is_told_to_close() -> None:
    async with site() as app:
        desk = Desk(app, "/elsewhere", extensions={})
        refusal = await desk.hear()
        assert (refusal["type"], refusal["reason"]) == (
            "websocket.close",
            "Not found; WebSockets are served at /mcp/ws",
        )


async def test_a_page_that_may_is_let_in() -> None:
    """WEBS-17."""
    async with site(allowed_origins=("https://good.example",)) as app:
        await (await Desk(app, headers={"origin": "https://good.example"}).greet()).leave()


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/mcp/ws", ""),
        ("/api/mcp/ws", "/api"),
        ("/mcp/ws", "/api"),
        ("/mcp/ws", "/mcp"),
        ("/tools/mcp/ws", "/tools/mcp"),
    ],
)
async def test_the_path_is_the_one_below_the_mount(path: str, root: str) -> None:
    """WEBS-01."""
    async with site() as app:
        await (await Desk(app, path, root_path=root).greet()).leave()


async def test_a_peer_that_asks_for_no_subprotocol_gets_none() -> None:
    async with site() as app:
        desk = Desk(app, subprotocols=[])
        assert await desk.hear() == {"type": "websocket.accept", "subprotocol": None}
        await desk.leave()


async def test_the_websocket_over_the_limit_is_refused_and_a_place_that_is_left_is_free() -> None:
    """WEBS-18."""
    async with site(websocket={"max_connections": 1}) as app:
        first = await Desk(app).greet()
        refusal = await Desk(app).hear()
        assert (refusal["status"], (b"retry-after", b"1") in refusal["headers"]) == (503, True)
        await first.leave()
        await (await Desk(app).greet()).leave()


async def test_at_the_end_calls_are_answered_then_peers_are_told_1001_and_nobody_new_comes() -> None:
    """WEBS-13, WEBS-19."""
    server, running, finish = new_server(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        running.set()
        await finish.wait()
        return "done"

    async with site(server) as app:
        desk = await Desk(app).greet()
        desk.say(message(1, "tools/call", {"name": "slow", "arguments": {}}).decode())
        await running.wait()
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.sleep(0)
        assert (await Desk(app).hear())["status"] == 503
        finish.set()
        assert (await desk.answer())["id"] == 1
        assert await desk.hear() == {"type": "websocket.close", "code": 1001, "reason": ""}
        await desk.running
        await stopping


async def test_a_peer_that_takes_nothing_does_not_hold_up_the_end(virtual_time: None) -> None:
    async with site(new_server(shutdown_grace=2.0)) as app:
        desk = await Desk(app).greet()
        desk.readable.clear()
        await asyncio.wait_for(app.stop(), 60)
        desk.readable.set()
        await desk.running


async def test_where_it_is_not_switched_on_a_websocket_is_refused() -> None:
    async with site(websocket=False) as app:
        assert (await Desk(app).hear())["status"] == 403


@pytest.mark.parametrize(
    ("websocket", "said"),
    [({"path": "/mcp"}, "are both '/mcp'"), ({"pings": 1}, "websocket: unknown option 'pings'; the options are")],
)
def test_options_nothing_could_work_with_are_refused(websocket: dict[str, Any], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        new_server().asgi(websocket=websocket)
