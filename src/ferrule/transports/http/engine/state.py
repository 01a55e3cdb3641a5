"""What the connections of one engine share: the settings, the clock, the count of what is held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.budgets.shares import Shares
from ferrule.telemetry.observer import ObservedExchange
from ferrule.transports.http.engine.answer import Answer, ReportedAnswer, reports_to
from ferrule.transports.http.engine.head_parser import RecentHeads
from ferrule.transports.http.heads import TEXT_HEAD
from ferrule.transports.http.message import Handle, Transfer, header_lines
from ferrule.transports.http.settings import EngineSettings
from ferrule.transports.sockets.observed import connections_of

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers

RETRY_AFTER = b"retry-after: 1\r\n"
"""With 503, RFC 9110 §15.6.4 and §10.2.3."""


class Starts(dict[int, bytes]):
    """The first lines of an answer by its status; emptied now and then, for they hold the date."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = header_lines({"server": server}) if server else b""

    def __missing__(self, status: int) -> bytes:
        # RFC 9112 §4: the status line. RFC 9110 §6.6.1: the date, in the form of §5.6.7.
        date = formatdate(usegmt=True).encode("ascii")
        start = b"HTTP/1.1 %d %b\r\ndate: %b\r\n%b" % (status, phrase(status), date, self._server)
        self[status] = start
        return start


class Managed(Protocol):
    """What an engine looks after: a connection, or the protocol that took one over."""

    last: bool
    """Whether it ends after the answer in hand."""

    @property
    def traffic(self) -> tuple[int, int]:
        """How many bytes it has read and written as HTTP."""

    def sweep(self, now: float) -> None:
        """Look at the deadlines."""

    def drain(self) -> None:
        """End after what has begun."""

    def abort(self) -> None:
        """End at once; what was not taken is lost."""


class Successor(Managed, Protocol):
    """The protocol that takes a connection over: one of asyncio's that the engine looks after."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool: ...


class Arriving(Hashable, Protocol):
    """A connection that is read from: its requests are on an account."""

    def shed(self) -> None:
        """Let go of what was read: there is no room for it."""


Heir = Callable[[Transfer], None]
NewConnection = Callable[["EngineState", asyncio.AbstractEventLoop], Successor]


class EngineState:
    """What the connections of one engine have in common."""

    __slots__ = (
        "_awaiting_end",
        "_ended_received",
        "_ended_written",
        "_reading",
        "arriving",
        "clock",
        "connections",
        "draining",
        "handle",
        "heads",
        "heir",
        "http2",
        "idle_until",
        "leaving",
        "max_body_size",
        "new_answer",
        "observed",
        "reports",
        "requests",
        "secure",
        "settings",
        "starts",
    )

    def __init__(
        self, handle: Handle, settings: EngineSettings, max_body_size: int, observer: Observers | None = None
    ) -> None:
        self.handle = handle
        self.settings = settings
        self.max_body_size = max_body_size
        self.secure = settings.certificate is not None
        self.starts = Starts(settings.server_header)
        self.heads = RecentHeads(settings.max_headers)
        self.reports = reports_to(observer, access_log=settings.access_log)
        """What is called with each response: the access log, observers."""
        self.new_answer: type[Answer] = Answer
        if self.reports:
            self.new_answer = ReportedAnswer
        self.observed = connections_of(observer, "http")
        """What reports connections to observers; None where nobody wants to know."""
        self.http2: NewConnection | None = None
        """Makes what takes over a connection whose peer speaks HTTP/2; None where nobody here does."""
        self.arriving: set[Arriving] = set()
        """Accepted, and not usable yet: in the middle of the TLS handshake, say."""
        self.connections: set[Managed] = set()
        self._ended_received = 0
        self._ended_written = 0
        """Bytes that connections which are over had read and written."""
        self._awaiting_end: asyncio.Event | None = None
        """Set when no connection is left; None while nobody waits for that."""
        self.requests = Account("requests being read", settings.max_buffered, within=process.requests)
        """Bytes of requests that are not whole yet, or wait behind another."""
        self._reading: Shares[Arriving] = Shares()
        self.draining = False
        self.heir: Heir | None = None
        """Takes our connections when we end: the process that comes after this one; None where none does."""
        self.leaving = False
        """Whether each connection ends with its next answer."""
        self.clock = 0.0
        self.idle_until = 0.0

    def admit(self, connection: Managed) -> None:
        """Count a connection that is usable from now on."""
        self.connections.add(connection)

    def forget(self, connection: Managed) -> None:
        """Count a connection no more."""
        if connection in self.connections:
            received, written = connection.traffic
            self._ended_received += received
            self._ended_written += written
            self.connections.remove(connection)
        if self.observed is not None:
            self.observed.closed(connection)
        if self._awaiting_end is not None and not self.connections:
            self._awaiting_end.set()

    @property
    def traffic(self) -> tuple[int, int]:
        """How many bytes all connections together have read and written, with those that are over."""
        received = self._ended_received
        written = self._ended_written
        for connection in self.connections:
            more_received, more_written = connection.traffic
            received += more_received
            written += more_written
        return received, written

    def report_refused(self, status: int, address: str) -> None:
        """Report a request that was refused before it was read whole."""
        now = time.monotonic()
        exchange = ObservedExchange(
            method="", path="", status=status, received=0, sent=0, began=now, ended=now, address=address
        )
        for report in self.reports:
            report(exchange)

    def debit(self, connection: Arriving, more: int) -> bool:
        """Count bytes a connection holds more of unread requests. Return False where it has to let go of all it holds.

        Where there is no room, whoever holds most is shed: a few large bodies that never end keep nobody else out.
        """
        shares = self._reading
        while not self.requests.take(more):
            largest = shares.largest()
            if largest is None or shares.held(largest) <= shares.held(connection) + more:
                return False
            largest.shed()
        shares.take(connection, more)
        return True

    def credit(self, connection: Arriving, less: int) -> None:
        """Count bytes a connection no longer holds."""
        self._reading.give(connection, less)
        self.requests.give(less)

    def body_deadline(self, body_end: float, size: int) -> float:
        """Return when more of a body must have come, of which `size` bytes are there.

        It may pause for `body_timeout`, from now on, or from the time at which its bytes would have come at
        `min_body_rate` if that is earlier. At `body_end` it must be whole.
        """
        settings = self.settings
        began = body_end - settings.max_body_time
        earned = began + size / settings.min_body_rate
        return min(min(self.clock, earned) + settings.body_timeout, body_end)

    async def wait_empty(self, within: float) -> None:
        """Wait until no connection is left, for a while."""
        if self.connections:
            if self._awaiting_end is None:
                self._awaiting_end = asyncio.Event()
            self._awaiting_end.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._awaiting_end.wait(), within)

    def tick(self, clock: float) -> None:
        """Set the clock, rounded up to the next sweep: what happens until then has that time."""
        self.clock = clock
        self.idle_until = clock + self.settings.idle_timeout
        self.starts.clear()

    def refusal(self, status: int, text: str, head: bytes = b"") -> bytes:
        """Write the whole of an answer after which the connection ends."""
        body = text.encode() + b"\n"
        start = self.starts[status] + TEXT_HEAD + head
        return b"%bconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (start, len(body), body)


RENAMED = {
    413: b"Request Entity Too Large",
    414: b"Request-URI Too Long",
    416: b"Requested Range Not Satisfiable",
    422: b"Unprocessable Entity",
}
"""Newer Pythons have other words for these; ours are the same on all."""


def phrase(status: int) -> bytes:
    """Return the words of a status, empty for an unknown one."""
    try:
        return RENAMED.get(status) or HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b""
