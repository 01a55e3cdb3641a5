"""Stores in this process: what is kept is bounded, and gone with it."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from ferrule.budgets.shares import Shares
from ferrule.errors import Busy, SetupError
from ferrule.stores.contracts import StoredTask, owner_of

LEAST_LOOKED_AT = 1024
"""How many ends of tasks are noted, or how many values kept, before those that are gone or expired are looked for."""

SHARE = 4
"""One owner's results may take one part in so many of the room before they push others' out."""

FULL = "Busy: this server keeps as many tasks as it can, and none of them has ended"


class MemoryTasks:
    """Tasks by id; over a bound, the one that ended longest ago goes first, and one that goes on is never dropped.

    They age by a clock that never jumps, the event loop's: when the clock on the wall is set, no task expires before
    its time or stays beyond it.
    """

    def __init__(
        self,
        *,
        max_tasks: int = 10_000,
        max_per_owner: int = 1000,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] | None = None,
    ) -> None:
        for name, value in (("max_tasks", max_tasks), ("max_per_owner", max_per_owner), ("max_bytes", max_bytes)):
            if not isinstance(value, int) or value < 1:
                raise SetupError(f"{name} must be a whole number of at least 1, not {value!r}")
        self._max_tasks = max_tasks
        self._max_per_owner = max_per_owner
        self._max_bytes = max_bytes
        self._tasks: dict[str, StoredTask] = {}
        self._of: dict[str, dict[str, None]] = {}
        self._ended: dict[str, None] = {}
        self._clock = clock or _loop_time
        self._ends: dict[str, float] = {}
        """When each task may be forgotten."""
        self._expiring: list[tuple[float, str]] = []
        self.size = 0
        """Bytes of all results together."""

    def __len__(self) -> int:
        return len(self._tasks)

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""
        await self.expire(now)
        own = self._of.get(task.owner, {})
        if task.owner and len(own) >= self._max_per_owner:
            self._make_room(each for each in own if each in self._ended)
        if len(self._tasks) >= self._max_tasks:
            self._make_room(self._ended)
        self._tasks[task.id] = task
        self._of.setdefault(task.owner, {})[task.id] = None
        if task.ttl is not None:
            self._remember_end(self._clock() + task.ttl, task.id)

    def _remember_end(self, expires: float, task_id: str) -> None:
        if len(self._expiring) > 2 * len(self._tasks) + LEAST_LOOKED_AT:
            self._expiring = [entry for entry in self._expiring if entry[1] in self._tasks]
            heapq.heapify(self._expiring)
        heapq.heappush(self._expiring, (expires, task_id))
        self._ends[task_id] = expires

    def _make_room(self, ended: Iterable[str]) -> None:
        oldest = next(iter(ended), None)
        if oldest is None:
            raise Busy(FULL)
        self._forget(oldest)

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Return a task; None when there is none or it has expired."""
        if self._expired(task_id):
            return None
        return self._tasks.get(task_id)

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status. Return whether it was."""
        kept = self._tasks.get(task.id)
        if kept is None or kept.status not in expected:
            return False
        self._tasks[task.id] = task
        self.size += len(task.result or b"") - len(kept.result or b"")
        if task.ended:
            self._ended[task.id] = None
            if self.size > self._max_bytes:
                self._make_bytes(task)
        return True

    def _make_bytes(self, task: StoredTask) -> None:
        """Forget results: first the owner's own, as long as it has more than its share, then the oldest of all."""
        own = self._of[task.owner]
        held = 0
        for each in own:
            held += len(self._tasks[each].result or b"")
        for each in list(self._ended):
            if each not in own or each == task.id:
                continue
            if self.size <= self._max_bytes or held <= self._max_bytes // SHARE:
                break
            held -= len(self._tasks[each].result or b"")
            self._forget(each)
        while self.size > self._max_bytes:
            oldest = next(iter(self._ended))
            if oldest == task.id:
                break
            self._forget(oldest)

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Return tasks of one owner by time of creation and id, those after a given pair, at most so many."""
        later = []
        for each in self._of.get(owner, ()):
            task = self._tasks[each]
            if (after is None or (task.created, task.id) > after) and not self._expired(each):
                later.append(task)
        later.sort(key=lambda task: (task.created, task.id))
        return later[:limit]

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none."""
        self._forget(task_id)

    def _forget(self, task_id: str) -> None:
        task = self._tasks.pop(task_id, None)
        if task is None:
            return
        self._ended.pop(task_id, None)
        self._ends.pop(task_id, None)
        self.size -= len(task.result or b"")
        own = self._of[task.owner]
        del own[task_id]
        if not own:
            del self._of[task.owner]

    async def expire(self, now: float) -> float | None:
        """Forget what has expired. Return when the next will, None when nothing does."""
        while self._expiring:
            expires, task_id = self._expiring[0]
            left = expires - self._clock()
            if task_id in self._tasks and left > 0:
                return now + left
            heapq.heappop(self._expiring)
            self._forget(task_id)
        return None

    def _expired(self, task_id: str) -> bool:
        ends = self._ends.get(task_id)
        return ends is not None and ends <= self._clock()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


