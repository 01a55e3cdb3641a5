"""The way back of one ASGI request.

Rule 1: a quick call pays nothing for what only a long one needs: no task, no timer, no listener of its own.
Rule 2: what the ASGI server has not taken yet is on the account of the process, from the high-water mark on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ferrule.supervision.scope import Scope
from ferrule.transports.backpressure import backlog as unread
from ferrule.transports.http.heads import TEXT_HEAD

logger = logging.getLogger("ferrule.http")

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

LONG = 0.1
"""A call that has run for so many seconds is worth a listener for the end of its connection."""
HIGH_WATER, LOW_WATER = 64 * 1024, 16 * 1024
"""From the first on a stream's writers wait, until no more than the second is left."""
WITHOUT_LENGTH = frozenset({204, 304})
"""Answers that end with their head."""


class QuietCalls:
    """One timer for all calls under way: it tells those that have run for long."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pending: set[AsgiAnswer] = set()
        self._overdue: set[AsgiAnswer] = set()
        self._ticking = False

    def begin(self, answer: AsgiAnswer) -> None:
        """Watch over a call that is not answered yet."""
        self._pending.add(answer)
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(LONG, self._tick)

    def end(self, answer: AsgiAnswer) -> None:
        """Watch over a call no longer."""
        self._pending.discard(answer)
        if self._overdue:
            self._overdue.discard(answer)

    def _tick(self) -> None:
        late = self._overdue
        self._overdue = self._pending
        self._pending = set()
        self._ticking = bool(self._overdue)
        if self._ticking:
            self.loop.call_later(LONG, self._tick)
        for answer in late:
            answer.runs_long()


class AsgiAnswer(Struct, eq=False):
    """The way back of one ASGI request; see `Responder`. The request's own coroutine is in `deliver` until its end."""

    method: str
    receive: Receive
    send: Send
    quiet_calls: QuietCalls
    start: tuple[int, bytes] | None = None
    """Status and head, once they are known."""
    outbox: list[bytes] = []
    backlog: int = 0
    """How many bytes were written and not taken by the peer yet."""
    unacknowledged: int | None = None
    """Not known: the bytes are the ASGI server's affair."""
    gone: bool = False
    """Whether nobody can read the answer any more, or all of it was said."""
    finished: bool = False
    lost: Callable[[], None] | None = None
    long: bool = False
    wake: asyncio.Future[None] | None = None
    room: asyncio.Event | None = None
    tasks: Scope | None = None
    listening: asyncio.Task[None] | None = None
    pumping: asyncio.Task[None] | None = None
    holder: UnreadBody | None = None

    # -- called by the endpoint

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """Send a whole answer."""
        self.begin(status, head)
        self.write(body)
        self.finish()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        """Start an answer of unknown length."""
        if self.gone:
            return
        if self.start is not None:
            raise RuntimeError("this answer has begun already")
        self.start = (status, head)
        self._tell()

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""
        if data and not self.gone:
            self.outbox.append(data)
            self.backlog += len(data)
            if self.backlog > HIGH_WATER:
                self.holder = self.holder or UnreadBody(self)
                if not unread.grew(self.holder, self.backlog):
                    return
            self._tell()

    def finish(self) -> None:
        """End the answer."""
        if not self.gone:
            self.gone = self.finished = True
            self.lost = None
            self._tell()

    def abort(self) -> None:
        """Cut the way: what was written and not taken is lost."""
        if not self.gone:
            self.cut()

    def cut(self) -> None:
        """Cut the way, also of an answer that is finished and not taken yet."""
        self.gone = True
        self.finished = False
        self.lost = None
        self.outbox.clear()
        self.backlog = 0
        self._tell()
        if self.room is not None:
            self.room.set()
        if self.pumping is not None:
            # It may be in the middle of a `send` that a peer who reads nothing never ends.
            self.pumping.cancel()

    def watch(self, lost: Callable[[], None]) -> None:
        """Call a function, once, if the peer goes away before the answer is finished; the last one given counts."""
        self.lost = lost
        if self.long:
            self._listen()

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""
        while self.backlog > HIGH_WATER and not self.gone:
            self.room = self.room or asyncio.Event()
            self.room.clear()
            await self.room.wait()

    # -- what the request's coroutine does

    async def deliver(self) -> None:
        """Stay with the request until its answer is taken or cut."""
        try:
            if self.start is None and not self.gone:
                self.quiet_calls.begin(self)
                await self._news()
            if self.start is None or (self.gone and not self.finished):
                # An ASGI app cannot hang up before its answer has begun, and servers complain of silence.
                await self._send_whole(503, TEXT_HEAD, b"The request was given up\n")
            elif self.finished:
                await self._send_finished(*self.start)
            else:
                await self._stream(*self.start)
        finally:
            self.quiet_calls.end(self)
            self._lose()
            if self.holder is not None:
                unread.drained(self.holder)
            if self.tasks is not None:
                await self.tasks.close()

    async def _send_finished(self, status: int, head: bytes) -> None:
        """Send an answer that is whole; a large one so that it can be cut while its reader takes its time."""
        body = b"".join(self.outbox)
        if len(body) <= HIGH_WATER:
            await self._send_whole(status, head, body)
            return
        self.outbox.clear()
        self.tasks = self.tasks or Scope(self.quiet_calls.loop)
        self.pumping = self.tasks.spawn(self._send_whole(status, head, body))
        await asyncio.wait([self.pumping])

    async def _send_whole(self, status: int, head: bytes, body: bytes) -> None:
        headers = list(header_pairs(head))
        if status not in WITHOUT_LENGTH:
            headers.append((b"content-length", b"%d" % len(body)))
        try:
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})
        except Exception as reason:
            logger.debug("an answer could not be sent: %r", reason)

    async def _stream(self, status: int, head: bytes) -> None:
        listening = self._listen()
        assert self.tasks is not None
        self.pumping = self.tasks.spawn(self._pump(status, head))
        await asyncio.wait((self.pumping, listening), return_when=asyncio.FIRST_COMPLETED)

    async def _pump(self, status: int, head: bytes) -> None:
        try:
            await self.send({"type": "http.response.start", "status": status, "headers": list(header_pairs(head))})
            more = True
            while more:
                data = b"".join(self.outbox)
                more = not self.finished
                self.outbox.clear()
                # Also when it is empty: a server sends the head with the first part of the body.
                await self.send({"type": "http.response.body", "body": data, "more_body": more})
                self._taken(len(data))
                if more and not self.outbox and not self.finished:
                    await self._news()
        except Exception as reason:
            logger.debug("a stream could not be sent: %r", reason)
            self._lose()

    def _taken(self, size: int) -> None:
        self.backlog -= size
        if self.holder is not None:
            unread.grew(self.holder, self.backlog)
        if self.room is not None and self.backlog <= LOW_WATER:
            self.room.set()

    # -- events: of the endpoint, and of the peer's end

    async def _news(self) -> None:
        self.wake = self.quiet_calls.loop.create_future()
        await self.wake

    def _tell(self) -> None:
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def runs_long(self) -> None:
        """Called when the call has run for a while: from now on it pays to know whether its client is still there."""
        self.long = True
        if self.lost is not None:
            self._listen()

    def _listen(self) -> asyncio.Task[None]:
        if self.listening is None:
            self.tasks = self.tasks or Scope(self.quiet_calls.loop)
            self.listening = self.tasks.spawn(self._wait_for_end())
        return self.listening

    async def _wait_for_end(self) -> None:
        try:
            while (await self.receive())["type"] != "http.disconnect":
                pass
        except Exception as reason:
            logger.debug("a connection ended with an error: %r", reason)
        self._lose()

    def _lose(self) -> None:
        lost = self.lost
        self.abort()
        if lost is not None:
            lost()


