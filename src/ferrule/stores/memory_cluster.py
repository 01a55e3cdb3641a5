"""What nodes share, for one process: sessions, leases, notices, limits, locks. Bounded, and gone with it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct, structs

from ferrule.errors import Busy
from ferrule.stores.contracts import DirectoryEntry, Notice, SessionRecord

IDLE = 1800.0
"""Seconds after which a session that nobody used is gone."""

T = TypeVar("T")
Clock = Callable[[], float]


class _Expiring(Generic[T]):
    """Values that end at their time, and are no more than a number of them; those that end are found when asked for."""

    def __init__(self, clock: Clock, most: int, what: str) -> None:
        self._clock = clock
        self._most = most
        self._what = what
        self._kept: dict[str, tuple[T, float]] = {}
        self._sweep_after = -math.inf

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> T | None:
        """Return a value; None when there is none or it has ended."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept[1] <= self._clock():
            del self._kept[key]
            return None
        return kept[0]

    def put(self, key: str, value: T, ttl: float) -> None:
        """Keep a value; raise Busy where there is no room."""
        if key not in self._kept and len(self._kept) >= self._most:
            if self._clock() >= self._sweep_after:
                self.sweep()
            if len(self._kept) >= self._most:
                raise Busy(f"Busy: this process keeps as many {self._what} as it can, {self._most}")
        self._kept[key] = (value, self._clock() + ttl)

    def pop(self, key: str) -> None:
        """Forget a value, if it is there."""
        self._kept.pop(key, None)

    def sweep(self) -> None:
        """Forget what has ended."""
        now = self._clock()
        # While it is full, all of it is looked at once a second at most.
        self._sweep_after = now + 1.0
        for key, (_, ends) in list(self._kept.items()):
            if ends <= now:
                del self._kept[key]

    def items(self) -> dict[str, T]:
        """Return all that has not ended."""
        self.sweep()
        found = {}
        for key, (value, _) in self._kept.items():
            found[key] = value
        return found


class MemoryNodes:
    """Leases of nodes in this process."""

    def __init__(self, clock: Clock = time.monotonic, max_nodes: int = 10_000) -> None:
        self._leases: _Expiring[bytes] = _Expiring(clock, max_nodes, "nodes")

    async def renew(self, node: str, about: bytes, ttl: float) -> bool:
        """Take or extend a lease, and keep what the node says about itself. Return whether it still had one."""
        had = self.lives(node)
        self._leases.put(node, about, ttl)
        return had

    async def release(self, node: str) -> None:
        """End a lease."""
        self._leases.pop(node)

    def lives(self, node: str) -> bool:
        """Return whether a node has a lease."""
        return self._leases.get(node) is not None

    async def find(self, node: str) -> bytes | None:
        """Return what a living node says about itself; None when its lease is over."""
        return self._leases.get(node)

    async def living(self) -> dict[str, bytes]:
        """Return all living nodes and what they say about themselves."""
        return self._leases.items()


class MemoryDirectory:
    """What the nodes of this process offer."""

    def __init__(self, nodes: MemoryNodes, max_entries: int = 100_000) -> None:
        self._nodes = nodes
        self._max_entries = max_entries
        self._kinds: dict[str, dict[str, DirectoryEntry]] = {}

    async def put(self, kind: str, name: str, entry: DirectoryEntry) -> bool:
        """Keep an entry. Return False where a living node other than its own has the name."""
        names = self._kinds.setdefault(kind, {})
        old = names.get(name)
        if old is not None and old.node != entry.node and self._nodes.lives(old.node):
            return False
        if old is None and sum(map(len, self._kinds.values())) >= self._max_entries:
            raise Busy(f"Busy: this process keeps as many entries as it can, {self._max_entries}")
        names[name] = entry
        return True

    async def drop(self, kind: str, name: str, node: str) -> None:
        """Take out the entry of a node; harmless when the name is free or another's."""
        names = self._kinds.get(kind, {})
        if name in names and names[name].node == node:
            del names[name]

    async def entries(self, kind: str) -> dict[str, DirectoryEntry]:
        """Return the entries of a kind whose nodes live."""
        names = self._kinds.get(kind, {})
        for name, entry in list(names.items()):
            if not self._nodes.lives(entry.node):
                del names[name]
        return dict(names)


