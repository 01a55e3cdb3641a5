"""MirroredLog: an event log in this process, with a copy elsewhere that other processes read and that outlives it.

Rule 1: what the log in this process forgets for want of room is forgotten elsewhere, so that is bounded as this is.
Rule 2: what is read comes from the copy, where the last owner of a stream wrote; from here only when that is away.
"""

from __future__ import annotations

from typing import Protocol

from ferrule.errors import StoreUnavailable
from ferrule.stores.memory import LogBounds, MemoryEventLog


class Mirror(Protocol):
    """Where events are copied to. What is written is read by a later `after` of the same process."""

    def append(self, stream: str, number: int, first: int, event: bytes) -> None:
        """Keep one event, and forget those of the stream before the number `first`."""

    def trim(self, stream: str, first: int) -> None:
        """Forget the events of a stream before a number."""

    def forget(self, stream: str) -> None:
        """Forget a stream."""

    def sweep(self) -> None:
        """Forget what is too old, where the store does not do so by itself."""

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""


class MirroredLog:
    """What was said on streams, here and in a mirror."""

    def __init__(self, mirror: Mirror, bounds: LogBounds | None = None) -> None:
        self._mirror = mirror
        self._here = MemoryEventLog(bounds, dropped=mirror.forget)

    @property
    def size(self) -> int:
        """Bytes of all events that are kept in this process."""
        return self._here.size

    def append(self, stream: str, number: int, event: bytes, now: float) -> None:
        """Keep one event; what is over a bound is forgotten, the oldest first."""
        self._here.append(stream, number, event, now)
        self._mirror.append(stream, number, self._here.forgotten(stream) or 0, event)

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""
        try:
            return await self._mirror.after(stream, number)
        except StoreUnavailable:
            return await self._here.after(stream, number)

    def shorten(self, stream: str, unacknowledged: int, spare: int) -> None:
        """Keep the last `unacknowledged` bytes of a stream, and at most `spare` bytes of what is older."""
        before = self._here.forgotten(stream)
        if before is None:
            return
        self._here.shorten(stream, unacknowledged, spare)
        after = self._here.forgotten(stream)
        if after is None:
            self._mirror.forget(stream)
        elif after > before:
            self._mirror.trim(stream, after)

    def forget(self, stream: str) -> None:
        """Forget a stream."""
        self._here.forget(stream)
        self._mirror.forget(stream)

    def sweep(self, now: float) -> None:
        """Forget what is too old; a stream that is silent here may not be elsewhere, so the mirror has its own age."""
        self._here.sweep(now)
        self._mirror.sweep()


def consecutive(events: list[tuple[int, bytes]], number: int) -> list[bytes] | None:
    """Return the events after a number, given those from it on; None where some are missing."""
    if not events or events[0][0] not in (number, number + 1):
        return None
    wanted = []
    expected = events[0][0]
    for found, event in events:
        if found != expected:
            return None
        expected += 1
        if found > number:
            wanted.append(event)
    return wanted
