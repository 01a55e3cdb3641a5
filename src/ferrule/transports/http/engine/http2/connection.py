"""One HTTP/2 connection (RFC 9113): many requests at once, each on a stream of its own.

Rule 1: the library h2 knows the protocol; here is what a server decides. A frame is judged before h2 sees it, and h2
is handed one frame at a time, so that nothing is done after an error and nothing before it is lost.
Rule 2: a few frames are handled in one turn of the loop, then others have theirs; nothing is read meanwhile.
Rule 3: no timers. A deadline is a number, looked at when the engine sweeps.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from ferrule.identity.verifier import Certificate
from ferrule.transports.http.engine.connection import BURST, LINGER_BYTES, LINGER_TIME, NEVER
from ferrule.transports.http.engine.head_parser import CHUNKED, Unacceptable
from ferrule.transports.http.engine.http2.fields import FieldDecoder, Fields, check_trailers, read_head, size_of
from ferrule.transports.http.engine.http2.frames import (
    CONTINUATION,
    GOAWAY,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFailed,
    Frame,
    FrameReader,
    usable_settings,
)
from ferrule.transports.http.engine.http2.limits import FloodLimits
from ferrule.transports.http.engine.http2.sender import Sender
from ferrule.transports.http.engine.http2.stream import COMING, Stream
from ferrule.transports.http.engine.request_reader import NO_HEAD
from ferrule.transports.http.engine.state import EngineState
from ferrule.transports.http.heads import EMPTY_HEAD
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import Http2Settings
from ferrule.transports.sockets.tls import peer_certificate

logger = logging.getLogger("ferrule.http")

NEW, OPEN, LEAVING, LINGER, CLOSED = range(5)
"""The states: the peer's settings have not come yet, serving, no new streams, dropping what still comes, gone."""

CONNECTION_WINDOW = 1024 * 1024
"""Bytes of all bodies together that may be on their way; what arrives is on an account and acknowledged at once."""
HARD_LIMIT = 2
"""Fields up to so many times `max_head_size` are decompressed, to be refused with 431; over it the connection ends."""
MOST_STREAMS = 2**31 - 1
MAX_CLOSED_STREAMS = 1000
"""Streams of one connection that have ended and are remembered."""


class Frames(H2Connection):
    """The protocol itself; of streams that have ended it remembers fewer than it would."""

    MAX_CLOSED_STREAMS = MAX_CLOSED_STREAMS


