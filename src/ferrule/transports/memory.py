"""Two ends in one process, still through the codec, so that what does not survive the wire fails here too.

Rule 1: nothing is delivered inside send; one callback a turn hands over all that was sent.
Rule 2: what was sent before a close arrives before the loss.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ferrule.errors import CarrierError
from ferrule.transports.contract import Acceptor
from ferrule.wire.channel import Origin, Receiver
from ferrule.wire.codec import MAX_MESSAGE_SIZE, encode
from ferrule.wire.messages import Message

HIGH_WATER = 1024 * 1024

logger = logging.getLogger("ferrule.transports")


class MemoryChannel:
    """One of two ends; its receiver gets what is sent on the other, `far`."""

    __slots__ = (
        "_backlog",
        "_delivery_due",
        "_loop",
        "_max_size",
        "_outgoing",
        "_waiters",
        "closing",
        "far",
        "lost",
        "receiver",
    )

    far: MemoryChannel

    def __init__(self, receiver: Receiver, max_size: int) -> None:
        self.receiver = receiver
        self.closing = self.lost = False
        self._max_size = max_size
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes | None] = []
        self._backlog = 0
        self._delivery_due = False
        self._waiters: list[asyncio.Future[None]] = []

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode one message, or a batch, and hand it over in the next turn."""
        if self.closing:
            return
        frame = encode(message)
        if len(frame) > self._max_size:
            self._outgoing.append(None)
        else:
            self._outgoing.append(frame)
            self._backlog += len(frame)
        if not self._delivery_due:
            self._delivery_due = True
            self._loop.call_soon(self._deliver)

    async def wait_writable(self) -> None:
        """Return at once unless more than the high-water mark waits to be handed over."""
        while self._backlog > HIGH_WATER:
            await self._turn()

    async def wait_lost(self) -> None:
        """Wait until the receiver was told that the channel is gone."""
        while not self.lost:
            await self._turn()

    def close(self, reason: str = "") -> None:
        """End both ends after what was sent here is handed over."""
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self._end, None)

    def lose(self, error: Exception | None) -> None:
        """Tell the receiver, once, that nothing more comes and nothing can go out."""
        if self.lost:
            return
        self.lost = self.closing = True
        self._backlog = 0
        self._wake()
        try:
            self.receiver.channel_lost(self, error)
        except Exception:
            logger.exception("the receiver failed when it was told that its channel is lost")

    def _deliver(self) -> None:
        frames, self._outgoing = self._outgoing, []
        self._backlog = 0
        self._delivery_due = False
        far = self.far
        receive = far.receiver.frame_received
        try:
            for frame in frames:
                if far.closing:
                    break
                if frame is not None:
                    receive(frame, far)
                else:
                    far.receiver.frame_refused(self._max_size, far)
        except Exception as error:
            logger.exception("the receiver failed on what it received; its channel is closed")
            far.lose(error)
            self.lose(None)
        if self._waiters:
            self._wake()

    def _end(self, error: Exception | None) -> None:
        self.lose(error)
        self.far.lose(None)

    async def _turn(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def memory_pair(
    near: Receiver, far: Receiver, max_message_size: int = MAX_MESSAGE_SIZE
) -> tuple[MemoryChannel, MemoryChannel]:
    """Connect two receivers; each gets what is sent on the other's channel."""
    first, second = MemoryChannel(near, max_message_size), MemoryChannel(far, max_message_size)
    first.far, second.far = second, first
    return first, second


class Memory:
    """Reaches an acceptor in the same process and the same loop."""

    def __init__(self, acceptor: Acceptor, *, max_message_size: int = MAX_MESSAGE_SIZE) -> None:
        self._acceptor = acceptor
        self._max_message_size = max_message_size
        self._channel: MemoryChannel | None = None

    async def connect(self, receiver: Receiver) -> MemoryChannel:
        """Ask the acceptor for the other end; raises CarrierError while an earlier channel is open."""
        if self._channel is not None and not self._channel.lost:
            raise CarrierError("this Memory transport is connected already: close it first")
        far = self._acceptor.link(Origin(carrier="memory"))
        self._channel, _ = memory_pair(receiver, far, self._max_message_size)
        return self._channel

    async def close(self, grace: float = 2.0) -> None:
        """End the channel and wait until both ends know."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
            await channel.wait_lost()
