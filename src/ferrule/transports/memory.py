"""Two ends in one process, still through the codec, so that what does not survive the wire fails here too.

Rule 1: what is sent is received at once, but never inside another receiving of the same end: then it waits its turn.
Rule 2: each end receives in a context of its own, so neither sees the other's context variables.
Rule 3: what was sent before a close arrives before the loss.
Rule 4: a receiver that takes messages is spared the envelopes of requests and results; what they carry is written and
read all the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Raw

from ferrule.errors import CarrierError
from ferrule.settings.option import MessageSize, require
from ferrule.transports.contract import Reachable
from ferrule.transports.shutdown import tell_lost
from ferrule.wire.channel import ChannelDefaults, MessageReceiver, Origin, Receiver, Traits
from ferrule.wire.codec import MAX_MESSAGE_SIZE, UNWRITABLE, too_long, unwritable, write
from ferrule.wire.messages import Message, Request, Success

FAIR_SHARE = 64
"""How many messages may be sent before a sender that waits for room lets others run."""
FAIR_CALLS = 512
"""How many before a request is answered in a later turn of the loop; that many calls take a few milliseconds."""

logger = logging.getLogger("ferrule.transports")

Carried = bytes | Request | Success
"""What one end hands the other: a frame, or a message whose payload is raw JSON as if it had been read from one."""


class MemoryChannel(ChannelDefaults):
    """One of two ends; its receiver gets what is sent on the other, `far`."""

    __slots__ = (
        "_loop",
        "_lost",
        "_max_size",
        "_sent",
        "_told",
        "closing",
        "context",
        "far",
        "frame_received",
        "inbox",
        "message_received",
        "receiver",
        "receiving",
        "request_received",
    )

    traits = Traits(patient=True)

    far: MemoryChannel

    def __init__(self, receiver: Receiver, max_size: int) -> None:
        self.receiver = receiver
        self.frame_received = receiver.frame_received
        self.message_received: Callable[[Request | Success, MemoryChannel], None] | None = None
        self.request_received: Callable[[Request, MemoryChannel], None] | None = None
        if isinstance(receiver, MessageReceiver):
            self.message_received = receiver.message_received
            self.request_received = receiver.request_received
        self.closing = False
        self._max_size = max_size
        self._loop = asyncio.get_running_loop()
        self.context: contextvars.Context = contextvars.copy_context()
        self.inbox: deque[Carried] = deque()
        self.receiving = False
        """Whether something is being received, or waits in the inbox to be."""
        self._sent = 0
        """How much was sent, answers aside, since others had their turn."""
        self._told = False
        """Whether something was told since the last answer."""
        self._lost: asyncio.Future[None] = self._loop.create_future()

    @property
    def lost(self) -> bool:
        """Whether the channel is gone."""
        return self._lost.done()

    def send(self, message: Message | Sequence[Message]) -> None:
        """Write one message, or a batch, and let the other end receive it."""
        if self.closing:
            return
        far = self.far
        kind = type(message)
        given: Any = message
        receive: Callable[..., None] | None = None
        try:
            # Calls that are answered at once would keep their caller going for ever: now and then the loop must turn.
            # And what was told before an answer is to be heard before it, also by a handler that has a task of its own.
            if kind is Success:
                receive = far.message_received
                later = self._told
                payload = write(given.result)
                given = Success(given.id, Raw(payload))
            elif kind is Request and given.params is not UNSET:
                receive = far.request_received
                self._sent += 1
                later = self._sent >= FAIR_CALLS
                payload = write(given.params)
                given = Request(given.id, given.method, Raw(payload))
            if receive is None or not payload.isascii():  # only the codec looks for bytes that are no text
                receive = None
                later = False
                self._sent += 1
                given = payload = write(given)
        except UNWRITABLE as reason:
            raise unwritable(reason) from None
        if len(payload) > self._max_size:
            raise too_long(len(payload), self._max_size)
        if far.receiving:
            far.inbox.append(given)
            return
        if later:
            self._sent = 0
            self._told = False
            far.receiving = True
            far.inbox.append(given)
            self._loop.call_soon(far.catch_up)
            return
        far.receiving = True
        try:
            # Requests and answers need no context here: a call runs in the one of its channel, an answer runs nothing.
            if receive is not None:
                receive(given, far)
            else:
                self._told = True
                far.context.run(far.frame_received, given, far)
        except Exception as error:
            far.failed(error)
        finally:
            far.receiving = False
        if far.inbox:
            far.catch_up()

    async def wait_writable(self) -> None:
        """Return at once, but let others run after a fair share of messages."""
        if self._sent >= FAIR_SHARE:
            self._sent = 0
            await asyncio.sleep(0)

    async def wait_lost(self) -> None:
        """Wait until the receiver was told that the channel is gone."""
        await asyncio.wait([self._lost])

    def close(self, reason: str = "") -> None:
        """End both ends after what was sent here is received."""
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self._end)

    def catch_up(self) -> None:
        """Hand on what came while the receiver was busy."""
        self.receiving = True
        try:
            while self.inbox and not self.lost:
                given = self.inbox.popleft()
                self.context.run(self.frame_received if type(given) is bytes else self.message_received, given, self)  # type: ignore[arg-type]
        except Exception as error:
            self.failed(error)
        finally:
            self.receiving = False

    def failed(self, error: Exception) -> None:
        """A receiver that fails on what it received loses its channel."""
        logger.error("the receiver failed on what it received; its channel is closed", exc_info=error)
        self.lose(error)
        self.far.lose(None)

    def _end(self) -> None:
        self.lose(None)
        self.far.lose(None)

    def lose(self, error: Exception | None) -> None:
        """Report to the receiver, once, that the channel is gone."""
        if self.lost:
            return
        self.closing = True
        self._lost.set_result(None)
        tell_lost(self.receiver, self, error)


def memory_pair(
    near: Receiver, far: Receiver, max_message_size: int = MAX_MESSAGE_SIZE
) -> tuple[MemoryChannel, MemoryChannel]:
    """Connect two receivers; each gets what is sent on the other's channel."""
    first = MemoryChannel(near, max_message_size)
    second = MemoryChannel(far, max_message_size)
    first.far = second
    second.far = first
    far.channel_opened(second)
    near.channel_opened(first)
    return first, second


class Memory:
    """Reaches an acceptor in the same process and the same loop."""

    carrier = "memory"

    def __init__(self, acceptor: Reachable, *, max_message_size: int = MAX_MESSAGE_SIZE) -> None:
        require("max_message_size", max_message_size, MessageSize)
        self._acceptor = acceptor
        self._max_message_size = max_message_size
        self._channel: MemoryChannel | None = None

    async def connect(self, receiver: Receiver) -> MemoryChannel:
        """Ask the acceptor for the other end; raises CarrierError while an earlier channel is open."""
        if self._channel is not None and not self._channel.lost:
            raise CarrierError("this Memory transport is connected already: close it first")
        if self._channel is None:
            await self._acceptor.enter()
        far = self._acceptor.link(Origin(carrier="memory"))
        self._channel, _ = memory_pair(receiver, far, self._max_message_size)
        return self._channel

    async def close(self, grace: float = 2.0) -> None:
        """End the channel and wait until both ends know."""
        channel = self._channel
        self._channel = None
        if channel is not None:
            channel.close()
            await channel.wait_lost()
            await self._acceptor.leave()
