"""Lane: one connection and the commands that wait for it, sent in batches.

Rule 1: all commands of one turn of the loop go out together, in order; the next batch follows when this is answered.
Rule 2: a command in flight is never cancelled. Who waits may go away; a batch that is late costs the connection.
Rule 3: what is awaited fails at once while Redis is away. What is written behind waits, within bounds, and is sent
again: such commands must do no harm when they are run twice.

| state | event | next state |
|---|---|---|
| ready | 3 batches failed in a row, or the first of all, or an error that somebody has to act on | degraded |
| degraded | a connection was made and answered | ready |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from hiredis import pack_command
from msgspec import Struct
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, RedisError

from ferrule.errors import StoreUnavailable
from ferrule.stores.redis.connection import RedisAway, away, disconnect, read_replies, unavailable, word_of

logger = logging.getLogger("ferrule.stores")

DEADLINE = 0.5
"""Seconds a batch may take, with the connection it may have to make."""
FAILURES = 3
"""Batches that fail in a row before Redis counts as away."""
FLUSH_WINDOW = 0.02
"""Seconds that what is written behind may wait for others."""
MOST_TOGETHER = 256
MOST_BYTES_TOGETHER = 1024 * 1024
"""What one batch holds, or one command that is larger."""
MOST_WAITING = 5000
MOST_WAITING_BYTES = 8 * 1024 * 1024
"""What waits for one of the two lanes; beyond, what is written behind is dropped, the oldest first."""
LARGEST_COMMAND = 17 * 1024 * 1024
CLOSED = "the store is closed"
PROBE = 1.0
"""Seconds between two tries while Redis is away, so that it is used again within 2 s."""
LONGEST_PROBE = 30.0
"""What that grows to while somebody has to act, as with a wrong password."""


class LaneStats(Struct, kw_only=True):
    """What a lane has done."""

    batches: int = 0
    commands: int = 0
    dropped: int = 0
    """Writes behind that were dropped because too many waited."""
    refused: int = 0
    """Writes behind that Redis refused, for example because it is full."""
    failures: int = 0
    """Batches without an answer."""
    connections: int = 0


class _Command(Struct, eq=False):
    packed: bytes
    future: asyncio.Future[Any] | None
    is_second_try: bool = False


class Lane:
    """One connection, and the commands that wait for it."""

    def __init__(self, connect: Callable[[], Awaitable[AbstractConnection]]) -> None:
        self._connect = connect
        self._connection: AbstractConnection | None = None
        self._waiting: deque[_Command] = deque()
        self._size = 0
        self._all_awaited = False
        """Whether it was full when it was last looked through, and nothing of it could be dropped."""
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._probes = 0
        self._warned = ""
        """Why it was away when that was last logged; empty since a batch was answered."""
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self.state: Literal["ready", "degraded"] = "ready"
        self.why = ""
        """Why it is degraded."""
        self.stats = LaneStats()

    @property
    def waiting(self) -> int:
        """How many commands wait."""
        return len(self._waiting)

    # -- commands

    def write(self, *command: Any) -> None:
        """Send a command that nobody waits for; it must do no harm when it is run twice."""
        packed = pack_command(command)
        if len(packed) > LARGEST_COMMAND or (self._all_awaited and not self._has_room(len(packed))):
            self.stats.dropped += 1
            return
        self._all_awaited = False
        self._waiting.append(_Command(packed, None))
        self._size += len(packed)
        if self._size > MOST_WAITING_BYTES or len(self._waiting) > MOST_WAITING:
            self._drop()
        if self._timer is None and not self._wake.is_set():
            self._timer = asyncio.get_running_loop().call_later(FLUSH_WINDOW, self._flush)

    def execute(self, *command: Any) -> asyncio.Future[Any]:
        """Send a command. The future gets its reply, or StoreUnavailable; a refusal of Redis as redis-py raises it."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        packed = pack_command(command)
        if self.state == "degraded" or self._closing:
            future.set_exception(StoreUnavailable(self.why or CLOSED))
            return future
        if len(packed) > LARGEST_COMMAND or not self._has_room(len(packed)):
            future.set_exception(StoreUnavailable(f"{len(self._waiting)} commands wait for Redis already"))
            return future
        self._waiting.append(_Command(packed, future))
        self._size += len(packed)
        self._flush()
        return future

    def _has_room(self, size: int) -> bool:
        """Make room for an awaited command at the cost of what is written behind; a large one may come alone."""
        if not self._waiting:
            return True
        fits = self._fits(size)
        if not fits and not self._all_awaited:
            self._drop(size)
            fits = self._fits(size)
            self._all_awaited = not fits
        return fits

    def _fits(self, size: int) -> bool:
        return self._size + size <= MOST_WAITING_BYTES and len(self._waiting) < MOST_WAITING

    def _drop(self, size: int = 0) -> None:
        """Drop what is written behind, the oldest first, until a tenth of the room is free.

        So each of them is looked at once, and not for each command that comes.
        """
        most_bytes = MOST_WAITING_BYTES * 9 // 10 - size
        kept: deque[_Command] = deque()
        excess = len(self._waiting) - MOST_WAITING * 9 // 10
        for each in self._waiting:
            if each.future is None and (excess > 0 or self._size > most_bytes):
                excess -= 1
                self._size -= len(each.packed)
                self.stats.dropped += 1
            else:
                kept.append(each)
        self._waiting = kept

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake.set()

    # -- life

    def start(self) -> None:
        """Begin to send."""
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, grace: float) -> None:
        """Send what waits, as far as that is possible in time, and close the connection."""
        self._closing = True
        self._flush()
        task = self._task
        self._task = None
        if task is not None:
            await asyncio.wait([task], timeout=grace)
            task.cancel()
            await asyncio.wait([task])
        self.why = CLOSED
        self._fail_awaited()
        self.stats.dropped += len(self._waiting)
        self._waiting.clear()
        self._size = 0
        await self._hang_up()

    async def _run(self) -> None:
        while True:
            if not self._waiting and self.state == "ready":
                if self._closing:
                    return
                await self._wake.wait()
            # Cleared first: what comes from here on is sent now, or wakes again.
            self._wake.clear()
            if self.state == "degraded":
                if self._closing:
                    return
                await self._recover()
                continue
            batch = self._take()
            if batch:
                await self._send(batch)

    def _take(self) -> list[_Command]:
        batch: list[_Command] = []
        size = 0
        while self._waiting and len(batch) < MOST_TOGETHER:
            size += len(self._waiting[0].packed)
            if batch and size > MOST_BYTES_TOGETHER:
                break
            command = self._waiting.popleft()
            self._size -= len(command.packed)
            batch.append(command)
        return batch

    # -- one batch

    async def _send(self, batch: list[_Command]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                connection = await self._connected()
                await connection.send_packed_command(b"".join([each.packed for each in batch]), check_health=False)
                replies = await read_replies(connection, len(batch))
        except TimeoutError:
            await self._failed(batch, RedisAway(f"no answer within {DEADLINE} s"))
            # Whoever waits behind has waited as long.
            self._fail_awaited()
        except RedisAway as reason:
            await self._failed(batch, reason)
        except AuthenticationError as error:
            await self._failed(batch, RedisAway(f"Redis refuses our credentials: {error}", lasting=True))
        except (RedisError, OSError) as error:
            await self._failed(batch, RedisAway(f"the connection to Redis was lost: {type(error).__name__}"))
        except asyncio.CancelledError:
            self._fail(batch, CLOSED)
            raise
        except Exception as error:
            # A lane that ends would let everybody wait for ever.
            logger.exception("a batch of commands to Redis failed in an unexpected way")
            await self._failed(batch, RedisAway(f"{type(error).__name__} at a batch"))
        else:
            self.stats.batches += 1
            self.stats.commands += len(batch)
            await self._answered(batch, replies)

    async def _connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is not None:
            # What is there to be read before anything was asked is the end of the connection, or an answer to nobody.
            if not await _has_unread(connection):
                return connection
            await self._hang_up()
        connection = await self._connect()
        self.stats.connections += 1
        self._connection = connection
        return connection

    async def _answered(self, batch: list[_Command], replies: list[Any]) -> None:
        again = []
        unknown = []
        reason: RedisAway | None = None
        for command, reply in zip(batch, replies, strict=True):
            if not isinstance(reply, Exception):
                if command.future is not None and not command.future.done():
                    command.future.set_result(reply)
                continue
            about_all = away(reply)
            if word_of(reply) == "NOSCRIPT" and not command.is_second_try:
                command.is_second_try = True
                unknown.append(command)
            elif about_all is not None:
                reason = about_all
                again.append(command)
            elif command.future is None:
                self._count_refused(reply)
            elif not command.future.done():
                command.future.set_exception(reply)
        if unknown:
            # Somebody flushed the scripts, and none of these was run: a new connection brings them.
            await self._hang_up()
            self._put_back(unknown)
        if reason is None:
            self._failures = 0
            self._warned = ""
        else:
            await self._failed(again, reason)

    def _put_back(self, commands: list[_Command]) -> None:
        for command in reversed(commands):
            self._waiting.appendleft(command)
            self._size += len(command.packed)

    def _count_refused(self, reply: Exception) -> None:
        # XADD with a number that is there already: it was run twice.
        if "equal or smaller" in str(reply):
            return
        if not self.stats.refused:
            logger.warning("Redis refused a write: %s; more are counted and not logged", unavailable(reply).reason)
        self.stats.refused += 1

    async def _failed(self, batch: list[_Command], reason: RedisAway) -> None:
        """Handle a batch without an answer: what is written behind waits for the next."""
        self.stats.failures += 1
        self._failures += 1
        self.why = str(reason)
        await self._hang_up()
        self._fail(batch, self.why)
        behind = []
        for command in batch:
            if command.future is None:
                behind.append(command)
        self._put_back(behind)
        if self._size > MOST_WAITING_BYTES or len(self._waiting) > MOST_WAITING:
            self._drop()
        never_met = not self.stats.connections
        if self._failures >= FAILURES or reason.lasting or never_met:
            self._degrade(reason)

    def _degrade(self, reason: RedisAway) -> None:
        if self.state == "ready" and self._warned != str(reason):
            self._warned = str(reason)
            logger.warning("Redis is away: %s; this node works on by itself", reason)
        self.state = "degraded"
        self._probes = self._probes + 1 if reason.lasting else 0
        self._fail_awaited()

    async def _recover(self) -> None:
        """Try to connect until that works."""
        pause = min(PROBE * 2.0 ** min(self._probes, 10), LONGEST_PROBE)
        with contextlib.suppress(TimeoutError):
            # `close` wakes it; commands do not, since Redis is tried no more often for their sake.
            async with asyncio.timeout(pause):
                while not self._closing:
                    self._wake.clear()
                    await self._wake.wait()
        if self._closing:
            return
        try:
            async with asyncio.timeout(DEADLINE):
                await self._connected()
        except RedisAway as reason:
            self.why = str(reason)
            self._probes = self._probes + 1 if reason.lasting else 0
        except Exception as error:
            self.why = f"Redis cannot be reached: {type(error).__name__}"
        else:
            logger.info("Redis is back")
            self.state = "ready"
            self._failures = 0
            self._probes = 0

    def _fail(self, batch: list[_Command], reason: str) -> None:
        for command in batch:
            if command.future is not None and not command.future.done():
                command.future.set_exception(StoreUnavailable(reason))

    def _fail_awaited(self) -> None:
        behind: deque[_Command] = deque()
        for command in self._waiting:
            if command.future is None:
                behind.append(command)
            else:
                self._size -= len(command.packed)
                self._fail([command], self.why)
        self._waiting = behind

    async def _hang_up(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            await disconnect(connection)


async def _has_unread(connection: AbstractConnection) -> bool:
    try:
        return bool(await connection.can_read())
    except (RedisError, OSError):
        return True


def is_wrong_type(error: Exception) -> bool:
    """Return whether Redis refused a command because something else is kept under its key."""
    return word_of(error) == "WRONGTYPE" or "WRONGTYPE" in str(error)