class MemorySessions:
    """Sessions by id, in this process."""

    def __init__(
        self,
        nodes: MemoryNodes | None = None,
        *,
        idle: float = IDLE,
        max_sessions: int = 100_000,
        clock: Clock = time.monotonic,
    ) -> None:
        self._nodes = nodes or MemoryNodes(clock)
        self._idle = idle
        self._clock = clock
        self._records: _Expiring[SessionRecord] = _Expiring(clock, max_sessions, "sessions")

    def __len__(self) -> int:
        return len(self._records)

    async def create(self, record: SessionRecord) -> SessionRecord | None:
        """Keep a new session and return it with its epoch and times; None where the id is taken."""
        if self._records.get(record.id) is not None:
            return None
        now = self._clock()
        return self._put(structs.replace(record, epoch=1, created=now, seen=now))

    def _put(self, record: SessionRecord) -> SessionRecord:
        self._records.put(record.id, record, self._idle)
        return record

    async def get(self, session_id: str) -> SessionRecord | None:
        """Return a session; None when there is none or it has expired."""
        return self._records.get(session_id)

    async def save(self, record: SessionRecord) -> bool:
        """Keep what changed. Return False, and change nothing, unless its owner and epoch are those that are kept."""
        kept = self._owned(record)
        if kept is None:
            return False
        self._put(structs.replace(record, created=kept.created, seen=self._clock()))
        return True

    def _owned(self, record: SessionRecord) -> SessionRecord | None:
        kept = self._records.get(record.id)
        if kept is None or (kept.owner, kept.epoch) != (record.owner, record.epoch):
            return None
        return kept

    def touch(self, record: SessionRecord) -> None:
        """Note that a session is in use; ignored unless its owner and epoch are those that are kept."""
        kept = self._owned(record)
        if kept is not None:
            self._put(structs.replace(kept, seen=self._clock()))

    async def claim(self, session_id: str, node: str) -> SessionRecord | None:
        """Make a node the owner, with the next epoch, if it is the owner or the owner's lease is over."""
        kept = self._records.get(session_id)
        if kept is None or (kept.owner != node and self._nodes.lives(kept.owner)):
            return None
        return self._put(structs.replace(kept, owner=node, epoch=kept.epoch + 1, seen=self._clock()))

    async def release(self, record: SessionRecord) -> bool:
        """Leave a session to whoever claims it. Return False unless its owner and epoch are those that are kept."""
        kept = self._owned(record)
        if kept is None:
            return False
        self._put(structs.replace(kept, owner="", epoch=kept.epoch + 1))
        return True

    async def delete(self, session_id: str) -> None:
        """Forget a session; harmless when there is none."""
        self._records.pop(session_id)

    async def expire(self) -> None:
        """Forget what has expired."""
        self._records.sweep()


class Subscribers:
    """Who hears of which topics in this process."""

    def __init__(self, deserted: Callable[[str], None] | None = None) -> None:
        self._topics: dict[str, dict[TopicSubscription, None]] = {}
        self._deserted = deserted
        """Called with a topic whose last subscriber is gone."""

    @property
    def topics(self) -> list[str]:
        """The topics somebody subscribed to."""
        return list(self._topics)

    def add(self, topic: str, heard: Callable[[Notice], None], missed: Callable[[], None] | None) -> TopicSubscription:
        """Add a subscriber."""
        subscription = TopicSubscription(self, topic, heard, missed)
        self._topics.setdefault(topic, {})[subscription] = None
        return subscription

    def remove(self, subscription: TopicSubscription) -> None:
        """Take a subscriber out, if it is there."""
        topic = self._topics.get(subscription.topic, {})
        if subscription not in topic:
            return
        del topic[subscription]
        if topic:
            return
        del self._topics[subscription.topic]
        if self._deserted is not None:
            self._deserted(subscription.topic)

    def hear(self, notice: Notice) -> None:
        """Call back the subscribers of a topic; what one raises is the loop's to report."""
        for each in list(self._topics.get(notice.topic, ())):
            asyncio.get_running_loop().call_soon(each.heard, notice)

    def miss(self) -> None:
        """Call back everyone who wants to know that notices may be lost."""
        for topic in list(self._topics.values()):
            for each in list(topic):
                if each.missed is not None:
                    asyncio.get_running_loop().call_soon(each.missed)


