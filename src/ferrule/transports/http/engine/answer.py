"""The way back of one request on a connection of our own engine."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ferrule.budgets.allocator import allocator
from ferrule.telemetry.observer import ObservedExchange, Observers
from ferrule.transports.http.engine.head_parser import Head
from ferrule.transports.http.message import Transfer
from ferrule.transports.sockets.bind import hung_up, watch_over

SIZE = 128
"""Bytes of `struct tcp_info` to request."""
BYTES_ACKNOWLEDGED = 120
"""Offset of `tcpi_bytes_acked` in it."""

_read = struct.Struct("=Q").unpack_from


def unacknowledged(connected: socket.socket | None, written: int) -> int | None:
    """Return how many of the bytes written last the peer's system has not acknowledged; None where nobody can tell."""
    if sys.platform != "linux" or connected is None or connected.fileno() < 0:
        return None
    try:
        figures = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE)
    except OSError:
        return None
    if len(figures) < SIZE:
        # A kernel too old to count gives fewer figures.
        return None
    acknowledged: int = _read(figures, BYTES_ACKNOWLEDGED)[0]
    return max(0, written - acknowledged)


access_logger = logging.getLogger("ferrule.http.access")

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
WITHOUT_LENGTH = frozenset({204, 304})
"""Answers that end with their head (RFC 9112 §6.3 item 1); 204 may not even name a length (RFC 9110 §8.6)."""
LARGE = 64 * 1024
"""From this size on a body is handed over beside its head, since copying it would cost more."""
DOUBT_AFTER = 0.5
"""How long an answer that has not begun may still take before we look whether anybody is there to read it."""
RESET_TIME = 0.1
"""How long a peer that is gone takes, as a rule, to say so; the sweep looks for those that take longer."""


Report = Callable[[ObservedExchange], None]


class EngineFacts(Protocol):
    """What an answer needs of what all connections of an engine share."""

    secure: bool
    """Whether the connections are encrypted."""

    @property
    def starts(self) -> Mapping[int, bytes]:
        """The first lines of an answer by its status."""

    @property
    def reports(self) -> Sequence[Report]:
        """What is called with each response."""


