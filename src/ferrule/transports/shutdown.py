"""How a channel is closed on any transport: within a time, and reported to its receiver once."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from ferrule.wire.channel import Channel, Receiver

logger = logging.getLogger("ferrule.transports")

LAST_GRACE = 0.25
"""What is left, at least, for answers written in the last moment to be taken."""


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
