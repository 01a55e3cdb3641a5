"""Probes of what waits for a peer of a stream, and of what is done at once for one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

from table import no_bound, period, probe

from ferrule.transports import backpressure, stream
from ferrule.transports.memory import memory_pair
from ferrule.transports.process import pipe, stdio
from ferrule.transports.process.pipe import PipeTransport
from ferrule.transports.process.stdio import QuietStderr
from ferrule.transports.stream import StreamChannel
from ferrule.wire.framing import LineFramer
from ferrule.wire.messages import Notification

MUCH = 10**9
EMPTY = len(b'{"jsonrpc":"2.0","method":"x","params":{"t":""}}')


def message(size: int) -> Notification:
    """Return a message that takes so many bytes."""
    return Notification("x", {"t": "x" * (size - EMPTY)})


class SlowSocket(socket.socket):
    """The socket of a peer that takes as many bytes as it is allowed to."""

    allowed = 0

    def send(self, data: Any, flags: int = 0) -> int:
        if not self.allowed:
            raise BlockingIOError
        sent = super().send(bytes(data[: self.allowed]), flags)
        self.allowed -= sent
        return sent

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:
        return self.send(b"".join(buffers))


@asynccontextmanager
async def served(max_size: int = MUCH) -> AsyncIterator[tuple[StreamChannel, SlowSocket]]:
    """Serve a peer that takes nothing."""
    ours, theirs = socket.socketpair()
    slow = SlowSocket(ours.family, ours.type, ours.proto, fileno=ours.detach())
    slow.setblocking(False)
    channel = StreamChannel(mock.Mock(), LineFramer(max_size))
    await asyncio.get_running_loop().create_connection(lambda: channel, sock=slow)
    try:
        yield channel, slow
    finally:
        channel.abort()
        await channel.wait_lost()
        theirs.close()


def marks(high: int, low: int) -> Any:
    return mock.patch.multiple(stream, HIGH_WATER=high, LOW_WATER=low)


@probe("ferrule.transports.stream.HIGH_WATER", lowered=10_000)
async def unwritten(limit: int, size: int) -> bool:
    with marks(limit, 1000):
        async with served() as (channel, _):
            channel.send(message(size - 1))  # a line feed follows it
            await asyncio.sleep(0)
            assert channel.backlog == size
            return bool(channel._transport.is_reading())


@probe("ferrule.transports.stream.LOW_WATER", lowered=5000)
async def still_unwritten(limit: int, size: int) -> bool:
    """The peer takes so much of what waits for it that so many bytes are left."""
    with marks(limit + 1, limit):
        async with served() as (channel, slow):
            whole = max(size, limit) + 1000
            channel.send(message(whole - 1))
            await asyncio.sleep(0)
            assert not channel._transport.is_reading()
            slow.allowed = whole - size
            while channel.backlog > size:
                await asyncio.sleep(0)
            return bool(channel._transport.is_reading())


async def is_cut(channel: StreamChannel, size: int, count: int) -> bool:
    """Send messages to a peer that takes nothing, until it is cut or all are sent."""
    for _ in range(count):
        channel.send(message(size))
        await asyncio.sleep(0)
        if channel._closing:
            return True
    return False


@probe("ferrule.transports.backpressure.BACKLOG_MESSAGES")
async def long_messages_that_wait(limit: int, size: int) -> bool:
    with marks(1000, 500), mock.patch.object(backpressure, "LEAST_BACKLOG", 1):
        async with served(5000) as (channel, _):
            return not await is_cut(channel, 5000, size)


@probe("ferrule.transports.backpressure.LEAST_BACKLOG", lowered=20_000)
async def short_messages_that_wait(limit: int, size: int) -> bool:
    with marks(1000, 500), mock.patch.object(backpressure, "LEAST_BACKLOG", limit):
        async with served(1024) as (channel, _):
            count, rest = divmod(size, 100)
            return not (await is_cut(channel, 99, count - 1) or await is_cut(channel, 100 + rest - 1, 1))


@probe("ferrule.transports.process.pipe.READ_SIZE", lowered=1000, clamps=True)
async def one_read(limit: int, size: int) -> bool:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1024 * 1024)
    os.write(writing, b"x" * size)
    protocol = mock.Mock(spec=asyncio.Protocol)
    with mock.patch.object(pipe, "READ_SIZE", limit):
        transport = PipeTransport(reading, os.dup(writing), protocol)
        while not protocol.data_received.called:
            await asyncio.sleep(0)
        transport.abort()
        await asyncio.sleep(0)
    os.close(writing)
    return len(protocol.data_received.call_args_list[0].args[0]) == size


@period("ferrule.transports.process.stdio.PATIENCE_MS")
async def a_full_stderr(lasts: float, milliseconds: float) -> bool:
    """A stderr in which there is room after so many milliseconds; only the system's wait for it is not real."""
    reading, writing = os.pipe()
    quiet = QuietStderr(writing)
    assert lasts == stdio.PATIENCE_MS
    quiet._room = mock.Mock()
    quiet._room.poll = lambda timeout: [(writing, select.POLLOUT)] if timeout >= milliseconds else []
    quiet.write(b"x")
    os.close(reading)
    os.close(writing)
    return quiet.dropped == 0


@probe("ferrule.transports.memory.FAIR_SHARE", clamps=True)
async def messages_of_one_turn(limit: int, size: int) -> bool:
    """So many messages are sent by one who waits for room before somebody else runs."""
    near, _ = memory_pair(mock.Mock(), mock.Mock())
    sent = sent_before = 0

    async def other() -> None:
        nonlocal sent_before
        sent_before = sent

    running = asyncio.ensure_future(other())
    while sent < size and not running.done():
        near.send(message(100))
        sent += 1
        await near.wait_writable()
    await running
    near.close()
    await near.wait_lost()
    return sent_before == size


SAME = "the peer gets the same bytes, in more system calls or in fewer"

no_bound("ferrule.transports.process.pipe.BUFFERS_A_WRITE", f"how many of our own buffers one call takes: {SAME}")
no_bound("ferrule.transports.process.stdio.PIPE_SIZE", f"what the system is asked to make of our own pipes: {SAME}")
