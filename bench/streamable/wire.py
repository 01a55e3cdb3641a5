"""HTTP as the load generator speaks it: requests as bytes, and answers read from bytes, on standard sockets."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum

from bench.messages import FIRST_ID, Era, Operation, request
from bench.process import HOST, SILENCE_LIMIT, BadAnswer

PATH = "/mcp"
READ_SIZE = 1 << 20
BLANK_LINE = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CODING = b"transfer-encoding"
EVENTS = b"text/event-stream"


class Mode(StrEnum):
    """How a server is asked to serve: with sessions and answers of one kind, or without sessions in the newest era."""

    JSON = "session-json"
    SSE = "session-sse"
    STATELESS = "stateless"

    @property
    def era(self) -> Era:
        """Which protocol generation is spoken."""
        return Era.STATELESS if self is Mode.STATELESS else Era.HANDSHAKE

    @property
    def label(self) -> str:
        """Name the mode in a table."""
        return str(self.era) if self is Mode.STATELESS else f"{self.era} {self.name.lower()}"


@dataclass(frozen=True)
class Address:
    """Where requests go: a port, the era they are of, and the session they belong to, if any."""

    port: int
    era: Era
    session: bytes = b""
    token: str = ""
    """What is shown to a server that asks who calls."""

    def head(self, verb: str) -> bytes:
        """Return what every request begins with, up to what is its own."""
        lines = [
            f"{verb} {PATH} HTTP/1.1",
            f"Host: {HOST}:{self.port}",
            f"MCP-Protocol-Version: {self.era}",
        ]
        if self.session:
            lines.append(f"Mcp-Session-Id: {self.session.decode()}")
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join(lines).encode() + b"\r\n"

    def post_head(self, length: int, method: str = "", name: str = "") -> bytes:
        """Return the head of a POST; the newest era has a header for the method and one for its object."""
        lines = ["Content-Type: application/json", "Accept: application/json, text/event-stream"]
        if self.era is Era.STATELESS:
            lines.append(f"Mcp-Method: {method}")
            if name:
                lines.append(f"Mcp-Name: {name}")
        lines.append(f"Content-Length: {length}")
        return self.head("POST") + "\r\n".join(lines).encode() + BLANK_LINE

    def post(self, message: bytes, method: str = "", name: str = "") -> bytes:
        """Return a whole POST."""
        return self.post_head(len(message), method, name) + message

    def get(self) -> bytes:
        """Return the request that opens a session's stream."""
        return self.head("GET") + b"Accept: " + EVENTS + BLANK_LINE

    def delete(self) -> bytes:
        """Return the request that ends a session."""
        return self.head("DELETE") + b"\r\n"

    def around_id(self, operation: Operation) -> tuple[bytes, bytes]:
        """Return the bytes of an operation's request before and after its id."""
        before, after = operation.around_id(self.era)
        length = len(before) + len(after) + len(str(FIRST_ID))
        return self.post_head(length, operation.method, operation.params.get("name", "")) + before, after

    def once(self, operation: Operation, number: int = FIRST_ID) -> bytes:
        """Return an operation's request with an id."""
        message = request(operation.method, operation.params, self.era, number)
        return self.post(message, operation.method, operation.params.get("name", ""))


@dataclass(frozen=True)
class Response:
    """One whole answer, its transfer coding removed."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def messages(self) -> list[bytes]:
        """Return the JSON-RPC messages of the body."""
        if self.headers.get(b"content-type", b"").startswith(EVENTS):
            return events(self.body)
        return [self.body] if self.body else []


def parse_head(data: bytes) -> tuple[int, dict[bytes, bytes], int] | None:
    """Read status, headers and where the body begins; None while the head is not whole."""
    end = data.find(BLANK_LINE)
    if end < 0:
        return None
    status, *lines = data[:end].split(b"\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    return int(status.split(b" ", 2)[1]), headers, end + len(BLANK_LINE)


def whole_response(data: bytes) -> Response | None:
    """Read the one response that the bytes hold; None while it is not whole."""
    head = parse_head(data)
    if head is None:
        return None
    status, headers, start = head
    if headers.get(CODING, b"").lower() == b"chunked":
        body = unchunked(data, start)
        return None if body is None else Response(status, headers, body)
    length = int(headers.get(b"content-length", b"0"))
    if len(data) < start + length:
        return None
    if len(data) > start + length:
        raise BadAnswer(f"more than one answer: {data[start + length :][:200]!r}")
    return Response(status, headers, data[start:])


def unchunked(data: bytes, at: int) -> bytes | None:
    """Join the chunks of a body that begins there; None while its last one is missing."""
    parts = []
    while (line_end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:line_end].partition(b";")[0], 16)
        begin, at = line_end + 2, line_end + 2 + size + 2
        if len(data) < at:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(data[begin : begin + size])
    return None


def events(stream: bytes) -> list[bytes]:
    """Return the data of every event that has some."""
    found = []
    for event in stream.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
        whole = b"\n".join(data)
        if whole:
            found.append(whole)
    return found


def connect(port: int, source: str = "") -> socket.socket:
    """Open a connection that gives up on a silent server; from another address of this machine, where one is named."""
    connection = socket.create_connection((HOST, port), SILENCE_LIMIT, (source, 0) if source else None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, data: bytes) -> Response:
    """Send one request and wait for the whole answer."""
    connection.sendall(data)
    return receive(connection)


def receive(connection: socket.socket) -> Response:
    """Wait for a whole answer; one that is large is looked at each time it has doubled, or may be whole."""
    received = bytearray()
    enough = 0
    while True:
        piece = connection.recv(READ_SIZE)
        if not piece:
            raise BadAnswer(f"the connection ended after {bytes(received[:200])!r}")
        received += piece
        if len(received) < enough and not received.endswith(LAST_CHUNK):
            continue
        data = bytes(received)
        response = whole_response(data)
        if response is not None:
            return response
        enough = whole_length(data)


def whole_length(data: bytes) -> int:
    """Return how long an answer is at least, of which this is the beginning; 0 while that is not known."""
    head = parse_head(data)
    if head is None:
        return 0
    _, headers, start = head
    if CODING in headers:
        return 2 * len(data)
    return start + int(headers.get(b"content-length", b"0"))
