"""A transport of somebody else's, both sides, in one file; its row is the last statement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ferrule import CarrierError
from ferrule.transports.contract import Acceptor
from ferrule.transports.registry import TransportKind
from ferrule.transports.stream import StreamChannel
from ferrule.wire.channel import Channel, Origin, Receiver, Traits
from ferrule.wire.framing import LineFramer

LIMIT = 16 * 1024 * 1024


class ToyChannel(StreamChannel):
    """Lines on a socket that is over when either side closes it."""

    traits = Traits(closes_on_garbage=True)

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class ToyListener:
    def __init__(self, port: int = 0, limit: int = LIMIT) -> None:
        self._port = port
        self._limit = limit
        self._channels: list[ToyChannel] = []
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def url(self) -> str:
        host, port = self.address
        return f"toy://{host}:{port}"

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        self._acceptor = acceptor
        self._closed = asyncio.Event()
        self._server = await asyncio.get_running_loop().create_server(self._welcome, "127.0.0.1", self._port)
        ready()
        await self._closed.wait()

    def _welcome(self) -> ToyChannel:
        self._channels = [channel for channel in self._channels if not channel.lost]
        channel = ToyChannel(self._acceptor.link(Origin("toy")), LineFramer(self._limit))
        self._channels.append(channel)
        return channel

    async def close(self, grace: float) -> None:
        if self._server is None or self._closed.is_set():
            return
        self._server.close()
        await self._acceptor.drain(grace)
        for channel in self._channels:
            channel.close()
            await channel.wait_lost()
        self._closed.set()


class ToyTransport:
    def __init__(self, address: str, limit: int = LIMIT) -> None:
        host, _, port = address.removeprefix("toy://").rpartition(":")
        self._host = host
        self._port = int(port)
        self._limit = limit
        self._channel: ToyChannel | None = None

    async def connect(self, receiver: Receiver) -> Channel:
        loop = asyncio.get_running_loop()
        try:
            _, self._channel = await loop.create_connection(
                lambda: ToyChannel(receiver, LineFramer(self._limit), serving=False), self._host, self._port
            )
        except OSError as error:
            raise CarrierError(f"nobody answers at toy://{self._host}:{self._port}: {error}") from error
        return self._channel

    async def close(self, grace: float = 2.0) -> None:
        if self._channel is not None:
            self._channel.close()
            await self._channel.wait_lost()


TOY = TransportKind(
    name="toy",
    aliases=("plaything",),
    help="lines on a socket, for play",
    listener="toy:ToyListener",
    prefixes=("toy://",),
    transport="toy:ToyTransport",
)