NO_ROOM = "Busy: this server keeps as many values as it can, and none of them has expired"


class MemoryStore:
    """Values by key, in this process; over a bound, a new one is refused."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_values: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._clock = clock
        self._max_values = max_values
        self._max_bytes = max_bytes
        self.size = 0
        """Bytes of all values together."""
        self._values: dict[str, tuple[bytes, float | None]] = {}
        self._sweep_at = LEAST_LOOKED_AT
        self._sweep_after = -math.inf

    def __len__(self) -> int:
        return len(self._values)

    async def get(self, key: str) -> bytes | None:
        """Return a value; None when there is none or it expired."""
        value, expires = self._values.get(key, (None, None))
        if expires is not None and expires <= self._clock():
            self._forget(key)
            return None
        return value

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Keep a value, for `ttl` seconds where it is given; raises Busy when there is no room for it."""
        if len(self._values) >= self._sweep_at:
            self._forget_expired()
        if not self._has_room(key, value):
            # While it is full, all of it is looked at once a second at most.
            if self._clock() >= self._sweep_after:
                self._forget_expired()
            if not self._has_room(key, value):
                raise Busy(NO_ROOM)
        self._forget(key)
        self.size += len(value)
        self._values[key] = (value, None if ttl is None else self._clock() + ttl)

    def _forget_expired(self) -> None:
        """Forget what nobody asked for in time; looking at all is worth it when they have doubled."""
        now = self._clock()
        self._sweep_after = now + 1.0
        for key, (_, expires) in list(self._values.items()):
            if expires is not None and expires <= now:
                self._forget(key)
        self._sweep_at = max(LEAST_LOOKED_AT, 2 * len(self._values))

    async def add(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        """Keep a value unless there is one. Return whether it was kept."""
        if await self.get(key) is not None:
            return False
        await self.put(key, value, ttl)
        return True

    async def replace(self, key: str, old: bytes, new: bytes, ttl: float | None = None) -> bool:
        """Keep a value in the place of the one that is expected. Return whether that was there."""
        if await self.get(key) != old:
            return False
        await self.put(key, new, ttl)
        return True

    async def take(self, key: str) -> bytes | None:
        """Return a value and forget it."""
        value = await self.get(key)
        self._forget(key)
        return value

    async def delete(self, key: str) -> None:
        """Forget a value; harmless when there is none."""
        self._forget(key)

    def _has_room(self, key: str, value: bytes) -> bool:
        old, _ = self._values.get(key, (None, None))
        if old is None:
            return len(self._values) < self._max_values and self.size + len(value) <= self._max_bytes
        return self.size - len(old) + len(value) <= self._max_bytes

    def _forget(self, key: str) -> None:
        value, _ = self._values.pop(key, (b"", None))
        self.size -= len(value)


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
    owner: str
    first: int
    """The number of the oldest event that is kept."""
    events: deque[bytes]
    size: int
    touched: float
    began: int
    """The number of the first event that came."""


class MemoryEventLog:
    """What was said on streams, in this process.

    Over the bound on all streams together, whoever holds most loses first: the stream of theirs that was silent
    longest, and of a single stream its oldest event. So nobody can push out what is kept for others.
    """

    def __init__(self, bounds: LogBounds | None = None, *, dropped: Callable[[str], None] | None = None) -> None:
        self._bounds = bounds or LogBounds()
        self._dropped = dropped
        """Called with a stream that was forgotten for want of room."""
        self._streams: dict[str, _Kept] = {}
        """The one that spoke last stands last."""
        self._owned: dict[str, dict[str, _Kept]] = {}
        """The streams of each owner, in the same order."""
        self._shares: Shares[str] = Shares()
        self._ample = min(self._bounds.owner, self._bounds.total)
        """While all events together are no more than this, neither an owner nor all of them hold too much."""

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def size(self) -> int:
        """Bytes of all events that are kept."""
        return self._shares.total

    def append(self, stream: str, number: int, event: bytes, now: float) -> None:
        """Keep one event; what is over a bound is forgotten, the oldest first."""
        bounds = self._bounds
        shares = self._shares
        size = len(event)
        kept = self._streams.get(stream)
        if kept is not None and number != kept.first + len(kept.events):
            # Another process has written to this stream meanwhile: what is here has a gap.
            self.forget(stream)
            kept = None
        if kept is None:
            owner = owner_of(stream)
            kept = _Kept(owner, number, deque((event,)), size, now, number)
            owned = self._owned.setdefault(owner, {})
        else:
            owner = kept.owner
            owned = self._owned[owner]
            del self._streams[stream]
            del owned[stream]
            kept.events.append(event)
            kept.size += size
            kept.touched = now
        self._streams[stream] = kept
        owned[stream] = kept
        shares.take(owner, size)
        while len(kept.events) > bounds.events or (kept.size > bounds.bytes and len(kept.events) > 1):
            self._drop_oldest(kept)
        if shares.total > self._ample:
            self._make_room(kept)

    def _make_room(self, kept: _Kept) -> None:
        """Forget what is over the bounds on an owner and on all streams; of the stream written last, not its end."""
        bounds = self._bounds
        shares = self._shares
        owner = kept.owner
        owned = self._owned[owner]
        while shares.held(owner) > bounds.owner and (len(owned) > 1 or len(kept.events) > 1):
            self._shrink(owner)
        while shares.total > bounds.total and (len(self._streams) > 1 or len(kept.events) > 1):
            self._shrink(shares.largest() or owner)

    def _shrink(self, owner: str) -> None:
        """Forget the stream of an owner that was silent longest; of its only stream, the oldest event."""
        owned = self._owned[owner]
        stream = next(iter(owned))
        if len(owned) == 1 and len(owned[stream].events) > 1:
            self._drop_oldest(owned[stream])
            return
        self.forget(stream)
        if self._dropped is not None:
            self._dropped(stream)

    def _drop_oldest(self, kept: _Kept) -> None:
        size = len(kept.events.popleft())
        kept.first += 1
        kept.size -= size
        self._shares.give(kept.owner, size)

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""
        kept = self._streams.get(stream)
        if kept is None or number + 1 < kept.first or number >= kept.first + len(kept.events):
            return None
        return list(kept.events)[number + 1 - kept.first :]

    def forgotten(self, stream: str) -> int | None:
        """Return the number below which events of a stream were forgotten, 0 if none were; None for no stream."""
        kept = self._streams.get(stream)
        if kept is None:
            return None
        if kept.first == kept.began:
            return 0
        return kept.first

    def shorten(self, stream: str, unacknowledged: int, spare: int) -> None:
        """Keep the last `unacknowledged` bytes of a stream, and at most `spare` bytes of what is older."""
        kept = self._streams.get(stream)
        if kept is None:
            return
        size = wanted = 0
        for event in reversed(kept.events):
            if size >= unacknowledged:
                spare -= len(event)
                if spare < 0:
                    break
            size += len(event)
            wanted += 1
        while len(kept.events) > wanted:
            self._drop_oldest(kept)
        if not wanted:
            self.forget(stream)

    def forget(self, stream: str) -> None:
        """Forget a stream."""
        kept = self._streams.pop(stream, None)
        if kept is None:
            return
        owned = self._owned[kept.owner]
        del owned[stream]
        if not owned:
            del self._owned[kept.owner]
        self._shares.give(kept.owner, kept.size)

    def sweep(self, now: float) -> None:
        """Forget what is too old: streams that were silent for longer than the age."""
        while self._streams:
            oldest = next(iter(self._streams))
            if self._streams[oldest].touched + self._bounds.age > now:
                return
            self.forget(oldest)
