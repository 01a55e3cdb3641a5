"""WebSocket as a listener: options, addresses, one life after another."""

from __future__ import annotations

import asyncio
import logging

import pytest
from raw_websocket import RawWebSocket, new_server, opening, ping_message, serving, text
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong, Request, TextMessage

from ferrule.errors import CarrierError, SetupError
from ferrule.transports.http.listener import Http
from ferrule.transports.registry import TRANSPORTS, load
from ferrule.transports.websocket.listener import WebSocket


async def test_a_standard_client_connects_at_the_default_path(caplog: pytest.LogCaptureFixture) -> None:
    """WEBS-01, WEBS-07, WEBS-14: wsproto is somebody else's reading of the standard."""
    caplog.set_level(logging.INFO, "ferrule.http")
    async with serving() as listener:
        assert f"serving on ws://127.0.0.1:{listener.address[1]}/mcp/ws" in caplog.text
        reader, writer = await asyncio.open_connection(*listener.address)
        theirs = WSConnection(ConnectionType.CLIENT)
        writer.write(theirs.send(Request(host="127.0.0.1", target="/mcp/ws", subprotocols=["mcp"])))

        async def next_event() -> object:
            while True:
                for event in theirs.events():
                    return event
                theirs.receive_data(await reader.read(65536) or None)

        accepted = await next_event()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == "mcp"
        writer.write(theirs.send(TextMessage(ping_message(1).decode())))
        answer = await next_event()
        assert isinstance(answer, TextMessage)
        assert answer.data == '{"jsonrpc":"2.0","id":1,"result":{}}\n'
        writer.write(theirs.send(Ping(b"p")))
        assert await next_event() == Pong(b"p")
        writer.write(theirs.send(CloseConnection(1000, "bye")))
        closed = await next_event()
        assert isinstance(closed, CloseConnection)
        assert closed.code == 1000
        writer.close()


async def test_another_path_is_told_where_the_websocket_is() -> None:
    async with serving(path="/elsewhere") as listener:
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(opening()) == 404
        assert b"/elsewhere" in await peer.reader.readexactly(int(peer.headers["content-length"]))
        assert await peer.ask(opening("/elsewhere")) == 101
        await peer.leave()


async def test_it_can_serve_again_after_it_was_closed() -> None:
    listener = WebSocket(port=0)
    for _ in range(2):
        ready = asyncio.Event()
        task = asyncio.ensure_future(listener.serve(new_server().host, ready.set))
        await ready.wait()
        with pytest.raises(SetupError, match="serves already"):
            await listener.serve(new_server().host, ready.set)
        peer = await RawWebSocket.open(listener)
        peer.send(text(ping_message(1)))
        await peer.answer()
        await peer.leave()
        await listener.close(1)
        await asyncio.wait_for(task, 8)
        with pytest.raises(SetupError, match="does not listen"):
            _ = listener.address
    await listener.close(1)


async def test_a_port_that_is_taken_is_an_error_in_words() -> None:
    async with serving() as listener:
        with pytest.raises(CarrierError, match="in use"):
            await WebSocket(port=listener.address[1]).serve(new_server().host, lambda: None)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(SetupError, match="unknown option 'colour'"):
        WebSocket(colour="red")
    with pytest.raises(SetupError, match="unknown option 'websocket'"):
        WebSocket(websocket=True)
    with pytest.raises(SetupError, match="both '/mcp'"):
        Http(websocket={"path": "/mcp"})
    with pytest.raises(SetupError, match="unknown option 'colour'"):
        Http(websocket={"colour": "red"})


def test_a_server_knows_it_by_name() -> None:
    assert load(TRANSPORTS["ws"].listener) is WebSocket
