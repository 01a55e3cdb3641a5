"""Probes of the bounds on what one peer of a stream or a WebSocket may have done or held at once."""

from __future__ import annotations

import asyncio
from unittest import mock

from table import probe

from ferrule.budgets import process
from ferrule.transports.backpressure import backlog
from ferrule.transports.stream import StreamChannel
from ferrule.transports.websocket import parser as reading
from ferrule.transports.websocket.deflate import Deflate
from ferrule.transports.websocket.frames import COMPRESSED, FIN, TEXT, PlainWriter
from ferrule.transports.websocket.parser import FrameReader, ReadingRules
from ferrule.wire.framing import LineFramer

MIB = 1024 * 1024


def channel(receiver: mock.Mock) -> StreamChannel:
    """Make a channel on a transport that takes everything."""
    made = StreamChannel(receiver, LineFramer(100 * MIB))
    transport = mock.Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    made.connection_made(transport)
    return made


@probe("ferrule.budgets.bounds.FRAMES_A_TURN", clamps=True)
async def frames_a_turn(limit: int, size: int) -> bool:
    receiver = mock.Mock()
    channel(receiver).data_received(b"1\n" * size)
    return receiver.frame_received.call_count == size


@probe("ferrule.budgets.bounds.BYTES_A_TURN", lowered=4096, clamps=True)
async def bytes_a_turn(limit: int, size: int) -> bool:
    deflate = Deflate()
    packed = PlainWriter().frame(FIN | COMPRESSED | TEXT, deflate.deflate(b" " * size))
    with mock.patch.object(reading, "BYTES_A_TURN", limit):
        return len(FrameReader(ReadingRules(masked=False), deflate).feed(packed * 2)) == 2


@probe("ferrule.budgets.bounds.FREE_UNFINISHED", clamps=True)
async def free_unfinished(limit: int, size: int) -> bool:
    before = process.requests.held
    made = channel(mock.Mock())
    made.data_received(b"x" * size)
    counted = process.requests.held - before
    made.abort()
    assert process.requests.held == before
    return counted == 0


class Deaf:
    """A connection whose peer does not read."""

    def __init__(self, waiting: int) -> None:
        self.backlog = waiting
        self.cut = False

    def abort(self) -> None:
        self.cut = True


@probe("ferrule.budgets.process.answers")
async def answers(limit: int, size: int) -> bool:
    one, other = Deaf(size // 2), Deaf(size - size // 2)
    try:
        backlog.grew(one, one.backlog)
        backlog.grew(other, other.backlog)
        return not (one.cut or other.cut)
    finally:
        backlog.drained(one)
        backlog.drained(other)