class UnreadBody(Struct, eq=False):
    """What the reader of an answer has not taken yet, on the account of the process."""

    answer: AsgiAnswer

    @property
    def backlog(self) -> int:
        """How many bytes wait for the reader now."""
        return self.answer.backlog

    def abort(self) -> None:
        """Cut the answer, also one that is finished."""
        self.answer.cut()


@lru_cache(maxsize=256)
def header_pairs(head: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Read lines of headers as they go over the wire."""
    pairs = []
    for line in head.split(b"\r\n"):
        if line:
            name, _, value = line.partition(b": ")
            pairs.append((name, value))
    return tuple(pairs)


CLOSE_NORMAL = 1000
HTTP_ANSWER = "websocket.http.response"
"""What an ASGI server can do that lets an application refuse with a status of its own."""


async def refuse_websocket(scope: Event, send: Send, status: int, why: str, head: bytes = b"") -> None:
    """Refuse a WebSocket that was not accepted yet; a server that cannot say the status says 403."""
    if HTTP_ANSWER not in scope.get("extensions", ()):
        await send({"type": "websocket.close", "code": CLOSE_NORMAL, "reason": why})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *header_pairs(head)]
    await send({"type": f"{HTTP_ANSWER}.start", "status": status, "headers": headers})
    await send({"type": f"{HTTP_ANSWER}.body", "body": f"{why}\n".encode()})
