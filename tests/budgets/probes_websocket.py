"""Probes of WebSockets: of what a server and a client read, hold and wait for."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from table import no_bound, period, probe

from ferrule.transports.websocket import channel as channels
from ferrule.transports.websocket import parser
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.transports.websocket.client import Upgrading, WebSocketTransport
from ferrule.transports.websocket.deflate import Deflate
from ferrule.transports.websocket.frames import CONTINUATION, FIN, PING, TEXT, PlainWriter
from ferrule.transports.websocket.handshake import accept_value
from ferrule.transports.websocket.parser import FrameReader, ReadingRules, split_messages
from ferrule.transports.websocket.settings import ChannelSettings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports" / "websocket"))

from raw_websocket import RawWebSocket, message, opening, serving, text
from raw_websocket import frame as masked_frame

frame = PlainWriter().frame


def received(limit: int, frames: list[bytes], deflate: Deflate | None = None) -> int:
    """Return the size of the one message that a client reads from these frames, 0 where it does not."""
    receiver = mock.Mock()
    settings = ChannelSettings(max_message_size=limit)
    channel = WebSocketChannel(receiver, settings, server=False, deflate=deflate)
    channel.connection_made(mock.Mock(spec=asyncio.Transport))
    for each in frames:
        channel.data_received(each)
    if not receiver.frame_received.called:
        return 0
    return len(receiver.frame_received.call_args.args[0])


@probe("WebSocketSettings(max_message_size=…)", lowered=2000)
async def a_message(limit: int, size: int) -> bool:
    """Whole, in two parts, and compressed."""
    payload = b"x" * size
    parts = [frame(TEXT, payload[:1000]), frame(FIN | CONTINUATION, payload[1000:])]
    packed = frame(FIN | TEXT | 0x40, Deflate().deflate(payload))
    taken = {
        received(limit, [frame(FIN | TEXT, payload)]) == size,
        received(limit, parts) == size,
        received(limit, [packed], Deflate()) == size,
    }
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.transports.websocket.parser.MAX_FRAGMENTS", lowered=50)
async def parts(limit: int, size: int) -> bool:
    reader = FrameReader(ReadingRules(masked=False), None)
    sent = frame(TEXT, b"x") + frame(CONTINUATION, b"x") * (size - 2) + frame(FIN | CONTINUATION, b"x")
    with mock.patch.object(parser, "MAX_FRAGMENTS", limit):
        events = reader.feed(sent)
        while reader.more:
            events += reader.feed(b"")
    return events == [b"x" * size]


@probe("ferrule.transports.websocket.parser.MOST_IN_A_TEXT")
async def messages_of_a_text(limit: int, size: int) -> bool:
    return len(split_messages(b"1\n" * size)) == size


async def filled(channel: WebSocketChannel) -> tuple[asyncio.Transport, socket.socket]:
    """Connect a channel to a peer for which the system takes nothing more: whatever is written waits."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    try:
        while True:
            ours.send(b"x" * 65_536)
    except BlockingIOError:
        pass
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: channel, sock=ours)
    return transport, theirs


