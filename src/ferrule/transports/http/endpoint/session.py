"""One session of the handshake era over HTTP: its streams, and the ways back of its exchanges.

Rule 1: each message goes out on exactly one stream (MCP 2025-11-25 basic/transports, Multiple Connections).
Rule 2: a lost connection cancels nothing; what was to be said is kept until its reader comes back (Resumability and
Redelivery).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from ferrule.errors import LinkLost
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.lifecycle import InitializeResult
from ferrule.transports.http.endpoint.exchange import AnswerHead
from ferrule.transports.http.endpoint.streams import EndpointStreams, Stream
from ferrule.transports.http.heads import EMPTY_HEAD, JSON_HEAD, STREAM_HEAD, refuse
from ferrule.transports.http.message import Responder, header_lines
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.channel import Broadcast, ChannelDefaults, Receiver, Traits
from ferrule.wire.codec import encode, encode_within, too_long
from ferrule.wire.messages import Failure, Message, Request, Success

NO_SESSION = "Session not found: unknown or expired; initialize again"

STANDING = "s"
"""How the number of a session's standing stream begins in its name."""

MOST_FINISHED = 16
"""How many streams that ended are kept for readers that lost the end."""

MOST_UNDELIVERED = 64
"""How many events wait for a client that has never opened a stream for them."""

MAX_UNDELIVERED_BYTES = 64 * 1024
"""Bytes of those events."""

MAX_ALL_UNDELIVERED_BYTES = 4 * 1024 * 1024
"""Bytes of those events of all sessions together; the session that has most loses its oldest."""

MAX_ALL_FINISHED = 20_000
"""How many ended streams of all sessions together are kept; the session that has most loses its oldest."""


class HttpSession:
    """One session; thousands may be idle at once, so it holds little until it streams."""

    __slots__ = (
        "_answering",
        "_count",
        "_finished",
        "_own",
        "_tag",
        "binding",
        "generation",
        "id",
        "link",
        "over",
        "polls",
        "shared",
        "started",
        "used",
    )

    def __init__(self, identity: str, link: Receiver, binding: str | None, shared: EndpointStreams) -> None:
        self.id = identity
        self.link = link
        self.binding = binding
        """What it is bound to (`Origin.binding`): only the principal that opened it finds it again."""
        self.shared = shared
        self.started = self.used = shared.now
        self.polls = False
        """Whether readers of its streams are sent away and come back (`Revision.polls`)."""
        self.over = False
        self.generation = 1
        """How many processes have had it, this one included."""
        self._tag = ""
        self._count = 0
        self._own: dict[str, Stream] | None = None
        self._finished: deque[Stream] | None = None
        self._answering: set[SessionExchange] | None = None

    def begins(self, exchange: SessionExchange) -> None:
        """Called when an exchange owes an answer."""
        if self._answering is None:
            self._answering = {exchange}
        else:
            self._answering.add(exchange)

    def ends(self, exchange: SessionExchange) -> None:
        """Called when an exchange owes no answer any more."""
        if self._answering is not None:
            self._answering.discard(exchange)
            self._answering = self._answering or None

    @property
    def tag(self) -> str:
        """How the names of its streams begin; nobody can tell its id from it."""
        if not self._tag:
            self._tag = blake2b(self.id.encode(), digest_size=6).hexdigest()
        return self._tag

    def new_stream(self, *, standing: bool = False) -> Stream:
        """Open a stream: of one call, or the standing one for what belongs to none."""
        if self._own is None:
            self._own = {}
        self._count += 1
        name = f"{self.tag}.{STANDING if standing else ''}{self._count:x}"
        if self.generation > 1:
            name += f".{self.generation:x}"
        stream = self._own[name] = Stream(self.shared, name, name, primed=self.polls)
        return stream

    def stream_of(self, event_id: str) -> tuple[Stream, int] | None:
        """Find the stream an event was said on, and its number there."""
        name, _, number = event_id.rpartition("-")
        if self._own is None:
            stream = None
        else:
            stream = self._own.get(name)
        if stream is None or not _is_number(number):
            return None
        return stream, int(number)

    async def past_stream(self, event_id: str) -> tuple[bool, bytes] | None:
        """Return what was said after an event at the node that had the session before; None where that is not known.

        The first value says whether it was said on the standing stream.
        """
        name, _, number = event_id.rpartition("-")
        tag, _, rest = name.partition(".")
        if tag != self.tag or not _is_number(number):
            return None
        events = await self.shared.log.after(name, int(number))
        if events is None:
            return None
        return rest.startswith(STANDING), b"".join(events)

    def finished(self, stream: Stream) -> None:
        """Keep a stream that ended for a while, and forget the one that ended longest ago."""
        if self._finished is None:
            self._finished = deque()
        finished = self._finished
        finished.append(stream)
        if len(finished) > MOST_FINISHED:
            # It takes the place of another, so the session holds as many as before.
            self._forget(finished.popleft())
            return
        shares = self.shared.finished
        shares.take(self, 1)
        while shares.total > MAX_ALL_FINISHED:
            largest = shares.largest()
            assert largest is not None
            largest.forget_oldest()

    def forget_oldest(self) -> None:
        """Forget the stream that ended longest ago."""
        assert self._finished is not None
        self.shared.finished.give(self, 1)
        self._forget(self._finished.popleft())

    def _forget(self, stream: Stream) -> None:
        assert self._own is not None
        self._own.pop(stream.name, None)
        stream.forget()

    @property
    def streams(self) -> list[Stream]:
        """The streams that are open or kept."""
        if self._own is None:
            return []
        return list(self._own.values())

    @property
    def last_active(self) -> float:
        """When somebody was last here: asked, got an answer, or read a stream."""
        return max([self.used, *(stream.last_read for stream in self.streams)])

    def end(self, *, deleted: bool = False, moves: bool = False) -> None:
        """End all exchanges and streams, and forget what was said unless another node goes on with the session.

        A client that deletes its session expects no answers any more: what it waited for ends as if it were cancelled.
        Any other has to learn that its session is over.
        """
        self.over = True
        if self._answering is not None:
            for exchange in list(self._answering):
                if deleted:
                    exchange.withdrawn()
                else:
                    exchange.close()
        if self._own is None:
            return
        for stream in self.streams:
            if moves:
                stream.finish()
            else:
                stream.forget()
        self._own = None
        self._finished = None
        self.shared.finished.forget(self)


