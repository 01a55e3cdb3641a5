"""How a channel is closed on any transport, within a time and reported to its receiver once; how a listener ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from ferrule.errors import CarrierError
from ferrule.wire.channel import Channel, Receiver

logger = logging.getLogger("ferrule.transports")

LAST_GRACE = 0.25
"""What is left, at least, for answers written in the last moment to be taken."""


class ListenerEnd:
    """What a listener that serves waits for: to be closed, or that its socket fails."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._error: OSError | None = None

    def begin(self) -> None:
        """Forget how it ended last time."""
        self._event.clear()
        self._error = None

    def close(self) -> None:
        """End in order."""
        self._event.set()

    def fail(self, error: OSError) -> None:
        """End because the listening socket is dead."""
        if not self._event.is_set():
            self._error = error
            self._event.set()

    async def wait(self) -> None:
        """Wait for the end; raise CarrierError where the socket failed."""
        await self._event.wait()
        if self._error is not None:
            raise CarrierError(f"the listening socket failed: {self._error}") from self._error


class Endable(Protocol):
    """A channel that can be ended politely or at once."""

    def close(self, reason: str = "") -> None:
        """End it when what was sent is written."""

    def abort(self) -> None:
        """End it at once."""

    async def wait_lost(self) -> None:
        """Wait until it is gone."""


async def end_within(channel: Endable, grace: float) -> None:
    """Close a channel and wait until it is gone; one that takes longer than `grace` seconds is cut."""
    channel.close()
    try:
        async with asyncio.timeout(grace):
            await channel.wait_lost()
    except TimeoutError:
        channel.abort()
        await channel.wait_lost()


def tell_lost(receiver: Receiver, channel: Channel, error: Exception | None) -> None:
    """Report to a receiver that its channel is gone; what it raises is logged."""
    try:
        receiver.channel_lost(channel, error)
    except Exception:
        logger.exception("the receiver failed when it was told that its channel is lost")


def left_of_grace(until: float) -> float:
    """Return the seconds until that time of the loop's clock, and never less than the last grace."""
    return max(LAST_GRACE, until - asyncio.get_running_loop().time())
