"""Reaching a server over TCP, TLS or a Unix socket."""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import TYPE_CHECKING, Unpack

import msgspec

from ferrule.errors import CarrierError, ConnectFailed, SetupError
from ferrule.settings.option import read
from ferrule.transports.shutdown import end_within
from ferrule.transports.sockets.bind import prepare
from ferrule.transports.sockets.dial import dial, reaching
from ferrule.transports.sockets.tls import TlsSettings, explain
from ferrule.transports.stream import StreamChannel
from ferrule.transports.tcp.address import Address, read_address
from ferrule.transports.tcp.settings import AUTHENTICATE, TcpOptions
from ferrule.transports.verification import is_loopback
from ferrule.wire.channel import Receiver, Traits
from ferrule.wire.framing import Frames, FramingLost, Oversize
from ferrule.wire.messages import Notification
from ferrule.wire.rescue import rescue_from_head

if TYPE_CHECKING:
    from ferrule.transports.keywords import TcpClientKeywords

REFUSAL_START = b'{"jsonrpc":"2.0","id":null,"error":'


class DialedChannel(StreamChannel):
    """The channel to a server we reached; one that turned us away is quoted when the channel is lost."""

    traits = Traits(closes_on_garbage=True)

    def __init__(self, receiver: Receiver, options: TcpOptions) -> None:
        super().__init__(
            receiver, options.framer(), on_oversize="skip", serving=False, write_timeout=options.write_timeout
        )
        self._feed_rest = self._feed
        self._feed = self._feed_first

    def eof_received(self) -> bool:
        """A server that says nothing more will answer nothing: the channel is lost."""
        super().eof_received()
        if not self._closing:
            self.error = self.error or CarrierError("the server closed the connection")
        return False

    def _refuse(self, frame: Oversize) -> None:
        """End the channel where the head does not say whose answer was never read: that call would wait for ever."""
        super()._refuse(frame)
        if rescue_from_head(frame.head).id is not msgspec.UNSET:
            return
        limit = f"the server sent a message over our limit of {frame.max_size} bytes; raise max_message_size"
        self._give_up(CarrierError(limit))

    def _feed_first(self, data: bytes) -> Frames:
        try:
            frames = self._feed_rest(data)
        except FramingLost:
            # A server that takes any framing has not learnt ours when it turns us away: it says so in a line.
            self.error = _refused(data) if data.startswith(REFUSAL_START) else None
            raise
        if frames:
            self._feed = self._feed_rest
            first = frames[0]
            if isinstance(first, bytes) and first.startswith(REFUSAL_START):
                self.error = _refused(first)
            elif isinstance(first, bytes) and first.startswith(b"HTTP/"):
                self._give_up(CarrierError("the server speaks HTTP at this port: reach it at http://… or ws://…"))
        return frames


class TcpTransport:
    """Reaches the server at `tcp://host:port`, `tls://host:port` or `unix:/path`; options are those of `TcpOptions`.

    After a close or a loss it can be connected again. It never does so by itself: see `Redialing`.
    """

    def __init__(self, address: str | Address, **options: Unpack[TcpClientKeywords]) -> None:
        if isinstance(address, str):
            self.address = read_address(address)
        else:
            self.address = address
        self._options = read(TcpOptions, options, "tcp")
        if self._options.token is not None and self.address.carrier == "tcp" and not is_loopback(self.address.host):
            raise SetupError("tcp: a token would be readable on its way; reach the server at tls://…")
        if self._options.framing == "auto":
            raise SetupError("tcp: a client speaks first, so its framing is line or content-length, not auto")
        self._context: ssl.SSLContext | None = None
        self._channel: DialedChannel | None = None

    @property
    def carrier(self) -> str:
        """What observers call this transport: `tcp`, with TLS or without, or `unix`."""
        if self.address.carrier == "unix":
            return "unix"
        return "tcp"

    @property
    def connected(self) -> bool:
        """Whether there is a way to the server now."""
        return self._channel is not None and not self._channel.lost

    async def connect(self, receiver: Receiver) -> StreamChannel:
        """Open the way to the server; raises ConnectFailed with one clear sentence."""
        if self.connected:
            raise SetupError(f"this transport is connected to {self.address} already")
        if self.address.carrier == "tls" and self._context is None:
            options = self._options
            self._context = options.context or TlsSettings(options.verify, options.ca, options.cert).context()
        channel = DialedChannel(receiver, self._options)
        async with reaching(self.address, self._options.connect_timeout, reason=self._explain):
            await self._open(channel)
        if self._options.token is not None:
            channel.send(Notification(AUTHENTICATE, {"token": self._options.token}))
        self._channel = channel
        return channel

    async def _open(self, channel: DialedChannel) -> None:
        host = self.address.host
        port = self.address.port
        name = self._options.server_name
        if self.address.carrier == "unix":
            if sys.platform == "win32":
                raise SetupError(f"{self.address} cannot be reached: Python has no Unix sockets on Windows; use tcp")
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_unix_connection(lambda: channel, self.address.path)
        else:
            transport, _ = await dial(lambda: channel, host, port, self._context, name or host)
        try:
            prepare(transport.get_extra_info("socket"), self._options)
        except OSError:
            transport.abort()
            raise

    def _explain(self, error: OSError) -> str:
        if self.address.carrier == "unix" and isinstance(error, FileNotFoundError):
            return "there is no such socket; does the server run, and at this path?"
        return explain(error)

    async def close(self, grace: float = 2.0) -> None:
        """Write what was sent, end the way to the server; harmless when called again, or never connected."""
        channel = self._channel
        self._channel = None
        if channel is not None:
            await end_within(channel, grace)


def _refused(frame: bytes) -> ConnectFailed | None:
    try:
        return ConnectFailed(f"the server refused the connection: {msgspec.json.decode(frame)['error']['message']}")
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None
