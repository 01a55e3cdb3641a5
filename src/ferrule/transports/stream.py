"""Framed messages on a byte stream, whatever carries the bytes.

Rule 1: a frame goes from the read to the receiver in the same turn: no queue, no task.
Rule 2: what is sent in one turn of the loop leaves in one write.
Rule 3: reading pauses only while our own outgoing side is over its high-water mark.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal, cast

from ferrule.wire.channel import Receiver
from ferrule.wire.codec import encode
from ferrule.wire.framing import Framer, Frames, FramingLost, HeaderFramer, LineFramer, Oversize
from ferrule.wire.messages import Message

HIGH_WATER = 256 * 1024
LOW_WATER = LARGE = 64 * 1024
# malloc maps and unmaps a longer buffer for every read, which costs more than the read itself.
READ_SIZE = 64 * 1024
BUFFERS_A_WRITE = 64

logger = logging.getLogger("ferrule.transports")


class StreamChannel(asyncio.Protocol):
    """A channel to the peer at the other end of an asyncio byte stream."""

    _transport: asyncio.Transport

    def __init__(
        self, receiver: Receiver, framer: Framer | None = None, *, on_oversize: Literal["skip", "close"] = "close"
    ) -> None:
        self._receiver = receiver
        self._framer = framer or LineFramer()
        self._feed = self._framer.feed
        self._frame = frame_with_headers if isinstance(framer, HeaderFramer) else frame_as_lines
        self._on_oversize = on_oversize
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes] = []
        self._outgoing_size = 0
        self._flush_due = self._congested = self._closing = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._waiters: list[asyncio.Future[None]] = []
        self.error: Exception | None = None
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0

    @property
    def lost(self) -> bool:
        """Whether the stream is gone."""
        return self._lost.done()

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode one message, or a batch, and let it leave at the end of this turn."""
        if self._closing:
            return
        payload = encode(message)
        self._outgoing.append(payload)
        self._outgoing_size += len(payload) + 1
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        if self._outgoing_size > HIGH_WATER:
            self._flush()

    async def wait_writable(self) -> None:
        """Return at once unless more than the high-water mark waits to be written."""
        while self._congested:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self, reason: str = "") -> None:
        """Write what was sent, then end the stream."""
        if not self._closing:
            self._flush()
            self._closing = True
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
        try:
            self._receiver.channel_lost(self, self.error)
        except Exception:
            logger.exception("the receiver failed when it was told that its channel is lost")

    def pause_writing(self) -> None:
        """Stop reading: the peer must take our answers before it may ask for more."""
        self._congested = True
        if not (self._closing or self._ended.done()):
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again, and wake who waits to write."""
        self._congested = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if not (self._closing or self._ended.done()):
            self._transport.resume_reading()

    def _deliver(self, frames: Frames, *, at_end: bool = False) -> None:
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
        self._receiver.frame_refused(frame.max_size, self)
        if self._on_oversize == "close":
            self.close()

    def _give_up(self, error: Exception) -> None:
        self.error = self.error or error
        self.close()

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


class PipeTransport(asyncio.Transport):
    """A descriptor to read and a descriptor to write, owned and closed here, as one asyncio transport."""

    def __init__(self, read_fd: int, write_fd: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._read_fd, self._write_fd = read_fd, write_fd
        self._unblocked = [fd for fd in (read_fd, write_fd) if loop_can_watch(fd) and os.get_blocking(fd)]
        for fd in self._unblocked:
            os.set_blocking(fd, False)
        self._held: deque[memoryview] = deque()
        self._held_size, self._high, self._low = 0, HIGH_WATER, LOW_WATER
        self._reading = self._awaiting_room = self._congested = self._closing = self._lost = False
        protocol.connection_made(self)
        self.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set at how many unwritten bytes the protocol is told to pause, and at how many to go on."""
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Leave what comes in the pipe, which makes the peer wait."""
        if self._reading:
            self._reading = False
            self._stop_watching()

    def resume_reading(self) -> None:
        """Hand data on as it comes."""
        if not (self._reading or self._closing):
            self._reading = True
            self._start_watching()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write now what the pipe takes now, the rest when there is room."""
        written = 0
        if not (self._held or self._closing):
            try:
                written = os.write(self._write_fd, data)
            except BlockingIOError:
                pass
            except OSError as error:
                self._write_failed(error)
                return
        if written < len(data):
            self.writelines((memoryview(data)[written:],))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several buffers in one system call, copying none."""
        if self._closing:
            return
        waited = bool(self._held)
        for data in filter(len, list_of_data):
            self._held.append(memoryview(data))
            self._held_size += len(data)
        if not waited:
            self._write_held()
        if self._held_size > self._high and not self._congested:
            self._congested = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Tell that we may go on writing after the end of what we read."""
        return True

    def close(self) -> None:
        """Stop reading, write what waits, then close both descriptors."""
        if not self._closing:
            self._closing = True
            self.pause_reading()
            if not self._held:
                self._all_written()

    def abort(self) -> None:
        """Close both descriptors without writing what waits."""
        self._fail(None)

    def _start_watching(self) -> None:
        self._loop.add_reader(self._read_fd, self._read)

    def _stop_watching(self) -> None:
        self._loop.remove_reader(self._read_fd)

    def _read(self) -> None:
        try:
            data = os.read(self._read_fd, READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if data:
            self._protocol.data_received(data)
        else:
            self._read_ended()

    def _read_ended(self) -> None:
        self.pause_reading()
        if not self._protocol.eof_received():
            self.close()

    def _write_held(self) -> None:
        try:
            while self._held:
                self._drop_written(os.writev(self._write_fd, list(islice(self._held, BUFFERS_A_WRITE))))
        except BlockingIOError:
            self._await_room(True)
        except OSError as error:
            self._write_failed(error)
        else:
            self._await_room(False)
            if self._closing:
                self._all_written()
        if self._congested and self._held_size <= self._low:
            self._congested = False
            self._protocol.resume_writing()

    def _drop_written(self, size: int) -> None:
        self._held_size -= size
        while size:
            first = self._held.popleft()
            if size < len(first):
                self._held.appendleft(first[size:])
                return
            size -= len(first)

    def _await_room(self, wanted: bool) -> None:
        if wanted and not self._awaiting_room:
            self._loop.add_writer(self._write_fd, self._write_held)
        elif self._awaiting_room and not wanted:
            self._loop.remove_writer(self._write_fd)
        self._awaiting_room = wanted

    def _all_written(self) -> None:
        self._loop.call_soon(self._lose, None)

    def _write_failed(self, error: OSError) -> None:
        self._fail(error)

    def _fail(self, error: Exception | None) -> None:
        self._closing = True
        self.pause_reading()
        self._drop_held()
        self._loop.call_soon(self._lose, error)

    def _drop_held(self) -> None:
        self._held.clear()
        self._held_size = 0
        self._await_room(False)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._release(self._write_fd)
            self._release(self._read_fd)
            self._protocol.connection_lost(error)

    def _release(self, fd: int) -> None:
        if fd in self._unblocked:
            os.set_blocking(fd, True)
        os.close(fd)


def loop_can_watch(fd: int) -> bool:
    """Tell whether the loop can wait for the descriptor: it refuses files, and a terminal must keep blocking."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
