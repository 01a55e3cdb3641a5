"""Probes of what one HTTP/2 connection to a server may bring, with the library h2 as its client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from h2.exceptions import FlowControlError
from h2.settings import SettingCodes
from http_bench import turns
from hyperframe.frame import ContinuationFrame, DataFrame, Frame, HeadersFrame, PingFrame, SettingsFrame
from table import probe

from ferrule.transports.http.engine.http2 import stream as streams
from ferrule.transports.http.engine.http2.frames import LONGEST_FRAME
from ferrule.transports.http.engine.http2.limits import FRAME_BURST, SMALLEST_DATA, STREAM_BURST
from http2_memory import MemoryPeer
from http2_peer import request_fields

LATER = 1000.0
"""A time at which whoever has said little may say as much as ever."""
PING = PingFrame(0).serialize()
A_PART = 100
"""How many frames are said at once."""


@contextmanager
def connected(**options: Any) -> Iterator[MemoryPeer]:
    """Open a connection, and release what it holds in the end."""
    peer = MemoryPeer(asyncio.get_running_loop(), idle_timeout=10 * LATER, **options)
    peer.listen()
    try:
        yield peer
    finally:
        peer.connection.connection_lost(None)


async def said(peer: MemoryPeer, frames: Iterator[bytes]) -> bool:
    """Say frames one after the other, and return whether the connection is open after them."""
    while peer.goaway is None:
        part = b"".join(frame for _, frame in zip(range(A_PART), frames, strict=False))
        if not part:
            break
        peer.say(part)
        await turns(A_PART)
        peer.listen()
    return peer.goaway is None


def frame(kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    """Write a frame of any length."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


@probe("Http2Settings(max_streams=…)", lowered=5)
async def at_once(limit: int, size: int) -> bool:
    with connected(max_streams=limit) as peer:
        # A client that does not keep to what it was told.
        peer.client.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 10**6
        peer.client.remote_settings.acknowledge()
        for _ in range(min(size, 2 * limit)):
            peer.get()
        return all(each.reset is None for each in peer.answers.values())


def sendable(peer: MemoryPeer, size: int) -> bool:
    """Whether a client that keeps to what it was told may send so much before it hears more."""
    number = peer.ask(request_fields("POST"), ends=False)
    try:
        for at in range(0, size, LONGEST_FRAME):
            peer.client.send_data(number, b"x" * min(LONGEST_FRAME, size - at))
    except FlowControlError:
        return False
    return True


@probe("Http2Settings(window=…)", lowered=100_000)
async def window(limit: int, size: int) -> bool:
    with connected(window=limit) as peer:
        return sendable(peer, size)


@probe("ferrule.transports.http.engine.http2.connection.CONNECTION_WINDOW")
async def connection_window(limit: int, size: int) -> bool:
    with connected(window=2**31 - 1) as peer:
        return sendable(peer, size)


@probe("ferrule.transports.http.engine.http2.frames.LONGEST_FRAME")
async def frame_size(limit: int, size: int) -> bool:
    with connected(max_body_size=2**30) as peer:
        number = peer.ask(request_fields("POST"), ends=False)
        peer.say(frame(DataFrame.type, number, b"x" * size))
        return peer.goaway is None


@probe("ferrule.transports.http.engine.http2.frames.MOST_SETTINGS")
async def settings(limit: int, size: int) -> bool:
    with connected() as peer:
        peer.say(frame(SettingsFrame.type, 0, b"\xff\xff\0\0\0\1" * size))
        return peer.goaway is None


@probe("ferrule.transports.http.engine.http2.limits.MOST_PIECES")
async def head_pieces(limit: int, size: int) -> bool:
    with connected() as peer:
        fields = peer.client.encoder.encode(request_fields())
        pieces: list[Frame] = [HeadersFrame(1, fields, flags=["END_STREAM"])]
        for _ in range(size - 1):
            pieces.append(ContinuationFrame(1, b""))
        pieces[-1].flags.add("END_HEADERS")
        peer.answers[1] = mock.Mock()
        alive = await said(peer, (piece.serialize() for piece in pieces))
        assert len(peer.requests) == alive
        return alive


@probe("ferrule.transports.http.engine.http2.connection.HARD_LIMIT", lowered=4000)
async def hard_limit(limit: int, size: int) -> bool:
    """The limit is in bytes: twice what a head may have."""
    with connected(max_head_size=limit // 2) as peer:
        fields = request_fields("GET", "/", ("x", ""))
        # Compressing is slow at this side, so the thousandfold is less.
        missing = min(size, 10 * limit) - sum(len(name) + len(value) + 32 for name, value in fields)
        number = peer.ask([*fields[:-1], ("x", "x" * missing)])
        peer.listen()
        if peer.goaway is not None:
            return False
        assert peer.answers[number].status == 431
        return True


@probe("ferrule.transports.http.engine.http2.limits.FRAME_BURST")
async def frame_burst(limit: int, size: int) -> bool:
    with connected() as peer:
        peer.at(LATER)
        return await said(peer, (PING for _ in range(size)))


@probe("ferrule.transports.http.engine.http2.limits.FRAME_RATE")
async def frame_rate(limit: int, size: int) -> bool:
    with connected() as peer:
        peer.at(LATER)
        assert await said(peer, (PING for _ in range(FRAME_BURST)))
        peer.at(LATER + 1)
        return await said(peer, (PING for _ in range(size)))


@probe("ferrule.transports.http.engine.http2.limits.SMALLEST_DATA", lowered=SMALLEST_DATA - 1, clamps=True)
async def small_data(limit: int, size: int) -> bool:
    """The limit is the largest that is counted: when the allowance is spent, one of them ends the connection."""
    with connected(body_timeout=10 * LATER, max_body_time=10 * LATER) as peer:
        number = peer.ask(request_fields("POST"), ends=False)
        peer.at(LATER)
        assert await said(peer, (PING for _ in range(FRAME_BURST)))
        peer.say(frame(DataFrame.type, number, b"x" * min(size, LONGEST_FRAME)))
        return peer.goaway is not None


def cancelled(peer: MemoryPeer, count: int) -> Iterator[bytes]:
    """Open streams, and cancel each at once."""
    for _ in range(count):
        number = peer.client.get_next_available_stream_id()
        peer.client.send_headers(number, request_fields())
        peer.client.reset_stream(number)
        yield peer.client.data_to_send()


@probe("ferrule.transports.http.engine.http2.limits.STREAM_BURST")
async def stream_burst(limit: int, size: int) -> bool:
    with connected() as peer:
        return await said(peer, cancelled(peer, size))


@probe("ferrule.transports.http.engine.http2.limits.STREAM_RATE")
async def stream_rate(limit: int, size: int) -> bool:
    with connected() as peer:
        assert await said(peer, cancelled(peer, STREAM_BURST))
        peer.at(101.0)
        return await said(peer, cancelled(peer, size))


@probe("ferrule.transports.http.engine.http2.stream.HIGH_WATER", lowered=1000, clamps=True)
async def high_water(limit: int, size: int) -> bool:
    with mock.patch.object(streams, "HIGH_WATER", limit), connected(client={"INITIAL_WINDOW_SIZE": 0}) as peer:
        peer.get()
        (stream,) = peer.owed
        stream.begin(200, b"")
        stream.write(b"x" * size)
        writing = asyncio.create_task(stream.wait_writable())
        await turns(5)
        goes_on = writing.done()
        writing.cancel()
        return goes_on
