"""Records every message that passes between a client and a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from ferrule.transports.contract import Transport
from ferrule.wire.channel import Broadcast, Channel, ForwardingChannel, Handling, Origin, Receiver
from ferrule.wire.codec import encode
from ferrule.wire.messages import Id, Message


class Recorded(msgspec.Struct, frozen=True):
    """One message and who sent it: plain values, a list of them for a batch, the bytes of what is no JSON."""

    sender: Literal["client", "server"]
    message: Any


class Recorder:
    """A transport around another that keeps what both sides say, in order."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.messages: list[Recorded] = []

    async def connect(self, receiver: Receiver) -> Channel:
        """Reach the peer, listening in."""
        return await self._transport.connect(_Heard(receiver, self.messages))

    async def close(self, grace: float = 2.0) -> None:
        """End the way to the peer."""
        await self._transport.close(grace)

    def sent(self, sender: str, method: str | None = None) -> list[Any]:
        """Return what one side sent, all of it or, also inside batches, what names a method."""
        said = []
        for recorded in self.messages:
            if recorded.sender == sender:
                said.append(recorded.message)
        if method is None:
            return said
        return [message for message in _each(said) if message.get("method") == method]


def _each(said: Iterable[object]) -> Iterator[dict[str, Any]]:
    for message in said:
        parts = message if isinstance(message, list) else [message]
        for part in parts:
            if isinstance(part, dict):
                yield part


def _read(frame: bytes) -> Any:
    try:
        return msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frame


class _Heard:
    """A receiver that notes what comes in, and gives out channels that note what goes out."""

    def __init__(self, receiver: Receiver, messages: list[Recorded]) -> None:
        self._receiver = receiver
        self._messages = messages
        self._channels: dict[Channel, _Said] = {}

    def _said(self, channel: Channel) -> _Said:
        return self._channels.setdefault(channel, _Said(channel, self._messages))

    def channel_opened(self, channel: Channel) -> None:
        self._receiver.channel_opened(self._said(channel))

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        self._messages.append(Recorded("server", _read(frame)))
        return self._receiver.frame_received(frame, self._said(channel), origin)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        self._receiver.frame_refused(max_size, self._said(channel), head)

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        self._receiver.request_failed(identity, error, self._said(channel))

    def end_received(self, channel: Channel) -> None:
        self._receiver.end_received(self._said(channel))

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        said = self._said(channel)
        said.open = False
        self._receiver.channel_lost(said, error)


class _Said(ForwardingChannel):
    """A channel that notes what is sent on it while it is open."""

    def __init__(self, channel: Channel, messages: list[Recorded]) -> None:
        super().__init__(channel)
        self._messages = messages
        self.open = True

    def send(self, message: Message | Sequence[Message]) -> None:
        if self.open:
            self._messages.append(Recorded("client", msgspec.json.decode(encode(message))))
        self._channel.send(message)

    def send_with(self, message: Message | Sequence[Message], handling: Handling) -> None:
        if self.open:
            self._messages.append(Recorded("client", msgspec.json.decode(encode(message))))
        self._channel.send_with(message, handling)

    def send_broadcast(self, broadcast: Broadcast, tag: bytes | None) -> None:
        if self.open:
            self._messages.append(Recorded("client", msgspec.json.decode(broadcast.text_under(tag))))
        self._channel.send_broadcast(broadcast, tag)

    def close(self, reason: str = "") -> None:
        self.open = False
        self._channel.close(reason)
