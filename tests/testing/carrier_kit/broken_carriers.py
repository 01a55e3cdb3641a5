"""Carriers that are broken on purpose, each in one way: a good one, with somebody in between who misbehaves."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
from our_carriers import OverTcp

from ferrule.errors import CarrierError
from ferrule.testing.carrier_kit import FarSide, Stand
from ferrule.transports.contract import Acceptor, Transport
from ferrule.wire.channel import Channel, ChannelDefaults, Origin, Receiver
from ferrule.wire.codec import encode
from ferrule.wire.messages import Id, Message, Notification, Request

KEPT: list[Any] = []
"""What leaks stays here until the tests let it go."""


class Meddler(ChannelDefaults):
    """Stands between a transport, its receiver and its channel, and passes everything on as it is."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.receiver: Receiver
        self.channel: Channel

    async def connect(self, receiver: Receiver) -> Channel:
        self.receiver = receiver
        self.channel = await self.transport.connect(self)
        return self

    async def close(self, grace: float = 2.0) -> None:
        await self.transport.close(grace)

    # -- as a channel

    def send(self, message: Message | Sequence[Message]) -> None:
        self.channel.send(message)

    async def wait_writable(self) -> None:
        await self.channel.wait_writable()

    # -- as a receiver

    def channel_opened(self, channel: Channel) -> None:
        self.channel = channel
        self.receiver.channel_opened(self)

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        return self.receiver.frame_received(frame, self, origin)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        self.receiver.frame_refused(max_size, self, head)

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        self.receiver.request_failed(identity, error, self)

    def end_received(self, channel: Channel) -> None:
        self.receiver.end_received(self)

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.receiver.channel_lost(self, error)


# `close` is the transport's and the channel's at once here; the kit calls the channel's without a grace.
class Split(Meddler):
    """A meddler whose channel is an object of its own, so that the two can be closed apart."""

    async def connect(self, receiver: Receiver) -> Channel:
        await super().connect(receiver)
        return self.way

    def channel_opened(self, channel: Channel) -> None:
        self.channel = channel
        self.way = Way(self)
        self.receiver.channel_opened(self.way)

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        return self.receiver.frame_received(frame, self.way, origin)

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.receiver.channel_lost(self.way, error)


class Way(ChannelDefaults):
    """The channel of a meddler."""

    def __init__(self, meddler: Split) -> None:
        self.meddler = meddler

    def send(self, message: Message | Sequence[Message]) -> None:
        self.meddler.send(message)

    async def wait_writable(self) -> None:
        await self.meddler.wait_writable()

    def close(self, reason: str = "") -> None:
        self.meddler.channel.close(reason)


class Dropping(Split):
    count = 0

    def send(self, message: Any) -> None:
        self.count += 1
        if self.count % 10:
            super().send(message)


class Reordering(Split):
    held: Any = None

    def send(self, message: Any) -> None:
        if type(message) is Notification and "number" in (message.params or {}) and self.held is None:
            self.held = message
            return
        super().send(message)
        if self.held is not None:
            held, self.held = self.held, None
            super().send(held)


class Duplicating(Split):
    def send(self, message: Any) -> None:
        super().send(message)
        if type(message) is Notification and message.method != "notifications/initialized":
            super().send(message)


class AskingTwice(Split):
    def send(self, message: Any) -> None:
        super().send(message)
        if type(message) is Request and message.params.get("name") == "echo":
            super().send(Request(f"again-{message.id}", message.method, message.params))

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        return b'"again-' in frame or super().frame_received(frame, channel, origin)


class ReorderingBack(Split):
    held: bytes | None = None

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        if b"kit/told" in frame and self.held is None:
            self.held = frame
            return False
        super().frame_received(frame, channel, origin)
        if self.held is not None:
            held, self.held = self.held, None
            super().frame_received(held, channel, origin)
        return False


class Deaf(Split):
    """Hears nothing that belongs to no call."""

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        return b"kit/pushed" in frame or super().frame_received(frame, channel, origin)


class Tiring(Split):
    """Is worn out by a flood."""

    count = 0

    def send(self, message: Any) -> None:
        self.count += 1
        if self.count < 3000:
            super().send(message)


class Rounding(Split):
    """Lets numbers lose their last digits on the way."""

    def send(self, message: Any) -> None:
        text = encode(message).replace(str(2**53 + 1).encode(), str(2**53).encode())
        plain = msgspec.json.decode(text)
        super().send(Request(plain["id"], plain["method"], plain["params"]) if "id" in plain else message)


class Late(Split):
    async def connect(self, receiver: Receiver) -> Channel:
        await asyncio.sleep(1.0)
        return await super().connect(receiver)


