"""Peers that say anything they are told, on every carrier, and count what they hear."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from typing import Any

VERSION = "2025-11-25"
CLIENT = {"name": "raw", "version": "1"}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}
NAMES = {"tools/call": "name", "resources/read": "uri", "prompts/get": "name"}
"""The member of params that the header `Mcp-Name` mirrors, by method."""
PATIENCE = 30.0
PING = 0x9
PONG = 0xA
"""Opcodes of WebSocket frames (RFC 6455 §11.8)."""


def request(identity: Any, method: str, params: dict[str, Any] | None = None) -> bytes:
    """Write a request."""
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}).encode()


def initialize(**more: Any) -> bytes:
    """Write the request of the handshake."""
    return request("init", "initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": CLIENT, **more})


INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Wire:
    """One connection that reads in the background, unless it is told not to."""

    answers_each = False
    """Whether every message is answered on its own, as over HTTP, also one that cannot be read."""

    def __init__(self, place: Any, *, reads: bool = True) -> None:
        self.place = place
        self.sent = 0
        self.received = 0
        self.heard = b""
        """The last that came, enough to find an answer in."""
        self.ended = False
        self._reads = reads
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.connect()
        if reads:
            self._reader.start()

    # -- what a carrier does in its own way

    def connect(self) -> None:
        """Reach the other side."""
        self.socket = socket.create_connection(("127.0.0.1", int(self.place)), PATIENCE)

    def frame(self, message: bytes) -> bytes:
        """Write one message as the carrier has it."""
        return message + b"\n"

    def greet(self, *, handshake: bytes | None = None) -> None:
        """Make the handshake."""
        self.send(handshake or initialize())
        self.wait_for(b'"init"')
        self.send(INITIALIZED)

    # -- what all do alike

    def send(self, message: bytes) -> None:
        """Send one message; an end of the connection is noted, not raised."""
        self.send_bytes(self.frame(message))

    def send_bytes(self, data: bytes) -> None:
        """Send just these bytes."""
        try:
            self.socket.sendall(data)
            self.sent += len(data)
        except OSError:
            self.ended = True

    def _read(self) -> None:
        while True:
            try:
                data = self.socket.recv(1 << 18)
            except OSError:
                data = b""
            self.note(data)
            if not data:
                return

    def note(self, data: bytes) -> None:
        """Count what came."""
        with self._news:
            self.received += len(data)
            self.heard = (self.heard + data)[-65536:]
            self.ended = self.ended or not data
            self._news.notify_all()

    def wait_for(self, text: bytes, within: float = PATIENCE) -> bool:
        """Wait until this was heard; False when the other side ended first, or nothing came in time."""
        with self._news:
            self._news.wait_for(lambda: text in self.heard or self.ended, within)
            return text in self.heard

    def wait_end(self, within: float) -> bool:
        """Wait until the other side ends the connection. Return whether it did."""
        with self._news:
            return self._news.wait_for(lambda: self.ended, within)

    def asks(self, identity: str, method: str, params: dict[str, Any]) -> bool:
        """Ask something and wait for the answer. Return whether it came."""
        self.send(request(identity, method, params))
        return self.wait_for(b'"%b"' % identity.encode())

    def close(self) -> None:
        """Go, without a word."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        if self._reads:
            self._reader.join(PATIENCE)


class TcpWire(Wire):
    """Lines over TCP."""


class UnixWire(Wire):
    """Lines over a Unix socket."""

    def connect(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(self.place))


