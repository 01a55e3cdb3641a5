"""A contestant's server at the other end of a socket: lines over TCP, or frames over WebSocket."""

from __future__ import annotations

import base64
import json
import os
import socket

from bench.contestants import Contestant
from bench.messages import FIRST_ID, Era, Operation, opened, opening
from bench.process import HOST, SILENCE_LIMIT, START_LIMIT, BadAnswer, ServerProcess, free_port, time_limit

PATH = "/mcp/ws"
READ_SIZE = 1 << 20
TEXT, MASKED = 0x81, 0x80
KEY = b"\x55" * 4
"""Masks every byte alike, so that an id can be put into a frame that is masked already; to unmask costs the same."""

MASKING = bytes(byte ^ KEY[0] for byte in range(256))


class TcpServer(ServerProcess):
    """A server reached over TCP, by one connection that has answered its opening request."""

    transport = "tcp"
    masking: bytes | None = None

    def __init__(self, contestant: Contestant, era: Era) -> None:
        self.era = era
        self.next_id = FIRST_ID
        self.port = free_port()
        self._rest = b""
        super().__init__(contestant, ["--transport", self.transport, "--port", str(self.port)], pipes=False)
        try:
            with time_limit(START_LIMIT):
                self.wait_until_listening(self.port)
                self._socket = self._open()
                self.say(opening(era))
                greeting = self.read_messages()[0]
            if "result" not in json.loads(greeting):
                raise BadAnswer(f"the opening was refused: {greeting[:300].decode()}")
            if opened(era):
                self.say(opened(era))
        except BaseException:
            self.close()
            raise

    def _open(self) -> socket.socket:
        connection = socket.create_connection((HOST, self.port), SILENCE_LIMIT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def write(self, data: bytes) -> None:
        """Write all of it."""
        self._socket.sendall(data)

    def say(self, message: bytes) -> None:
        """Write one message; it is a line already."""
        self.write(message)

    def around_id(self, operation: Operation) -> tuple[bytes, bytes]:
        """Return what goes before and after the id of a request."""
        return operation.around_id(self.era)

    def read_messages(self) -> list[bytes]:
        """Read until at least one message is whole; the beginning of another is kept."""
        while True:
            data = self._socket.recv(READ_SIZE)
            if not data:
                raise BadAnswer(f"the connection ended: {self.last_words()}")
            messages, self._rest = self._cut(self._rest + data)
            if messages:
                return messages

    def _cut(self, data: bytes) -> tuple[list[bytes], bytes]:
        *lines, rest = data.split(b"\n")
        return lines, rest

    def close(self) -> None:
        """Hang up, and end the process."""
        if hasattr(self, "_socket"):
            self._socket.close()
        super().close()


class WebSocketServer(TcpServer):
    """A server reached over WebSocket."""

    transport = "ws"
    masking = MASKING

    def _open(self) -> socket.socket:
        connection = super()._open()
        key = base64.b64encode(os.urandom(16)).decode()
        head = [
            f"GET {PATH} HTTP/1.1",
            f"Host: {HOST}:{self.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            part = connection.recv(1)
            if not part:
                break
            answer += part
        if b" 101 " not in answer[:20]:
            raise BadAnswer(f"no WebSocket was opened: {answer[:200].decode('latin-1')}")
        return connection

    def say(self, message: bytes) -> None:
        """Write one message in a frame of its own."""
        self.write(_head(len(message)) + message.translate(MASKING))

    def around_id(self, operation: Operation) -> tuple[bytes, bytes]:
        """Return what goes before and after the id of a request, head and mask included."""
        before, after = super().around_id(operation)
        size = len(before) + len(after) + len(str(FIRST_ID))
        return _head(size) + before.translate(MASKING), after.translate(MASKING)

    def _cut(self, data: bytes) -> tuple[list[bytes], bytes]:
        messages, at, end = [], 0, len(data)
        while end - at >= 2:
            size, start = data[at + 1], at + 2
            if size > 125:
                width = 2 if size == 126 else 8
                start += width
                size = int.from_bytes(data[start - width : start])
            if end < start or end < start + size:
                break
            if data[at] == TEXT:
                messages.append(data[start : start + size].rstrip(b"\n"))
            at = start + size
        return messages, data[at:]


def _head(size: int) -> bytes:
    """Return what stands before the masked payload of a text frame."""
    if size < 126:
        return bytes((TEXT, MASKED | size)) + KEY
    return bytes((TEXT, MASKED | 126)) + size.to_bytes(2) + KEY
