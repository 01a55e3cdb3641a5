"""Servers that mean harm to their client, on every carrier; as a program, over stdio: hostile_server.py SCENARIO.

A scenario is a function that takes a request and yields the messages to send, as bytes; the handshake is made properly.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

Scenario = Callable[[dict[str, Any]], Iterator[bytes]]
SCENARIOS: dict[str, Scenario] = {}

NOTE = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}'
MANY = [b"%d" % n for n in range(10)]


def scenario(function: Scenario) -> Scenario:
    """Register a scenario under its name."""
    SCENARIOS[function.__name__] = function
    return function


def result(asked: dict[str, Any], value: Any) -> bytes:
    """Write an answer."""
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": value}).encode()


def tools(asked: dict[str, Any], *found: dict[str, Any], **more: Any) -> bytes:
    """Write a list of tools."""
    listed = [{"name": "t", "inputSchema": {"type": "object"}, **each} for each in found or ({},)]
    return result(asked, {"tools": listed, **more})


def answer(name: str, asked: dict[str, Any]) -> Iterator[bytes]:
    """Answer a request: what belongs to the handshake properly, the rest as the scenario says."""
    method = asked.get("method", "")
    if "id" not in asked or not method:
        return
    if method == "server/discover":
        error = {"code": -32601, "message": "Method not found"}
        yield json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode()
    elif method == "initialize" and name != "talkative_handshake":
        info = {"name": "hostile", "version": "1"}
        capabilities = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
        yield result(asked, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
    elif method == "ping":
        yield result(asked, {})
    else:
        yield from SCENARIOS[name](asked)


@scenario
def junk_batch(asked: dict[str, Any]) -> Iterator[bytes]:
    """Answer with a batch of a million numbers."""
    yield b"[" + b",".join([b"1"] * 1_000_000) + b"]"
    yield result(asked, {"content": []})


@scenario
def talkative_handshake(asked: dict[str, Any]) -> Iterator[bytes]:
    """Say ten megabytes about oneself."""
    capabilities = {"tools": {}, "experimental": {"x": {"y": [{}] * 2_000_000}}}
    info = {"name": "h" * 1_000_000, "version": "1"}
    yield result(asked, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})


@scenario
def junk_flood(asked: dict[str, Any]) -> Iterator[bytes]:
    """Send a hundred thousand messages that are none, then answer."""
    for _ in range(100_000):
        yield b"1"
    yield result(asked, {"content": []})


@scenario
def note_flood(asked: dict[str, Any]) -> Iterator[bytes]:
    """Send a hundred thousand log messages, then answer."""
    note = (NOTE % "x").encode()
    for _ in range(100_000):
        yield note
    yield result(asked, {"content": []})


@scenario
def heavy_notes(asked: dict[str, Any]) -> Iterator[bytes]:
    """Send eighty log messages of four megabytes, then answer."""
    note = (NOTE % ("x" * 4_000_000)).encode()
    for _ in range(80):
        yield note
    yield result(asked, {"content": []})


@scenario
def question_flood(asked: dict[str, Any]) -> Iterator[bytes]:
    """Ask twenty thousand questions, then answer."""
    for n in range(20_000):
        yield b'{"jsonrpc":"2.0","id":"q%d","method":"roots/list"}' % n
    yield result(asked, {"content": []})


@scenario
def endless_list(asked: dict[str, Any]) -> Iterator[bytes]:
    """Have always one more page of ten thousand tools."""
    if asked["method"] == "tools/list":
        page = int(asked.get("params", {}).get("cursor", 0))
        names = [{"name": f"t{page}.{n}", "description": "d" * 100} for n in range(10_000)]
        yield tools(asked, *names, nextCursor=str(page + 1))
    else:
        yield result(asked, {"content": []})


@scenario
def heavy_patterns(asked: dict[str, Any]) -> Iterator[bytes]:
    """Offer a tool whose output schema takes gigabytes to compile."""
    patterns = {f"^\\p{{L}}{{200}}{n}": {"type": "string"} for n in range(700)}
    schema = {"type": "object", "patternProperties": patterns}
    if asked["method"] == "tools/list":
        yield tools(asked, {"outputSchema": schema})
    else:
        yield result(asked, {"content": [], "structuredContent": {"é" * 300: "x"}})


@scenario
def slow_pattern(asked: dict[str, Any]) -> Iterator[bytes]:
    """Offer a tool whose output schema takes seconds to run."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a?){50}(a*)*(\\w+\\s?)*$"}}}
    if asked["method"] == "tools/list":
        yield tools(asked, {"outputSchema": schema})
    else:
        yield result(asked, {"content": [], "structuredContent": {"a": "a" * 100_000 + "!"}})


