"""Servers over TCP in processes of their own, raw peers for them, and a line between the two that can be faulty."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
PROGRAM = Path(__file__).with_name("tcp_server.py")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """Make a request that calls a tool."""
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def line(message: Any) -> bytes:
    """Write a message as its line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def until(condition: Callable[[], Any], within: float = 60.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class Peer:
    """A client that speaks bytes."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.settimeout(timeout)
        self._rest = b""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, *messages: Any) -> None:
        """Send messages, one a line."""
        self.socket.sendall(b"".join(map(line, messages)))

    def read_line(self) -> bytes:
        """Read one line; empty at the end."""
        while b"\n" not in self._rest:
            piece = self.socket.recv(1 << 16)
            if not piece:
                return b""
            self._rest += piece
        first, self._rest = self._rest.split(b"\n", 1)
        return first

    def read(self) -> Any:
        """Read one message."""
        return json.loads(self.read_line())

    def ask(self, message: Any) -> Any:
        """Send a request and read its answer."""
        self.send(message)
        while (answer := self.read()).get("id") != message["id"]:
            pass
        return answer

    def open(self) -> Peer:
        """Make the handshake."""
        assert "result" in self.ask(INITIALIZE)
        self.send(INITIALIZED)
        return self

    def reset(self) -> None:
        """End with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Process:
    """A server in a process of its own."""

    def __init__(self, options: dict[str, Any], server: dict[str, Any]) -> None:
        command = [sys.executable, str(PROGRAM), json.dumps({"port": 0, **options}), json.dumps(server)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline() or self._failed())
        self.pid = self.process.pid

    def _failed(self) -> str:
        assert self.process.stderr is not None
        raise AssertionError(self.process.stderr.read().decode())

    def peer(self, timeout: float = 60.0) -> Peer:
        """Connect."""
        return Peer(self.port, timeout)

    @property
    def resident(self) -> int:
        """Bytes of memory it has now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def descriptors(self) -> int:
        """How many files it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def cpu(self) -> float:
        """Seconds of processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> str:
        """End it in order; gives what it said on stderr."""
        self.process.send_signal(signal.SIGTERM)
        try:
            _, said = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, said = self.process.communicate()
        return said.decode()


@contextmanager
def serving(server: dict[str, Any] | None = None, **options: Any) -> Iterator[Process]:
    """Run a server; it must end in order."""
    process = Process(options, server or {})
    try:
        yield process
    finally:
        said = process.stop()
    assert process.process.returncode == 0, said
    assert "Traceback" not in said, said


class FaultyLine:
    """A line to a port whose faults can be set: `to_server` and `to_client` change each piece, None swallows it.

    `slice` is the most bytes that go to the server at once.
    `reset_after` ends both sides with RST when that many bytes have passed, both ways counted together.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listening.getsockname()[1]
        self.to_server: Callable[[bytes], bytes | None] = lambda piece: piece
        self.to_client: Callable[[bytes], bytes | None] = lambda piece: piece
        self.slice = 0
        self.reset_after: int | None = None
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> FaultyLine:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(near,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, near: socket.socket) -> None:
        far = socket.create_connection(("127.0.0.1", self._target))
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        passed, open_sides = 0, [near, far]
        with near, far, suppress(OSError):
            while open_sides:
                for side in select.select(open_sides, [], [])[0]:
                    room = 65536 if self.reset_after is None else self.reset_after - passed
                    piece = side.recv(min(65536, room)) if room > 0 else b""
                    if room <= 0 or (passed + len(piece) == self.reset_after and piece):
                        for each in (near, far):
                            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        if piece:
                            (far if side is near else near).sendall(piece)
                        return
                    other, change = (far, self.to_server) if side is near else (near, self.to_client)
                    if not piece:
                        open_sides.remove(side)
                        other.shutdown(socket.SHUT_WR)
                        continue
                    passed += len(piece)
                    changed = change(piece)
                    if changed is not None:
                        step = self.slice if side is near and self.slice else len(changed)
                        for start in range(0, len(changed), step):
                            other.sendall(changed[start : start + step])
