"""One HTTP/1.1 connection of a client: one request at a time, and its answer read strictly and within bounds.

Rule 1: while bytes are parsed nothing else happens; whoever reads the answer is told afterwards and may send at once.
Rule 2: a connection that said more than it was asked, or that nobody can be sure of, is not used again.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD_SIZE = 64 * 1024
MAX_HEADERS = 200
MAX_FRAMING = 64 * 1024
"""Bytes of an answer, besides its body, that are neither its head nor in proportion to the body: chunk extensions and
trailers, for one."""
FRAMING_RATIO = 16
"""Bytes of framing for each byte of the body that are in proportion: a chunk of one byte has five."""

LONGEST_REST = 30.0

END_OF_HEAD = b"\r\n\r\n"

_TIMEOUT = re.compile(rb"timeout=([0-9]{1,6})")


class ConnectionCut(Exception):
    """A connection ended before its answer did, or said what is no HTTP; `begun` tells whether any of it had come."""

    def __init__(self, why: str, *, begun: bool = True, reused: bool = False) -> None:
        super().__init__(why)
        self.begun = begun
        self.reused = reused
        """Whether the connection had served before: then it may have been closed before the server saw the request."""


class Reader(Protocol):
    """Whoever made a request and reads its answer; the last of the calls is `ended` or `lost`."""

    def head_received(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Called with status and headers of the answer; names are in lower case."""

    def body_received(self, data: bytes) -> None:
        """Take a part of the answer."""

    def ended(self) -> None:
        """Called when the answer is complete."""

    def lost(self, error: Exception) -> None:
        """Called when no more of the answer will come."""

    def let_go(self) -> None:
        """Called instead of `ended` or `lost` when nobody wants the answer any more."""


class Owner(Protocol):
    """Whoever a connection belongs to."""

    def freed(self, connection: HttpConnection) -> None:
        """Called when the connection can take the next request."""

    def gone(self, connection: HttpConnection) -> None:
        """Called when the connection is of no use any more."""


