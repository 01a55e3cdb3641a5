"""One WebSocket: messages in and out, pings, backpressure, and an end both sides know of.

Rule 1: a message goes from the read to the receiver in the same turn: no queue, no task. Only where one read brings
more than one turn's share does the rest wait for the next turns, in order, and nothing more is read until then.
Rule 2: what is sent in one turn of the loop leaves in one write.
Rule 3: no timers of its own. What is due is looked up when somebody sweeps.
Rule 4: a server stops reading while its peer does not take the answers; a client always reads, or the two of them could
wait for each other.
Rule 5: what was read is handed over, also when the peer is gone meanwhile; after our own close nothing is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import cast

from ferrule.budgets.bounds import FRAMES_A_TURN
from ferrule.errors import CarrierError
from ferrule.transports.backpressure import HELD_BACK, NO_ROOM, Unfinished, Waiters, backlog, most_waiting
from ferrule.transports.shutdown import tell_lost
from ferrule.transports.websocket.deflate import WORTH_IT, Deflate
from ferrule.transports.websocket.frames import (
    ABNORMAL,
    CLOSE,
    COMPRESSED,
    FIN,
    GOING_AWAY,
    INTERNAL,
    NORMAL,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    TRY_LATER,
    UNAUTHORIZED,
    Closing,
    MaskedWriter,
    PlainWriter,
    Writer,
)
from ferrule.transports.websocket.parser import (
    Binary,
    Control,
    Event,
    FrameReader,
    Line,
    ReadingRules,
    RuleBreach,
    split_messages,
)
from ferrule.transports.websocket.settings import ChannelSettings
from ferrule.transports.websocket.timers import Seen, Timers
from ferrule.wire.channel import ChannelDefaults, Receiver, Traits
from ferrule.wire.codec import UNWRITABLE, too_long, unwritable, write
from ferrule.wire.messages import Message

BEGINS, ENDS = 0.8, 0.5
"""Which parts of the buffer begin and end backpressure."""
PIECE = 1024 * 1024
"""Bytes that asyncio's own transport is handed at a time."""

TLS_WRITE = 64 * 1024
"""How much is given to TLS at once."""
MAX_PONGS = 64 * 1024
"""How many bytes of pongs may wait; over it only the newest ping is answered, as RFC 6455 §5.5.3 allows."""
LINGER = 1.0
"""How long what still comes is thrown away before the connection is cut: closed at once, the system could take back
our close frame before the peer has read it."""

logger = logging.getLogger("ferrule.transports")


