"""Stores in this process: what is kept is bounded, and gone with it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from ferrule.budgets.shares import Shares
from ferrule.stores.contracts import owner_of

LEAST_LOOKED_AT = 1024
"""How many values there are before those that expired are looked for."""


class MemoryStore:
    """Values by key, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: dict[str, tuple[bytes, float | None]] = {}
        self._look_at = LEAST_LOOKED_AT

    def __len__(self) -> int:
        return len(self._values)

    async def get(self, key: str) -> bytes | None:
        """Give a value; None when there is none or it expired."""
        value, expires = self._values.get(key, (None, None))
        if expires is not None and expires <= self._clock():
            del self._values[key]
            return None
        return value

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Keep a value, for `ttl` seconds where it is given."""
        if len(self._values) >= self._look_at:
            self._forget_expired()
        self._values[key] = (value, None if ttl is None else self._clock() + ttl)

    def _forget_expired(self) -> None:
        """Forget what nobody asked for in time; looking at all is worth it when they have doubled."""
        now = self._clock()
        self._values = {k: v for k, v in self._values.items() if v[1] is None or v[1] > now}
        self._look_at = max(LEAST_LOOKED_AT, 2 * len(self._values))

    async def add(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        """Keep a value unless there is one; tells whether it was kept."""
        if await self.get(key) is not None:
            return False
        await self.put(key, value, ttl)
        return True

    async def delete(self, key: str) -> None:
        """Forget a value; harmless when there is none."""
        self._values.pop(key, None)


class LogBounds(Struct, frozen=True):
    """How much an event log keeps; ages are seconds."""

    events: int = 1000
    """Of one stream."""
    bytes: int = 4 * 1024 * 1024
    """Of one stream; the newest event is kept whatever its size."""
    age: float = 300.0
    total: int = 16 * 1024 * 1024
    """Bytes of all streams together."""
    owner: int = 8 * 1024 * 1024
    """Bytes of all streams of one owner; the newest event is kept whatever its size."""


class _Kept(Struct, eq=False, gc=False):
    first: int
    """The number of the oldest event that is kept."""
    events: deque[bytes]
    size: int
    touched: float


class MemoryEventLog:
    """What was said on streams, in this process.

    Over the bound on all streams together, whoever holds most loses first: the stream of theirs that was silent
    longest, and of a single stream its oldest event. So nobody can push out what is kept for others.
    """

    def __init__(self, bounds: LogBounds | None = None) -> None:
        self._bounds = bounds or LogBounds()
        self._streams: dict[str, _Kept] = {}
        """The one that spoke last stands last."""
        self._owned: dict[str, dict[str, _Kept]] = {}
        """The streams of each owner, in the same order."""
        self._shares: Shares[str] = Shares()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def size(self) -> int:
        """Bytes of all events that are kept."""
        return self._shares.total

    def append(self, stream: str, number: int, event: bytes, now: float) -> None:
        """Keep one event; what is over a bound is forgotten, the oldest first."""
        bounds, owner = self._bounds, owner_of(stream)
        kept = self._streams.pop(stream, None)
        owned = self._owned.setdefault(owner, {})
        if kept is None:
            kept = _Kept(number, deque((event,)), len(event), now)
        else:
            del owned[stream]
            kept.events.append(event)
            kept.size += len(event)
            kept.touched = now
        self._streams[stream] = owned[stream] = kept
        self._shares.take(owner, len(event))
        while len(kept.events) > bounds.events or (kept.size > bounds.bytes and len(kept.events) > 1):
            self._drop_oldest(owner, kept)
        while self._shares.held(owner) > bounds.owner and (len(owned) > 1 or len(kept.events) > 1):
            self._shrink(owner)
        while self._shares.total > bounds.total and (len(self._streams) > 1 or len(kept.events) > 1):
            self._shrink(self._shares.largest() or owner)

    def _shrink(self, owner: str) -> None:
        """Forget the stream of an owner that was silent longest; of its only stream, the oldest event."""
        owned = self._owned[owner]
        stream = next(iter(owned))
        if len(owned) == 1 and len(owned[stream].events) > 1:
            self._drop_oldest(owner, owned[stream])
        else:
            self.forget(stream)

    def _drop_oldest(self, owner: str, kept: _Kept) -> None:
        size = len(kept.events.popleft())
        kept.first += 1
        kept.size -= size
        self._shares.give(owner, size)

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Give the events after a number, in order; None when some of them are forgotten."""
        kept = self._streams.get(stream)
        if kept is None or number + 1 < kept.first or number >= kept.first + len(kept.events):
            return None
        return list(kept.events)[number + 1 - kept.first :]

    def shorten(self, stream: str, unheard: int, spare: int) -> None:
        """Keep what reaches into the last `unheard` bytes of a stream, and of what is older at most `spare` bytes."""
        kept = self._streams.get(stream)
        if kept is None:
            return
        size = wanted = 0
        for event in reversed(kept.events):
            if size >= unheard:
                spare -= len(event)
                if spare < 0:
                    break
            size += len(event)
            wanted += 1
        while len(kept.events) > wanted:
            self._drop_oldest(owner_of(stream), kept)
        if not wanted:
            self.forget(stream)

    def forget(self, stream: str) -> None:
        """Forget a stream."""
        kept = self._streams.pop(stream, None)
        if kept is None:
            return
        owner = owner_of(stream)
        owned = self._owned[owner]
        del owned[stream]
        if not owned:
            del self._owned[owner]
        self._shares.give(owner, kept.size)

    def sweep(self, now: float) -> None:
        """Forget what is too old: streams that were silent for longer than the age."""
        while self._streams:
            oldest = next(iter(self._streams))
            if self._streams[oldest].touched + self._bounds.age > now:
                return
            self.forget(oldest)