class HttpConnection(asyncio.Protocol):
    """A connection to a server, or to the proxy that leads there."""

    __slots__ = (
        *("_body_size", "_complete", "_closed", "_fresh_head", "_head_size", "_headers", "_lines", "_owner"),
        *("_parser", "_pieces", "_rest_size", "_reader", "_status", "_transport", "rest", "served", "since"),
        *("_heads", "_tail", "streaming"),
    )

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._reader: Reader | None = None
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._status = self._head_size = self._lines = 0
        self._heads = 0
        """Heads that have ended in the bytes that are parsed."""
        self._tail = b""
        """The last bytes of a head that has not ended: its end may come in two pieces."""
        self._rest_size = self._body_size = 0
        """Bytes of what follows the head, and of the body in it."""
        self._fresh_head = self._complete = self._closed = False
        self.rest = LONGEST_REST
        """How many seconds this connection may be idle and still be trusted with the next request."""
        self.served = 0
        """How many answers have come over this connection."""
        self.since = 0.0
        """When it became idle, or when its answer turned out to be a stream."""
        self.streaming = False

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now."""
        return self._reader is None and not self._closed

    def send(self, request: bytes, reader: Reader) -> None:
        """Send a request whose answer goes to the reader."""
        assert self._transport is not None
        self._reader = reader
        self._transport.write(request)

    def pause(self) -> None:
        """Read no more for now: the reader has enough."""
        if self._transport is not None and not self._closed:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._closed:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Cut the connection; the reader is told only that nobody wants the answer."""
        reader = self._reader
        self._reader = None
        if reader is not None:
            reader.let_go()
        self._close()

    # -- what asyncio drives

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; also a second time, when TLS was put on top of the first."""
        self._transport = transport  # type: ignore[assignment]
        bare = transport.get_extra_info("socket")
        if bare is not None:
            # A stream may be silent for hours: only the kernel can tell then that its server is gone.
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Read what came, then tell of it."""
        reader = self._reader
        if reader is None:
            self._close()
            return
        in_head = not self._status
        if not in_head:
            self._rest_size += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._complete:
                self._fail(f"the server does not speak HTTP properly: {error}")
                return
            self._closed = True
        if in_head:
            size = len(data)
            if self._complete and not self._head_size and size <= MAX_HEAD_SIZE and size <= MAX_FRAMING:
                # A whole answer in one reading, shorter than a head or its framing may be: there is nothing to count.
                self._heads = 0
            else:
                self._count_head(data)
        if self._head_size > MAX_HEAD_SIZE or len(self._headers) > MAX_HEADERS:
            self._fail("the head of the server's answer is longer than the limit")
            return
        if self._rest_size > MAX_FRAMING + self._body_size * (1 + FRAMING_RATIO):
            self._fail("the server's answer has more framing than body")
            return
        if self._fresh_head:
            self._fresh_head = False
            reader.head_received(self._status, self._headers)
        if self._pieces:
            pieces = self._pieces
            self._pieces = []
            reader.body_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._complete:
            self._finish()

    def _count_head(self, data: bytes) -> None:
        """Count what came in or before the head apart from what follows it: each has a limit of its own."""
        at = 0
        for _ in range(self._heads):
            at = self._end_of_head(data, at)
        self._heads = 0
        if not self._status:
            self._end_of_head(data, at)
            at = len(data)
        self._head_size += at
        self._rest_size += len(data) - at

    def _end_of_head(self, data: bytes, at: int) -> int:
        """Return where the head ends that goes on at a place (RFC 9112 §2.1); where it does not end, keep its tail."""
        tail = self._tail
        if tail:
            self._tail = b""
            cut = (tail + data[at : at + 3]).find(END_OF_HEAD)
            if cut >= 0:
                return at + cut + len(END_OF_HEAD) - len(tail)
        found = data.find(END_OF_HEAD, at)
        if found >= 0:
            return found + len(END_OF_HEAD)
        self._tail = (tail + data[max(at, len(data) - 3) :])[-3:]
        return len(data)

    def connection_lost(self, error: Exception | None) -> None:
        """An answer without a length ends with its connection; any other is cut."""
        self._closed = True
        if self._reader is not None:
            if error is None and self._status and not self._framed:
                self._finish()
            else:
                self._fail(f"the connection was cut ({error})" if error else "the server closed the connection")
        self._owner.gone(self)

    # -- what the parser calls

    def on_message_begin(self) -> None:
        """Stop reading where a second answer begins: it was not asked for."""
        if self._complete:
            raise ValueError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes several times is joined, as if it had come once. Trailers are left out."""
        self._lines += 1
        if self._lines > MAX_HEADERS:
            raise ValueError("too many header lines")
        if self._status:
            return
        name = name.lower()
        if name in self._headers:
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        """Note the status; what a server says in between (1xx) is none."""
        self._heads += 1
        status: int = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            self._fresh_head = True
        else:
            self._headers = {}

    def on_body(self, data: bytes) -> None:
        """Keep a piece until the parsing is over."""
        self._pieces.append(data)
        self._body_size += len(data)

    def on_message_complete(self) -> None:
        """Note the end."""
        if self._status:
            self._complete = True
            if not self._parser.should_keep_alive():
                self._closed = True

    # -- the end of an answer

    @property
    def _framed(self) -> bool:
        return b"content-length" in self._headers or b"transfer-encoding" in self._headers

    def _finish(self) -> None:
        reader = self._reader
        self._reader = None
        if b"keep-alive" in self._headers:
            self._note_rest(self._headers[b"keep-alive"])
        self._reset()
        self.served += 1
        if self._closed:
            self._close()
        else:
            self._owner.freed(self)
        if reader is not None:
            reader.ended()

    def _note_rest(self, wish: bytes) -> None:
        """A server may say when it will close an idle connection; ours is let go before."""
        seconds = _TIMEOUT.search(wish)
        if seconds is not None:
            self.rest = min(LONGEST_REST, max(0.0, int(seconds[1]) - 1.0))

    def _fail(self, why: str) -> None:
        reader = self._reader
        self._reader = None
        begun = bool(self._status or self._head_size)
        self._close()
        if reader is not None:
            reader.lost(ConnectionCut(why, begun=begun, reused=self.served > 0))

    def _reset(self) -> None:
        self._headers = {}
        self._status = self._head_size = self._lines = 0
        self._tail = b""
        self._rest_size = self._body_size = 0
        self._complete = self.streaming = False

    def _close(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.abort()