class WebSocketChannel(ChannelDefaults, asyncio.Protocol):
    """A channel to the peer at the other end of a WebSocket."""

    traits = Traits(watches_itself=True, closes_on_garbage=True)
    last = False
    """Set by an HTTP engine on all it looks after; a WebSocket has no answer to end with."""
    traffic = (0, 0)
    """Of HTTP; what comes and goes in frames is counted by its link."""

    _transport: asyncio.Transport

    def __init__(
        self,
        receiver: Receiver,
        settings: ChannelSettings,
        *,
        server: bool,
        deflate: Deflate | None = None,
        left: Callable[[], None] = lambda: None,
    ) -> None:
        self._receiver = receiver
        self._settings = settings
        self._max_size = settings.max_message_size
        self._buffer_size = settings.frame_buffer_size
        self._strict = settings.strict_delimiter_check
        self._server = server
        self._deflate = deflate
        self._left = left
        rules = ReadingRules(
            masked=server,
            max_size=settings.max_message_size,
            validate_utf8=settings.validate_utf8,
            accept_binary=settings.accept_binary,
        )
        self._reader = FrameReader(rules, deflate)
        self._writer: Writer = PlainWriter() if server else MaskedWriter()
        self._loop = asyncio.get_running_loop()
        self._timers = Timers(settings, self._loop.time())
        self._outgoing: list[bytes] = []
        self._outgoing_size = self._pongs = self._pings = 0
        self._owed: bytes | None = None
        self._flush_due = self._closing = self._paused = False
        self._waiting: deque[Event] = deque()
        """What was read and waits for the next turn."""
        self._turn_due = self._gone = self._secure = False
        self._unfinished: Unfinished | None = None
        """Counts what is held of a message that did not come in one read."""
        self.congested = False
        """Whether the peer reads slower than we write."""
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._waiters = Waiters()
        self.closing: Closing | None = None
        """With what the WebSocket was closed, by whichever side was first."""
        self.error: Exception | None = None
        self.bytes_in = self.bytes_out = 0

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._lost.done()

    @property
    def backlog(self) -> int:
        """How many bytes wait for the peer."""
        if self._gone:
            return 0
        return self._transport.get_write_buffer_size()

    # -- called by a link

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode one message, or a batch, and let it leave at the end of this turn."""
        if self._closing:
            return
        try:
            payload = write(message)
        except UNWRITABLE as reason:
            raise unwritable(reason) from None
        size = len(payload)
        if size >= self._max_size:  # a line feed follows it
            raise too_long(size + 1, self._max_size)
        self._outgoing.append(payload)
        self._outgoing_size = size = self._outgoing_size + size
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        if size > self._buffer_size:
            self._flush()

    def send_text(self, payload: bytes) -> None:
        """Let one text, encoded already, leave at the end of this turn."""
        if self._closing:
            return
        self._outgoing.append(payload)
        self._outgoing_size = size = self._outgoing_size + len(payload)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        if size > self._buffer_size:
            self._flush()

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""
        while self.congested and not self._closing:
            await self._waiters.wait()
        if self._closing:
            await asyncio.sleep(HELD_BACK if self.congested else 0)  # nothing is written any more: let others run

    def close(self, reason: str = "") -> None:
        """Write what was sent, then close with 1000; the connection ends when the peer has answered."""
        self._begin_close(Closing(NORMAL, reason))

    # -- called by the owner

    def close_with(self, code: int, reason: str = "") -> None:
        """Write what was sent, then close with a code of a subprotocol."""
        self._begin_close(Closing(code, reason))

    def expire(self, reason: str) -> None:
        """Close with 4401: who is at the other end is not proved any more."""
        self._begin_close(Closing(UNAUTHORIZED, reason))

    def go_away(self) -> None:
        """Write what was sent, then close with 1001: we are stopping."""
        self._begin_close(Closing(GOING_AWAY))

    def drain(self) -> None:
        """Do nothing: running calls are still answered, and whoever let us in closes afterwards."""

    def abort(self) -> None:
        """End the connection at once; what is not written yet is lost."""
        if self._lost.done():
            return
        if self.congested and not self._closing:
            self.error = self.error or CarrierError(f"the peer does not read: {self.backlog} bytes wait for it")
        self._closing = True
        self._waiting.clear()
        if self._gone:
            self._lose()
        else:
            self._transport.abort()

    async def wait_lost(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.wait([self._lost])

    def sweep(self, now: float) -> None:
        """Do what is due."""
        if self._gone:
            return
        reader = self._reader
        taken = self.bytes_out - self._transport.get_write_buffer_size()
        seen = Seen(self.bytes_in, taken, self.congested, self._reads, reader.inside_frame, reader.unfinished)
        due = self._timers.look(now, seen)
        if due == "ping":
            self._pings += 1
            self._write(self._writer.frame(FIN | PING, self._pings.to_bytes(4)))
        elif due == "no pong":
            self._fail(Closing(INTERNAL, "no pong"))
            self._cut()
        elif due == "no end":
            self._fail(Closing(self._settings.fragment_timeout_code, "the last part of a message did not come"))
        elif due == "stuck":
            self._fail(Closing(INTERNAL, "the peer does not read"), self._settings.backpressure_timeout)
        elif due == "read on":
            self._read_on()
        elif due == "cut":
            self._cut()

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak: the opening handshake is over."""
        self._transport = cast("asyncio.Transport", transport)
        self._secure = transport.get_extra_info("sslcontext") is not None
        size = self._settings.frame_buffer_size
        self._transport.set_write_buffer_limits(int(size * BEGINS), int(size * ENDS))
        self.context = copy_context()  # once: all that comes over one connection comes in one context
        self._receiver.channel_opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand every message that is complete now to the receiver."""
        self.bytes_in += len(data)
        reader = self._reader
        if self._waiting or reader.more:
            # Nothing should come while reading is paused; what does has its turn after the rest.
            reader.keep(data)
            return
        events = reader.feed(data)
        if events:
            if self._unfinished is not None:
                self._unfinished.done()  # from here on the receiver counts it
                if not reader.pending:
                    self._unfinished = None
            self._handle(events)
        elif not reader.more:
            self._note_unfinished()
            return
        if self._waiting or reader.more:
            self._wait_for_turn()
        elif self._unfinished is not None:
            self._note_unfinished()

    def _handle(self, events: Sequence[Event]) -> None:
        """Handle what was read, up to one turn's share; the rest waits."""
        # What the receiver sends meanwhile leaves with the flush below, one turn earlier than a scheduled one.
        self._flush_due = True
        share = FRAMES_A_TURN
        waiting = self._waiting
        waiting.extend(events)
        try:
            while waiting and share and not self._paused:
                share -= 1
                event = waiting.popleft()
                if type(event) is not bytes:
                    self._handle_other(event)
                elif not self._closing:
                    self._receive(event)
        except Exception as error:
            logger.exception("the receiver failed on what it received; its channel is closed")
            self.error = self.error or error
            self._fail(Closing(INTERNAL, "internal error"))
        self._flush()

    def _wait_for_turn(self) -> None:
        """Read nothing more until what has come is handed over."""
        if not (self._gone or self._lost.done()):
            self._transport.pause_reading()
        if not self._paused:
            self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Hand over one more turn's share."""
        self._turn_due = False
        reader = self._reader
        if not self._waiting and reader.more:
            self._handle(reader.feed(b""))
        else:
            self._handle(())
        if self._waiting or reader.more:
            if not self._paused:
                self._go_on_later()
        elif self._gone:
            self._lose()
        elif not (self._paused or self._lost.done()):
            self._note_unfinished()
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """The peer is gone: a WebSocket has no half-closed state."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the connection is gone: report it once, after what was read, and wake everyone who waits."""
        if self._lost.done() or self._gone:
            return
        self.error = self.error or error
        self._gone = True
        self._outgoing.clear()
        self._paused = False
        self._wake()
        if (self._waiting or self._reader.more) and not self._closing:
            self._go_on_later()
        else:
            self._lose()

    def _lose(self) -> None:
        if self._lost.done():
            return
        self._closing = True
        self._waiting.clear()
        self._reader.stop()
        if self._unfinished is not None:
            self._unfinished.done()
            self._unfinished = None
        self._lost.set_result(None)
        self._wake()
        self._left()
        tell_lost(self._receiver, self, self._verdict())

    def pause_writing(self) -> None:
        """More waits for the peer than should: whoever writes must wait, and a server reads no further."""
        self.congested = True
        if self._server and not self._closing:
            self._paused = True
            self._transport.pause_reading()
        self._note_backlog()
        self._signal("buffer_full")

    def resume_writing(self) -> None:
        """Read again, and wake who waits to write."""
        self._pongs = 0
        self._wake()
        self._read_on()
        owed = self._owed
        self._owed = None
        if owed is not None and not self._closing:
            self._write(self._writer.frame(FIN | PONG, owed))
        self._signal("resume_sending")

    # -- reading

    def _receive(self, text: bytes) -> None:
        if self._strict and not text.endswith(b"\n"):
            self._fail(Closing(PROTOCOL_ERROR, "a text must end with a line feed"))
            return
        if text.find(b"\n", 0, -1) < 0:
            if text.endswith(b"\n"):
                text = text[:-1]
            self._receiver.frame_received(text, self)
            return
        first, *others = split_messages(text)
        self._waiting.extendleft(map(Line, reversed(others)))
        self._receiver.frame_received(first, self)

    def _handle_other(self, event: Event) -> None:
        """Handle an event that is not a message."""
        if type(event) is Control:
            if event.opcode == PING:
                self._answer(event.payload)
            elif event.payload == self._pings.to_bytes(4):
                self._timers.pong(self._loop.time())
        elif type(event) is Closing:
            self._closed_by_peer(event)
        elif type(event) is RuleBreach:
            self._fail(Closing(event.code, event.reason))
        elif self._closing:
            return
        elif type(event) is Line:
            self._receiver.frame_received(bytes(event), self)
        elif type(event) is Binary:
            self._receive(event)

    def _answer(self, payload: bytes) -> None:
        if self._closing:
            return
        pong = self._writer.frame(FIN | PONG, payload)
        if self.congested:
            self._pongs += len(pong)
        if self._pongs > MAX_PONGS:
            self._owed = payload
            return
        # RFC 6455 §5.5.3. In the order of the conversation: what was said before the ping leaves before the pong.
        self._flush()
        self._flush_due = True
        self._write(pong)

    def _read_on(self) -> None:
        if not self._paused:
            return
        self._paused = False
        if self._waiting or self._reader.more:
            self._go_on_later()
        elif not (self._lost.done() or self._gone):
            self._transport.resume_reading()

    @property
    def _reads(self) -> bool:
        """Whether we read at all."""
        return not (self._paused or self._waiting or self._reader.more)

    def _note_unfinished(self) -> None:
        if self._lost.done():
            return
        if self._unfinished is None:
            self._unfinished = Unfinished(lambda: self._reader.pending, self._no_room)
        self._unfinished.note()

    def _no_room(self) -> None:
        self._fail(Closing(TRY_LATER, NO_ROOM))

    # -- writing

    def _flush(self) -> None:
        self._flush_due = False
        payloads = self._outgoing
        if not payloads or self._closing:
            return
        self._outgoing = []
        self._outgoing_size = 0
        if self._deflate is None:
            data = self._writer.texts(payloads)
        else:
            data = self._deflated(payloads)
        if self._gone or self._secure or len(data) > PIECE:
            self._write(data)
        else:
            self.bytes_out += len(data)
            self._transport.write(data)
        if self.congested:
            self._note_backlog()

    def _note_backlog(self) -> None:
        """Count what waits for a peer that reads slower than we write, and cut one for which too much waits."""
        waiting = self.backlog
        if waiting > most_waiting(self._settings.max_message_size):
            self.abort()
        elif not (self._gone or self._lost.done()):
            backlog.grew(self, waiting)

    def _deflated(self, payloads: list[bytes]) -> bytes:
        assert self._deflate is not None
        frame = self._writer.frame
        deflate = self._deflate.deflate
        frames = []
        for payload in payloads:
            if len(payload) < WORTH_IT:
                frames.append(frame(FIN | TEXT, payload + b"\n"))
            else:
                frames.append(frame(FIN | COMPRESSED | TEXT, deflate(payload + b"\n")))
        return b"".join(frames)

    def _write(self, data: bytes) -> None:
        if self._gone:
            return
        self.bytes_out += len(data)
        if self._secure and len(data) > TLS_WRITE:
            # Before it is encrypted, and no more: what TLS has handed on to its socket it does not count as waiting.
            for at in range(0, len(data), TLS_WRITE):
                self._transport.write(data[at : at + TLS_WRITE])
        elif len(data) > PIECE and type(self._transport).__module__.startswith("asyncio."):
            # From 3.12 on it holds the whole of what it could write in part, and counts only the rest as waiting.
            for at in range(0, len(data), PIECE):
                self._transport.write(data[at : at + PIECE])
        else:
            self._transport.write(data)

    def _wake(self) -> None:
        self.congested = False
        backlog.drained(self)
        self._waiters.wake()

    def _signal(self, what: str) -> None:
        if self._settings.on_backpressure is not None:
            self._settings.on_backpressure(what, self._transport.get_write_buffer_size())

    # -- ending

    def _begin_close(self, closing: Closing) -> None:
        """Start the closing handshake (RFC 6455 §7.1.2), and wait for the peer's part."""
        if not self._closing:
            self._flush()
            self._say_close(closing)
            self._read_on()
            self._timers.end_within(self._loop.time(), self._settings.close_timeout)

    def _say_close(self, closing: Closing) -> None:
        self._closing = True
        self._waiters.wake()
        self.closing = self.closing or closing
        self._write(self._writer.frame(FIN | CLOSE, closing.payload()))

    def _closed_by_peer(self, closing: Closing) -> None:
        """Answer the peer's close with its own code (RFC 6455 §5.5.1); a server then ends the connection, a client lets
        it do so (§7.1.1)."""
        if not self._closing:
            self._flush()
            self.closing = closing
            self._say_close(Closing(closing.code))
        if self._server:
            self._transport.close()
        self._timers.end_within(self._loop.time(), self._settings.close_timeout if self._server else LINGER)

    def _fail(self, closing: Closing, linger: float = LINGER) -> None:
        """Close because of what the peer did, or did not do (RFC 6455 §7.1.7): no answer is awaited."""
        if self._gone:
            return
        if self._closing:
            self._timers.end_within(self._loop.time(), LINGER)
            return
        self._flush()
        self.error = self.error or CarrierError(f"the WebSocket was closed: {closing}")
        self._reader.stop()
        self._say_close(closing)
        self._read_on()
        if self._transport.can_write_eof():
            # A peer that has reset the connection meanwhile: its loss is told in the next turn.
            with suppress(OSError):
                self._transport.write_eof()
        self._timers.end_within(self._loop.time(), linger)

    def _cut(self) -> None:
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def _verdict(self) -> Exception | None:
        """Return why the channel ended, None where that was an ordinary end."""
        if self.error is not None:
            return self.error
        closing = self.closing or Closing(ABNORMAL, "the connection was lost without a close")
        if closing.code in (NORMAL, GOING_AWAY):
            return None
        return CarrierError(f"the WebSocket was closed: {closing}")