class Http2Connection(asyncio.Protocol):
    """One connection to a client that speaks HTTP/2."""

    _transport: asyncio.Transport

    def __init__(self, engine_state: EngineState, settings: Http2Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.engine_state = engine_state
        self.address = ""
        self._certificate: Certificate | None = None
        """The peer's, where the engine asks for one."""
        self.received = 0
        """Bytes the peer has sent, in all."""
        self.state = NEW
        self.last = engine_state.leaving
        """Whether the connection ends after the next answer."""
        self._loop = loop
        self._settings = settings
        self._frames = FrameReader()
        self._limits = FloodLimits(HARD_LIMIT * engine_state.settings.max_head_size)
        self._h2 = _new_protocol(settings, engine_state.settings.max_head_size)
        self.out = Sender(self._h2, self._limits, engine_state, self._finish)
        self._streams: dict[int, Stream] = {}
        """The streams that are read or owed an answer."""
        self._ready: deque[Stream] = deque()
        """Whole requests that wait until the peer reads what was written."""
        self._highest = 0
        """The number of the last stream the peer has opened, and of the last that was accepted."""
        self._accepted = 0
        self._goodbye_said = False
        self._scheduled = False
        """Whether frames wait for the next turn of the loop."""
        self._reading = True
        self._dropped = 0
        """Bytes that came while lingering."""
        self._deadline = engine_state.clock + engine_state.settings.head_timeout
        """When the state has lasted too long: without settings, or without a stream."""
        self._frame_deadline = NEVER
        """When the frame or the header block that has begun must be whole."""

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with a transport to the peer."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if self.engine_state.settings.client_ca is not None:
            self._certificate = peer_certificate(transport)
        self.out.start(self._transport)
        if self.engine_state.draining:
            self.drain()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the peer."""
        self.received += len(data)
        if self.state < LINGER:
            self._frames.feed(data)
            if not self._scheduled:
                self._advance()
        elif self.state == LINGER:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self._close()

    def eof_received(self) -> bool:
        """Handle the end of the peer's side: streams end one by one, a connection only as a whole."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything, and tell who was about to answer."""
        self.state = CLOSED
        self._lose_all()
        self.out.drained()
        self.engine_state.forget(self)

    @property
    def traffic(self) -> tuple[int, int]:
        """How many bytes it has read and written."""
        return self.received, self.out.written

    def pause_writing(self) -> None:
        """Called when the peer reads slower than we write."""
        self.out.paused = True

    def resume_writing(self) -> None:
        """Called when the peer has caught up."""
        self.out.paused = False
        self.out.drained()
        self.out.send_all()
        while self._ready and not self.out.paused:
            self._start(self._ready.popleft())

    # Reading.

    def _advance(self) -> None:
        """Handle the frames that have come, as many as one turn may have."""
        self._scheduled = False
        try:
            for _ in range(BURST):
                frame = self._frames.next() if self.state < LINGER else None
                if frame is None:
                    break
                self._take(frame)
            else:
                self._scheduled = True
                self._loop.call_soon(self._advance)
        except ConnectionFailed as error:
            self._fail(error.code, str(error))
        except ProtocolError as error:
            self._fail(error.error_code, str(error))
        except Exception:
            logger.exception("failed on a frame of HTTP/2")
            self._fail(ErrorCodes.INTERNAL_ERROR, "internal error")
        self._settle()

    def _settle(self) -> None:
        """Read on unless frames wait for their turn, and note how long one that has begun may take."""
        if self.state >= LINGER:
            return
        self._read_on(not self._scheduled)
        if self._scheduled:
            return
        pending = self._frames.pending
        body = self._streams.get(self._frames.begun_data())
        if body is not None and body.phase == COMING:
            body.prolong(pending)
        elif (pending or self._limits.in_block) and self._frame_deadline == NEVER:
            self._frame_deadline = self.engine_state.clock + self.engine_state.settings.head_timeout

    def _read_on(self, on: bool) -> None:
        """Read from the socket, or leave what comes to the system's buffer."""
        if self._reading != on:
            self._reading = on
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _take(self, frame: Frame) -> None:
        """Handle one frame."""
        kind = frame.kind
        if self._limits.in_block and kind != CONTINUATION:
            # RFC 9113 §6.10.
            raise ConnectionFailed(ErrorCodes.PROTOCOL_ERROR, "a frame came in the middle of a header block")
        if self.state == NEW:
            # RFC 9113 §3.4.
            if kind != SETTINGS:
                raise ConnectionFailed(ErrorCodes.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self.state = OPEN
            self._deadline = self.engine_state.idle_until
        if kind == SETTINGS:
            frame = usable_settings(frame)
        known = frame.stream in self._streams
        over = not known and 0 < frame.stream <= self._highest
        self._limits.judge(frame, self.engine_state.clock, known=known, over=over)
        if not self._limits.in_block:
            self._frame_deadline = NEVER
        if kind == GOAWAY:
            self._peer_leaves(frame)
            return
        if over and kind in (RST_STREAM, WINDOW_UPDATE):
            # RFC 9113 §5.1: they may have crossed with the end of our answer.
            return
        for event in self._h2.receive_data(frame.raw):
            self._handle(event)
        self.out.flush()

    def _handle(self, event: Event) -> None:
        """Handle what a frame means."""
        if isinstance(event, RequestReceived):
            self._open(event.stream_id, cast("Fields", event.headers), whole=event.stream_ended is not None)
        elif isinstance(event, DataReceived):
            self._take_data(event)
        elif isinstance(event, StreamEnded):
            self._end_request(event.stream_id)
        elif isinstance(event, WindowUpdated):
            self.out.window_opened(event.stream_id)
        elif isinstance(event, StreamReset):
            self._reset_received(event)
        elif isinstance(event, RemoteSettingsChanged):
            self.out.send_all()
        elif isinstance(event, TrailersReceived):
            self._take_trailers(event.stream_id, cast("Fields", event.headers))

    def _open(self, number: int, fields: Fields, *, whole: bool) -> None:
        """Begin a stream with the fields of its request."""
        self._highest = number
        if self.state == LEAVING or len(self._streams) >= self._settings.max_streams:
            # RFC 9113 §8.7: nothing was done, and it is safe to send it again.
            self._h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            if self.state == LEAVING:
                self._say_goodbye()
            self._limits.spend_stream(self.engine_state.clock)
            return
        self._accepted = number
        self._deadline = NEVER
        settings = self.engine_state.settings
        try:
            head = read_head(fields, settings.max_head_size, settings.max_headers)
            if head.length > self.engine_state.max_body_size:
                raise Unacceptable(413, f"the body is longer than {self.engine_state.max_body_size} bytes")
        except Unacceptable as reason:
            stream = self._streams[number] = Stream(self, number, NO_HEAD)
            stream.peer_ended = whole
            stream.refuse(reason)
            self._limits.spend_stream(self.engine_state.clock)
            return
        stream = self._streams[number] = Stream(self, number, head)
        if not whole:
            self._await_body(stream, size_of(fields))

    def _await_body(self, stream: Stream, size: int) -> None:
        """Let a body come, and say that it may where the peer waits for that (RFC 9110 §10.1.1)."""
        stream.body_end = self.engine_state.clock + self.engine_state.settings.max_body_time
        stream.prolong(0)
        if stream.hold(size) and stream.head.expects_continue:
            self._h2.send_headers(stream.number, [(b":status", b"100")])

    def _take_data(self, event: DataReceived) -> None:
        """Take a part of a body."""
        number = event.stream_id
        stream = self._streams.get(number)
        size = event.flow_controlled_length
        if size:
            self._h2.acknowledge_received_data(size, number)
        if stream is None or stream.phase != COMING:
            return
        data = event.data
        limit = self.engine_state.max_body_size
        if len(stream.body) + len(data) > limit:
            stream.peer_ended = event.stream_ended is not None
            stream.refuse(Unacceptable(413, f"the body is longer than {limit} bytes"))
        elif event.stream_ended is not None:
            stream.take(data)
        elif stream.hold(len(data)):
            stream.take(data)
            stream.prolong(0)

    def _take_trailers(self, number: int, fields: Fields) -> None:
        """Look at what came behind a body, and drop it."""
        stream = self._streams.get(number)
        if stream is None or stream.phase != COMING:
            return
        try:
            check_trailers(fields)
        except Unacceptable as reason:
            stream.peer_ended = True
            stream.refuse(reason)
            self._limits.spend_stream(self.engine_state.clock)

    def _end_request(self, number: int) -> None:
        """Hand a whole request on, or let it wait while the peer does not read."""
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.peer_ended = True
        if stream.phase != COMING:
            return
        if stream.head.length not in (CHUNKED, stream.received):
            # RFC 9113 §8.1.1; h2 does not look where no DATA ends the stream.
            stream.refuse(Unacceptable(400, "content-length is not the length of the body"))
            self._limits.spend_stream(self.engine_state.clock)
            return
        stream.end_request()
        if self.out.paused:
            self._ready.append(stream)
        else:
            self._start(stream)

    def _start(self, stream: Stream) -> None:
        """Hand a whole request on, with the answer it is owed."""
        if stream.over:
            return
        head = stream.head
        body = bytes(stream.body)
        stream.body.clear()
        secure = self.engine_state.secure
        request = HttpRequest(head.method, head.path, head.query, head.headers, body, self.address, secure)
        request.certificate = self._certificate
        request.http = "2"
        try:
            self.engine_state.handle(request, stream)
        except Exception:
            logger.exception("failed on %s %s", head.method, head.path)
            if stream.begun:
                stream.abort()
            else:
                stream.reply(500, EMPTY_HEAD)

    def _reset_received(self, event: StreamReset) -> None:
        """Forget a stream that was cancelled: by the peer, or by h2 for what the peer did on it."""
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        self._lose(stream)
        if not event.remote_reset:
            self._limits.spend_stream(self.engine_state.clock)

    def _peer_leaves(self, frame: Frame) -> None:
        """Answer what the peer has asked, and end: it opens no more streams (RFC 9113 §6.8)."""
        if frame.stream or frame.size < 8:
            raise ConnectionFailed(ErrorCodes.PROTOCOL_ERROR, "GOAWAY is malformed")
        self.state = LEAVING
        self._look_for_end()

    # Called by a stream.

    def reset(self, stream: Stream, code: ErrorCodes) -> None:
        """Cancel a stream (RFC 9113 §6.4)."""
        self._h2.reset_stream(stream.number, code)
        self.out.flush()
        self._lose(stream)
        self._spend_stream()

    # Endings of streams.

    def _finish(self, stream: Stream) -> None:
        """Forget a stream whose answer is written."""
        self._forget(stream)
        stream.end()
        if not stream.peer_ended:
            # RFC 9113 §8.1: the rest of the request is not wanted.
            self._h2.reset_stream(stream.number, ErrorCodes.NO_ERROR)
            self.out.flush()
            self._spend_stream()
        if self.last:
            self._leave()
        self._look_for_end()

    def _lose(self, stream: Stream) -> None:
        """Forget a stream whose answer nobody will read; who watches is told in the next turn of the loop."""
        self._forget(stream)
        watching = stream.end()
        if watching is not None:
            self._loop.call_soon(watching)
        self._look_for_end()

    def _lose_all(self) -> None:
        self._ready.clear()
        for stream in list(self._streams.values()):
            self._lose(stream)

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream.number, None)
        self.out.forget(stream)

    def _spend_stream(self) -> None:
        try:
            self._limits.spend_stream(self.engine_state.clock)
        except ConnectionFailed as error:
            self._fail(error.code, str(error))

    def _look_for_end(self) -> None:
        """Close a connection that is over, or note since when it is idle."""
        if self._streams:
            return
        if self.state == LEAVING:
            self._say_goodbye()
            self._close()
        elif self.state < LEAVING:
            self._deadline = self.engine_state.idle_until

    # Endings of the connection.

    def _leave(self) -> None:
        """Accept no more streams.

        GOAWAY (RFC 9113 §6.8) waits for the end of the last stream, or for one that is refused: clients on the library
        h2, such as httpx, drop the answers they wait for when it comes.
        """
        self.state = max(self.state, LEAVING)

    def _say_goodbye(self) -> None:
        """Send GOAWAY, once, with the last stream that is served."""
        if not self._goodbye_said:
            self._goodbye_said = True
            self.out.go_away(self._accepted, ErrorCodes.NO_ERROR, "")

    def _fail(self, code: ErrorCodes | int, reason: str) -> None:
        """End the connection with GOAWAY, and drop a bounded rest of what the peer sends."""
        if self.state >= LINGER:
            return
        logger.info("an HTTP/2 connection from %s ends: %s", self.address, reason)
        self.out.go_away(self._accepted, code, reason)
        self.out.stop()
        self.state = LINGER
        self._lose_all()
        self._frames = FrameReader()
        self._deadline = self.engine_state.clock + LINGER_TIME
        self._read_on(True)
        if self._transport.can_write_eof():
            with suppress(OSError):  # of a peer that has reset the connection meanwhile
                self._transport.write_eof()

    def _close(self) -> None:
        """End the connection once what was written is taken."""
        if self.state != CLOSED:
            self.state = CLOSED
            self._transport.close()

    # Called by the engine.

    def abort(self) -> None:
        """Cut the connection; what was not taken is lost."""
        self._transport.abort()

    def drain(self) -> None:
        """End the connection, after the answers to the requests that have begun to come."""
        self._leave()
        self._look_for_end()

    def sweep(self, now: float) -> None:
        """Look at the deadlines."""
        if not self.out.is_read(now):
            self.abort()
            return
        for stream in list(self._streams.values()):
            if now >= stream.deadline:
                stream.refuse(Unacceptable(408, "the body did not come in time"))
            elif now >= stream.stuck_at and self.out.is_stuck(stream, now):
                stream.cut()
        if now >= self._frame_deadline:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "a frame did not come whole in time")
        if now >= self._deadline:
            self._expire()

    def _expire(self) -> None:
        """End a connection without a stream; one that has never said its settings, or lingers, without more words."""
        if self.state == OPEN:
            self._say_goodbye()
        self._close()


