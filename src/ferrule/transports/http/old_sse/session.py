"""One session of the HTTP+SSE pair: its stream, and the ways out to its client."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from msgspec import UNSET

from ferrule.transports.http.endpoint.session import SessionChannel
from ferrule.transports.http.endpoint.sessions import EndpointSession
from ferrule.transports.http.endpoint.streams import EndpointStreams, Stream
from ferrule.transports.http.heads import EMPTY_HEAD, INVALID_REQUEST, JSON_HEAD
from ferrule.transports.http.message import Responder
from ferrule.wire.channel import Broadcast, ChannelDefaults, Receiver
from ferrule.wire.codec import encode, encode_within
from ferrule.wire.messages import ErrorObject, Failure, Message, Notification
from ferrule.wire.sse import event

ENDED = "Session ended: it was not used for too long, or had to make room"

SPARE_EVENTS = 4 * 1024
"""Bytes of events that are kept for a lost reader though its system has acknowledged them: a proxy may have been it."""

LONGEST_NUMBER = 12
"""Digits of an event's number; none ever has more."""


def key(identity: str) -> str:
    """Return what a session of the pair is found by; with its line end no `Mcp-Session-Id` can name it."""
    return f"pair\n{identity}"


class SseSessionStream(Stream):
    """The one stream of a session: first it says where to post, last that it ends."""

    __slots__ = ("_created", "_delivered", "_kind", "_news", "lost")

    def __init__(self, shared: EndpointStreams, identity: str, *, created: bool) -> None:
        super().__init__(shared, identity, identity, primed=False)
        self._created = created
        self._kind = "message"
        self._delivered = 0
        self._news: asyncio.Future[None] | None = None
        self.lost: Callable[[], None] | None = None
        """Called when the reader is lost, for a stream its session is bound to."""

    # -- to its reader

    def begin(
        self,
        responder: Responder,
        head: bytes,
        messages_path: str,
        after: int,
        missed: bytes,
        *,
        expires: float = math.inf,
    ) -> None:
        """Send a reader the address to post to, then what it missed, and let it read until its credentials expire."""
        address = f"{messages_path}?session_id={self.name}".encode()
        first = event(address, self._id(after), "endpoint", self._retry) + missed
        self.attach(responder, head, first, expires=expires)
        self.wake()

    def say(self, body: bytes, kind: str) -> None:
        """Send an event of a kind."""
        self._kind = kind
        self.send(body)
        self.wake()

    def _numbered(self, body: bytes) -> bytes:
        self._number += 1
        said = event(body, self._id(self._number), self._kind)
        self._shared.log.append(self._key, self._number, said, self._shared.now)
        return said

    def _id(self, number: int) -> str:
        return f"{self.name}-{number}"

    @property
    def _retry(self) -> int:
        return round(self._shared.settings.sse_retry * 1000)

    def send_keepalive(self) -> None:
        """Send a comment or a keepalive event on a silent stream."""
        if not self._created:
            super().send_keepalive()
        elif self._responder is not None and self._responder.backlog == 0:
            self._responder.write(f"event: keepalive\nid: {self._id(self._number)}\n\n".encode())

    def end_with_reason(self, why: str) -> None:
        """End the stream with an event `close`, and before that an `error` where there is a reason."""
        if self._responder is not None:
            if why:
                error = encode(Failure(UNSET, ErrorObject(INVALID_REQUEST, why)))
                self._responder.write(event(error, name="error"))
            self._responder.write(event(b"closed by the server", self._id(self._number), "close", self._retry))
        self.forget()
        self.wake()

    def detach(self) -> None:
        """Called when nobody reads the stream any more; what is said is kept."""
        responder = self._responder
        if responder is not None:
            self._delivered = self._number
            if responder.unacknowledged is not None:
                self._shared.log.shorten(self._key, responder.unacknowledged, SPARE_EVENTS)
        super().detach()
        if self.lost is not None and not self.ended:
            self.lost()

    # -- to whoever asks

    def position(self, event_id: str) -> int | None:
        """Return the number of an event of this stream; naming none, what was handed out last counts."""
        if not event_id:
            return self._number if self.attached else self._delivered
        name, _, number = event_id.rpartition("-")
        if name != self.name or not (number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER):
            return None
        return int(number)

    def delivered(self, event_id: str) -> None:
        """Called when everything up to an event was handed out."""
        self._delivered = self.position(event_id) or 0

    def skip(self) -> None:
        """Hand out nothing of what was said so far."""
        self._delivered = self._number

    async def wait_news(self, timeout: float) -> None:
        """Return when something is said, when the stream ends or somebody else begins to wait, or after a time."""
        self.wake()
        news = self._news = asyncio.get_running_loop().create_future()
        await asyncio.wait([news], timeout=timeout)

    def wake(self) -> None:
        """Wake whoever waits for news."""
        news = self._news
        self._news = None
        if news is not None and not news.done():
            news.set_result(None)


