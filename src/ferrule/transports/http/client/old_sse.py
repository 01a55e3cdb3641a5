"""Reaching a server over the HTTP+SSE pair, the transport before Streamable HTTP: answers come on one stream.

Rule: the stream is the link. When it ends, so does the conversation; nothing can be resumed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from ferrule.errors import CallFailed, CarrierError, ConnectFailed, FerruleError, HttpFailed, LinkLost, SetupError
from ferrule.supervision.scope import Scope
from ferrule.transports.contract import Credentials
from ferrule.transports.http.client.credentials import Claim, Gate
from ferrule.transports.http.client.dial import Destination
from ferrule.transports.http.client.headers import RequestHeaders
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.client.pool import Overflow, Pool
from ferrule.transports.http.client.request import HttpExchange, SingleExchange
from ferrule.transports.http.client.status import ADVICE, header_texts
from ferrule.transports.shutdown import tell_lost
from ferrule.wire.channel import Channel, ChannelDefaults, Receiver, Traits
from ferrule.wire.codec import encode_within
from ferrule.wire.messages import Id, Message, Request
from ferrule.wire.sse import Event

if TYPE_CHECKING:
    from ferrule.transports.keywords import HttpClientKeywords

logger = logging.getLogger("ferrule.transports")

PREFIX = "sse+"
"""What stands before the scheme of a server that has only HTTP+SSE."""

PATIENCE = 10.0
"""How many seconds a server may take to say where to post."""


class SseStream(HttpExchange):
    """The stream everything comes on; its first event says where to post."""

    def __init__(self, channel: SseChannel, request: bytes) -> None:
        super().__init__(request, "urgent", channel.options.max_message_size)
        self._channel = channel
        self.endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def event_received(self, event: Event) -> None:
        """Take the endpoint first, then messages."""
        if event.name == "endpoint" and not self.endpoint.done():
            self.endpoint.set_result(event.data.decode("utf-8", "replace"))
        elif event.name == "message" and event.data:
            self._channel.deliver(event.data)

    def answered(self) -> None:
        """Called when the stream ended, or that there was none."""
        if not self.streams:
            kind = self.kind.decode("latin-1") or "no content type"
            words = f"it answered with HTTP {self.status} and {kind}, not an event stream"
            self.failed(HttpFailed(words, self.status, header_texts(self.headers)))
        else:
            self.failed(LinkLost("the server ended the stream"))

    def failed(self, error: Exception) -> None:
        """Without the stream there is no conversation."""
        if not self.endpoint.done():
            self.endpoint.set_exception(error)
        else:
            self._channel.stream_lost(error)


class SsePost(SingleExchange):
    """A message of ours; the server only acknowledges it, its answer comes on the stream."""

    operation = "POST"

    def __init__(self, channel: SseChannel, frame: bytes, identities: list[Id]) -> None:
        super().__init__(b"", "usual" if identities else "urgent", channel.options.max_message_size)
        self.claim: Claim | None = None
        self._channel = channel
        self._frame = frame
        self.unanswered = identities

    def authorized(self, lines: bytes) -> None:
        """Send it, with these lines."""
        self.begin_again(self._channel.written(lines, self._frame))
        self._channel.submit(self)

    def send_once_more(self) -> None:
        """Send again what was refused."""
        self._channel.post(self)

    def unauthorized(self, error: FerruleError) -> None:
        """Called when there are no credentials to be had."""
        self._channel.post_failed(self.unanswered, error)

    def answered(self) -> None:
        """Anything but success means that no answer will come."""
        if self._channel.gate is not None and self._channel.gate.takes_over(self):
            return
        if not 200 <= self.status < 300:
            place = self._channel.endpoint
            words = f"{place} answered a message with HTTP {self.status}"
            self.failed(HttpFailed(words, self.status, header_texts(self.headers)))

    def failed(self, error: Exception) -> None:
        """Called when the message was not sent, or its fate is unknown: fail whoever waits, and say which it is."""
        if not isinstance(error, CallFailed):
            sent = not isinstance(error, ConnectFailed)
            unsure = "it may have arrived or not" if sent else "it was not sent"
            error = LinkLost(
                f"the connection to {self._channel.endpoint} failed under a message; {unsure}: {error}", sent=sent
            )
        self._channel.post_failed(self.unanswered, error)


class SseChannel(ChannelDefaults):
    """The way to one server: messages are posted, everything else comes on the stream."""

    traits = Traits(handshake_only=True)

    def __init__(
        self,
        receiver: Receiver,
        pool: Pool,
        heading: RequestHeaders,
        options: HttpOptions,
        face: Channel | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._receiver = receiver
        self._pool = pool
        self._heading = heading
        self.options = options
        self._face: Channel = face or self
        self._scope = Scope(asyncio.get_running_loop())
        self.gate: Gate | None = None
        """Knows who we are; None where nobody asked."""
        if credentials is not None:
            self.gate = Gate(credentials, self._scope.spawn, receiver)
        self._address = self.endpoint = heading.place
        self.closing = False
        self._lost = False

    async def open(self, timeout: float = PATIENCE) -> None:
        """Open the stream and learn where to post; raises ConnectFailed with one clear sentence."""
        here = self._heading.place
        claim = Claim()
        while True:
            lines = b""
            if self.gate is not None:
                lines = await self.gate.lines(claim, "GET", here)
            stream = SseStream(self, self._heading.get("", lines))
            try:
                reference = await self._reference(stream, timeout)
                break
            except HttpFailed as error:
                if self.gate is None or not await self.gate.answer(claim, error.status, error.headers, "GET"):
                    raise
        try:
            self.endpoint = here.resolve(reference.strip())
            if self.endpoint.origin != here.origin:
                raise SetupError("it is another origin")
        except SetupError as reason:
            self._pool.withdraw(stream)
            raise ConnectFailed(f"{here} wants messages posted to {reference[:200]!r}: {reason}") from None
        self._heading.move(self.endpoint)

    async def _reference(self, stream: SseStream, timeout: float) -> str:
        """Return where to post, as the server writes it at the beginning of its stream."""
        here = self._heading.place
        self._pool.submit(stream)
        try:
            async with asyncio.timeout(timeout):
                return await stream.endpoint
        except TimeoutError:
            self._pool.withdraw(stream)
            raise ConnectFailed(f"{here} did not say within {timeout:g} s where to post messages") from None
        except HttpFailed as error:
            hint = f"; {ADVICE[error.status]}" if error.status in ADVICE else ""
            raise HttpFailed(f"{here} is no HTTP+SSE server: {error}{hint}", error.status, error.headers) from None
        except ConnectFailed:
            raise
        except Exception as error:
            raise ConnectFailed(f"{here} is no HTTP+SSE server: {error}") from error

    def send(self, message: Message | Sequence[Message]) -> None:
        """Post one message, or a batch."""
        if self.closing:
            return
        frame = encode_within(message, self.options.max_message_size)
        several = message if isinstance(message, Sequence) else (message,)
        identities = []
        for each in several:
            if isinstance(each, Request):
                identities.append(each.id)
        self.post(SsePost(self, frame, identities))

    def post(self, post: SsePost) -> None:
        """Send a message, now or when it is known who we are."""
        if self.gate is None:
            post.authorized(b"")
        else:
            self.gate.admit(post, "POST", self.endpoint)

    def written(self, lines: bytes, frame: bytes) -> bytes:
        """Return the request of a message."""
        return self._heading.post(lines, frame)

    def submit(self, post: SsePost) -> None:
        """Let a message have a connection as soon as there is one."""
        try:
            self._pool.submit(post)
        except Overflow as reason:
            asyncio.get_running_loop().call_soon(post.lost, LinkLost(f"not sent: {reason}"))

    async def wait_writable(self) -> None:
        """Return at once unless many requests wait for a connection."""
        await self._pool.wait_for_room()

    def deliver(self, frame: bytes) -> None:
        """Hand a message up; a receiver that fails on it loses the channel."""
        if self._lost:
            return
        try:
            self._receiver.frame_received(frame, self._face)
        except Exception as error:
            logger.exception("the receiver failed on what it received; its channel is closed")
            self.lose(error)

    def post_failed(self, identities: list[Id], error: Exception) -> None:
        """Called when requests will get no answer: report that to the receiver."""
        if not identities and not self.closing:
            logger.warning("a message did not reach %s: %s", self.endpoint, error)
        for identity in identities:
            self._receiver.request_failed(identity, error, self._face)

    def stream_lost(self, error: Exception) -> None:
        """Called when nothing more can come."""
        self.lose(LinkLost(f"the stream of {self._address} ended: {error}"))

    def close(self, reason: str = "") -> None:
        """Send no more, and let the stream go."""
        self.lose(None)

    def cut(self) -> None:
        """Let the stream go without telling the receiver, who knows."""
        self.closing = self._lost = True
        for task in list(self._scope.tasks):
            self._scope.cancel(task)
        self._pool.close()

    def lose(self, error: Exception | None) -> None:
        """Report to the receiver, once, that the channel is lost."""
        if self._lost:
            return
        self.cut()
        tell_lost(self._receiver, self._face, error)


class SseTransport:
    """Reaches a server at the URL of its stream, also written `sse+https://…`."""

    carrier = "http"

    def __init__(self, url: str, **options: Unpack[HttpClientKeywords]) -> None:
        if url[: len(PREFIX)].lower() == PREFIX:
            url = url[len(PREFIX) :]
        self.destination = Destination(url, options)
        self._channel: SseChannel | None = None

    async def connect(self, receiver: Receiver) -> SseChannel:
        """Open the stream; raises ConnectFailed when there is none."""
        if self._channel is not None and not self._channel.closing:
            raise CarrierError(f"{self.destination} is connected already: close it first")
        there = self.destination
        pool = there.pool()
        channel = SseChannel(receiver, pool, there.heading(), there.options, credentials=there.credentials())
        try:
            await channel.open()
        except BaseException:
            pool.close()
            raise
        self._channel = channel
        receiver.channel_opened(channel)
        return channel

    async def close(self, grace: float = 2.0) -> None:
        """End the stream and every connection."""
        channel = self._channel
        self._channel = None
        if channel is not None:
            channel.lose(None)
