"""Notices of changes, from any thread: at once, then at most once per interval, the last never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from ferrule.server.notifications.subscriptions import Subscriptions
from ferrule.supervision.event_loop import running_loop


class Coalescer:
    """Thins out notices: the first at once, then at most one per interval and key, and never losing the last.

    It has no clock: the time comes in as an argument.
    """

    __slots__ = ("_scheduled", "_sent", "interval")

    def __init__(self, interval: float = 0.1) -> None:
        self.interval = interval
        self._sent: dict[Hashable, float] = {}
        self._scheduled: set[Hashable] = set()

    def poke(self, key: Hashable, now: float) -> float | None:
        """Called on a change: 0.0 sends now, a positive delay schedules a notice, None means one is scheduled."""
        if key in self._scheduled:
            return None
        sent = self._sent.get(key)
        if sent is None:
            delay = 0.0
        else:
            delay = min(sent + self.interval - now, self.interval)
        if delay > 0:
            self._scheduled.add(key)
            return delay
        self._note_sent(key, now)
        return 0.0

    def fired(self, key: Hashable, now: float) -> None:
        """Called when the scheduled notice is being sent."""
        self._scheduled.discard(key)
        self._note_sent(key, now)

    def _note_sent(self, key: Hashable, now: float) -> None:
        sent = self._sent
        # Reinserting keeps the oldest send first, so forgetting what no longer matters costs nothing per key.
        sent.pop(key, None)
        sent[key] = now
        while sent and sent[oldest := next(iter(sent))] + self.interval <= now:
            del sent[oldest]


class Change(Struct, frozen=True):
    """One change: of a list, of a resource, or of a task."""

    kind: str
    """The notification of a list that changed; empty for anything else."""
    uri: str = ""
    extra: dict[str, Any] = {}
    """What the notification says besides."""
    task: str = ""
    """The id of a task that changed; empty for anything else."""


class ChangeNotices:
    """The changes of one server, on their way to whoever listens."""

    def __init__(self, subscriptions: Subscriptions, interval: float, update_interval: float = 0.0) -> None:
        self._subscriptions = subscriptions
        self._lists = Coalescer(interval)
        self._updates = Coalescer(update_interval)
        self._extras: dict[str, dict[str, Any]] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.relay: Callable[[Change], None] | None = None
        """Called with each change, for other processes; None where there are none."""
        self.on_task: Callable[[Change], None] | None = None
        """Called when a task of another process changed."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send notices from this loop from now on; what was still due on another one is dropped."""
        self.loop = loop
        self._lists = Coalescer(self._lists.interval)
        self._updates = Coalescer(self._updates.interval)
        self._extras.clear()

    def updated(self, uri: str, extra: dict[str, Any]) -> None:
        """Notify that a resource changed; of notices that are merged the last one's extra counts."""
        self.soon(lambda: self._everywhere(Change("", uri, extra)))

    def list_changed(self, kind: str) -> None:
        """Notify that a list changed."""
        self.soon(lambda: self._everywhere(Change(kind)))

    def task_changed(self, task_id: str) -> None:
        """Notify other processes that a task of this one changed."""
        if self.relay is not None:
            self.relay(Change("", task=task_id))

    def _everywhere(self, change: Change) -> None:
        if self.relay is not None:
            self.relay(change)
        self.here(change)

    def here(self, change: Change) -> None:
        """Notify the subscribers of this process."""
        if change.task:
            if self.on_task is not None:
                self.on_task(change)
        elif change.kind:
            self._merge(self._lists, change.kind, lambda: self._subscriptions.changed(change.kind))
        else:
            uri = change.uri
            self._extras[uri] = change.extra
            self._merge(self._updates, uri, lambda: self._subscriptions.updated(uri, self._extras.pop(uri)))

    def _merge(self, notices: Coalescer, key: str, tell: Callable[[], object]) -> None:
        """Notify now, or once the interval since the last notice is over, or not at all when that is due anyway."""
        loop = self.loop
        if loop is None or loop.is_closed():
            tell()
            return
        delay = notices.poke(key, loop.time())
        if delay == 0.0:
            tell()
        elif delay is not None:
            loop.call_later(delay, self._tell_late, notices, key, tell)

    def _tell_late(self, notices: Coalescer, key: str, tell: Callable[[], object]) -> None:
        notices.fired(key, asyncio.get_running_loop().time())
        tell()

    def soon(self, action: Callable[[], object]) -> None:
        """Act now when we are on the server's loop or it has none, else as soon as that loop can."""
        loop = self.loop
        if loop is None or loop.is_closed() or running_loop() is loop:
            action()
            return
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(action)
