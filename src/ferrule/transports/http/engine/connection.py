"""One connection: requests are read from it one at a time, and answered in their order (RFC 9112 §9.3.2).

Rule 1: one request is in hand; what comes behind it waits in a bounded buffer, and reading stops when that is full.
Rule 2: no timers of its own. A deadline is a number, looked at when the engine sweeps.
Rule 3: what has been read and not handed on, and what was written and not taken, is on an account of the process. A
request that comes in one piece, and an answer that is taken at once, never get there.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket as sockets
from contextlib import suppress
from typing import cast

from ferrule.identity.verifier import Certificate
from ferrule.transports.backpressure import backlog as unread
from ferrule.transports.http.engine.answer import CONTINUE, Answer, HalfClosed
from ferrule.transports.http.engine.body import Body
from ferrule.transports.http.engine.connection_state import (
    ANSWERED,
    BODY,
    BODY_BEGUN,
    BUSY,
    CLOSED,
    CLOSING,
    GIVEN_AWAY,
    HANDED_OVER,
    HEAD,
    HEAD_BEGUN,
    HTTP2_CHOSEN,
    IDLE,
    LAST_SAID,
    LINGER,
    LOST,
    NEW,
    REQUEST_READ,
)
from ferrule.transports.http.engine.head_parser import Head, Http2Preface, Unacceptable, written_again
from ferrule.transports.http.engine.request_reader import NO_HEAD, RequestReader
from ferrule.transports.http.engine.state import RETRY_AFTER, EngineState, Heir, NewConnection, Successor
from ferrule.transports.http.heads import EMPTY_HEAD
from ferrule.transports.http.message import HttpRequest, Transfer
from ferrule.transports.sockets.tls import HTTP2, chosen_protocol, peer_certificate

logger = logging.getLogger("ferrule.http")

AT_REST, READING, SCHEDULED = range(3)
"""Whether the buffer is being read: not now, right now, again in the next turn of the loop."""
NEVER = math.inf
MAX_WAITING = 16 * 1024
"""How much may wait behind the request in hand before reading stops."""
UNCOUNTED = 4 * 1024
"""Bytes of an unfinished request that are on no account: the head of one that comes in two pieces."""
BURST = 32
"""How many waiting requests are answered before other connections have their turn."""
PIECE = 256 * 1024
"""A longer text is written in pieces of this size: a transport holds the whole of one until its last byte is taken."""
MOST_TRANSFERS = 3
"""How often a connection goes to another process: then somebody in between mixes sessions on it."""
LINGER_BYTES = 1024 * 1024
LINGER_TIME = 5.0


class Connection(RequestReader, asyncio.Protocol):
    """One connection to a client."""

    __slots__ = (
        "_all_taken",
        "_body_end",
        "_deadline",
        "_dropped",
        "_eof",
        "_half_closed",
        "_held",
        "_loop",
        "_reading_paused",
        "_stuck_at",
        "_taken",
        "_transfers",
        "_transport",
        "_turn",
        "_waiters",
        "address",
        "answer",
        "certificate",
        "last",
        "received",
        "state",
        "written",
    )

    _transport: asyncio.Transport

    def __init__(
        self, engine_state: EngineState, loop: asyncio.AbstractEventLoop, received: bytes = b"", transfers: int = 0
    ) -> None:
        super().__init__(engine_state)
        self._buffer = received
        self._transfers = transfers
        """How often it was handed over between processes; the buffer begins with what the previous one had read."""
        self._loop = loop
        self.address = ""
        self.certificate: Certificate | None = None
        """The peer's, where the engine asks for one."""
        self.state = NEW
        self.answer: Answer | None = None
        """The answer in hand, while the state is BUSY."""
        self.last = False
        """Whether the connection ends after the answer in hand."""
        self.received = 0
        """Bytes the peer has sent, in all."""
        self.written = 0
        """Bytes given to the transport, in all."""
        self._turn = AT_REST
        self._deadline = NEVER
        """When the state has lasted too long."""
        self._body_end = NEVER
        """When a body must be whole, however fast it comes."""
        self._held = 0
        """Bytes of requests on the account of the process."""
        self._dropped = 0
        """Bytes that came while lingering."""
        self._eof = False
        """Whether the peer has ended its side."""
        self._half_closed: HalfClosed | None = None
        """What watches over a peer that has ended its side and is owed an answer."""
        self._reading_paused = False
        self._waiters: list[asyncio.Future[None]] | None = None
        """Who waits for the peer to read; None while it reads as fast as we write."""
        self._taken = -1
        """Bytes the peer had taken at the last sweep that found some waiting."""
        self._all_taken = -1
        """Bytes written when the sweep last saw that the peer had taken all of them."""
        self._stuck_at = NEVER
        """When the connection is cut, if the peer has taken nothing more by then."""

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with a transport to the peer."""
        engine_state = self.engine_state
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if engine_state.settings.client_ca is not None:
            self.certificate = peer_certificate(transport)
        self._deadline = engine_state.clock + engine_state.settings.head_timeout
        engine_state.arriving.discard(self)
        engine_state.admit(self)
        if engine_state.observed is not None:
            engine_state.observed.opened(self, self.address)
        self.last = engine_state.leaving
        if engine_state.http2 is not None and engine_state.secure and chosen_protocol(transport) == HTTP2:
            self._speak_http2(engine_state.http2)
        elif engine_state.draining:
            self.drain()
        elif self._buffer:
            begun = self._buffer
            self._buffer = b""
            self.received -= len(begun)
            self.data_received(begun)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the peer."""
        state = self.state
        size = len(data)
        self.received += size
        if state <= IDLE and self._waiters is None:
            head = self._kept
            if size != self._kept_size or not data.startswith(head.raw):
                head = self._read_whole(data)
            if head is not NO_HEAD:
                self._start(head, data[len(head.raw) :])
                return
        if state < LINGER:
            self._buffer = self._buffer + data if self._buffer else data
            if state == BUSY:
                self._settle()
            else:
                self._advance()
        elif state == LINGER:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self._close()

    def eof_received(self) -> bool:
        """Handle the end of the peer's side. Return True to keep ours open."""
        self._eof = True
        if self.engine_state.secure:
            # TLS 1.2 has no half-closed connections (RFC 5246 §7.2.1), and asyncio keeps none with TLS 1.3.
            return False
        if self.state == HEAD:
            return self._turn == SCHEDULED or self._waiters is not None
        if self.answer is None:
            return False
        self.last = self.last or not self._buffer
        self._watch_half_closed()
        return True

    def _watch_half_closed(self) -> None:
        """Check whether anybody is there to read the answer in hand: the peer has ended its side."""
        if self._half_closed is not None:
            self._half_closed.end()
        self._half_closed = HalfClosed(self, self._loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything, and tell who was about to answer."""
        answer = self.answer
        self.answer = None
        self.state = LOST[self.state]
        self._discard()
        if self._held:
            self._count(0)
        if self._half_closed is not None:
            self._half_closed.end()
        self.engine_state.forget(self)
        if self._waiters is not None:
            self.resume_writing()
        if unread.account.held:
            unread.drained(self)
        if answer is not None:
            try:
                answer.lose()
            except Exception:
                logger.exception("could not tell of a lost peer")

    def pause_writing(self) -> None:
        """Called when the peer reads slower than we write."""
        self._waiters = []
        # Without a kept head every request goes the long way, where it waits until the peer reads.
        self._forget_kept()

    def resume_writing(self) -> None:
        """Called when the peer has caught up: wake who waits for it."""
        waiters = self._waiters
        self._waiters = None
        if waiters is not None:
            unread.drained(self)
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        if self.state < BUSY and self._buffer:
            self._advance()

    # Called by an answer.

    @property
    def backlog(self) -> int:
        """How many bytes were written and not taken by the peer yet."""
        return self._transport.get_write_buffer_size()

    @property
    def socket(self) -> sockets.socket:
        """The socket, as far as the transport shows it."""
        return cast("sockets.socket", self._transport.get_extra_info("socket"))

    @property
    def traffic(self) -> tuple[int, int]:
        """How many bytes it has read and written."""
        return self.received, self.written

    def write(self, data: bytes) -> None:
        """Send bytes."""
        size = len(data)
        self.written += size
        if size <= PIECE:
            self._transport.write(data)
        else:
            for at in range(0, size, PIECE):
                self._transport.write(data[at : at + PIECE])
        if self._waiters is not None:
            unread.grew(self, self._transport.get_write_buffer_size())

    def finished(self) -> None:
        """Go on to the next request: the answer in hand is written."""
        self.state = ANSWERED[self.state]
        self.answer = None
        if self.last or (self._eof and self._at == len(self._buffer)):
            # Closing with bytes unread would make the system take back what the peer has not read yet (RFC 9112 §9.6).
            if self._at < len(self._buffer):
                self._linger()
            else:
                self._close()
            return
        engine_state = self.engine_state
        if engine_state.heir is not None and self._bequeath(engine_state.heir):
            return
        self._deadline = engine_state.idle_until
        if self._buffer and self._turn != READING:
            self._advance()

    def abort(self) -> None:
        """Cut the connection; what was not taken is lost."""
        self._transport.abort()

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""
        while self._waiters is not None and self.state != CLOSED:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    # Reading requests.

    def _advance(self) -> None:
        """Answer what waits in the buffer, as far as it is whole."""
        if self._turn == READING or self.state >= BUSY:
            return
        self._turn = READING
        after = AT_REST
        try:
            for _ in range(BURST):
                if not self._step():
                    break
            else:
                after = SCHEDULED
                self._loop.call_soon(self._advance)
        except Http2Preface as preface:
            # Prior knowledge (RFC 9113 §3.3): only before anything else was said.
            if self.engine_state.http2 is not None and not self.written:
                self._speak_http2(self.engine_state.http2)
            else:
                self._refuse(preface)
        except Unacceptable as reason:
            self._refuse(reason)
        finally:
            self._turn = after
        self._settle()

    def _step(self) -> bool:
        """Start the next request if it is whole. Return whether another may wait behind it."""
        if self.state >= BUSY or self._waiters is not None:
            return False
        if self.state == BODY:
            head = self._head
            content = self._read_body()
        else:
            found = self._read_head()
            if found is None:
                return False
            head = found
            content = self._whole_body(found)
            if content is None:
                self._await_body(found)
                content = self._read_body()
        if content is None:
            body = cast("Body", self._body)
            self._deadline = self.engine_state.body_deadline(self._body_end, len(body.content))
            return False
        self._body = None
        self._head = NO_HEAD
        if self._held:
            # From here on it is a message, and on the account of whoever works on it.
            self._count(0)
        self._keep(head)
        self._start(head, content)
        if self._eof and self.answer is not None:
            self._watch_half_closed()
        return self.state == IDLE and self._at < len(self._buffer)

    def _await_body(self, head: Head) -> None:
        """Let a body come piece by piece, and say that it may where the peer waits for that."""
        # RFC 9110 §10.1.1: 100 may be left out where the body has begun to come.
        if head.expects_continue and self._at == len(self._buffer):
            self.write(CONTINUE)
        self._expect_body(head)
        self._body_end = self.engine_state.clock + self.engine_state.settings.max_body_time
        self.state = BODY_BEGUN[self.state]

    def _start(self, head: Head, body: bytes) -> None:
        """Hand a whole request on, with the answer it is owed."""
        engine_state = self.engine_state
        self.state = REQUEST_READ[self.state]
        self._deadline = NEVER
        if not head.keep_alive:
            self.last = True
        make = engine_state.new_answer
        answer = self.answer = make(self, head, len(body))
        request = HttpRequest(
            head.method, head.path, head.query, head.headers, body, self.address, engine_state.secure, "", head.decision
        )
        if self.certificate is not None:
            request.certificate = self.certificate
        if head.old:
            request.http = "1.0"
        handle = head.decision.take or engine_state.handle
        try:
            handle(request, answer)
        except Exception:
            logger.exception("failed on %s %s", head.method, head.path)
            if answer.begun:
                answer.abort()
            else:
                answer.reply(500, EMPTY_HEAD)

    def _settle(self) -> None:
        """Count what is held, and read on only while there is room for it."""
        if self._at:
            self._buffer = self._buffer[self._at :]
            self._at = 0
        engine_state = self.engine_state
        waiting = len(self._buffer)
        held = waiting + (len(self._body.content) if self._body else 0)
        if held <= UNCOUNTED:
            held = 0
        if held != self._held and not self._count(held):
            self.shed()
            return
        if waiting and self.state <= IDLE:
            self.state = HEAD_BEGUN[self.state]
            self._deadline = engine_state.clock + engine_state.settings.head_timeout
        blocked = self.state == BUSY or self._waiters is not None
        if blocked and self.state == HEAD:
            # Their turn to read: the write timeout watches over that.
            self._deadline = NEVER
        self._read_on(not (blocked and waiting > MAX_WAITING))
        if self._eof and self.state < BUSY and not blocked and self._turn != SCHEDULED:
            self._close()

    def _count(self, held: int) -> bool:
        """Put what is held now on the account. Return whether there was room."""
        more = held - self._held
        if more < 0:
            self.engine_state.credit(self, -more)
        elif not self.engine_state.debit(self, more):
            return False
        self._held = held
        return True

    def _read_on(self, on: bool) -> None:
        """Read from the socket, or leave what comes to the system's buffer."""
        if self._reading_paused == on and self.state != CLOSED:
            self._reading_paused = not on
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def shed(self) -> None:
        """Let go of the request that is being read, or of those that wait: all of them together take too much."""
        if self.state < BUSY:
            self._refuse(Unacceptable(503, "too many requests are being read", RETRY_AFTER))
        else:
            self.last = True
            self._discard()
            self._settle()

    # Endings.

    def _refuse(self, reason: Unacceptable) -> None:
        """Answer with an error, and end the connection: nobody knows where the next request would begin."""
        engine_state = self.engine_state
        self.write(engine_state.refusal(reason.status, str(reason), reason.head))
        if engine_state.reports:
            engine_state.report_refused(reason.status, self.address)
        self._linger()

    def _linger(self) -> None:
        """Drop a bounded rest of what the peer sends, then close: in stages, as RFC 9112 §9.6 advises."""
        self.state = LAST_SAID[self.state]
        self._deadline = self.engine_state.clock + LINGER_TIME
        self._discard()
        self._settle()
        if self._eof:
            self._close()
        elif self._transport.can_write_eof():
            with suppress(OSError):  # of a peer that has reset the connection meanwhile
                self._transport.write_eof()

    def _close(self) -> None:
        """End the connection once what was written is taken."""
        if self.state != CLOSED:
            self.state = CLOSING[self.state]
            self._transport.close()

    def hand_over(self, head: bytes, successor: Successor) -> None:
        """Answer with 101 (RFC 9110 §15.2.2), and leave the connection to another protocol that the engine sweeps."""
        handed_over = HANDED_OVER[self.state]
        self.write(self.engine_state.starts[101] + head + b"\r\n")
        if self.answer is not None:
            self.answer.hand_over(self)
        self._read_on(on=True)
        if self._half_closed is not None:
            self._half_closed.end()
        self.answer = None
        self.state = handed_over
        self.engine_state.admit(successor)
        self.engine_state.forget(self)
        if self.engine_state.observed is not None:
            self.engine_state.observed.opened(successor, self.address, "websocket")
        self._leave_to(successor)

    def give_away(self, head: Head, body: bytes) -> Transfer | None:
        """Let another process have the connection, and answer the request in hand; None where that cannot be."""
        if self._transfers >= MOST_TRANSFERS:
            return None
        return self._given_away(written_again(head, body))

    def _given_away(self, request: bytes = b"") -> Transfer | None:
        """Return the connection, a request first; None for TLS, answers that wait, or without a free descriptor."""
        if self.engine_state.secure or self.backlog or self._eof:
            return None
        state = GIVEN_AWAY[self.state]
        try:
            descriptor = sockets.dup(self.socket.fileno())
        except OSError:
            return None
        transfer = Transfer(descriptor, request + self._buffer[self._at :], self._transfers + 1)
        self.answer = None
        self.state = state
        self._discard()
        self._transport.abort()  # only our descriptor is closed: the connection lives on in the other
        return transfer

    def _speak_http2(self, new: NewConnection) -> None:
        """Leave the connection to HTTP/2: the peer chose it in the TLS handshake, or begins with its preface."""
        successor = new(self.engine_state, self._loop)
        self.state = HTTP2_CHOSEN[self.state]
        # The preface was read as a request line, and is read again.
        self._at = 0
        self.received = 0
        self.engine_state.admit(successor)
        if self.engine_state.observed is not None:
            self.engine_state.observed.replaced(self, successor)
        self.engine_state.forget(self)
        self._leave_to(successor)

    def _leave_to(self, successor: Successor) -> None:
        """Let another protocol have the transport, and what has come on it."""
        # Where the handover took a while, the peer may have said more, or even ended its side.
        self._count(0)
        rest = self._buffer[self._at :]
        self._buffer = b""
        unread.drained(self)
        self._transport.set_protocol(cast("asyncio.Protocol", successor))
        successor.connection_made(self._transport)
        successor.data_received(rest)
        if self._eof:
            successor.eof_received()
            self._transport.close()

    def _bequeath(self, heir: Heir) -> bool:
        """Leave the connection to the process that comes after ours. Return whether that was possible."""
        if self.state >= BODY:
            return False
        transfer = self._given_away()
        if transfer is None:
            return False
        heir(transfer)
        return True

    def drain(self) -> None:
        """End the connection, or leave it to the process that comes after ours, once what has begun is answered."""
        heir = self.engine_state.heir
        if heir is not None and not self.last and (self.state in (BODY, BUSY) or self._bequeath(heir)):
            return
        if self.state <= IDLE:
            self._close()
        self.last = True

    def sweep(self, now: float) -> None:
        """Look at the deadlines. Thousands are idle: whose peer has taken all is not asked until more is written."""
        if self.written != self._all_taken:
            backlog = self._transport.get_write_buffer_size()
            if backlog:
                unread.grew(self, backlog)
                taken = self.written - backlog
                if taken != self._taken:
                    self._taken = taken
                    self._stuck_at = now + self.engine_state.settings.write_timeout
                elif now >= self._stuck_at:
                    self.abort()
                    return
            elif self._waiters is None:
                unread.drained(self)
                self._all_taken = self.written
        if now >= self._deadline:
            self._expire()
        elif self._half_closed is not None:
            self._half_closed.look()

    def _expire(self) -> None:
        """End what has lasted too long: a request with 408 (RFC 9110 §15.5.9), an idle connection without a word."""
        if self.state in {IDLE, LINGER}:
            self._close()
        elif self.state == BODY:
            self._refuse(Unacceptable(408, "the body did not come in time"))
        elif self.state < BODY:
            self._refuse(Unacceptable(408, "the request did not come in time"))
