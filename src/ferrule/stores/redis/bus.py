"""RedisBus: notices between nodes. Each node has an inbox, a stream of Redis, so nothing is lost while it reconnects.

Notices in an inbox are numbered. Where a number is missing, because the inbox overflowed, Redis lost its memory or a
sender had to drop some, subscribers are told that they may have missed notices. After a loss one may be heard twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from ferrule.errors import SetupError, StoreUnavailable
from ferrule.stores.contracts import Notice
from ferrule.stores.memory_cluster import Subscribers, TopicSubscription
from ferrule.stores.redis.backend import RedisBackend
from ferrule.stores.redis.connection import RedisAway, disconnect, exchange
from ferrule.stores.redis.lane import DEADLINE, PROBE
from ferrule.stores.redis.scripts import OPEN_INBOX, PUBLISH, SKIP, SUBSCRIBE

logger = logging.getLogger("ferrule.stores")

MOST_NOTICES = 1000
"""In one inbox; one more pushes out the oldest."""
LARGEST_NOTICE = 1024 * 1024
INBOX_TTL = 60_000
"""Milliseconds an inbox outlives its node."""
BLOCK = 1000
"""Milliseconds Redis waits for a notice."""
CHECK = 2.0
"""Seconds between two looks whether the inbox and the subscriptions are still there."""
TOGETHER = 100
"""Notices that are read at once."""


class RedisBus:
    """Notices between nodes."""

    def __init__(self, redis: RedisBackend, node: str = "") -> None:
        self.node = node or os.urandom(9).hex()
        self._redis = redis
        self._subscribers = Subscribers(self._deserted)
        self._inbox = redis.key("in", self.node)
        self._last = b""
        """The place of the last notice that was read."""
        self._number = -1
        """Its number."""
        self._dropped = 0
        """How many writes of this node were dropped when the others were last told."""
        self._task: asyncio.Task[None] | None = None
        redis.attach(self._opened, self._closing)

    def publish(self, topic: str, body: bytes) -> None:
        """Notify every subscriber of a topic, in this process too."""
        self._publish(topic, body, "")

    def send(self, node: str, topic: str, body: bytes) -> None:
        """Notify the subscribers of a topic at one node."""
        self._publish(topic, body, node)

    async def deliver(self, node: str, topic: str, body: bytes) -> bool:
        """Notify the subscribers of a topic at one node now, and once. Return False where there is no such node."""
        return bool(await self._redis.execute(*self._command(topic, body, node)))

    def _publish(self, topic: str, body: bytes, node: str) -> None:
        self._redis.write(*self._command(topic, body, node))

    def _command(self, topic: str, body: bytes, node: str) -> tuple[Any, ...]:
        """Return the key of the lane, and the command. All notices of a node go one lane, and so keep their order."""
        if len(body) > LARGEST_NOTICE:
            raise SetupError(f"a notice has {len(body)} bytes: the limit is {LARGEST_NOTICE}")
        arguments = (self._redis.key("in"), topic, body, self.node, MOST_NOTICES, node)
        lane = self._redis.key("bus", self.node)
        return (lane, "EVALSHA", PUBLISH.sha, 1, self._redis.key("sub", topic), *arguments)

    def subscribe(
        self, topic: str, heard: Callable[[Notice], None], missed: Callable[[], None] | None = None
    ) -> TopicSubscription:
        """Call back with each notice, and with `missed` where some may be lost and state should be read again."""
        is_new = topic not in self._subscribers.topics
        subscription = self._subscribers.add(topic, heard, missed)
        if is_new:
            # On the lane of our notices, so what we publish next, we hear.
            self._redis.write(self._redis.key("bus", self.node), *self._subscribing(topic))
        return subscription

    def _subscribing(self, topic: str) -> tuple[Any, ...]:
        """Return the command by which this node hears a topic."""
        return ("EVALSHA", SUBSCRIBE.sha, 1, self._redis.key("sub", topic), *self._about_us)

    def _deserted(self, topic: str) -> None:
        self._redis.write(self._redis.key("bus", self.node), "SREM", self._redis.key("sub", topic), self.node)

    # -- the inbox

    @property
    def _keys(self) -> list[str]:
        return [self._inbox, self._inbox + ":n", self._redis.key("inboxes")]

    @property
    def _about_us(self) -> tuple[str, str, int]:
        return (self.node, self._redis.key("in"), INBOX_TTL)

    async def _opened(self) -> None:
        # There is an inbox before anything can be sent to it; without Redis, as soon as it can be reached.
        with contextlib.suppress(StoreUnavailable):
            _, number, last = await self._redis.run_cleaning(OPEN_INBOX, self._keys, *self._about_us)
            self._number = int(number)
            self._last = last
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _closing(self) -> None:
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            self._redis.write(self._inbox, "UNLINK", self._inbox, self._inbox + ":n")

    async def _follow(self) -> None:
        while True:
            connection: AbstractConnection | None = None
            try:
                async with asyncio.timeout(DEADLINE):
                    connection = await self._redis.connect()
                await self._read(connection)
            except (RedisAway, RedisError, OSError, TimeoutError):
                # The lanes say that Redis is away, and why.
                pass
            except Exception:
                logger.exception("the inbox of this node could not be read; it is tried again")
            finally:
                if connection is not None:
                    await disconnect(connection)
            await asyncio.sleep(PROBE)

    async def _read(self, connection: AbstractConnection) -> None:
        checked = 0.0
        while True:
            if time.monotonic() - checked >= CHECK:
                await self._check(connection)
                checked = time.monotonic()
            command = ("XREAD", "COUNT", TOGETHER, "BLOCK", BLOCK, "STREAMS", self._inbox, self._last)
            async with asyncio.timeout(BLOCK / 1000 + DEADLINE):
                (reply,) = await exchange(connection, [command])
            if isinstance(reply, Exception):
                raise reply
            for _, entries in reply or ():
                self._hear(entries)

    async def _check(self, connection: AbstractConnection) -> None:
        """Make sure of the inbox and the subscriptions; notice that Redis has forgotten them."""
        keys = self._keys
        commands: list[tuple[Any, ...]] = [("EVALSHA", OPEN_INBOX.sha, len(keys), *keys, *self._about_us)]
        for topic in self._subscribers.topics:
            commands.append(self._subscribing(topic))
        async with asyncio.timeout(DEADLINE):
            opened, *added = await exchange(connection, commands)
        if isinstance(opened, Exception):
            raise opened
        had, number, last = opened
        if not had or not self._last:
            self._number = int(number)
            self._last = last
            self._subscribers.miss()
        elif any(reply == 1 for reply in added):
            # A subscription that was new here may be one that Redis had forgotten.
            self._subscribers.miss()
        await self._own_up(connection)

    async def _own_up(self, connection: AbstractConnection) -> None:
        """Let everybody know that writes of this node were dropped: some may have been notices."""
        dropped = self._redis.stats.dropped
        if dropped == self._dropped:
            return
        command = ("EVALSHA", SKIP.sha, 1, self._redis.key("inboxes"), self._redis.key("in"), MOST_NOTICES)
        async with asyncio.timeout(DEADLINE):
            (reply,) = await exchange(connection, [command])
        if not isinstance(reply, Exception):
            self._dropped = dropped

    def _hear(self, entries: list[Any]) -> None:
        for place, fields in entries:
            self._last = place
            kept = dict(zip(fields[::2], fields[1::2], strict=False))
            number = int(kept.get(b"n", -1))
            if number != self._number + 1:
                self._subscribers.miss()
            self._number = number
            if b"t" in kept and b"b" in kept:
                sender = kept.get(b"f", b"").decode("utf-8", "replace")
                self._subscribers.hear(Notice(kept[b"t"].decode("utf-8", "replace"), kept[b"b"], sender))
