"""Reaching a server over WebSocket."""

from __future__ import annotations

import asyncio
import os
import ssl
from base64 import b64encode
from typing import TYPE_CHECKING, Unpack, cast

from ferrule.errors import CarrierError, ConnectFailed, HttpFailed, SetupError
from ferrule.settings.option import read
from ferrule.transports.http.client.credentials import Claim, Gate
from ferrule.transports.http.client.url import Place, place
from ferrule.transports.shutdown import end_within
from ferrule.transports.sockets.dial import dial, reaching
from ferrule.transports.sockets.tls import TlsSettings
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.transports.websocket.handshake import MAX_ANSWER_HEAD, NOT_HTTP, Agreed, judge_answer, write_request
from ferrule.transports.websocket.settings import WebSocketOptions
from ferrule.wire.channel import Receiver

if TYPE_CHECKING:
    from ferrule.transports.keywords import WebSocketClientKeywords

SWEEP = 1.0
HTTP = b"HTTP/"
"""How every answer begins that is one; what begins otherwise need not be read to its end."""
SCHEMES = {"ws": "http", "wss": "https"}


def read_url(url: str) -> Place:
    """Read a ws:// or wss:// URL; raises SetupError."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() not in SCHEMES:
        raise SetupError("the URL must begin with ws:// or wss:// and name a host")
    if "#" in rest:
        raise SetupError("the URL of a WebSocket has no fragment")  # RFC 6455 §3
    if not rest.strip("/"):
        raise SetupError("the URL names no host: write ws://host:port/path")
    return place(f"{SCHEMES[scheme.lower()]}:{rest}")


class WebSocketTransport:
    """Reaches the server at a ws:// or wss:// URL; the options are those of `WebSocketOptions`.

    After a close or a loss it can be connected again. It never does so by itself.
    """

    carrier = "websocket"

    def __init__(self, url: str, **options: Unpack[WebSocketClientKeywords]) -> None:
        self._place = read_url(url)
        self._options = read(WebSocketOptions, options, "websocket")
        self._context: ssl.SSLContext | None = None
        self._channel: WebSocketChannel | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a way to the server now."""
        return self._channel is not None and not self._channel.lost

    def __str__(self) -> str:
        return "ws" + str(self._place).removeprefix("http")

    async def connect(self, receiver: Receiver) -> WebSocketChannel:
        """Open the way to the server; raises CarrierError with one clear sentence."""
        if self.connected:
            raise CarrierError(f"this transport is connected to {self} already: close it first")
        if self._place.secure and self._context is None:
            self._context = TlsSettings(self._options.verify, self._options.ca, self._options.cert).context()
        gate = self._gate()
        claim = Claim()
        while True:
            lines = b""
            if gate is not None:
                lines = await gate.lines(claim, "GET", self._place)
            try:
                opening = await self._open(lines)
                break
            except HttpFailed as refusal:
                if gate is None or not await gate.answer(claim, refusal.status, refusal.headers, "GET"):
                    raise
        return self._begin(receiver, opening)

    def _gate(self) -> Gate | None:
        """Return what knows who we are; None where nobody asked."""
        options = self._options
        if options.auth is None:
            return None
        tls = TlsSettings(options.verify, options.ca, options.cert)
        return Gate(options.auth.credentials(self._place.url, tls))

    async def _open(self, lines: bytes) -> Upgrading:
        async with reaching(self, self._options.connect_timeout, wanted="WebSocket"):
            try:
                return await self._ask(lines)
            except HttpFailed as refusal:
                raise HttpFailed(f"cannot reach {self}: {refusal}", refusal.status, refusal.headers) from None
            except ConnectFailed as reason:
                raise ConnectFailed(f"cannot reach {self}: {reason}") from None

    async def close(self, grace: float = 2.0) -> None:
        """Write what was sent, say goodbye, end the way to the server; harmless when called again."""
        channel = self._channel
        self._channel = None
        if channel is not None:
            await end_within(channel, grace)

    async def _ask(self, lines: bytes) -> Upgrading:
        """Connect, and ask for a WebSocket."""
        options = self._options
        place = self._place
        key = b64encode(os.urandom(16))
        headers = {"Authorization": place.credentials, **options.headers} if place.credentials else options.headers
        request = write_request(
            place.target, place.authority, key, headers, compression=options.compression, more=lines
        )
        transport, opening = await dial(
            lambda: Upgrading(key, options.compression), place.host, place.port, self._context, place.host
        )
        try:
            transport.write(request)
            await opening.answered
        except BaseException:
            transport.abort()
            raise
        return opening

    def _begin(self, receiver: Receiver, opening: Upgrading) -> WebSocketChannel:
        agreed = opening.answered.result()
        channel = WebSocketChannel(receiver, self._options, server=False, deflate=agreed.deflate, left=self._ended)
        self._channel = channel
        opening.hand_over(channel)
        if not channel.lost:
            self._sweep(channel, asyncio.get_running_loop())
        return channel

    def _sweep(self, channel: WebSocketChannel, loop: asyncio.AbstractEventLoop) -> None:
        channel.sweep(loop.time())
        self._sweeping = loop.call_later(SWEEP, self._sweep, channel, loop)

    def _ended(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None


class Upgrading(asyncio.Protocol):
    """Waits for a server's answer to the opening request; after it the connection is the channel's."""

    _transport: asyncio.Transport

    def __init__(self, key: bytes, compression: bool) -> None:
        self._key = key
        self._compression = compression
        self._read = b""
        self._gone = False
        self.answered: asyncio.Future[Agreed] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the way to the server."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Collect the head of the answer; what comes behind it waits for the channel."""
        self._read += data
        if self.answered.done():
            return
        head, ended, rest = self._read.partition(b"\r\n\r\n")
        if head[: len(HTTP)] != HTTP[: len(head)]:
            self.answered.set_exception(ConnectFailed(NOT_HTTP))
        elif len(head) + len(ended) > MAX_ANSWER_HEAD:
            self.answered.set_exception(ConnectFailed("the head of the answer is too long"))
        elif ended:
            self._read = rest
            # The channel takes over a turn later; until then nothing more may come.
            self._transport.pause_reading()
            try:
                self.answered.set_result(judge_answer(head + ended, self._key, compression=self._compression))
            except CarrierError as refusal:
                self.answered.set_exception(refusal)

    def connection_lost(self, error: Exception | None) -> None:
        """A server that leaves opens nothing."""
        self._gone = True
        if not self.answered.done():
            lost = error if isinstance(error, OSError) else None
            self.answered.set_exception(lost or ConnectFailed("the server closed the connection without an answer"))
            # Nobody asks for it where the attempt was given up meanwhile.
            self.answered.exception()

    def hand_over(self, channel: WebSocketChannel) -> None:
        """Let the channel have the connection, and what was read behind the answer."""
        self._transport.set_protocol(channel)
        channel.connection_made(self._transport)
        if self._read:
            channel.data_received(self._read)
        if self._gone:
            channel.connection_lost(None)
        else:
            self._transport.resume_reading()
