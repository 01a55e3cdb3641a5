"""A raw HTTP client that may say anything, and the engine's process it says it to."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SERVER = str(Path(__file__).with_name("engine_server.py"))
HONEST = b"GET /count HTTP/1.1\r\nHost: a\r\n\r\n"


class Response(NamedTuple):
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Peer:
    """A raw connection."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seen = b""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Send, and tell whether the other side still listened."""
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError):
            return False
        return True

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read_all(self) -> bytes:
        """Read until the other side closes; fails when it does not."""
        try:
            while part := self.socket.recv(262144):
                self.seen += part
        except ConnectionError:
            pass
        return self.seen

    def read_one(self) -> Response:
        """Read one answer, and leave what follows it for later."""
        while (found := take(self.seen)) is None:
            part = self.socket.recv(262144)
            assert part, f"closed after {self.seen[:200]!r}"
            self.seen += part
        response, self.seen = found
        return response

    def responses(self) -> list[Response]:
        """Read all answers until the other side closes."""
        self.read_all()
        found = []
        while (one := take(self.seen)) is not None:
            found.append(one[0])
            self.seen = one[1]
        assert self.seen == b"", f"half an answer: {self.seen[:200]!r}"
        return found


def take(data: bytes) -> tuple[Response, bytes] | None:
    """Return the first whole answer and what follows it."""
    head, ended, rest = data.partition(b"\r\n\r\n")
    if not ended:
        return None
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    status = int(first.split(" ")[1])
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            line, ended, rest = rest.partition(b"\r\n")
            size = int(line, 16) if ended else -1
            if size < 0 or len(rest) < size + 2:
                return None
            body, rest = body + rest[:size], rest[size + 2 :]
            if not size:
                return Response(status, headers, body), rest
    size = int(headers.get("content-length", 0))
    return (Response(status, headers, rest[:size]), rest[size:]) if len(rest) >= size else None


class EngineProcess:
    """The engine in a process of its own."""

    def __init__(self, **options: Any) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [sys.executable, SERVER, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        assert self.process.stdout is not None
        self.peers: list[Peer] = []
        self.port = int(self.process.stdout.readline())

    def peer(self, timeout: float = 60.0) -> Peer:
        """Connect; whoever does not close the connection has it closed at the end."""
        peer = Peer(self.port, timeout)
        self.peers.append(peer)
        return peer

    def say(self, data: bytes) -> list[Response]:
        """Send bytes on a new connection, and give all answers until it is closed."""
        with self.peer() as peer:
            peer.send(data)
            return peer.responses()

    def count(self) -> dict[str, Any]:
        """Send an honest request: what ran so far."""
        with self.peer() as peer:
            peer.send(HONEST)
            response = peer.read_one()
            assert response.status == 200
            found: dict[str, Any] = json.loads(response.body)
            return found

    def rss(self, field: str = "VmRSS") -> float:
        """How much memory the process has, or had at most, in MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise AssertionError(field)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu(self) -> float:
        """How many seconds of the processor it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def logged(self) -> str:
        self.log.seek(0)
        return self.log.read().decode()

    def end(self) -> int:
        """Let it drain and end; gives its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for peer in self.peers:
            peer.socket.close()
        self.process.stdin.close()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.wait()
            self.process.stdout.close()


@contextmanager
def engine(**options: Any) -> Iterator[EngineProcess]:
    """Run an engine for a while; its log must stay free of tracebacks, and its end orderly."""
    process = EngineProcess(**options)
    try:
        yield process
        assert process.process.poll() is None, process.logged()
    finally:
        code = process.end()
        log = process.logged()
        process.log.close()
    assert "Traceback" not in log, log
    assert code == 0, log


def until(true: Any, within: float = 60.0) -> bool:
    """Wait until something holds, for a while."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