class SessionChannel(ChannelDefaults):
    """The way out to a session's client for what belongs to no exchange: the stream it opens with GET."""

    __slots__ = ("_session", "_undelivered", "stream")

    traits = Traits(patient=True, watches_itself=True)

    def __init__(self, session: HttpSession) -> None:
        self._session = session
        self.stream: Stream | None = None
        self._undelivered: deque[bytes] | None = None

    def send(self, message: Message | Sequence[Message]) -> None:
        """Send on the client's own stream, or keep the message until there is one; raises LinkLost for a question."""
        body = encode_within(message, self._session.shared.settings.max_body_size)
        if type(message) is Request and (self.stream is None or not self.stream.attached):
            raise LinkLost("the client has no stream open on which it could be asked")
        if self.stream is not None:
            self.stream.send(body)
            return
        self._keep(body)

    def send_broadcast(self, broadcast: Broadcast, tag: bytes | None) -> None:
        """Send what was encoded for many, or keep it until there is a stream."""
        body = broadcast.text_under(tag)
        most = self._session.shared.settings.max_body_size
        if len(body) > most:
            raise too_long(len(body), most)
        if self.stream is not None:
            self.stream.send(body)
        else:
            self._keep(body)

    def _keep(self, body: bytes) -> None:
        """Keep an event for a client that has not opened its stream yet, within all bounds."""
        if self._session.over:
            return
        if self._undelivered is None:
            self._undelivered = deque()
        undelivered = self._undelivered
        shares = self._session.shared.undelivered
        undelivered.append(body)
        shares.take(self, len(body))
        while len(undelivered) > MOST_UNDELIVERED or shares.held(self) > MAX_UNDELIVERED_BYTES:
            self.forget_oldest()
        while shares.total > MAX_ALL_UNDELIVERED_BYTES:
            largest = shares.largest()
            assert largest is not None
            largest.forget_oldest()

    def forget_oldest(self) -> None:
        """Forget the event that has waited longest for the client's stream."""
        assert self._undelivered is not None
        self._session.shared.undelivered.give(self, len(self._undelivered.popleft()))

    def attach(self, responder: Responder, head: bytes, missed: bytes = b"", *, expires: float = math.inf) -> None:
        """The client opens its stream, or comes back from another node for what it has missed.

        A second stream takes the place of the first.
        """
        if self.stream is None:
            self.stream = self._session.new_stream(standing=True)
        self.stream.attach(responder, head, missed, expires=expires)
        for body in self._take_undelivered():
            self.stream.send(body)

    def _take_undelivered(self) -> Sequence[bytes]:
        undelivered = self._undelivered
        self._undelivered = None
        if undelivered is None:
            return ()
        self._session.shared.undelivered.forget(self)
        return undelivered

    async def wait_writable(self) -> None:
        """Return at once unless the client reads slower than we write."""
        if self.stream is not None:
            await self.stream.wait_writable()

    def close(self, reason: str = "") -> None:
        """End the client's own stream."""
        if self.stream is not None:
            self.stream.finish()
        self._take_undelivered()


