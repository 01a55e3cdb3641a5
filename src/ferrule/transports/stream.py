"""Framed messages on a byte stream, whatever carries the bytes.

Rule 1: a frame goes from the read to the receiver in the same turn: no queue, no task. Only where one read brings more
frames than one turn's share do the others wait for the next turns, in order, and nothing more is read until then.
Rule 2: what is sent in one turn of the loop leaves in one write. The answer to the only call that runs leaves at once:
nothing is to be expected that could go with it.
Rule 3: reading pauses, beside that, only while our own outgoing side is over its high-water mark, and only where we
serve: were both sides to do so, each could wait for the other to read first.
Rule 4: what was read is handed over, also when the peer is gone meanwhile; after our own close nothing is.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Literal, cast

from ferrule.budgets.allocator import allocator
from ferrule.budgets.bounds import FRAMES_A_TURN
from ferrule.errors import Busy, CarrierError
from ferrule.transports.backpressure import HELD_BACK, NO_ROOM, Unfinished, Waiters, backlog, most_waiting
from ferrule.transports.shutdown import tell_lost
from ferrule.wire.channel import ChannelDefaults, CountingReceiver, Receiver
from ferrule.wire.codec import UNWRITABLE, too_long, unwritable, write
from ferrule.wire.framing import Framer, Frames, FramingLost, LineFramer, Oversize
from ferrule.wire.messages import ErrorObject, Failure, Message, Success

if TYPE_CHECKING:
    from ferrule.wire.header_block import AutoFramer

# Peers that speak another protocol than ours on a stream of messages: a browser, above all.
#
# A web page can let its reader's browser send a request with a body of its choice to any port of the reader's
# machine. Where messages are lines, the head of that request is a few lines that cannot be read, and its body would
# be messages. So a peer that speaks HTTP is closed at its first line, as Redis does. The same holds for TLS on a port
# without it: what a browser sends in a handshake (RFC 8446 §4.1.2) can hold text that a web page has chosen.


_HTTP = (
    rb"(?:CONNECT|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PRI|PUT|TRACE)[ \t]"  # RFC 9110 §9.3, RFC 9113 §3.4
    rb"|[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}[ \t][^ \t]{1,8192}[ \t]HTTP/"  # RFC 9112 §3
    rb"|HTTP/[0-9]"
    rb"|(?:Accept|Accept-Encoding|Accept-Language|Access-Control-[a-z-]{1,64}|Connection|Content-Type|Cookie|Host"
    rb"|Origin|Referer|Sec-[a-z-]{1,64}|Upgrade|Upgrade-Insecure-Requests|User-Agent)[ \t]*:"
)
_TLS_HANDSHAKE = b"\x16\x03"
_LOOKED_AT = 16 * 1024
"""How much of a line is looked at."""


def foreign_protocol(line: bytes) -> str:
    """Return the name of the protocol that a line belongs to where it is none of ours, else an empty text."""
    if re.match(_HTTP, line[:_LOOKED_AT].lstrip(), re.IGNORECASE):
        return "HTTP"
    if line.startswith(_TLS_HANDSHAKE):
        return "TLS"
    return ""


HIGH_WATER = 256 * 1024
LOW_WATER = LARGE = 64 * 1024
LOOKS_AT_WRITING = 4
"""How often, in the time a peer may take nothing, one looks whether it did."""
OBJECT = ord("{")
"""How nearly every message begins."""

logger = logging.getLogger("ferrule.transports")

Read = bytes | Oversize | FramingLost
"""What a read brings: a frame, one that was too long, or the end of all framing."""


class StreamChannel(ChannelDefaults, asyncio.Protocol):
    """A channel to the peer at the other end of an asyncio byte stream."""

    __slots__ = (
        "_as_lines",
        "_calls",
        "_closing",
        "_ended",
        "_eof_read",
        "_feed",
        "_flush_due",
        "_framer",
        "_gone",
        "_json_only",
        "_loop",
        "_lost",
        "_max_size",
        "_on_oversize",
        "_outgoing",
        "_outgoing_size",
        "_public",
        "_receiver",
        "_secure",
        "_serving",
        "_share",
        "_transport",
        "_turn_due",
        "_unfinished",
        "_waiters",
        "_waiting",
        "_write_timeout",
        "_write_timer",
        "bytes_in",
        "bytes_out",
        "congested",
        "context",
        "dropped",
        "error",
        "messages_in",
        "messages_out",
    )

    _transport: asyncio.Transport

    def __init__(
        self,
        receiver: Receiver,
        framer: Framer | None = None,
        *,
        on_oversize: Literal["close", "skip"] = "close",
        json_only: bool = False,
        serving: bool = True,
        public: bool = False,
        write_timeout: float | None = None,
    ) -> None:
        self._receiver = receiver
        self._calls: CountingReceiver | None = None
        """Who knows what else is to be answered."""
        if isinstance(receiver, CountingReceiver):
            self._calls = receiver
        self._serving = serving
        self._public = public
        """Whether anything that can open a socket can speak to us, a browser for one."""
        self._framer = framer or LineFramer()
        self._feed = self._framer.feed
        self._max_size = self._framer.max_size
        self._as_lines = True
        """Whether messages leave as lines; else behind headers."""
        if not isinstance(self._framer, LineFramer):
            from ferrule.wire.header_block import AutoFramer, HeaderFramer

            self._as_lines = not isinstance(framer, HeaderFramer)
            if isinstance(framer, AutoFramer):
                self._feed = self._feed_opening
        self._on_oversize = on_oversize
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Read] = deque()
        """What was read and waits for the next turn."""
        self._share = FRAMES_A_TURN
        """How many frames of a read are handed over at once; 0 where there is more to do than that."""
        self._eof_read = self._turn_due = self._gone = False
        self._unfinished: Unfinished | None = None
        """Counts what is held of a message that did not come in one read."""
        self._outgoing: list[bytes] = []
        self._outgoing_size = 0
        self._flush_due = self._closing = self._secure = False
        self.congested = False
        """Whether the peer reads slower than we write."""
        self._write_timeout = write_timeout
        self._write_timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._waiters = Waiters()
        self.error: Exception | None = None
        self.context: Context | None = None
        self._json_only = json_only
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = self.dropped = 0

    @property
    def lost(self) -> bool:
        """Whether the stream is gone."""
        return self._lost.done()

    @property
    def backlog(self) -> int:
        """How many bytes wait for the peer."""
        if self._gone:
            return 0
        return self._transport.get_write_buffer_size()

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode one message, or a batch, and let it leave at the end of this turn."""
        if self._closing:
            return
        try:
            payload = write(message)
        except UNWRITABLE as reason:
            raise unwritable(reason) from None
        size = len(payload)
        if size > self._max_size:
            raise too_long(size, self._max_size)
        self._outgoing.append(payload)
        self._outgoing_size = size = self._outgoing_size + size + 1
        if not self._flush_due:
            if type(message) is Success and self._calls is not None and not self._calls.running:
                self._flush()
            else:
                self._flush_due = True
                self._loop.call_soon(self._flush)
        if size > LARGE:
            allocator.large_message()
            if size > HIGH_WATER:
                self._flush()

    async def wait_writable(self) -> None:
        """Return at once unless more than the high-water mark waits to be written."""
        while self.congested and not self._closing:
            await self._waiters.wait()
        if self._closing:
            await asyncio.sleep(HELD_BACK if self.congested else 0)  # nothing is written any more: let others run

    def close(self, reason: str = "") -> None:
        """Write what was sent, then end the stream; what was read and not handed over yet is dropped."""
        if not self._closing:
            self._flush()
            self._closing = True
            self._waiters.wake()
            self._drop_read()
            if not self._gone:
                self._transport.close()

    def abort(self) -> None:
        """End the stream at once; what is not written yet is lost."""
        if self._lost.done():
            return
        if self.congested and not self._closing:
            self.error = self.error or CarrierError(f"the peer does not read: {self.backlog} bytes wait for it")
        self._closing = True
        self._drop_read()
        if not self._gone:
            self._transport.abort()

    async def wait_ended(self) -> None:
        """Wait until the peer sends nothing more, or the stream is gone."""
        await asyncio.wait([self._ended])

    async def wait_lost(self) -> None:
        """Wait until the stream is gone."""
        await asyncio.wait([self._lost])

    # -- what the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to write to this transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        self._secure = transport.get_extra_info("sslcontext") is not None
        self.context = copy_context()  # once: all that comes over one connection comes in one context
        self._receiver.channel_opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand every frame that is complete now to the receiver."""
        if self._closing:
            return
        self.bytes_in += len(data)
        frames: Sequence[Read]
        try:
            frames = self._feed(data)
        except FramingLost as lost:
            frames = [*lost.frames, lost]
        if not frames:
            self._note_unfinished()
        elif len(frames) <= self._share:
            self._deliver(frames)
        else:
            self._share = 0
            self._waiting.extend(frames)
            if not self._turn_due:
                self._take_turn()

    def eof_received(self) -> bool:
        """Hand on what was left without a line end, then the end itself; writing continues where the transport can."""
        if not (self._eof_read or self._ended.done()):
            self._eof_read = True
            if not self._waiting:
                self._end_of_input()
        return self._transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the connection is gone: report it once, after what was read, and wake everyone who waits."""
        if self._lost.done() or self._gone:
            return
        self.error = self.error or error
        self._gone = True
        self._outgoing.clear()
        if self._write_timer is not None:
            self._write_timer.cancel()
        if self.congested:
            self._caught_up()
        if self._waiting and not self._closing:
            self._later()
        else:
            self._lose()

    def pause_writing(self) -> None:
        """Stop reading where we serve: the peer must take our answers before it may ask for more."""
        self.congested = True
        if self._serving and not (self._closing or self._eof_read):
            self._transport.pause_reading()
        self._note_backlog()
        if self._write_timeout is not None and not self._closing:
            self._look_at_writing(-1, 0.0)

    def resume_writing(self) -> None:
        """Read again, and wake who waits to write."""
        self._caught_up()
        if self._waiting:
            self._later()
        elif self._serving and not (self._closing or self._eof_read):
            self._transport.resume_reading()

    # -- reading

    def _feed_opening(self, data: bytes) -> Frames:
        """Find out how the peer frames its messages, and answer in the same way."""
        frames = self._framer.feed(data)
        found = cast("AutoFramer", self._framer).framer
        if found is not None:
            self._feed = found.feed
            self._as_lines = isinstance(found, LineFramer)
        return frames

    def _take_turn(self) -> None:
        """Hand over one turn's share of what waits, and let the rest wait for the next turn."""
        self._turn_due = False
        if self._unfinished is not None:
            self._unfinished.note()
        share = min(FRAMES_A_TURN, len(self._waiting))
        if share:
            self._deliver([self._waiting.popleft() for _ in range(share)])
        if self._waiting:
            # A peer that does not take its answers is answered nothing more until it does.
            if not (self.congested and self._serving):
                self._later()
            if not (self._gone or self._eof_read):
                self._transport.pause_reading()
            return
        self._share = FRAMES_A_TURN
        if self._eof_read and not self._ended.done() and not self._closing:
            self._end_of_input()
        if self._gone:
            self._lose()
        elif not (self._closing or self._eof_read or (self.congested and self._serving)):
            self._transport.resume_reading()

    def _later(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._take_turn)

    def _drop_read(self) -> None:
        self._waiting.clear()
        self._framer.clear()
        if self._unfinished is not None:
            self._unfinished.done()
        if self._gone and not self._lost.done():
            self._lose()

    def _note_unfinished(self) -> None:
        if self._unfinished is None:
            self._unfinished = Unfinished(lambda: self._framer.pending, self._no_room)
        self._unfinished.note()
        self._share = 0

    def _no_room(self) -> None:
        if self._serving and not self._closing:
            busy = Busy(f"Busy: {NO_ROOM}")
            self.send(Failure(None, ErrorObject(busy.code, busy.message, busy.data)))
        self._give_up(CarrierError(NO_ROOM))

    def _deliver(self, frames: Sequence[Read], *, at_end: bool = False) -> None:
        if self._json_only:
            kept = [frame for frame in frames if type(frame) is not bytes or frame.lstrip()[:1] in {b"{", b"["}]
            self.dropped += len(frames) - len(kept)
            frames = kept
        self.messages_in += len(frames)
        # What the receiver sends meanwhile leaves with the flush below, one turn earlier than a scheduled one.
        self._flush_due = True
        receive = self._receiver.frame_received
        public = self._public
        try:
            for frame in frames:
                if self._closing:
                    return
                if type(frame) is not bytes:
                    self._irregular(frame)
                elif public and frame[0] != OBJECT and self._is_foreign(frame):
                    return
                else:
                    receive(frame, self)
            if at_end and not self._closing:
                self._receiver.end_received(self)
        except Exception as error:
            logger.exception("the receiver failed on what it received; its channel is closed")
            self._give_up(error)
        self._flush()

    def _irregular(self, frame: Read) -> None:
        if isinstance(frame, Oversize):
            self._refuse(frame)
        elif isinstance(frame, FramingLost):
            self._give_up(frame)

    def _is_foreign(self, frame: bytes) -> bool:
        """Close where the peer speaks another protocol, a browser that was told to for one; return whether it does."""
        name = foreign_protocol(frame)
        if name:
            logger.warning("a peer speaks %s to a port for MCP messages: closed, nothing of it was run", name)
            self._give_up(CarrierError(f"the peer speaks {name}"))
        return bool(name)

    def _refuse(self, frame: Oversize) -> None:
        self._receiver.frame_refused(frame.max_size, self, frame.head)
        if self._on_oversize == "close":
            self.close()

    def _end_of_input(self) -> None:
        self._ended.set_result(None)
        self._deliver(self._framer.eof(), at_end=True)
        if self._unfinished is not None:
            self._unfinished.done()
        self._end_handed_over()

    def _end_handed_over(self) -> None:
        """Called when the receiver knows that nothing more comes."""

    # -- ending

    def _give_up(self, error: Exception) -> None:
        """End for a reason; one that asks does not wait for a peer that may never take its last questions."""
        self.error = self.error or error
        if self._serving:
            self.close()
        else:
            self.abort()

    def _lose(self) -> None:
        self._closing = True
        if self._unfinished is not None:
            self._unfinished.done()
            self._unfinished = None
        self._lost.set_result(None)
        if not self._ended.done():
            self._ended.set_result(None)
        self._waiters.wake()
        tell_lost(self._receiver, self, self.error)

    # -- writing

    def _flush(self) -> None:
        self._flush_due = False
        payloads = self._outgoing
        size = self._outgoing_size
        if not payloads or self._closing:
            return
        self._outgoing = []
        self._outgoing_size = 0
        if self._gone:
            return
        self.messages_out += len(payloads)
        self.bytes_out += size
        if size <= LARGE and self._as_lines:
            payloads.append(b"")  # every line ends with a line feed, the last one too
            self._transport.write(b"\n".join(payloads))
        else:
            self._write_long(payloads, size)
        if self.congested:
            self._note_backlog()

    def _write_long(self, payloads: list[bytes], size: int) -> None:
        """Write what is not a few short lines."""
        if self._as_lines:
            buffers = frame_as_lines(payloads, size)
        else:
            buffers = frame_with_headers(payloads, size)
        if self._secure:
            # What TLS has handed on to its socket it does not count as waiting: so it gets no more than it must.
            for buffer in buffers:
                for at in range(0, len(buffer), LARGE):
                    self._transport.write(buffer[at : at + LARGE])
        elif not type(self._transport).writelines.__module__.startswith("asyncio."):
            self._transport.writelines(buffers)
        else:
            # asyncio's own joins the buffers in 3.11, which copies the large ones again. In 3.12 before 3.12.9 and 3.13
            # before 3.13.2 it never says that too much waits (CVE-2024-12254).
            for buffer in buffers:
                self._transport.write(buffer)

    @property
    def _taken(self) -> int:
        """How many bytes of what we wrote the peer, or the system for it, has taken."""
        return self.bytes_out - self._transport.get_write_buffer_size()

    def _caught_up(self) -> None:
        self.congested = False
        backlog.drained(self)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._waiters.wake()

    def _note_backlog(self) -> None:
        """Count what waits for a peer that reads slower than we write, and cut one for which too much waits."""
        waiting = self.backlog
        if waiting > most_waiting(self._max_size):
            self.abort()
        elif not self._closing:
            backlog.grew(self, waiting)

    def _look_at_writing(self, taken: int, since: float) -> None:
        """Cut a peer that took nothing for the whole of the timeout; otherwise look again soon."""
        assert self._write_timeout is not None
        now = self._loop.time()
        if self._taken != taken:
            taken = self._taken
            since = now
            self._note_backlog()
        elif now - since >= self._write_timeout:
            self.abort()
        if not self._closing:
            pause = self._write_timeout / LOOKS_AT_WRITING
            self._write_timer = self._loop.call_later(pause, self._look_at_writing, taken, since)


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
    if size <= LARGE:
        return [b"".join(buffers)]
    return buffers
