"""Receivers that write down what a carrier tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.wire.channel import Channel, Origin, Receiver
from ferrule.wire.messages import Id

LONGEST_KEPT = 16 * 1024
"""Longer frames are counted and not kept, so that a flood is judged and not our own memory."""


class Witness:
    """A receiver that remembers everything it was told."""

    def __init__(self) -> None:
        self.opened: list[Channel] = []
        self.frames: list[bytes] = []
        self.received = 0
        self.origins: list[Origin] = []
        self.refused: list[int] = []
        self.failed: list[tuple[Id, Exception]] = []
        self.ended: list[Channel] = []
        self.lost: list[Channel] = []
        self.errors: list[Exception | None] = []
        self.faults: list[str] = []
        """What no carrier may do, whatever else it is judged by."""
        self._news: list[asyncio.Future[None]] = []

    @property
    def channel(self) -> Channel:
        """The first channel that was opened: the one for what belongs to no call."""
        return self.opened[0]

    @property
    def messages(self) -> list[Any]:
        """What came in, as plain values; what cannot be read is None."""
        return list(map(plain, self.frames))

    def told(self, method: str) -> list[Any]:
        """Return the params of what names a method, in the order it came in."""
        params = []
        for found in self.messages:
            if isinstance(found, dict) and found.get("method") == method:
                params.append(found["params"])
        return params

    def numbers(self, method: str) -> list[int]:
        """Return the numbers of numbered notifications, in the order they came in."""
        numbers = []
        for params in self.told(method):
            numbers.append(params["number"])
        return numbers

    def ends_of(self, channel: Channel) -> int:
        """Count how often a channel was said to be lost."""
        count = 0
        for each in self.lost:
            if each is channel:
                count += 1
        return count

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds, looking whenever the carrier tells something."""
        while not condition():
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._news.append(news)
            await news

    def note(self) -> None:
        """Let whoever waits look again."""
        waiting = self._news
        self._news = []
        for news in waiting:
            if not news.done():
                news.set_result(None)

    # -- what a carrier drives

    def channel_opened(self, channel: Channel) -> None:
        """Note a channel."""
        if channel in self.opened:
            self.faults.append("a channel was opened twice")
        self.opened.append(channel)
        self.note()

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Note a frame."""
        if not self.opened:
            self.faults.append("a frame came before the channel was opened")
        if channel in self.lost:
            self.faults.append("a frame came on a channel that was lost")
        if not isinstance(frame, bytes) or b"\n" in frame:
            self.faults.append("a frame with a raw line feed in it, or no bytes at all, was handed up")
        self.received += 1
        if len(frame) <= LONGEST_KEPT:
            self.frames.append(frame)
        if origin is not None:
            self.origins.append(origin)
        self.note()
        return False

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Note a frame that was too long."""
        self.refused.append(max_size)
        self.note()

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        """Note a request that gets no answer."""
        self.failed.append((identity, error))
        self.note()

    def end_received(self, channel: Channel) -> None:
        """Note the end of what the peer says."""
        self.ended.append(channel)
        self.note()

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Note a loss."""
        if channel in self.lost:
            self.faults.append("a channel was said to be lost twice")
        self.lost.append(channel)
        self.errors.append(error)
        self.note()


class Watched(Witness):
    """A witness that hands on what it is told to the receiver it stands before."""

    def __init__(self, receiver: Receiver, origin: Origin) -> None:
        super().__init__()
        self.receiver = receiver
        self.origins.append(origin)

    def channel_opened(self, channel: Channel) -> None:
        """Note a channel and hand it on."""
        super().channel_opened(channel)
        self.receiver.channel_opened(channel)

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Note a frame and hand it on."""
        super().frame_received(frame, channel, origin)
        return self.receiver.frame_received(frame, channel, origin)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Note a frame that was too long and hand that on."""
        super().frame_refused(max_size, channel, head)
        self.receiver.frame_refused(max_size, channel, head)

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        """Note a request that gets no answer and hand that on."""
        super().request_failed(identity, error, channel)
        self.receiver.request_failed(identity, error, channel)

    def end_received(self, channel: Channel) -> None:
        """Note the end of what the peer says and hand it on."""
        super().end_received(channel)
        self.receiver.end_received(channel)

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Note a loss and hand it on."""
        super().channel_lost(channel, error)
        self.receiver.channel_lost(channel, error)


def plain(frame: bytes) -> Any:
    """Read a frame; None when it is no JSON."""
    try:
        return msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
