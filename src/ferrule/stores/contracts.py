"""What a store is: values by key, and what was said on streams whose readers may be lost."""

from __future__ import annotations

from typing import Protocol


class Store(Protocol):
    """Values by key, which may expire."""

    async def get(self, key: str) -> bytes | None:
        """Give a value; None when there is none or it expired."""

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Keep a value, for `ttl` seconds where it is given."""

    async def add(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        """Keep a value unless there is one; tells whether it was kept."""

    async def delete(self, key: str) -> None:
        """Forget a value; harmless when there is none."""


class EventLog(Protocol):
    """What was said on a stream, so that a lost reader can catch up.

    A stream numbers its events itself, from 1. Writing never waits: a log that lives elsewhere writes behind.
    The name of a stream begins with its owner (`owner_of`): a log that is full takes from whoever holds most.
    """

    def append(self, stream: str, number: int, event: bytes, now: float) -> None:
        """Keep one event; what is over a bound is forgotten, the oldest first."""

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Give the events after a number, in order; None when some of them are forgotten."""

    def shorten(self, stream: str, unheard: int, spare: int) -> None:
        """Keep what reaches into the last `unheard` bytes of a stream, and of what is older at most `spare` bytes."""

    def forget(self, stream: str) -> None:
        """Forget a stream."""

    def sweep(self, now: float) -> None:
        """Forget what is too old."""


def owner_of(stream: str) -> str:
    """Return whose a stream is: what stands before the first dot of its name, or all of it."""
    return stream.partition(".")[0]