class SessionExchange(AnswerHead):
    """The way back of one POST in a session: JSON until something streams, then events that can be resumed."""

    _session: HttpSession
    _standing: SessionChannel
    _stream: Stream | None = None
    open: bool = True
    _waits: bool = False

    traits = Traits(headers=True)

    def mark_pending(self) -> None:
        """Called when the answer is owed for a while: it ends with the session, and streams if it takes long."""
        session = self._session
        if session.over:
            self.close()
            return
        self._waits = True
        session.begins(self)
        if self._stream is None and session.shared.settings.response != "json":
            session.shared.keepalive.pending.add(self)

    def send(self, message: Message | Sequence[Message]) -> None:
        """Answer, or stream what comes before the answer."""
        if not self.open:
            return
        settings = self._session.shared.settings
        kind = type(message)
        if kind is Success or kind is list:
            self._answer(200, encode_within(message, settings.max_body_size), settings)
        elif kind is Failure:
            status = self._failed(message)  # type: ignore[arg-type]
            self._answer(status, encode_within(message, settings.max_body_size), settings)
        elif settings.response == "json":
            self._standing.send(message)
        else:
            body = encode_within(message, settings.max_body_size)
            self.begin_stream()
            assert self._stream is not None
            self._stream.send(body)

    def end(self) -> bool:
        """Owe no answer any more. Return whether one was still owed."""
        owed = self.open
        self.open = False
        if owed and self._waits:
            self._end_wait()
        return owed

    def _end_wait(self) -> None:
        session = self._session
        session.used = session.shared.now
        session.shared.keepalive.answered(self)
        session.ends(self)

    def _answer(self, status: int, body: bytes, settings: EndpointSettings) -> None:
        self.open = False
        if self._waits:
            self._end_wait()
        stream = self._stream
        if stream is not None:
            stream.finish(body)
            self._session.finished(stream)
        elif settings.response == "sse" and status == 200:
            session = self._session
            stream = session.new_stream()
            stream.answer_whole(self._responder, self._head, body)
            session.finished(stream)
        else:
            self._responder.reply(status, JSON_HEAD + self._head if self._head else JSON_HEAD, body)

    def begin_stream(self) -> None:
        """Answer with a stream from here on."""
        if self._stream is None and self.open:
            self._session.shared.keepalive.answered(self)
            self._stream = self._session.new_stream()
            self._stream.attach(self._responder, self._head)

    def release(self) -> None:
        """Send the reader away; the call goes on, and the reader comes back for its answer."""
        if self._session.polls and self._session.shared.settings.response != "json":
            self.begin_stream()
            if self._stream is not None:
                self._stream.release()

    async def wait_writable(self) -> None:
        """Return at once unless the client reads slower than we write; where nothing is written, let others run."""
        if self._stream is not None:
            await self._stream.wait_writable()
        else:
            await asyncio.sleep(0)

    def withdrawn(self) -> None:
        """Called when the client has cancelled the call: nothing is said any more, and nobody need wait for it."""
        if self.end():
            if self._stream is not None:
                self._stream.finish()
                self._session.finished(self._stream)
            else:
                self._responder.reply(202, EMPTY_HEAD + self._head)

    def close(self, reason: str = "") -> None:
        """End the exchange without the answer: its session is over."""
        if self.end():
            if self._stream is not None:
                self._stream.finish()
                self._session.finished(self._stream)
            else:
                refuse(self._responder, 404, reason or NO_SESSION, self._head)


class SessionOpening(ChannelDefaults):
    """The way back of `initialize`: its answer says which session was opened."""

    __slots__ = ("_head", "_responder", "_session", "opened")

    traits = Traits(headers=True)

    def __init__(self, session: HttpSession, responder: Responder, head: bytes) -> None:
        self._session = session
        self._responder = responder
        self._head = head
        self.opened = False
        """Whether the handshake was made."""

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers to the answer."""
        self._head += header_lines(headers)

    def send(self, message: Message | Sequence[Message]) -> None:
        """Answer the handshake."""
        session = self._session
        head = self._head
        status = 200
        body = encode_within(message, session.shared.settings.max_body_size)
        if type(message) is Success:
            self.opened = True
            session.polls = polls_of(message)
            if session.id:
                # Made by `Sessions`, of letters, digits and ".-_" only: it cannot end a line early.
                head += b"mcp-session-id: %b\r\n" % session.id.encode()
            if session.shared.settings.response == "sse":
                self._responder.reply(200, STREAM_HEAD + head, b"data: %b\n\n" % body)
                return
        elif type(message) is Failure and not isinstance(message.id, int | str):
            status = 400
        self._responder.reply(status, JSON_HEAD + head, body)

    async def wait_writable(self) -> None:
        """The answer is small."""

    def close(self, reason: str = "") -> None:
        """The answer was sent already, or never will be."""


class _Agreed(Struct, rename="camel"):
    protocol_version: str


class _Opened(Struct):
    result: _Agreed


_read_opened = msgspec.json.Decoder(_Opened).decode


def polls_of(answer: Success) -> bool:
    """Return whether readers are sent away and come back in the revision that the answer to `initialize` names."""
    result = answer.result
    if type(result) is InitializeResult:
        version = result.protocol_version
    else:
        version = _read_opened(encode(answer)).result.protocol_version
    revision = REVISIONS.get(version)
    return revision is not None and revision.polls


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12
