"""Framed messages on a byte stream, whatever carries the bytes.

Rule 1: a frame goes from the read to the receiver in the same turn: no queue, no task.
Rule 2: what is sent in one turn of the loop leaves in one write.
Rule 3: reading pauses only while our own outgoing side is over its high-water mark, and only where we serve: were both
sides to do so, each could wait for the other to read first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, cast

from ferrule.errors import CarrierError
from ferrule.transports.ending import tell_lost
from ferrule.transports.waiting import HELD_BACK, Waiters
from ferrule.wire.channel import Receiver
from ferrule.wire.codec import UNWRITABLE, too_long, unwritable, write
from ferrule.wire.framing import AutoFramer, Framer, Frames, FramingLost, HeaderFramer, LineFramer, Oversize
from ferrule.wire.messages import Message

HIGH_WATER = 256 * 1024
BACKLOG_MESSAGES = 4
"""How many messages of the greatest size may wait for a peer that does not read, before it is given up."""
LOW_WATER = LARGE = 64 * 1024

logger = logging.getLogger("ferrule.transports")


class StreamChannel(asyncio.Protocol):
    """A channel to the peer at the other end of an asyncio byte stream."""

    _transport: asyncio.Transport

    def __init__(
        self,
        receiver: Receiver,
        framer: Framer | None = None,
        *,
        on_oversize: Literal["skip", "close"] = "close",
        json_only: bool = False,
        serving: bool = True,
    ) -> None:
        self._receiver = receiver
        self._serving = serving
        self._framer = framer or LineFramer()
        self._feed = self._feed_opening if isinstance(framer, AutoFramer) else self._framer.feed
        self._max_size = self._framer.max_size
        self._max_backlog = BACKLOG_MESSAGES * self._max_size
        self._frame = frame_with_headers if isinstance(framer, HeaderFramer) else frame_as_lines
        self._on_oversize = on_oversize
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes] = []
        self._outgoing_size = 0
        self._flush_due = self._closing = False
        self.congested = False
        """Whether the peer reads slower than we write."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._waiters = Waiters()
        self.error: Exception | None = None
        self._json_only = json_only
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = self.dropped = 0

    @property
    def lost(self) -> bool:
        """Whether the stream is gone."""
        return self._lost.done()

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode one message, or a batch, and let it leave at the end of this turn."""
        if self._closing:
            return
        try:
            payload = write(message)
        except UNWRITABLE as reason:
            raise unwritable(reason) from None
        if len(payload) > self._max_size:
            raise too_long(len(payload), self._max_size)
        self._outgoing.append(payload)
        self._outgoing_size += len(payload) + 1
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        if self._outgoing_size > HIGH_WATER:
            self._flush()

    async def wait_writable(self) -> None:
        """Return at once unless more than the high-water mark waits to be written."""
        while self.congested and not self._closing:
            await self._waiters.wait()
        if self._closing:
            await asyncio.sleep(HELD_BACK if self.congested else 0)  # nothing is written any more: let others run

    def close(self, reason: str = "") -> None:
        """Write what was sent, then end the stream."""
        if not self._closing:
            self._flush()
            self._closing = True
            self._waiters.wake()
            self._transport.close()

    def abort(self) -> None:
        """End the stream at once; what is not written yet is lost."""
        if not self._lost.done():
            self._closing = True
            self._transport.abort()

    async def wait_ended(self) -> None:
        """Wait until the peer sends nothing more, or the stream is gone."""
        await asyncio.wait([self._ended])

    async def wait_lost(self) -> None:
        """Wait until the stream is gone."""
        await asyncio.wait([self._lost])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to write to this transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        self._receiver.channel_opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand every frame that is complete now to the receiver."""
        if self._closing:
            return
        self.bytes_in += len(data)
        try:
            frames = self._feed(data)
        except FramingLost as lost:
            self._deliver(lost.frames)
            self._give_up(lost)
        else:
            if frames:
                self._deliver(frames)

    def eof_received(self) -> bool:
        """Hand on what was left without a line end, then the end itself; we go on writing where the carrier can."""
        if not self._ended.done():
            self._ended.set_result(None)
            self._deliver(self._framer.eof(), at_end=True)
        return self._transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the receiver, once, and wake everyone who waits."""
        if self._lost.done():
            return
        self._closing = True
        self.error = self.error or error
        self._outgoing.clear()
        self._lost.set_result(None)
        if not self._ended.done():
            self._ended.set_result(None)
        self.resume_writing()
        tell_lost(self._receiver, self, self.error)

    def pause_writing(self) -> None:
        """Stop reading where we serve: the peer must take our answers before it may ask for more."""
        self.congested = True
        if self._serving and not (self._closing or self._ended.done()):
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again, and wake who waits to write."""
        self.congested = False
        self._waiters.wake()
        if self._serving and not (self._closing or self._ended.done()):
            self._transport.resume_reading()

    def _feed_opening(self, data: bytes) -> Frames:
        """Find out how the peer frames its messages, and answer in the same way."""
        frames = self._framer.feed(data)
        found = cast("AutoFramer", self._framer).framer
        if found is not None:
            self._feed = found.feed
            self._frame = frame_with_headers if isinstance(found, HeaderFramer) else frame_as_lines
        return frames

    def _deliver(self, frames: Frames, *, at_end: bool = False) -> None:
        if self._json_only:
            kept = [frame for frame in frames if type(frame) is not bytes or frame.lstrip()[:1] in {b"{", b"["}]
            self.dropped += len(frames) - len(kept)
            frames = kept
        self.messages_in += len(frames)
        # What the receiver sends meanwhile leaves with the flush below, one turn earlier than a scheduled one.
        self._flush_due = True
        receive = self._receiver.frame_received
        try:
            for frame in frames:
                if self._closing:
                    return
                if type(frame) is bytes:
                    receive(frame, self)
                else:
                    self._refuse(cast("Oversize", frame))
            if at_end and not self._closing:
                self._receiver.end_received(self)
        except Exception as error:
            logger.exception("the receiver failed on what it received; its channel is closed")
            self._give_up(error)
        self._flush()

    def _refuse(self, frame: Oversize) -> None:
        self._receiver.frame_refused(frame.max_size, self, frame.head)
        if self._on_oversize == "close":
            self.close()

    def _give_up(self, error: Exception) -> None:
        """End for a reason; one that asks does not wait for a peer that may never take its last questions."""
        self.error = self.error or error
        if self._serving:
            self.close()
        else:
            self.abort()

    def _flush(self) -> None:
        self._flush_due = False
        payloads, size = self._outgoing, self._outgoing_size
        if not payloads or self._closing:
            return
        self._outgoing, self._outgoing_size = [], 0
        self.messages_out += len(payloads)
        self.bytes_out += size
        buffers = self._frame(payloads, size)
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        elif type(self._transport).writelines is not asyncio.WriteTransport.writelines:
            self._transport.writelines(buffers)
        else:
            # The inherited writelines would join the buffers, which copies the large ones again.
            for buffer in buffers:
                self._transport.write(buffer)
        if self.congested and self._transport.get_write_buffer_size() > self._max_backlog:
            self._give_up(CarrierError(f"the peer does not read: more than {self._max_backlog} bytes wait for it"))
            self.abort()


def frame_as_lines(payloads: list[bytes], size: int) -> list[bytes]:
    """End every payload with one LF; small ones are joined, large ones stay the objects they are."""
    if size <= LARGE:
        payloads.append(b"")
        return [b"\n".join(payloads)]
    buffers: list[bytes] = []
    small: list[bytes] = []
    for payload in payloads:
        if len(payload) <= LARGE:
            small.append(payload)
            continue
        if small:
            buffers.append(b"\n".join([*small, b""]))
        buffers.append(payload)
        small = [b""]
    buffers.append(b"\n".join([*small, b""]))
    return buffers


def frame_with_headers(payloads: list[bytes], size: int) -> list[bytes]:
    """Put a Content-Length header before every payload."""
    buffers = [part for payload in payloads for part in (b"Content-Length: %d\r\n\r\n" % len(payload), payload)]
    return [b"".join(buffers)] if size <= LARGE else buffers
