"""Messages both ways on a WebSocket whose frames an ASGI server does."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from asgi_desk import Desk, site
from raw_websocket import message, new_server, ping_message

from ferrule import Server


def websockets(server: Server) -> list[Any]:
    """Return the links of WebSockets, without the one that all have who need none."""
    return [link for link in server.host.links if link.session.origin.carrier == "websocket"]


def flood(count: int, size: int) -> str:
    """A call whose handler says much; log messages are wanted from debug on."""
    return message(1, "tools/call", {"name": "flood", "arguments": {"count": count, "size": size}}).decode()


async def test_messages_are_answered_in_order_and_a_text_may_hold_several() -> None:
    """WEBS-05, WEBS-19."""
    async with site() as app:
        desk = await Desk(app).greet()
        desk.say("\n".join(ping_message(number).decode() for number in range(1, 4)))
        desk.say(ping_message(4).decode() + "\n")
        assert [(await desk.answer())["id"] for _ in range(4)] == [1, 2, 3, 4]
        await desk.leave()


async def test_a_peer_that_leaves_ends_its_calls() -> None:
    """WEBS-19."""
    server, running, ended = new_server(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with site(server) as app:
        desk = await Desk(app).greet()
        desk.say(message(1, "tools/call", {"name": "wait", "arguments": {}}).decode())
        await running.wait()
        await desk.leave()
        await ended.wait()


CLOSED = {
    "binary": ({}, b"{}", 1003),
    "too long": ({"max_message_size": 1024}, "x" * 1025, 1009),
    "no line feed where one is demanded": ({"strict_delimiter_check": True}, "{}", 1002),
}


@pytest.mark.parametrize(("options", "said", "code"), CLOSED.values(), ids=CLOSED)
async def test_a_text_that_is_none_of_ours_closes_with_its_code(options: dict[str, Any], said: Any, code: int) -> None:
    """WEBS-06, WEBS-13, WSK-07."""
    async with site(websocket=options) as app:
        desk = Desk(app)
        await desk.hear()
        desk.say(said)
        closing = await desk.hear()
        assert (closing["type"], closing["code"], bool(closing["reason"])) == ("websocket.close", code, True)
        await desk.running


async def test_binary_is_read_where_that_is_accepted() -> None:
    """WEBS-06."""
    async with site(websocket={"accept_binary": True}) as app:
        desk = await Desk(app).greet()
        desk.say(ping_message(1))
        assert (await desk.answer())["id"] == 1
        await desk.leave()


async def test_what_is_no_json_is_answered_and_the_websocket_goes_on() -> None:
    """WSK-07."""
    async with site() as app:
        desk = await Desk(app).greet()
        desk.say("{")
        assert (await desk.answer())["error"]["code"] == -32700
        desk.say(ping_message(1).decode())
        assert (await desk.answer())["id"] == 1
        await desk.leave()


async def test_wsk_10_a_peer_that_takes_nothing_holds_its_producer_and_is_given_up(virtual_time: None) -> None:
    """WEBS-10: nothing more is read from it, and after five seconds the WebSocket is over."""
    server = new_server()
    loop = asyncio.get_running_loop()
    async with site(server) as app:
        desk = await Desk(app).greet()
        desk.readable.clear()
        began = loop.time()
        desk.say(message(9, "logging/setLevel", {"level": "debug"}).decode())
        desk.say(flood(100_000, 1000))
        for number in range(10, 20):
            desk.say(ping_message(number).decode())
        await desk.running
        assert loop.time() - began == 5
        assert server.said * 1000 < 102_400
        assert desk.said.qsize() > 0


async def test_what_a_peer_takes_again_lets_its_producer_go_on(virtual_time: None) -> None:
    """WEBS-10."""
    server = new_server()
    async with site(server) as app:
        desk = await Desk(app).greet()
        desk.readable.clear()
        desk.say(flood(1000, 1000))
        await asyncio.sleep(1)
        held = server.said
        await asyncio.sleep(1)
        assert server.said == held
        desk.readable.set()
        said = [await desk.answer() for _ in range(1001)]
        assert said[-1]["result"]["structuredContent"] == {"result": 1000}
        await desk.leave()


async def test_a_backlog_beyond_all_measure_ends_the_websocket(
    virtual_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notices wait for nobody: what is told to a peer that does not read is bounded all the same."""
    monkeypatch.setattr("ferrule.transports.backpressure.LEAST_BACKLOG", 4000)
    server = new_server(update_interval=0.0)

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    uri = "note://" + "x" * 900
    async with site(server, websocket={"max_message_size": 2000, "backpressure_timeout": 1e6}) as app:
        desk = await Desk(app).greet()
        desk.say(message(1, "resources/subscribe", {"uri": uri}).decode())
        assert (await desk.answer())["id"] == 1
        desk.readable.clear()
        for _ in range(20):
            server.notify_resource_updated(uri)
            await asyncio.sleep(1)
        desk.readable.set()
        while (event := await desk.hear())["type"] == "websocket.send":
            pass
        assert event["code"] == 1011
        await desk.running


async def test_a_server_that_fails_to_write_ends_the_websocket() -> None:
    """What it raises is its own affair; the link learns that its channel is lost."""
    server = new_server()
    async with site(server) as app:
        desk = await Desk(app).greet()
        desk.broken = True
        desk.say(ping_message(1).decode())
        await desk.running
        assert websockets(server) == []


async def test_a_receiver_that_fails_closes_with_1011(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WEBS-13."""
    server = new_server()
    async with site(server) as app:
        desk = await Desk(app).greet()
        (link,) = websockets(server)

        def fail(*given: Any) -> bool:
            raise RuntimeError("out of order")

        monkeypatch.setattr(type(link), "frame_received", fail)
        with caplog.at_level(logging.CRITICAL):
            desk.say(ping_message(1).decode())
            assert (await desk.hear())["code"] == 1011
        await desk.running


async def test_an_answer_longer_than_the_limit_is_an_error_of_its_call() -> None:
    async with site(websocket={"max_message_size": 3000}) as app:
        desk = await Desk(app).greet()
        desk.say(message(1, "tools/call", {"name": "echo", "arguments": {"text": "x" * 1500}}).decode())
        answer = await desk.answer()
        assert answer["id"] == 1
        assert "error" in answer
        await desk.leave()