class TopicSubscription:
    """What a subscriber holds."""

    __slots__ = ("_subscribers", "heard", "missed", "topic")

    def __init__(
        self, subscribers: Subscribers, topic: str, heard: Callable[[Notice], None], missed: Callable[[], None] | None
    ) -> None:
        self._subscribers = subscribers
        self.topic = topic
        self.heard = heard
        self.missed = missed

    def close(self) -> None:
        """End the subscription."""
        self._subscribers.remove(self)


class MemoryBus:
    """Notices within one process."""

    def __init__(self, node: str = "here") -> None:
        self.node = node
        self._subscribers = Subscribers()

    def publish(self, topic: str, body: bytes) -> None:
        """Notify every subscriber of a topic."""
        self._subscribers.hear(Notice(topic, body, self.node))

    def send(self, node: str, topic: str, body: bytes) -> None:
        """Notify the subscribers of a topic at one node, which is this one or none."""
        if node == self.node:
            self.publish(topic, body)

    async def deliver(self, node: str, topic: str, body: bytes) -> bool:
        """Notify the subscribers of a topic at one node, which is this one or none."""
        self.send(node, topic, body)
        return node == self.node

    def subscribe(
        self, topic: str, heard: Callable[[Notice], None], missed: Callable[[], None] | None = None
    ) -> TopicSubscription:
        """Call back with each notice; none is ever lost here."""
        return self._subscribers.add(topic, heard, missed)


class _Bucket(Struct, eq=False, gc=False):
    tokens: float
    at: float


class MemoryLimits:
    """Token buckets of one process."""

    def __init__(self, clock: Clock = time.monotonic, max_buckets: int = 100_000) -> None:
        self._clock = clock
        self._buckets: _Expiring[_Bucket] = _Expiring(clock, max_buckets, "limits")

    async def lease(self, name: str, rate: float, burst: float, wanted: float) -> float:
        """Take up to so many tokens out of a bucket. Return how many there were."""
        now = self._clock()
        bucket = self._buckets.get(name) or _Bucket(burst, now)
        bucket.tokens = min(burst, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        granted = min(wanted, bucket.tokens)
        bucket.tokens -= granted
        # A full bucket need not be kept.
        self._buckets.put(name, bucket, burst / rate if rate > 0 else IDLE)
        return granted


class MemoryLocks:
    """Locks of one process."""

    def __init__(self, clock: Clock = time.monotonic, max_locks: int = 10_000) -> None:
        self._held: _Expiring[int] = _Expiring(clock, max_locks, "locks")
        self._last = 0

    async def acquire(self, name: str, ttl: float) -> int | None:
        """Take a lock. Return its token, None where another has it."""
        if self._held.get(name) is not None:
            return None
        self._last += 1
        self._held.put(name, self._last, ttl)
        return self._last

    async def renew(self, name: str, token: int, ttl: float) -> bool:
        """Hold a lock for longer. Return False where it is not held with this token."""
        if self._held.get(name) != token:
            return False
        self._held.put(name, token, ttl)
        return True

    async def release(self, name: str, token: int) -> bool:
        """Release a lock. Return False where it is not held with this token."""
        if self._held.get(name) != token:
            return False
        self._held.pop(name)
        return True


class MemorySeen:
    """What was used once, in this process. Nothing is forgotten before its time: that would let it be used again."""

    def __init__(self, clock: Clock = time.monotonic, max_keys: int = 100_000) -> None:
        self._keys: _Expiring[bool] = _Expiring(clock, max_keys, "used keys")

    async def add(self, key: str, ttl: float) -> bool:
        """Note a key. Return False where it was seen within its time; raise Busy where no more can be noted."""
        if self._keys.get(key) is not None:
            return False
        self._keys.put(key, True, ttl)
        return True
