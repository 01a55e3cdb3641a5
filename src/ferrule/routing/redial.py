"""Keeps a connection to a server open: after a loss, or an attempt that failed, it connects again.

Rule: only one layer reconnects at a time. A `Client` reconnects by itself, so its transport is never one of these;
this is for who uses a transport without one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from ferrule.errors import CarrierError, NotConnected
from ferrule.supervision.backoff import Backoff
from ferrule.transports.contract import Transport
from ferrule.wire.channel import Channel, Origin, Receiver
from ferrule.wire.messages import Id, Message

logger = logging.getLogger("ferrule.routing")

TCP_BACKOFF = Backoff(1.0, 1.5, 60.0, jitter=0.1)

WayState = Literal["init", "connected", "reconnecting", "closed"]


class WayNotice(Struct, frozen=True):
    """What happened to the connection, for its owner."""

    what: Literal["connected", "connect_failed", "lost", "gave_up"]
    error: Exception | None = None
    attempts: int = 0
    """How many attempts have failed since the connection was last open."""
    retry_in: float | None = None
    """Seconds until the next attempt."""


class Redialing:
    """Keeps a connection to a server open."""

    def __init__(
        self,
        transport: Transport,
        receiver: Callable[[], Receiver],
        *,
        tell: Callable[[WayNotice], None] = lambda notice: None,
        backoff: Backoff = TCP_BACKOFF,
        max_attempts: int | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._transport = transport
        self._receiver = receiver
        self._tell = tell
        self._backoff = backoff
        self._max_attempts = max_attempts
        self._chance = chance
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._lost: asyncio.Future[Exception | None] | None = None
        self._last_error: Exception | None = None
        self.state: WayState = "init"

    def start(self) -> None:
        """Begin to connect, and go on until closed; the owner is called with each outcome."""
        if self._task is None or self._task.done():
            self.state = "init"
            self._task = asyncio.get_running_loop().create_task(self._keep_open())

    async def connect(self) -> None:
        """Begin, and wait until it is open; raises CarrierError when every attempt failed."""
        self.start()
        while self.state in ("init", "reconnecting"):
            self._changed.clear()
            await self._changed.wait()
        if self.state == "closed":
            raise CarrierError(f"gave up: {self._last_error or 'closed'}") from self._last_error

    def send(self, message: Message | Sequence[Message]) -> None:
        """Send now; raises NotConnected at once while there is no connection: nothing is kept to be sent later."""
        if self._channel is None:
            raise NotConnected(f"not connected to the server ({self.state}): nothing was sent")
        self._channel.send(message)

    async def close(self, grace: float = 2.0) -> None:
        """Close the connection for good; harmless at any time."""
        self._turn("closed")
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._transport.close(grace)

    async def _keep_open(self) -> None:
        attempts = 0
        waits = 0
        try:
            while True:
                failed = await self._attempt()
                if failed:
                    attempts += 1
                    waits += 1
                else:
                    attempts = 0
                    waits = 1
                if failed and self._max_attempts is not None and attempts >= self._max_attempts:
                    self._give_up(failed, attempts)
                    return
                # A server that lets us in and goes at once is not asked again at once either.
                wait = self._backoff.delay(waits, self._chance)
                if failed:
                    self._last_error = failed
                    notice = WayNotice("connect_failed", failed, attempts, wait)
                else:
                    notice = WayNotice("lost", await self._wait_lost(), retry_in=wait)
                    await self._transport.close(0.0)
                self._turn("reconnecting", notice)
                await asyncio.sleep(wait)
        except Exception as error:
            # Not for want of a server: options that cannot work, or a receiver that cannot be made.
            self._give_up(error, attempts + 1)

    def _give_up(self, error: Exception, attempts: int) -> None:
        self._last_error = error
        self._turn("closed", WayNotice("gave_up", error, attempts))

    async def _attempt(self) -> CarrierError | None:
        lost = self._lost = asyncio.get_running_loop().create_future()
        try:
            self._channel = await self._transport.connect(_Watched(self._receiver(), lost))
        except CarrierError as error:
            return error
        if not lost.done():
            self._turn("connected", WayNotice("connected"))
        return None

    async def _wait_lost(self) -> Exception | None:
        assert self._lost is not None
        try:
            return await self._lost
        finally:
            self._channel = None

    def _turn(self, state: WayState, notice: WayNotice | None = None) -> None:
        self.state = state
        self._changed.set()
        if notice is None:
            return
        try:
            self._tell(notice)
        except Exception:
            logger.exception("the connection callback failed")


class _Watched:
    """A receiver that also tells when its channel is lost."""

    def __init__(self, receiver: Receiver, lost: asyncio.Future[Exception | None]) -> None:
        self._lost = lost
        self._receiver = receiver
        self.channel_opened: Callable[[Channel], None] = receiver.channel_opened
        self.frame_refused: Callable[..., None] = receiver.frame_refused
        self.end_received: Callable[[Channel], None] = receiver.end_received

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        return self._receiver.frame_received(frame, channel, origin)

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        self._receiver.request_failed(identity, error, channel)

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(error)
        self._receiver.channel_lost(channel, error)