@scenario
def unique_items(asked: dict[str, Any]) -> Iterator[bytes]:
    """Offer a tool whose output must have items that differ, and return very many that nearly are alike."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    if asked["method"] == "tools/list":
        yield tools(asked, {"outputSchema": schema})
    else:
        items = [{"k": {"n": n}} for n in range(200_000)]
        yield result(asked, {"content": [], "structuredContent": {"a": items}})


@scenario
def branching_schema(asked: dict[str, Any]) -> Iterator[bytes]:
    """Offer a tool whose output schema tries each value in very many ways."""
    level: dict[str, Any] = {"type": "integer"}
    definitions = {}
    for n in range(24):
        definitions[f"d{n}"] = {"anyOf": [level, {"allOf": [level, {"not": level}]}]}
        level = {"$ref": f"#/$defs/d{n}"}
    schema = {"type": "object", "properties": {"a": level}, "$defs": definitions}
    if asked["method"] == "tools/list":
        yield tools(asked, {"outputSchema": schema})
    else:
        yield result(asked, {"content": [], "structuredContent": {"a": "no"}})


@scenario
def growing_result(asked: dict[str, Any]) -> Iterator[bytes]:
    """Answer with twelve megabytes that take hundreds once decoded."""
    if asked["method"] == "tools/list":
        yield tools(asked)
        return
    head = (
        b'{"jsonrpc":"2.0","id":%b,"result":{"content":[],"structuredContent":{"a":[' % json.dumps(asked["id"]).encode()
    )
    yield head + b"[]," * 4_000_000 + b"[]]}}}"


@scenario
def endless_events(asked: dict[str, Any]) -> Iterator[bytes]:
    """Send progress for a call, very often, and never answer."""
    token = asked.get("params", {}).get("_meta", {}).get("progressToken", 1)
    for n in itertools.count(1):
        params = {"progressToken": token, "progress": n}
        yield json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode()
        if n > 200_000:
            yield result(asked, {"content": []})
            return


class HostileServer:
    """A scenario on a carrier that listens on 127.0.0.1."""

    def __init__(self, carrier: str, name: str) -> None:
        self._name = name
        self._serve = {"tcp": self._tcp, "websocket": self._websocket, "http": self._http, "sse": self._http}[carrier]
        self._streams = carrier == "sse"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port = self._listening.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(accepted)
            thread = threading.Thread(target=self._guarded, args=(accepted,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _guarded(self, accepted: socket.socket) -> None:
        with accepted, contextlib.suppress(OSError, ValueError):
            self._serve(accepted)

    def _tcp(self, accepted: socket.socket) -> None:
        for line in accepted.makefile("rb"):
            pending = b""
            for message in answer(self._name, json.loads(line)):
                pending += message + b"\n"
                if len(pending) > 65536:
                    accepted.sendall(pending)
                    pending = b""
            accepted.sendall(pending)

    def _websocket(self, accepted: socket.socket) -> None:
        stream = accepted.makefile("rb")
        key = b""
        while (line := stream.readline().strip()) or not key:
            if line.lower().startswith(b"sec-websocket-key:"):
                key = line.split(b":")[1].strip()
            if not line:
                break
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        accepted.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
        )
        while len(head := stream.read(2)) == 2:
            size = head[1] & 127
            if size > 125:
                size = int.from_bytes(stream.read(2 if size == 126 else 8))
            mask = stream.read(4)
            payload = stream.read(size)
            whole = (mask * (size // 4 + 1))[:size]
            text = (int.from_bytes(payload) ^ int.from_bytes(whole)).to_bytes(size)
            if head[0] & 15 != 1:
                continue
            pending = b""
            for message in answer(self._name, json.loads(text)):
                pending += _frame(message)
                if len(pending) > 65536:
                    accepted.sendall(pending)
                    pending = b""
            accepted.sendall(pending)

    def _http(self, accepted: socket.socket) -> None:
        stream = accepted.makefile("rb")
        while first := stream.readline():
            size = 0
            while line := stream.readline().strip().lower():
                if line.startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            asked = json.loads(stream.read(size) or b"{}")
            if first.startswith(b"GET"):
                accepted.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            elif "id" not in asked or "method" not in asked:
                accepted.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            else:
                self._answer_http(accepted, asked)

    def _answer_http(self, accepted: socket.socket, asked: dict[str, Any]) -> None:
        messages = answer(self._name, asked)
        first = next(messages)
        second = next(messages, None)
        if second is None and not self._streams:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(first)
            accepted.sendall(head + first)
            return
        accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        pending = b""
        for message in itertools.chain([first], [] if second is None else [second], messages):
            pending += b"data: %b\n\n" % message
            if len(pending) > 65536:
                accepted.sendall(b"%x\r\n%b\r\n" % (len(pending), pending))
                pending = b""
        if pending:
            accepted.sendall(b"%x\r\n%b\r\n" % (len(pending), pending))
        accepted.sendall(b"0\r\n\r\n")

    def close(self) -> None:
        """Let go of everybody."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in (self._accepting, *self._threads):
            thread.join(20)


def _frame(message: bytes) -> bytes:
    size = len(message)
    if size < 126:
        return bytes((0x81, size)) + message
    if size < 65536:
        return bytes((0x81, 126)) + size.to_bytes(2) + message
    return bytes((0x81, 127)) + size.to_bytes(8) + message


if __name__ == "__main__":
    for each in sys.stdin.buffer:
        for said in answer(sys.argv[1], json.loads(each)):
            sys.stdout.buffer.write(said + b"\n")
        sys.stdout.buffer.flush()
