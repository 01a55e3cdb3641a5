"""The connections to one server: a few that are kept, and a bounded number beyond them for what cannot wait.

Rule 1: an ordinary request waits for one of the kept connections. What must not wait (answers to the server's
questions, notifications, streams that stay open) gets a connection beyond them.
Rule 2: a connection is opened for one request, which learns of it when that fails; unless it is our own system that has
no room for another, and there are connections to wait for.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from ferrule.errors import ConnectFailed, FerruleError
from ferrule.transports.backpressure import Waiters
from ferrule.transports.http.client.connection import HttpConnection, Reader
from ferrule.transports.sockets.dial import is_shortage

Lane = Literal["usual", "urgent"]

ROOM = 100
"""How many requests may wait before a sender that can wait is asked to."""

STAYS_AFTER = 1.0
"""How many seconds an answer may stream before it no longer counts among the kept connections."""

SHORT_FOR = 1.0
"""How many seconds a pool makes do with the connections it has, when the system has no room for another."""


class Overflow(FerruleError):
    """More requests wait than may wait."""


class Job(Reader, Protocol):
    """A request and whoever reads its answer."""

    request: bytes
    lane: Lane
    connection: HttpConnection | None


OpenConnection = Callable[["Pool"], Awaitable[HttpConnection]]


class Pool:
    """The connections to one server."""

    def __init__(self, open: OpenConnection, *, size: int, max_extra: int, max_waiting: int | None) -> None:  # noqa: A002
        self._open = open
        self._size = size
        self._max_extra = max_extra
        self._max_waiting = max_waiting
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._idle: list[HttpConnection] = []
        self._kept: set[HttpConnection] = set()
        self._extra: set[HttpConnection] = set()
        self._opening: dict[asyncio.Task[None], tuple[Job, bool]] = {}
        self._reserved = self._reserved_extra = 0
        """How many connections are being opened, to be kept and beyond those."""
        self._waiting: deque[Job] = deque()
        self._urgent: deque[Job] = deque()
        self._short_until = 0.0
        self._relief: asyncio.TimerHandle | None = None
        self._patient = Waiters()
        self._closed = False

    async def wait_for_room(self) -> None:
        """Return at once unless many requests wait for a connection; then, when few do."""
        if len(self._waiting) > ROOM and not self._closed:
            await self._patient.wait()

    @property
    def connections(self) -> int:
        """How many connections there are, with those being opened."""
        return len(self._kept) + len(self._extra) + len(self._opening)

    def submit(self, job: Job) -> None:
        """Send a request as soon as there is a connection for it; raises Overflow when too many wait."""
        if self._closed:
            raise Overflow("the transport is closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and self._loop.time() - connection.since <= connection.rest:
                self._assign(connection, job)
                return
            connection.abort()
            self._forget(connection)
        if job.lane == "urgent":
            self._submit_urgent(job)
        elif self._may_open:
            self._begin(job, extra=False)
        elif self._max_waiting is not None and len(self._waiting) >= self._max_waiting:
            raise Overflow(f"{self._max_waiting} requests wait for a connection already")
        else:
            self._waiting.append(job)
            self._relieve_later()

    @property
    def _may_open(self) -> bool:
        """Whether another connection may be opened to be kept."""
        enough = self._kept and self._loop.time() < self._short_until
        return not enough and len(self._kept) + self._reserved < self._size

    def _submit_urgent(self, job: Job) -> None:
        if len(self._extra) + self._reserved_extra < self._max_extra:
            self._begin(job, extra=True)
        elif self._max_waiting is not None and len(self._urgent) >= self._max_waiting:
            raise Overflow(f"{self._max_waiting} messages wait for a connection already")
        else:
            self._urgent.append(job)

    def withdraw(self, job: Job) -> None:
        """Forget a request: unsent it is never sent, sent its connection is cut."""
        if job.connection is not None:
            connection = job.connection
            job.connection = None
            connection.abort()
            return
        for line in (self._waiting, self._urgent):
            if job in line:
                line.remove(job)
                self._tell_room()
                return
        for task, (opened_for, _) in self._opening.items():
            if opened_for is job:
                task.cancel()

    def close(self) -> None:
        """Cut every connection; whoever still waits learns nothing, as the owner knows."""
        self._closed = True
        if self._relief is not None:
            self._relief.cancel()
        for task in list(self._opening):
            task.cancel()
        for connection in [*self._kept, *self._extra]:
            connection.abort()
        self._idle.clear()
        self._waiting.clear()
        self._urgent.clear()
        self._tell_room()

    async def warm(self) -> None:
        """Open the first connection, or raise why there can be none."""
        connection = await self._open(self)
        self._kept.add(connection)
        self.freed(connection)

    # -- opening

    def _begin(self, job: Job, *, extra: bool) -> None:
        if extra:
            self._reserved_extra += 1
        else:
            self._reserved += 1
        # In a context of the pool's own: what is received later must not see whatever the first caller had set.
        task = self._loop.create_task(self._dial(job, extra), context=self._context)
        self._opening[task] = (job, extra)
        task.add_done_callback(self._dialed)

    async def _dial(self, job: Job, extra: bool) -> None:
        try:
            connection = await self._open(self)
        except Exception as error:
            if self._kept and not extra and isinstance(error, ConnectFailed) and is_shortage(error):
                self._make_do(job)
            else:
                job.lost(error)
            return
        if self._closed:
            connection.abort()
            return
        self._unreserve(asyncio.current_task())
        (self._extra if extra else self._kept).add(connection)
        self._assign(connection, job)

    def _make_do(self, job: Job) -> None:
        """Let a request wait for one of the connections there are."""
        self._short_until = self._loop.time() + SHORT_FOR
        if not self._idle:
            self._waiting.appendleft(job)
            self._relieve_later()
            return
        try:
            self.submit(job)
        except Overflow as full:
            job.lost(full)

    def _dialed(self, task: asyncio.Task[None]) -> None:
        """Free the place of a connection that never came to be; also of one that was withdrawn before it was begun."""
        if task in self._opening:
            self._unreserve(task)
            self._serve_next()

    def _unreserve(self, task: asyncio.Task[None] | None) -> None:
        assert task is not None
        _, extra = self._opening.pop(task)
        if extra:
            self._reserved_extra -= 1
        else:
            self._reserved -= 1

    # -- who gets a connection

    def _assign(self, connection: HttpConnection, job: Job) -> None:
        job.connection = connection
        connection.send(job.request, job)

    def freed(self, connection: HttpConnection) -> None:
        """Send the next request on a connection, or keep it, or close it where there are enough."""
        if connection in self._extra:
            if len(self._kept) + self._reserved >= self._size:
                connection.abort()
                self._forget(connection)
                self._serve_next()
                return
            self._extra.discard(connection)
            self._kept.add(connection)
        if self._urgent:
            self._assign(connection, self._urgent.popleft())
        elif self._waiting:
            self._assign(connection, self._waiting.popleft())
            self._tell_room()
        else:
            connection.since = self._loop.time()
            self._idle.append(connection)

    def _tell_room(self) -> None:
        if self._patient and len(self._waiting) <= ROOM:
            self._patient.wake()

    def gone(self, connection: HttpConnection) -> None:
        """Forget a connection, and see who can have its place."""
        self._forget(connection)
        self._serve_next()

    def _forget(self, connection: HttpConnection) -> None:
        self._kept.discard(connection)
        self._extra.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _serve_next(self) -> None:
        if self._closed:
            return
        if self._urgent and len(self._extra) + self._reserved_extra < self._max_extra:
            self._begin(self._urgent.popleft(), extra=True)
        if self._waiting and self._may_open:
            self._begin(self._waiting.popleft(), extra=False)
            self._tell_room()

    # -- answers that stay

    def _relieve_later(self) -> None:
        if self._relief is None:
            self._relief = self._loop.call_later(STAYS_AFTER / 4, self._relieve)

    def _relieve(self) -> None:
        """Let answers that have streamed for long no longer count among the kept connections."""
        self._relief = None
        before = self._loop.time() - STAYS_AFTER
        for connection in [each for each in self._kept if each.streaming and each.since < before]:
            if not self._waiting or len(self._extra) + self._reserved_extra >= self._max_extra:
                break
            self._kept.discard(connection)
            self._extra.add(connection)
            self._serve_next()
        self._serve_next()
        if self._waiting:
            self._relieve_later()