def _new_protocol(settings: Http2Settings, max_head_size: int) -> H2Connection:
    """Return the protocol of one connection, with our settings said."""
    config = H2Configuration(
        client_side=False,
        header_encoding=None,
        # Requests are judged by `fields`, where one that is refused gets an answer; answers are ours.
        validate_inbound_headers=False,
        normalize_inbound_headers=False,
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
    )
    protocol = Frames(config)
    said = {
        SettingCodes.MAX_CONCURRENT_STREAMS: settings.max_streams,
        SettingCodes.INITIAL_WINDOW_SIZE: settings.window,
        SettingCodes.MAX_HEADER_LIST_SIZE: max_head_size,
    }
    protocol.local_settings = Settings(client=False, initial_values=said)
    protocol.initiate_connection()
    # Streams over the limit are refused by us, one by one; h2 would end the connection.
    said[SettingCodes.MAX_CONCURRENT_STREAMS] = MOST_STREAMS
    protocol.local_settings = Settings(client=False, initial_values=said)
    protocol.decoder = FieldDecoder()
    protocol.decoder.max_header_list_size = HARD_LIMIT * max_head_size
    protocol.increment_flow_control_window(CONNECTION_WINDOW - protocol.inbound_flow_control_window)
    protocol.receive_data(PREFACE)
    return protocol