class SseSessionChannel(SessionChannel):
    """The way out of a session of the pair: its stream, whether or not somebody reads it now."""

    __slots__ = ("_sse_session",)

    def __init__(self, session: SseSession) -> None:
        super().__init__(session)
        self._sse_session = session

    def send(self, message: Message | Sequence[Message]) -> None:
        """Send on the stream; what a lost reader misses is kept until it comes back."""
        session = self._sse_session
        body = encode_within(message, session.shared.settings.max_body_size)
        if not session.stream.ended:
            noted = session.created and type(message) is Notification
            session.stream.say(body, "notification" if noted else "message")

    def send_broadcast(self, broadcast: Broadcast, tag: bytes | None) -> None:
        """Send what was encoded for many as any other message."""
        self.send(broadcast.under(tag))

    async def wait_writable(self) -> None:
        """Return at once unless the client reads slower than we write."""
        await self._sse_session.stream.wait_writable()

    def close(self, reason: str = "") -> None:
        """End the session, with the reason on its stream."""
        self._sse_session.why = reason
        self._sse_session.leave(self._sse_session)


class SseSession(EndpointSession):
    """A session of the pair, opened with its stream or, for `poll_routes`, created before it."""

    __slots__ = ("created", "leave", "stream", "why")

    ages_while_read = False
    """Its stream is all there is of it, and stays open for as long as it is read."""

    def __init__(
        self,
        identity: str,
        link: Receiver,
        shared: EndpointStreams,
        leave: Callable[[EndpointSession], None],
        *,
        created: bool,
        binding: str | None = None,
    ) -> None:
        super().__init__(key(identity), link, binding, shared)
        self.leave = leave
        self.created = created
        self.why = ENDED
        self.stream = SseSessionStream(shared, identity, created=created)
        self.standing = SseSessionChannel(self)

    @property
    def streams(self) -> list[Stream]:
        """The one stream."""
        return [self.stream]

    def end(self, *, deleted: bool = False, moves: bool = False) -> None:
        """End the stream and forget what was said."""
        self.stream.end_with_reason(self.why)


class PostChannel(ChannelDefaults):
    """The way back of what one POST brought: the session's stream, but what is no message is refused at once."""

    __slots__ = ("_head", "_limit", "_outlet", "_responder")

    def __init__(self, outlet: SessionChannel, responder: Responder, head: bytes, limit: int) -> None:
        self._outlet = outlet
        self._responder: Responder | None = responder
        self._head = head
        self._limit = limit

    def send(self, message: Message | Sequence[Message]) -> None:
        """Answer on the stream; an error whose request could not be read has nobody there who waits for it."""
        responder = self._responder
        if responder is not None and isinstance(message, Failure) and not isinstance(message.id, int | str):
            self._responder = None
            responder.reply(400, JSON_HEAD + self._head, encode_within(message, self._limit))
        else:
            self._outlet.send(message)

    def accept(self) -> None:
        """Acknowledge the POST, unless it was refused."""
        responder = self._responder
        self._responder = None
        if responder is not None:
            responder.reply(202, EMPTY_HEAD + self._head)

    async def wait_writable(self) -> None:
        """Return at once unless the client reads slower than we write."""
        await self._outlet.wait_writable()

    def close(self, reason: str = "") -> None:
        """End the session, with the reason on its stream."""
        self._outlet.close(reason)
