"""Reaching a server over Streamable HTTP, in either era: every message is a POST, every answer JSON or a stream.

Rule 1: nothing waits in a task. A message is written where it is sent, its answer is handed up where it is read; tasks
are for what is rare: opening connections, a new session, a fresh list of tools, the transport before this one.
Rule 2: the era is a fact about a message. One that brings its own version is mirrored in headers, and cancelled by
closing its stream; any other belongs to the session.
Rule 3: what may have run is never sent again behind the caller's back, unless the server says that does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from ferrule.errors import CallFailed, CarrierError, FerruleError
from ferrule.schema.notices import CANCELLED, INITIALIZED
from ferrule.supervision.scope import Scope
from ferrule.transports.backpressure import Waiters
from ferrule.transports.http.client.dial import Destination
from ferrule.transports.http.client.headers import RequestHeaders
from ferrule.transports.http.client.old_sse import SseChannel
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.client.pool import ROOM, Overflow, Pool
from ferrule.transports.http.client.post import Post
from ferrule.transports.http.client.request import HttpExchange, SingleExchange
from ferrule.transports.http.client.resumption import StandingStream
from ferrule.transports.http.client.session import SessionRenewal, session_id, settled_version
from ferrule.transports.http.client.tool_facts import ToolFactsOfTransport, refresh
from ferrule.transports.shutdown import tell_lost
from ferrule.wire.channel import ChannelDefaults, Receiver, Traits
from ferrule.wire.codec import encode_within, write
from ferrule.wire.messages import ErrorObject, Id, Message, Notification, Request

logger = logging.getLogger("ferrule.transports")

STANDING = frozenset({"subscriptions/listen", "ping"})
"""Requests that must not wait behind others: one stays open, the other finds out whether the server lives."""

STREAM_PATIENCE = 0.3
"""How many seconds requests wait for the stream that questions come on; some servers say nothing until they ask."""

FAREWELL = 2.0
"""How many seconds a server may take to say goodbye."""


class HttpChannel(ChannelDefaults):
    """The way to one server: what is sent is posted, what comes back is handed up."""

    traits = Traits(always_answers=True)

    def __init__(self, receiver: Receiver, pool: Pool, heading: RequestHeaders, options: HttpOptions) -> None:
        self.receiver = receiver
        self.pool = pool
        self.heading = heading
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.known = ToolFactsOfTransport()
        self.closing = False
        self._scope = Scope(self.loop)
        self._posts: dict[Id, Post] = {}
        self._notes: set[Post] = set()
        self._held: list[Post] | None = None
        self._patient = Waiters()
        """Senders that wait until what is held is sent."""
        self._patience: asyncio.TimerHandle | None = None
        self._standing: StandingStream | None = None
        self._renewing = SessionRenewal(self)
        self._older: SseChannel | None = None
        self._ending: asyncio.Task[None] | None = None
        self._quiet: asyncio.Future[None] | None = None
        self._lost = False
        self._on_gap: Callable[[bool], None] = lambda renewed: None

    def hear_gaps(self, handler: Callable[[bool], None]) -> None:
        """Call a function when the server may have told what we did not hear, though the channel lives on.

        With True there is a new session, which knows no subscription; with False the stream for notifications is gone.
        """
        self._on_gap = handler

    def gap(self, *, renewed: bool) -> None:
        """Learn of such a gap."""
        if not self.closing:
            self._on_gap(renewed)

    # -- sending

    def send(self, message: Message | Sequence[Message]) -> None:
        """Post one message, or a batch."""
        if self.closing:
            return
        if self._older is not None:
            self._older.send(message)
            return
        frame = encode_within(message, self.options.max_message_size)
        if type(message) is Request:
            post = Post(self, message, frame, "urgent" if message.method in STANDING else "usual")
            self._posts[message.id] = post
            if message.method == "initialize":
                self._begin_session(message.id, frame)
        elif type(message) is Notification and message.method == CANCELLED:
            self._cancel(message, frame)
            return
        else:
            post = Post(self, message, frame, "urgent")
            self._notes.add(post)
            for identity in post.unanswered:
                self._posts[identity] = post
        if self._held is None:
            post.send()
        else:
            self._held.append(post)
        if post.method == INITIALIZED:
            self.hold()

    def submit(self, asked: HttpExchange) -> None:
        """Let a request have a connection as soon as there is one."""
        try:
            self.pool.submit(asked)
        except Overflow as reason:
            self.loop.call_soon(asked.lost, CallFailed(f"nothing was sent: {reason}"))

    def _begin_session(self, identity: Id, frame: bytes) -> None:
        self.heading.settle("", "")
        self._renewing.initialize = (identity, frame)

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
            note = Post(self, notice, frame, "urgent")
            self._notes.add(note)
            note.send()

    async def wait_writable(self) -> None:
        """Return at once unless many requests wait for a connection, or for the server to be ready."""
        while self._held is not None and len(self._held) > ROOM and not self.closing:
            await self._patient.wait()
        await self.pool.wait_for_room()

    # -- receiving

    def deliver(self, frame: bytes) -> None:
        """Hand a message up; a receiver that fails on it loses the channel."""
        if self._lost:
            return
        try:
            self.receiver.frame_received(frame, self)
        except Exception as error:
            logger.exception("the receiver failed on what it received; its channel is closed")
            self.lose(error)

    def fail(self, identities: Sequence[Id], error: Exception) -> None:
        """Tell that requests will get no answer."""
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
            self._patience = self.loop.call_later(STREAM_PATIENCE, self.stood)

    def learned(self, post: Post, frame: bytes) -> bytes:
        """Learn what matters here from an answer: the session, the tools; gives it as it may be handed up."""
        if post.method == "initialize":
            version = settled_version(frame)
            if version:
                self.heading.settle(session_id(post.headers), version)
        elif post.method == "tools/list":
            sound, _ = self.known.learn(frame)
            return sound if post.stateless else frame
        return frame

    # -- the session (handshake era)

    def unmirrored_lines(self, method: str) -> bytes:
        """Return the lines of a message that does not bring its own version."""
        if method == "initialize":
            return b""
        return self.heading.session_lines or self.heading.told(method)

    def hold(self) -> None:
        """Hold back what is sent until the server is ready for it."""
        if self._held is None:
            self._held = []

    def send_held(self) -> None:
        """Send what was held."""
        held = self._held or []
        self._held = None
        for post in held:
            if post.wanted:
                post.send()
        self._patient.wake()

    def stand(self) -> None:
        """Open the stream for what belongs to no request."""
        if self._standing is not None:
            self._standing.stop()
        if not self.closing:
            self._standing = StandingStream(self)
            self.submit(self._standing)

    def stood(self) -> None:
        """Called when the server answered when it was asked for that stream, or takes too long for it."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
            self.send_held()

    def session_over(self, post: Post) -> None:
        """Called when the server has forgotten the session."""
        self._renewing.session_over(post)

    def fall_back(self, post: Post, failure: Exception) -> None:
        """See whether a server without Streamable HTTP has the HTTP+SSE pair."""
        self.spawn(self._fall_back(post, failure))

    async def _fall_back(self, post: Post, failure: Exception) -> None:
        older = SseChannel(self.receiver, self.pool, self.heading, self.options, face=self)
        try:
            await older.open()
        except FerruleError as reason:
            logger.debug("%s has no older transport either: %s", self.heading.place, reason)
            post.fail(failure)
            return
        self._older = older
        post.over()
        older.send(post.message)

    # -- the newest tools (stateless era)

    def may_refresh(self, post: Post) -> bool:
        """Return whether a newer list of tools may help a call whose headers the server did not like."""
        return post.stateless and post.method == "tools/call" and not post.refreshed

    def refresh(self, post: Post, error: ErrorObject) -> None:
        """List the tools again, and send the call again with the headers they want now."""
        post.refreshed = True
        self.spawn(refresh(post, error))

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
        self.closing = True
        if self._ending is None:
            self._ending = self.loop.create_task(self._end())

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
        if not self.heading.session or self._lost:
            return
        asked = SingleExchange(self.heading.delete(), "urgent", self.options.max_message_size)
        self.heading.settle("", "")
        try:
            await self.ask(asked)
        except Exception as reason:
            logger.debug("%s was not told that the session is over: %s", self.heading.place, reason)

    def lose(self, error: Exception | None) -> None:
        """Tell the receiver, once, that nothing more comes and nothing can go out."""
        self.closing = True
        if self._lost:
            return
        self._lost = True
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._older is not None:
            self._older.cut()
        for timed in (*self._posts.values(), *self._notes):
            timed.stop()
        self._posts.clear()
        self._notes.clear()
        self._patient.wake()
        self.pool.close()
        tell_lost(self.receiver, self, error)


class HttpTransport:
    """Reaches a server at a URL over Streamable HTTP; connecting again begins a new conversation."""

    carrier = "http"

    def __init__(self, url: str, **options: Any) -> None:
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
        self._channel = HttpChannel(receiver, pool, heading, there.options)
        receiver.channel_opened(self._channel)
        return self._channel

    async def close(self, grace: float = 2.0) -> None:
        """End the session and every connection."""
        channel = self._channel
        self._channel = None
        if channel is not None:
            await channel.end(grace)