class OpeningTwice(Split):
    def channel_opened(self, channel: Channel) -> None:
        super().channel_opened(channel)
        self.receiver.channel_opened(self.way)


class NeverLost(Split):
    def channel_lost(self, channel: Channel, error: Exception | None) -> None: ...


class LostTwice(Split):
    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        super().channel_lost(channel, error)
        super().channel_lost(channel, error)


class LostWithoutWords(Split):
    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        super().channel_lost(channel, None)


class LeakingTask(Split):
    async def connect(self, receiver: Receiver) -> Channel:
        KEPT.append(asyncio.ensure_future(asyncio.Event().wait()))
        return await super().connect(receiver)


class LeakingTimer(Split):
    async def connect(self, receiver: Receiver) -> Channel:
        KEPT.append(asyncio.get_running_loop().call_later(1000, print))
        return await super().connect(receiver)


class LeakingDescriptor(Split):
    async def connect(self, receiver: Receiver) -> Channel:
        KEPT.append(os.open(os.devnull, os.O_RDONLY))
        return await super().connect(receiver)


class LeakingThread(Split):
    async def connect(self, receiver: Receiver) -> Channel:
        stop = threading.Event()
        threading.Thread(target=stop.wait, name="leaking", daemon=True).start()
        KEPT.append(stop)
        return await super().connect(receiver)


class SingleExchange(Split):
    """Connects only once."""

    used = False

    async def connect(self, receiver: Receiver) -> Channel:
        if self.used:
            raise CarrierError("used up")
        self.used = True
        return await super().connect(receiver)


class Boundless(Split):
    """Never makes anyone wait."""

    async def wait_writable(self) -> None: ...


class Sulking(Split):
    """Stops reading while the far side does not read, as the far side does."""

    async def connect(self, receiver: Receiver) -> Channel:
        way = await super().connect(receiver)
        self.channel._serving = True
        return way


class Stranding(Split):
    """Never lets go who waited."""

    async def wait_writable(self) -> None:
        waiting = asyncio.ensure_future(self.channel.wait_writable())
        await asyncio.wait([waiting], timeout=0.01)
        if not waiting.done():
            waiting.cancel()
            await asyncio.Event().wait()


class Breaking(Split):
    """Hands a frame up with a line feed in it."""

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        return super().frame_received(frame.replace(b",", b",\n", 1), channel, origin)


class MixingUp(Split):
    """Gives the answers of one peer to another."""

    last: MixingUp | None = None

    def send(self, message: Any) -> None:
        if type(message) is Request and message.params.get("name") == "echo":
            value = message.params["arguments"]["value"]
            if isinstance(value, list) and value[0] == 1:
                arguments = {"value": [0, value[1]]}
                message = Request(message.id, message.method, {**message.params, "arguments": arguments})
        super().send(message)


Between = Callable[[Transport], Transport]


class Broken(OverTcp):
    """TCP with somebody in between."""

    def __init__(self, between: Between, patience: float = 60.0) -> None:
        self.between = between
        self.patience = patience

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        async with super().stand(far, max_message_size) as stand:
            yield replace(stand, transport=lambda limit: self.between(stand.transport(limit)))


class Limitless(Broken):
    """TCP that is made with another limit than it was told to have."""

    def __init__(self) -> None: ...

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        async with OverTcp().stand(far, 2 * max_message_size + 4096) as stand:
            yield replace(stand, transport=lambda limit: stand.transport(2 * limit + 4096))


class Misnamed(Broken):
    origin = "pigeon"


class NoAddress(Broken):
    address = "192.0.2."


class Hasty(Broken):
    """A listener that cuts everyone when it closes."""

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        async with super().stand(far, max_message_size) as stand:
            yield replace(stand, listener=HastyListener(stand))


class HastyListener:
    def __init__(self, stand: Stand) -> None:
        self.stand = stand

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        raise NotImplementedError

    async def close(self, grace: float) -> None:
        assert self.stand.cut is not None
        self.stand.cut()


class Touchy(Broken):
    """A listener that cuts everyone when one of them sends nonsense."""

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        async with super().stand(far, max_message_size) as stand:

            async def wire() -> Any:
                assert stand.wire is not None
                assert stand.cut is not None
                stand.cut()
                return await stand.wire()

            yield replace(stand, wire=wire)


class Lenient(Broken):
    """Says that the link lives after a message that is too long, and it does not."""

    after_oversize = "lives"


def let_go() -> None:
    """Release what was leaked."""
    for kept in KEPT:
        if isinstance(kept, int):
            os.close(kept)
        elif isinstance(kept, threading.Event):
            kept.set()
    KEPT.clear()


def passing(transport: Transport) -> Transport:
    """Stand in between and do nothing."""
    return Split(transport)
