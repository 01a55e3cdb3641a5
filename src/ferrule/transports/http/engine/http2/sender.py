"""What goes out on one HTTP/2 connection: the frames of answers, as far as the peer's windows let them go.

Rule: DATA is made a frame at a time and handed to the transport at once. While the peer does not read, what is left of
an answer stays with its stream, where it is on an account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hyperframe.frame import GoAwayFrame

from ferrule.transports.backpressure import backlog as unread
from ferrule.transports.http.engine.http2.fields import answer_fields
from ferrule.transports.http.engine.http2.frames import LONGEST_FRAME
from ferrule.transports.http.engine.http2.limits import FloodLimits
from ferrule.transports.http.engine.http2.stream import NEVER, Stream
from ferrule.transports.http.engine.state import EngineState

LONGEST_REASON = 200


class Sender:
    """What is sent on one connection."""

    _transport: asyncio.Transport

    def __init__(
        self, h2: H2Connection, limits: FloodLimits, engine_state: EngineState, finished: Callable[[Stream], None]
    ) -> None:
        self.paused = False
        """Whether the peer reads slower than we write."""
        self._h2 = h2
        self._limits = limits
        self._engine_state = engine_state
        self._finished = finished
        """Called with a stream whose answer is written."""
        self._sending: dict[int, Stream] = {}
        """The streams that hold something for their reader."""
        self.written = 0
        """Bytes given to the transport, in all."""
        self._stopped = False
        self._moved = engine_state.clock
        """When the peer's windows let something go."""
        self._taken = -1
        """Bytes the peer had taken when it last took some, and when it must have taken more."""
        self._stuck_at = NEVER

    def start(self, transport: asyncio.Transport) -> None:
        """Send on a transport, first of all our settings."""
        self._transport = transport
        self.flush()

    def send_head(self, stream: Stream, head: bytes, *, ends: bool) -> None:
        """Send the fields of an answer; with `ends` they are all of it. What is written with them follows at once."""
        fields = answer_fields(stream.status, self._engine_state.starts[stream.status], head)
        self._h2.send_headers(stream.number, fields, end_stream=ends)
        if ends:
            self.flush(stream)
            self._finished(stream)

    def send_waiting(self, stream: Stream) -> None:
        """Send what was written, as far as the peer's windows let it go."""
        self._sending[stream.number] = stream
        while self._send_piece(stream):
            pass
        self.flush(stream)

    def _send_piece(self, stream: Stream) -> bool:
        """Send one frame of what a stream holds. Return whether another may follow."""
        waiting = stream.waiting
        size = min(len(waiting), LONGEST_FRAME)
        if not size and not stream.ending:
            del self._sending[stream.number]
            return False
        if stream.stuck_at == NEVER:
            stream.stuck_at = self._engine_state.clock + self._engine_state.settings.write_timeout
        room = min(size, self._h2.local_flow_control_window(stream.number))
        if self.paused or (size and room <= 0):
            return False
        piece = bytes(waiting[:room])
        del waiting[:room]
        last = stream.ending and not waiting
        self._h2.send_data(stream.number, piece, end_stream=last)
        stream.stuck_at = NEVER
        self._moved = self._engine_state.clock
        if room == size:
            self._limits.data_sent()
        self.flush(stream)
        if last:
            self._finished(stream)
            return False
        return True

    def send_all(self) -> None:
        """Send what waits, a frame of each stream in turn."""
        everyone = list(self._sending.values())
        streams = everyone
        while streams and not self.paused:
            moved = []
            for stream in streams:
                if not stream.over and self._send_piece(stream):
                    moved.append(stream)
            streams = moved
        # Those that hold nothing any more as well: somebody may wait for that.
        for stream in everyone:
            stream.count_waiting()

    def flush(self, stream: Stream | None = None) -> None:
        """Hand the frames that were made to the transport."""
        data = self._h2.data_to_send()
        if data:
            if stream is not None:
                stream.sent += len(data)
            self._write(data)

    def _write(self, data: bytes) -> None:
        if not self._stopped:
            self.written += len(data)
            self._transport.write(data)

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def forget(self, stream: Stream) -> None:
        """Send nothing more of a stream."""
        self._sending.pop(stream.number, None)

    def window_opened(self, number: int) -> None:
        """Send what waited for a window."""
        if not number:
            self.send_all()
        elif number in self._sending:
            stream = self._sending[number]
            self.send_waiting(stream)
            stream.count_waiting()

    def go_away(self, last: int, code: ErrorCodes | int, reason: str) -> None:
        """Send GOAWAY with the last stream that is served (RFC 9113 §6.8)."""
        # Not by h2: after its own GOAWAY it would send nothing more, and answers may be owed.
        frame = GoAwayFrame(0, last, code, reason.encode()[:LONGEST_REASON])
        self._write(frame.serialize())

    @property
    def backlog(self) -> int:
        """How many bytes were written and not taken by the peer yet; what streams hold is theirs."""
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Cut the connection: all connections together hold too much."""
        self._transport.abort()

    def drained(self) -> None:
        """Count nothing more: the peer has caught up, or is gone."""
        unread.drained(self)

    def is_read(self, now: float) -> bool:
        """Whether the peer takes what was written, or has not had the time to."""
        backlog = self._transport.get_write_buffer_size()
        if not backlog:
            self.drained()
            return True
        unread.grew(self, backlog)
        taken = self.written - backlog
        if taken != self._taken:
            self._taken = taken
            self._stuck_at = now + self._engine_state.settings.write_timeout
        return now < self._stuck_at

    def is_stuck(self, stream: Stream, now: float) -> bool:
        """Whether a stream waits for its own window, or for one of the connection that lets nobody's frames go."""
        if self.paused:
            return False
        if self._h2.streams[stream.number].outbound_flow_control_window <= 0:
            return True
        return now >= self._moved + self._engine_state.settings.write_timeout
