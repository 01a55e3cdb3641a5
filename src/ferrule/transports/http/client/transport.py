"""Reaching a server over Streamable HTTP, in either era: every message is a POST, every answer JSON or a stream.

Rule 1: nothing waits in a task. A message is written where it is sent, its answer is handed up where it is read; tasks
are for what is rare: opening connections, the end, the transport before this one.
Rule 2: the era is a fact about a message. One that brings its own version is mirrored in headers, and cancelled by
closing its stream; any other belongs to the session.
Rule 3: what may have run is never sent again behind the caller's back, unless its `Handling` says that does no harm.
Rule 4: nothing is asked and no result is read here. A session that is over is told of (`hear_gaps`), and whoever hears
of it makes the handshake again.

States of a channel (MCP transports/streamable-http, "Session Management" and "Listening for Messages from the Server"):

    OPEN      what is sent is posted
    GREETED   `notifications/initialized` is on its way: all else waits for the stream of the server's questions
    EXPIRED   the server answered 404 to the session: all but a new handshake waits
    REPLACED  the server has only the transport before this one (HTTP+SSE), which carries everything
    CLOSING   nothing more is sent; the last notifications go out, then DELETE ends the session
    LOST      the receiver was told that nothing more comes

    state              event                                            next
    OPEN, EXPIRED      `notifications/initialized` is sent              GREETED
    GREETED            the GET is answered, or takes STREAM_PATIENCE    OPEN      send what waited
    OPEN               404 to a request of this session                 EXPIRED   tell of the gap
    EXPIRED            no new session within `renew_timeout`            LOST
    OPEN               400, 404, 405 to `initialize`; a stream at GET   REPLACED
    any but LOST       `close`                                          CLOSING
    any but LOST       said goodbye; the receiver failed; `end`         LOST
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack

from ferrule.errors import CallFailed, CarrierError, FerruleError, LinkLost, OutcomeUnknown
from ferrule.schema.notices import CANCELLED, INITIALIZED
from ferrule.supervision.scope import Scope
from ferrule.transports.backpressure import Waiters
from ferrule.transports.contract import Credentials
from ferrule.transports.http.client.credentials import Claim, Gate
from ferrule.transports.http.client.dial import Destination
from ferrule.transports.http.client.headers import RequestHeaders, session_id
from ferrule.transports.http.client.old_sse import SseChannel
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.client.pool import ROOM, Lane, Overflow, Pool
from ferrule.transports.http.client.post import Post
from ferrule.transports.http.client.request import HttpExchange, SingleExchange
from ferrule.transports.http.client.resumption import StandingStream
from ferrule.transports.http.client.status import judge
from ferrule.transports.shutdown import tell_lost
from ferrule.wire.channel import SHORT_SESSION, ChannelDefaults, Gap, Handling, Origin, Receiver, Traits
from ferrule.wire.codec import encode_within, write
from ferrule.wire.messages import Id, Message, Notification, Request

if TYPE_CHECKING:
    from ferrule.transports.keywords import HttpClientKeywords

logger = logging.getLogger("ferrule.transports")

STANDING = frozenset({"subscriptions/listen", "ping"})
"""Requests that must not wait behind others: one stays open, the other finds out whether the server lives."""

HANDSHAKE = frozenset({"initialize", INITIALIZED})
"""What a channel without a session sends."""

STREAM_PATIENCE = 0.3
"""How many seconds requests wait for the stream that questions come on; some servers say nothing until they ask."""

FAREWELL = 2.0
"""How many seconds a server may take to say goodbye."""

LIKE_ANY = Handling()


class State(enum.Enum):
    """How things stand with a channel; the table is at the head of this module."""

    OPEN = enum.auto()
    GREETED = enum.auto()
    EXPIRED = enum.auto()
    REPLACED = enum.auto()
    CLOSING = enum.auto()
    LOST = enum.auto()


OPEN, GREETED, EXPIRED, REPLACED, CLOSING, LOST = State
ENDED = frozenset({CLOSING, LOST})


class HttpChannel(ChannelDefaults):
    """The way to one server: what is sent is posted, what comes back is handed up."""

    traits = Traits(always_answers=True, mirrors=True)

    def __init__(
        self,
        receiver: Receiver,
        pool: Pool,
        heading: RequestHeaders,
        options: HttpOptions,
        credentials: Credentials | None = None,
    ) -> None:
        self.receiver = receiver
        self.pool = pool
        self.heading = heading
        self.options = options
        self.loop = asyncio.get_running_loop()
        self._state = OPEN
        self._timer: asyncio.TimerHandle | None = None
        """Ends GREETED or EXPIRED, where nothing else does."""
        self._scope = Scope(self.loop)
        self._credentials = credentials
        self.gate: Gate | None = None
        """Knows who we are; None where nobody asked."""
        if credentials is not None:
            self.gate = Gate(credentials, self.spawn, receiver)
        self._posts: dict[Id, Post] = {}
        self._notes: set[Post] = set()
        self._held: list[Post] = []
        """What was sent in GREETED or EXPIRED."""
        self._parked: list[Post] = []
        """What the server refused with the session it had forgotten, and may get again in the next."""
        self._patient = Waiters()
        """Senders that wait until what is held is sent."""
        self._standing: StandingStream | None = None
        self._older: SseChannel | None = None
        self._ending: asyncio.Task[None] | None = None
        self._quiet: asyncio.Future[None] | None = None
        self._gap_handlers: list[Callable[[Gap], None]] = []

    @property
    def closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._state in ENDED

    def hear_gaps(self, handler: Callable[[Gap], None]) -> None:
        """Call a function when the session, or its stream of notifications, is gone."""
        self._gap_handlers.append(handler)

    def gap(self, lost: Gap) -> None:
        """Call the handlers of such a gap."""
        if self._state not in ENDED:
            for handler in self._gap_handlers:
                handler(lost)

    # -- sending

    def send(self, message: Message | Sequence[Message], handling: Handling = LIKE_ANY) -> None:
        """Post one message, or a batch, and handle it on its way as told."""
        if self._state in ENDED:
            return
        if self._older is not None:
            self._older.send(message)
            return
        frame = encode_within(message, self.options.max_message_size)
        if type(message) is Request:
            lane: Lane = "urgent" if message.method in STANDING else "usual"
            post = Post(self, message, frame, lane, handling)
            self._posts[message.id] = post
            if message.method == "initialize":
                self.heading.settle("", "")
        elif type(message) is Notification and message.method == CANCELLED:
            self._cancel(message, frame)
            return
        else:
            post = Post(self, message, frame, "urgent", handling)
            self._notes.add(post)
            for identity in post.unanswered:
                self._posts[identity] = post
        if self._state is OPEN or (self._state is EXPIRED and post.method in HANDSHAKE):
            post.send()
        else:
            self._held.append(post)
        if post.method == INITIALIZED:
            self._enter(GREETED)

    send_with = send

    def _enter(self, state: State) -> None:
        self._state = state
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def submit(self, asked: HttpExchange) -> None:
        """Let a request have a connection as soon as there is one."""
        try:
            self.pool.submit(asked)
        except Overflow as reason:
            self.loop.call_soon(asked.lost, CallFailed(f"nothing was sent: {reason}"))

    def _cancel(self, notice: Notification, frame: bytes) -> None:
        """Withdraw a request: closing its stream says so in the stateless era, a notification in the other."""
        if isinstance(notice.params, dict):
            identity = notice.params.get("requestId")
        else:
            identity = None
        if not isinstance(identity, int | str) or identity not in self._posts:
            return
        post = self._posts.pop(identity)
        sent = post.connection is not None or post.events is not None
        if post.timer is not None and post.attempts:
            logger.warning("%s is given up; it waited to be sent again (HTTP %d)", post.what, post.status)
        post.unanswered.remove(identity)
        if not isinstance(post.message, Sequence):
            post.stop()
        if sent and not post.stateless:
            if post.identity is not None:
                notice = Notification(CANCELLED, {**notice.params, "requestId": post.identity})
                frame = write(notice)
            note = Post(self, notice, frame, "urgent", LIKE_ANY)
            self._notes.add(note)
            note.send()

    async def wait_writable(self) -> None:
        """Return at once unless many requests wait for a connection, or for the server to be ready."""
        while len(self._held) > ROOM and self._state not in ENDED:
            await self._patient.wait()
        await self.pool.wait_for_room()

    # -- receiving

    def deliver(self, frame: bytes, origin: Origin | None = None) -> None:
        """Hand a message up; a receiver that fails on it loses the channel."""
        if self._state is LOST:
            return
        try:
            self.receiver.frame_received(frame, self, origin)
        except Exception as error:
            logger.exception("the receiver failed on what it received; its channel is closed")
            self.lose(error)

    def fail(self, identities: Sequence[Id], error: Exception) -> None:
        """Called when requests will get no answer: report that to the receiver."""
        for identity in identities:
            self.receiver.request_failed(identity, error, self)

    def over(self, post: Post) -> None:
        """Called when nothing is waited for any more."""
        message = post.message
        if type(message) is Request:
            self._posts.pop(message.id, None)
            return
        if post not in self._notes:
            return
        self._notes.discard(post)
        if self._quiet is not None and not self._notes and not self._quiet.done():
            self._quiet.set_result(None)
        if isinstance(message, Sequence):
            for each in message:
                if isinstance(each, Request):
                    self._posts.pop(each.id, None)
        elif post.method == INITIALIZED:
            # What a server asks in the first moments it may ask on that stream, and loses where there is none yet.
            self.stand()
            if self._state is GREETED:
                self._timer = self.loop.call_later(STREAM_PATIENCE, self.stood)

    # -- the session (handshake era)

    def unmirrored_lines(self, method: str) -> bytes:
        """Return the lines of a message that does not bring its own version."""
        if method == "initialize":
            return b""
        return self.heading.session_lines or self.heading.told(method)

    def initialized(self, headers: dict[bytes, bytes]) -> None:
        """Take the session that comes with the answer to `initialize`."""
        self.heading.settle(session_id(headers), "")
        self.short_session = self.heading.session[:SHORT_SESSION]

    def agreed(self, version: str) -> None:
        """Name the revision with every request of the session."""
        self.heading.settle(self.heading.session, version)

    def session_over(self, post: Post) -> None:
        """Called when the server did not know the session a message went with.

        One new session follows one lost, however many requests find out; one that loses the new one too, fails.
        """
        place = self.heading.place
        if not post.unanswered:
            # What was told or answered in a session that is over concerns nobody any more.
            post.over()
            return
        if post.parked or not self._gap_handlers or self._state in ENDED:
            post.fail(LinkLost(f"{place} does not know its own session; its sessions may live on another machine"))
            return
        post.parked = True
        if post.repeatable:
            self._parked.append(post)
        else:
            post.fail(
                OutcomeUnknown(
                    f"unknown outcome: {place} ended the session, and {post.what} was not sent again; "
                    "a new session is opened: call it again if it may run twice"
                )
            )
        if self._state is OPEN and post.session == self.heading.session:
            self._expire()
        elif self._state is OPEN:
            self._send_waiting()

    def _expire(self) -> None:
        logger.warning("%s ended the session; a new one is opened, without its subscriptions", self.heading.place)
        self._enter(EXPIRED)
        self._timer = self.loop.call_later(self.options.renew_timeout, self._not_renewed)
        self.gap("session")

    def _not_renewed(self) -> None:
        patience = f"it took longer than {self.options.renew_timeout:g} s"
        self.lose(LinkLost(f"{self.heading.place} ended the session, and no new one could be opened: {patience}"))

    def _send_waiting(self) -> None:
        """Send what waited for the server to be ready."""
        waiting = [*self._parked, *self._held]
        self._parked = []
        self._held = []
        for post in waiting:
            if post.parked:
                post.send_again()
            elif post.wanted:
                post.send()
        self._patient.wake()

    def stand(self) -> None:
        """Open the stream for what belongs to no request."""
        if self._standing is not None:
            self._standing.stop()
        if self._state not in ENDED:
            self._standing = StandingStream(self)
            self._standing.ask()

    def stood(self) -> None:
        """Called when the server answered when it was asked for that stream, or takes too long for it."""
        if self._state is GREETED:
            self._enter(OPEN)
            self._send_waiting()

    def judge(self, post: Post) -> None:
        """Decide what becomes of a message that got no MCP answer."""
        judge(post)

    def fall_back(self, post: Post, failure: Exception) -> None:
        """See whether a server without Streamable HTTP has the HTTP+SSE pair."""
        if self._state is OPEN:
            self.spawn(self._fall_back(post, failure))
        else:
            post.fail(failure)

    async def _fall_back(self, post: Post, failure: Exception) -> None:
        older = SseChannel(
            self.receiver, self.pool, self.heading, self.options, face=self, credentials=self._credentials
        )
        try:
            await older.open()
        except FerruleError as reason:
            logger.debug("%s has no older transport either: %s", self.heading.place, reason)
            post.fail(failure)
            return
        self._older = older
        if self._state is OPEN:
            self._enter(REPLACED)
        post.over()
        older.send(post.message)

    # -- the transport's own requests

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that ends with the channel."""
        return self._scope.spawn(work)

    async def ask(self, asked: SingleExchange) -> bytes:
        """Send a request of the transport's own and wait for its answer."""
        self.pool.submit(asked)
        try:
            return await asked.done
        finally:
            asked.let_go()
            if not asked.done.done() or asked.done.cancelled():
                self.pool.withdraw(asked)

    # -- the end

    def close(self, reason: str = "") -> None:
        """Send no more; what was sent is still delivered."""
        if self._state not in ENDED:
            has_session = self._state is not EXPIRED
            self._enter(CLOSING)
            self._send_last_notes(has_session)
        if self._ending is None:
            self._ending = self.loop.create_task(self._end())

    def _send_last_notes(self, has_session: bool) -> None:
        """Send the notifications that were held; those of a session that is over concern nobody."""
        held = self._held
        self._held = []
        for post in held:
            if post not in self._notes:
                continue
            if has_session:
                post.send()
            else:
                post.over()

    async def end(self, grace: float) -> None:
        """Close, and wait until everything is released, at most `grace` seconds for the server."""
        self.close()
        assert self._ending is not None
        try:
            await asyncio.wait([self._ending], timeout=grace)
        finally:
            self._ending.cancel()
            self.lose(None)
        await self._scope.close()
        # The sockets are closed in the next turn of the loop, which may be the last.
        await asyncio.sleep(0)

    async def _end(self) -> None:
        """Let the last notifications go out, end the session, release everything."""
        if self._standing is not None:
            self._standing.stop()
        for post in {post for post in self._posts.values() if post not in self._notes}:
            post.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                if self._notes:
                    self._quiet = self.loop.create_future()
                    await self._quiet
                await self._say_goodbye()
        self.lose(None)

    async def _say_goodbye(self) -> None:
        if not self.heading.session or self._state is LOST:
            return
        try:
            lines = b""
            if self.gate is not None:
                lines = await self.gate.lines(Claim(), "DELETE", self.heading.place)
            asked = SingleExchange(self.heading.delete(lines), "urgent", self.options.max_message_size)
            self.heading.settle("", "")
            await self.ask(asked)
        except Exception as reason:
            logger.debug("%s was not told that the session is over: %s", self.heading.place, reason)

    def lose(self, error: Exception | None) -> None:
        """Report to the receiver, once, that the channel is lost."""
        if self._state is LOST:
            return
        self._enter(LOST)
        if self._older is not None:
            self._older.cut()
        for timed in (*self._posts.values(), *self._notes):
            timed.stop()
        self._posts.clear()
        self._notes.clear()
        self._held.clear()
        self._parked.clear()
        self._patient.wake()
        self.pool.close()
        tell_lost(self.receiver, self, error)


class HttpTransport:
    """Reaches a server at a URL over Streamable HTTP; connecting again begins a new conversation."""

    carrier = "http"

    def __init__(self, url: str, **options: Unpack[HttpClientKeywords]) -> None:
        self.destination = Destination(url, options)
        self._channel: HttpChannel | None = None

    @property
    def address(self) -> str:
        """The URL of the server, without credentials and query."""
        return str(self.destination)

    async def connect(self, receiver: Receiver) -> HttpChannel:
        """Reach the server; raises ConnectFailed when nobody answers there."""
        if self._channel is not None and not self._channel.closing:
            raise CarrierError(f"{self.destination} is connected already: close it first")
        await self.close()
        there = self.destination
        pool = there.pool()
        heading = there.heading()
        await pool.warm()
        self._channel = HttpChannel(receiver, pool, heading, there.options, there.credentials())
        receiver.channel_opened(self._channel)
        return self._channel

    async def close(self, grace: float = 2.0) -> None:
        """End the session and every connection."""
        channel = self._channel
        self._channel = None
        if channel is not None:
            await channel.end(grace)