class Connection(Protocol):
    """What an answer needs of the connection it is written on."""

    address: str
    last: bool
    """Whether it ends after this answer."""
    written: int
    """Bytes given to the transport, in all."""
    answer: Answer | None

    @property
    def engine_state(self) -> EngineFacts:
        """What it has in common with others."""

    @property
    def backlog(self) -> int:
        """How many bytes were written and not taken by the peer yet."""

    @property
    def socket(self) -> socket.socket:
        """The socket, as far as the transport shows it."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def finished(self) -> None:
        """Called when the answer is written."""

    def give_away(self, head: Head, body: bytes) -> Transfer | None:
        """Let another process have it; None where that cannot be."""

    def abort(self) -> None:
        """Cut the connection."""

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""


class Answer(Struct, eq=False):
    """The answer to one request; see `Responder`. It lets go of its connection when it is finished or lost."""

    connection: Connection | None
    head: Head
    received: int = 0
    """Bytes of the body of the request."""
    begun: bool = False
    chunked: bool = False
    filler: bytes = b""
    """What may be written between any two parts and means nothing."""
    lost: Callable[[], None] | None = None
    said: int = 0
    """How much was written on the connection up to the last part that means something."""
    unacknowledged: int | None = None
    """How many of the bytes written last a lost peer may not have got; None where nobody can tell."""

    @property
    def gone(self) -> bool:
        """Whether nobody can read the answer any more."""
        return self.connection is None

    @property
    def backlog(self) -> int:
        """How many bytes were written and not taken by the peer yet."""
        if self.connection is None:
            return 0
        return self.connection.backlog

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """Send a whole answer."""
        connection = self.connection
        if connection is None:
            return
        if self.begun:
            raise RuntimeError("this answer has begun already")
        # Who watches often holds this answer: letting go of it keeps the two from waiting for the garbage collector.
        self.connection = None
        if self.lost is not None:
            self.lost = None
        request = self.head
        size = len(body)
        # The way nearly every answer goes: one formatting, one write.
        if request.plain and not connection.last and status not in WITHOUT_LENGTH and size < LARGE:
            start = connection.engine_state.starts[status]
            connection.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (start, head, size, body))
        else:
            if size >= LARGE:
                allocator.large_message()
            if status in WITHOUT_LENGTH:
                length = b""
            else:
                length = b"content-length: %d\r\n" % size
            lines = (connection.engine_state.starts[status], head, persistence(connection, request), length, b"\r\n")
            connection.write(b"".join(lines))
            # RFC 9110 §9.3.2: HEAD is answered with the head alone, and the length the body would have.
            if size and length and request.method != "HEAD":
                connection.write(body)
        connection.finished()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        """Start an answer of unknown length."""
        self.filler = filler
        connection = self.connection
        if connection is None:
            return
        if self.begun:
            raise RuntimeError("this answer has begun already")
        self.begun = True
        framing = b""
        if self.head.old:
            # HTTP/1.0 has no chunks (RFC 9112 §6.1): the end of the connection is the end of the answer (§6.3 item 8).
            connection.last = True
        elif status not in WITHOUT_LENGTH:
            self.chunked = self.head.method != "HEAD"
            framing = b"transfer-encoding: chunked\r\n"
        lines = (connection.engine_state.starts[status], head, persistence(connection, self.head), framing, b"\r\n")
        connection.write(b"".join(lines))

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""
        connection = self.connection
        # An empty chunk would end the answer (RFC 9112 §7.1).
        if connection is None or not data:
            return
        if self.chunked:
            connection.write(b"%x\r\n%b\r\n" % (len(data), data))
        elif self.head.old and self.head.method != "HEAD":
            connection.write(data)
        if data != self.filler:
            self.said = connection.written

    def fill(self) -> None:
        """Send filler, where the answer leaves room for it."""
        if self.begun:
            self.write(self.filler)
        elif self.connection is not None and not self.head.old:
            # RFC 9110 §15.2: every client of HTTP/1.1 must read over it, also one that did not ask.
            self.connection.write(CONTINUE)

    def finish(self) -> None:
        """End the answer."""
        connection = self.connection
        if connection is None:
            return
        self.connection = self.lost = None
        if self.chunked:
            connection.write(b"0\r\n\r\n")
        connection.finished()

    def abort(self) -> None:
        """Abort the connection: what was written and not taken is lost."""
        connection = self.connection
        self.connection = None
        self.lost = None
        if connection is not None:
            connection.abort()

    def watch(self, lost: Callable[[], None]) -> None:
        """Call a function, once, if the peer goes away before the answer is finished; the last one given counts."""
        self.lost = lost

    def lose(self) -> None:
        """Called when the connection is gone: release it, and call who watches."""
        connection = self.connection
        self.connection = None
        if self.begun and connection is not None:
            # With TLS other bytes go over the wire than were written.
            if connection.engine_state.secure:
                self.unacknowledged = None
            else:
                self.unacknowledged = unacknowledged(connection.socket, self.said)
        lost = self.lost
        self.lost = None
        if lost is not None:
            lost()

    def hand_over(self, connection: Connection) -> None:
        """Called when the connection is left to another protocol, with status 101."""
        self.connection = None

    def transfer(self, body: bytes) -> Transfer | None:
        """Let another process have the connection, the request with its body first; None where that cannot be."""
        connection = self.connection
        if connection is None or self.begun:
            return None
        given = connection.give_away(self.head, body)
        if given is not None:
            self.connection = None
            self.lost = None
        return given

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""
        if self.connection is not None:
            await self.connection.wait_writable()


def persistence(connection: Connection, request: Head) -> bytes:
    """Write the line that says whether the connection stays, where it needs saying (RFC 9112 §9.6, appendix C.2.2)."""
    if connection.last:
        return b"connection: close\r\n"
    return b"connection: keep-alive\r\n" if request.old else b""


class HalfClosed:
    """Whether anybody is still there, at one connection whose peer has ended its side and is owed an answer.

    Such a peer may only have said all, or be gone. HTTP/1.1 owes the one its answer, however long that takes, and the
    other nothing. The system cannot tell them apart until something is sent: one that is gone answers it with a reset.
    """

    __slots__ = ("_connection", "_later", "_loop")

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        # A peer may also go later, or without a word: the system's own probes find that within two minutes.
        watch_over(connection.socket)
        begun = connection.answer is not None and connection.answer.begun
        self._later = loop.call_later(0.0 if begun else DOUBT_AFTER, self._ask)

    def _ask(self) -> None:
        answer = self._connection.answer
        if answer is not None:
            answer.fill()
            self._later = self._loop.call_later(RESET_TIME, self.look)

    def look(self) -> None:
        """Cut the connection if the peer has answered with a reset."""
        if self._connection.answer is not None and hung_up(self._connection.socket):
            self._connection.abort()

    def end(self) -> None:
        """Look no more."""
        self._later.cancel()


class ReportedAnswer(Answer):
    """An answer that is reported when it is sent or lost, to the access log or to observers."""

    began: float = 0.0
    status: int = 0
    before: int = 0

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.before = self.connection.written if self.connection else 0

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """Send a whole answer."""
        connection = self.connection
        self.status = status
        Answer.reply(self, status, head, body)
        self._report(connection)

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        """Start an answer of unknown length."""
        self.status = status
        Answer.begin(self, status, head, filler)

    def finish(self) -> None:
        """End the answer."""
        connection = self.connection
        Answer.finish(self)
        self._report(connection)

    def abort(self) -> None:
        """Abort the connection: what was written and not taken is lost."""
        connection = self.connection
        Answer.abort(self)
        self._report(connection)

    def lose(self) -> None:
        """Called when the connection is gone: release it, and call who watches."""
        connection = self.connection
        Answer.lose(self)
        self._report(connection)

    def hand_over(self, connection: Connection) -> None:
        """Called when the connection is left to another protocol, with status 101."""
        Answer.hand_over(self, connection)
        self.status = 101
        self._report(connection)

    def _report(self, connection: Connection | None) -> None:
        if connection is None:
            return
        exchange = ObservedExchange(
            method=self.head.method,
            path=self.head.path,
            status=self.status,
            received=self.received,
            sent=connection.written - self.before,
            began=self.began,
            ended=time.monotonic(),
            address=connection.address,
        )
        for report in connection.engine_state.reports:
            report(exchange)


def log_access(exchange: ObservedExchange) -> None:
    """Write a line into the access log: neither the query nor any header is in it."""
    if not exchange.method:
        access_logger.info("- - %d 0 0 %s", exchange.status, exchange.address)
        return
    spent = (exchange.ended - exchange.began) * 1000
    access_logger.info(
        "%s %s %d %d %.1f %s",
        exchange.method,
        exchange.path,
        exchange.status,
        exchange.sent,
        spent,
        exchange.address,
    )


def reports_to(observer: Observers | None, *, access_log: bool) -> tuple[Report, ...]:
    """Return what is called with each response."""
    reports: list[Report] = []
    if access_log:
        reports.append(log_access)
    if observer is not None and observer.wants("exchange_finished"):
        reports.append(observer.exchange_finished)
    return tuple(reports)