@probe("WebSocketSettings(frame_buffer_size=…)", lowered=10_000)
async def waiting_for_a_peer(limit: int, size: int) -> bool:
    """Whoever writes has to wait when more than 80 % of it waits for the peer."""
    channel = WebSocketChannel(mock.Mock(), ChannelSettings(frame_buffer_size=limit), server=True)
    transport, theirs = await filled(channel)
    wanted = -(-size * 8 // 10)
    payload = b"x" * wanted
    payload = payload[: 2 * wanted - len(PlainWriter().texts([payload]))]
    channel.send_text(payload)
    await asyncio.sleep(0)
    assert channel.congested or channel.backlog == wanted
    congested = channel.congested
    transport.abort()
    theirs.close()
    await channel.wait_lost()
    return not congested


@probe("ferrule.transports.websocket.channel.MAX_PONGS", clamps=True)
async def pongs(limit: int, size: int) -> bool:
    """A server that pings a client and reads nothing."""
    channel = WebSocketChannel(mock.Mock(), ChannelSettings(), server=False)
    transport, theirs = await filled(channel)
    channel.send_text(b"x" * 100_000)
    await asyncio.sleep(0)
    assert channel.congested
    before = channel.backlog
    pings = [frame(FIN | PING, b"x" * 94)] * (min(size, 2 * limit) // 100 - 1)
    rest = size % 100 + 100
    pings += [frame(FIN | PING, b"x" * (rest // 2 - 6)), frame(FIN | PING, b"x" * (rest - rest // 2 - 6))]
    for each in pings:
        channel.data_received(each)
        await asyncio.sleep(0)
    answered = channel.backlog - before
    transport.abort()
    theirs.close()
    await channel.wait_lost()
    return answered == size


@probe("WebSocketSettings(max_connections=…)", lowered=4)
async def websockets(limit: int, size: int) -> bool:
    async with serving(max_connections=limit) as listener:
        for _ in range(size):
            peer = await RawWebSocket.connect(listener)
            if await peer.ask(opening()) == 503:
                return False
    return True


@probe("ferrule.transports.websocket.handshake.MAX_ANSWER_HEAD")
async def the_head_of_an_answer(limit: int, size: int) -> bool:
    """However the reads fall."""
    key = b"dGhlIHNhbXBsZSBub25jZQ=="
    lines = b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\nX: %b\r\n\r\n"
    empty = lines % (accept_value(key), b"")
    head = lines % (accept_value(key), b"x" * (size - len(empty)))
    taken = set()
    for cut in (len(head), len(head) - 1):
        opened = Upgrading(key, compression=False)
        opened.connection_made(mock.Mock(spec=asyncio.Transport))
        opened.data_received(head[:cut])
        opened.data_received(head[cut:])
        taken.add(opened.answered.exception() is None)
    assert len(taken) == 1
    return taken.pop()


# -- times: a server looks at them once a second


LOOKED_AT = 250.0
"""A time of which one second is less than a hundredth."""


async def opened(listener: Any) -> tuple[RawWebSocket, WebSocketChannel]:
    peer = await RawWebSocket.open(listener)
    [channel] = listener._endpoint.channels
    return peer, channel


async def is_open(channel: WebSocketChannel, seconds: float) -> bool:
    """Return whether a WebSocket is not being closed after so many seconds."""
    lost = asyncio.ensure_future(channel.wait_lost())
    await asyncio.wait([lost], timeout=seconds)
    lost.cancel()
    return channel.closing is None


@period("WebSocketSettings(fragment_timeout=…)", lowered=LOOKED_AT)
async def an_unfinished_message(lasts: float, seconds: float) -> bool:
    async with serving(fragment_timeout=lasts, ping_interval=None) as listener:
        peer, channel = await opened(listener)
        peer.send(masked_frame(TEXT, b"x"))
        return await is_open(channel, seconds)


@period("WebSocketSettings(backpressure_timeout=…)", lowered=LOOKED_AT)
async def a_peer_that_does_not_read(lasts: float, seconds: float) -> bool:
    async with serving(backpressure_timeout=lasts, ping_interval=None) as listener:
        peer, channel = await opened(listener)
        await peer.greet()
        peer.send(text(message(1, "tools/call", {"name": "flood", "arguments": {"count": 100, "size": 100_000}})))
        while not channel.congested:
            await asyncio.sleep(0)
        return await is_open(channel, seconds)


@period("WebSocketSettings(ping_interval=…)", lowered=LOOKED_AT)
async def silence(lasts: float, seconds: float) -> bool:
    async with serving(ping_interval=lasts) as listener:
        peer, _ = await opened(listener)
        pinged = asyncio.ensure_future(peer.frame())
        await asyncio.wait([pinged], timeout=seconds)
        still = not pinged.done()
        pinged.cancel()
        return still


@period("WebSocketSettings(pong_timeout=…)", lowered=LOOKED_AT)
async def a_missing_pong(lasts: float, seconds: float) -> bool:
    async with serving(ping_interval=2.0, pong_timeout=lasts) as listener:
        peer, channel = await opened(listener)
        await peer.frame()
        return await is_open(channel, seconds)


@period("WebSocketSettings(close_timeout=…)", lowered=LOOKED_AT)
async def a_missing_close(lasts: float, seconds: float) -> bool:
    async with serving(close_timeout=lasts) as listener:
        _, channel = await opened(listener)
        channel.close()
        lost = asyncio.ensure_future(channel.wait_lost())
        await asyncio.wait([lost], timeout=seconds)
        lost.cancel()
        return not channel.lost


@period("ferrule.transports.websocket.channel.LINGER", lowered=LOOKED_AT)
async def a_peer_that_broke_the_protocol(lasts: float, seconds: float) -> bool:
    """It is waited for no longer, though its answer to a close is missing."""
    with mock.patch.object(channels, "LINGER", lasts):
        async with serving(close_timeout=4000.0 * lasts) as listener:
            peer, channel = await opened(listener)
            channel.close()
            peer.send(masked_frame(0x70 | TEXT, b"x"))
            lost = asyncio.ensure_future(channel.wait_lost())
            await asyncio.wait([lost], timeout=seconds)
            lost.cancel()
            return not channel.lost


@period("WebSocketOptions(connect_timeout=…)", lowered=5.0)
async def a_missing_answer(lasts: float, seconds: float) -> bool:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = WebSocketTransport(f"ws://127.0.0.1:{silent.getsockname()[1]}/", connect_timeout=lasts)
        connecting = asyncio.ensure_future(transport.connect(mock.Mock()))
        await asyncio.wait([connecting], timeout=seconds)
        still = not connecting.done()
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
    return still


no_bound("WebSocketSettings(fragment_timeout_code=…)", "the code that a WebSocket is closed with")
no_bound(
    "ferrule.transports.websocket.deflate.WORTH_IT",
    "a threshold from which on what we send is compressed: the peer gets the same message either way",
)
