"""The way back of one POST: JSON until something streams, then server-sent events.

Rule 1: the status is decided before anything is streamed, so what refuses a request comes before the first event.
Rule 2: the last thing an exchange sends is its answer; after it, and after the client is gone, it sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ferrule.transports.http.endpoint.keepalive import Keepalive, OpenStream
from ferrule.transports.http.heads import (
    JSON_HEAD,
    RETRY_AFTER,
    STREAM_HEAD,
    handshake_status,
    own_head,
    stateless_status,
)
from ferrule.transports.http.message import Responder, header_lines
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.channel import Broadcast, ChannelDefaults, Receiver, Traits
from ferrule.wire.codec import encode_within, too_long
from ferrule.wire.messages import Failure, HttpError, Message, Notification, Success

COMMENT = b":\n\n"
"""A comment, which no reader of a stream makes anything of (WHATWG HTML §9.2.6)."""
NEVER = float("inf")


class NullChannel(ChannelDefaults):
    """The channel of requests without a session: `send` and `close` are no-ops, each exchange ends by itself."""

    __slots__ = ()

    traits = Traits(patient=True, watches_itself=True)

    def send(self, message: Message | Sequence[Message]) -> None:
        """Do nothing."""

    async def wait_writable(self) -> None:
        """Return at once."""

    def close(self, reason: str = "") -> None:
        """Do nothing."""


class AnswerHead(ChannelDefaults, Struct, eq=False):
    """The header lines of an answer that has not begun, and the status that goes with an error."""

    _responder: Responder
    _head: bytes

    status_of = staticmethod(handshake_status)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers to the answer, unless it streams already."""
        self._head += header_lines(headers)

    def _failed(self, failure: Failure) -> int:
        """Return the status of an error; one with headers of its own has them written beside ours."""
        error = failure.error
        if not isinstance(error, HttpError):
            status = self.status_of(failure)
            if status == 503:
                self._head += RETRY_AFTER
            return status
        status, lines = own_head(error.status or self.status_of(failure), error.headers)
        self._head += lines
        return status


class Exchange(AnswerHead):
    """The way back of one request of the stateless era; a client that goes away has cancelled it."""

    _receiver: Receiver
    _settings: EndpointSettings
    _keepalive: Keepalive
    _streaming: bool = False
    _waits: bool = False
    open: bool = True
    bucket: set[OpenStream] | None = None
    expires: float = NEVER
    """When the credentials of the reader end; for what stands open for long."""

    traits = Traits(headers=True)
    status_of = staticmethod(stateless_status)

    def mark_pending(self) -> None:
        """Called when the answer is owed for a while: it streams if it takes long, and its reader may go away."""
        self._waits = True
        if self._settings.response != "json" and not self._streaming:
            self._keepalive.pending.add(self)
        self._responder.watch(self.lost)

    def send(self, message: Message | Sequence[Message]) -> None:
        """Answer, or stream what comes before the answer."""
        if not self.open:
            return
        body = encode_within(message, self._settings.max_body_size)
        kind = type(message)
        if kind is Success or kind is list:
            self._answer(200, body)
        elif kind is Failure:
            self._answer(self._failed(message), body)  # type: ignore[arg-type]
        elif kind is Notification and self._settings.response != "json":
            if not self._streaming:
                self.begin_stream()
            self._event(body)

    def send_broadcast(self, broadcast: Broadcast, tag: bytes | None) -> None:
        """Stream what was encoded for many."""
        if not self._streaming:
            self.send(broadcast.under(tag))
        elif self.open:
            body = broadcast.text_under(tag)
            if len(body) > self._settings.max_body_size:
                raise too_long(len(body), self._settings.max_body_size)
            self._event(body)

    def _answer(self, status: int, body: bytes) -> None:
        self.open = False
        responder = self._responder
        if self._streaming:
            self._keepalive.ended(self)
            responder.write(b"data: %b\n\n" % body)
            responder.finish()
            return
        if self._waits:
            self._keepalive.answered(self)
        if self._settings.response == "sse" and status == 200:
            responder.reply(status, STREAM_HEAD + self._head, b"data: %b\n\n" % body)
            return
        responder.reply(status, JSON_HEAD + self._head if self._head else JSON_HEAD, body)

    def begin_stream(self) -> None:
        """Answer with a stream from here on."""
        if not self._streaming and self.open:
            self._streaming = True
            self._keepalive.answered(self)
            self._keepalive.streams(self)
            self._responder.begin(200, STREAM_HEAD + self._head, COMMENT)

    def _event(self, body: bytes) -> None:
        responder = self._responder
        if responder.backlog > self._settings.max_stream_backlog:
            self._keepalive.cuts += 1
            responder.abort()
            self.lost()
        else:
            responder.write(b"data: %b\n\n" % body)

    def send_keepalive(self) -> None:
        """Send a comment on a silent stream, for its reader and the proxies between."""
        if self._responder.backlog == 0:
            self._responder.write(COMMENT)

    def lost(self) -> None:
        """Called when nobody reads the answer any more: the request is cancelled (MCP 2026-07-28
        transports/streamable-http, Cancellation)."""
        if self.open:
            self.open = False
            self._keepalive.answered(self)
            self._keepalive.ended(self)
            self._receiver.channel_lost(self, None)

    async def wait_writable(self) -> None:
        """Return at once unless the client reads slower than we write; where nothing is written, let others run."""
        if self._streaming and self.open:
            await self._responder.wait_writable()
        else:
            await asyncio.sleep(0)

    def expire(self) -> None:
        """End what stands open: who reads it is not proved any more."""
        self.close()

    def close(self, reason: str = "") -> None:
        """End the exchange without an answer."""
        if self.open:
            self._responder.abort()
            self.lost()


class SessionlessExchange(Exchange):
    """The way back of one request of the handshake era where no session is kept."""

    status_of = staticmethod(handshake_status)