class WebSocketWire(Wire):
    """Masked text frames (RFC 6455 §5.2); whoever reads also answers pings, or the server takes it for gone."""

    def __init__(self, place: Any, *, reads: bool = True) -> None:
        self._sending = threading.Lock()
        self._unread = b""
        """The begin of a frame whose end has not come."""
        super().__init__(place, reads=reads)

    def connect(self) -> None:
        super().connect()
        self.socket.sendall(
            b"GET /mcp/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.socket.recv(1)
            assert piece, head
            head += piece
        assert b" 101 " in head, head

    def frame(self, message: bytes) -> bytes:
        size = len(message)
        if size < 126:
            head = bytes((0x81, 0x80 | size))
        elif size < 65536:
            head = bytes((0x81, 0x80 | 126)) + size.to_bytes(2)
        else:
            head = bytes((0x81, 0x80 | 127)) + size.to_bytes(8)
        return head + bytes(4) + message  # a mask of zeros leaves the text as it is

    def send_bytes(self, data: bytes) -> None:
        with self._sending:
            super().send_bytes(data)

    def note(self, data: bytes) -> None:
        super().note(data)
        self._unread += data
        while (frame := self._next_frame()) is not None:
            opcode, payload = frame
            if opcode == PING:
                self._pong(payload)

    def _next_frame(self) -> tuple[int, bytes] | None:
        """Take one whole frame off what is unread: its opcode and its payload. Return None when there is none."""
        unread = self._unread
        if len(unread) < 2:
            return None
        size = unread[1]
        start = 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(unread[2:start])
        if len(unread) < start + size:
            return None
        self._unread = unread[start + size :]
        return unread[0] & 0x0F, unread[start : start + size]

    def _pong(self, payload: bytes) -> None:
        """Answer a ping, unless what is being sent does not get through: then this would not either."""
        if self._sending.acquire(timeout=1.0):
            try:
                super().send_bytes(bytes((0x80 | PONG, 0x80 | len(payload))) + bytes(4) + payload)
            finally:
                self._sending.release()


class HttpWire(Wire):
    """One POST a message, in a session of the handshake era."""

    answers_each = True
    session = b""

    def frame(self, message: bytes) -> bytes:
        return self.post(message, self.session)

    def post(self, message: bytes, headers: bytes = b"", path: bytes = b"/mcp") -> bytes:
        """Write a POST."""
        return (
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\n%bContent-Length: %d\r\n\r\n%b"
            % (path, headers, len(message), message)
        )

    def greet(self, *, handshake: bytes | None = None) -> None:
        self.send(handshake or initialize())
        assert self.wait_for(b'"init"'), self.heard[:500]
        for line in self.heard.split(b"\r\n"):
            if line.lower().startswith(b"mcp-session-id:"):
                self.session = line + b"\r\nMCP-Protocol-Version: 2025-11-25\r\n"
        self.send(INITIALIZED)


class StatelessWire(HttpWire):
    """One POST a message, each for itself: headers mirror what the body says."""

    def greet(self, *, handshake: bytes | None = None) -> None:
        """There is none."""

    def frame(self, message: bytes) -> bytes:
        headers = b"MCP-Protocol-Version: 2026-07-28\r\n"
        try:
            read = json.loads(message)
        except (ValueError, RecursionError):
            return self.post(message, headers)
        if isinstance(read, dict) and isinstance(read.get("params"), dict):
            read["params"].setdefault("_meta", MODERN)
            method = str(read.get("method"))
            headers += b"Mcp-Method: %b\r\n" % method.encode()
            if method in NAMES:
                headers += b"Mcp-Name: %b\r\n" % str(read["params"].get(NAMES[method])).encode()
            message = json.dumps(read).encode()
        return self.post(message, headers)


class PairWire(HttpWire):
    """HTTP+SSE of 2024-11-05: a stream to read, an address to post to."""

    path = b""

    def connect(self) -> None:
        super().connect()
        stream = socket.create_connection(("127.0.0.1", int(self.place)), PATIENCE)
        stream.sendall(b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
        heard = b""
        while b"/messages" not in heard or not heard.endswith(b"\n"):
            heard += stream.recv(4096)
        self.path = heard[heard.index(b"/messages") :].split(b"\r")[0].split(b"\n")[0]
        self._stream = stream
        threading.Thread(target=self._read_stream, daemon=True).start()

    def _read_stream(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._stream.recv(1 << 18):
                self.note(data)

    def frame(self, message: bytes) -> bytes:
        return self.post(message, path=self.path)

    def greet(self, *, handshake: bytes | None = None) -> None:
        self.send(handshake or initialize())
        assert self.wait_for(b'"init"'), self.heard[:500]
        self.send(INITIALIZED)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()
        super().close()


class StdioWire(Wire):
    """Lines through the pipes of the server's own process."""

    def connect(self) -> None:
        self.process: subprocess.Popen[bytes] = self.place

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
            self.sent += len(data)
        except OSError:
            self.ended = True

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := self.process.stdout.read1(1 << 18):  # type: ignore[attr-defined]
            self.note(data)
        self.note(b"")

    def close(self) -> None:
        """The only peer of a stdio server ends with it."""


WIRES: dict[str, type[Wire]] = {
    "stdio": StdioWire,
    "tcp": TcpWire,
    "unix": UnixWire,
    "websocket": WebSocketWire,
    "http": HttpWire,
    "stateless": StatelessWire,
    "sse": PairWire,
}
