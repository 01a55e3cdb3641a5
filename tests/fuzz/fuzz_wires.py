"""The wires hostile bytes come over, without sockets: transports in memory under the real listeners and clients.

`WireLoop` gives every connection that is accepted or dialled in it a `Wire`. So what is tried is all of the carrier's
own code, from `data_received` on, and what is measured is that code and not the system's.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import socket
import ssl
import time
from asyncio import sslproto
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from certificates import write_certificate
from grammar import META, NEWEST
from httptools import HttpParserError, HttpRequestParser, HttpResponseParser
from msgspec import Struct
from mutate import Case
from resource_oracle import Cost, MeasuringLoop

from ferrule import Server
from ferrule.server.server import Server as AnyServer
from ferrule.transports.http.listener import Http
from ferrule.transports.http.mirror import mirrored_headers
from ferrule.transports.memory import memory_pair
from ferrule.transports.process.stdio import Stdio
from ferrule.transports.tcp.listener import Tcp
from ferrule.wire.channel import Channel, Origin

READ_SIZE = 256 * 1024
"""What one read of an asyncio transport brings at most."""
SMALL_READS_A_TURN = 50
PATIENCE = 5.0
"""Seconds in which an answer must come, on any machine."""
STUCK = 30.0
"""Seconds after which a side that reads no more is not waited for: that is a find, not a reason to stop the run."""
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"

PING = b'{"jsonrpc":"2.0","id":"ping","method":"ping"}'
MODERN_PING = json.dumps(
    {"jsonrpc": "2.0", "id": "ping", "method": "server/discover", "params": {"_meta": META}}
).encode()


class Wire(asyncio.Transport):
    """A connection in memory: what is fed is read piece by piece in turns of its own, what is written is kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._loop = loop
        self._protocol = protocol
        self._incoming: deque[bytes] = deque()
        self._paused = self._due = self._told = False
        self.closed = False
        self.piece = READ_SIZE
        """What one read brings at most."""
        self.written: list[bytes] = []
        self.size = 0
        self.on_write: Callable[[Wire], None] | None = None

    # -- what the far side does

    def feed(self, data: bytes) -> None:
        """Let bytes arrive."""
        view = memoryview(data)
        for start in range(0, len(data), self.piece):
            self._incoming.append(bytes(view[start : start + self.piece]))
        self._read_soon()

    def hang_up(self) -> None:
        """End the connection from the far side."""
        self._finish(None)

    def take(self) -> bytes:
        """Return what was written, and keep it no longer."""
        written, self.written = self.written, []
        return b"".join(written)

    @property
    def pending(self) -> bool:
        """Whether bytes have still to be read."""
        return bool(self._incoming) and not self.closed

    def _read_soon(self) -> None:
        if self._incoming and not (self._due or self._paused or self.closed):
            self._due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._due = False
        # Small reads share a turn: what a turn costs is not what is looked for.
        for _ in range(SMALL_READS_A_TURN if self.piece < READ_SIZE else 1):
            if self._incoming and not (self._paused or self.closed):
                self._hand_over(self._incoming.popleft())
        self._read_soon()

    def _hand_over(self, data: bytes) -> None:
        protocol: Any = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        while data and not self.closed:
            buffer = protocol.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            protocol.buffer_updated(size)
            data = data[size:]

    # -- what a protocol does

    def write(self, data: Any) -> None:
        if not self.closed:
            self.written.append(bytes(data))
            self.size += len(data)
            if self.on_write is not None:
                self.on_write(self)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._read_soon()

    def is_reading(self) -> bool:
        return not self._paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self._finish(None)

    def abort(self) -> None:
        self._finish(None)

    def _force_close(self, error: Exception | None) -> None:
        self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        self.closed = True
        self._incoming.clear()
        if not self._told:
            self._told = True
            self._loop.call_soon(self._protocol.connection_lost, error)


class NoSocket:
    """Stands for the socket of a connection that has none: takes every option."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def setsockopt(self, *option: Any) -> None:
        """Take an option."""

    def getsockopt(self, *option: Any) -> int:
        """Return the value of an option."""
        return 0

    def fileno(self) -> int:
        """Return no descriptor."""
        return -1


class WireLoop(MeasuringLoop):
    """A loop whose connections are wires: `accepted` and `dialed` hold the newest."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: deque[Wire] = deque()
        self.dialed: deque[Wire] = deque()

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        sock.close()
        if options.get("ssl") is None:
            wire, protocol = self._connect(protocol_factory, 40000, 5000)
            self.accepted.append(wire)
            return wire, protocol
        protocol = protocol_factory()
        waiter = self.create_future()
        tls = sslproto.SSLProtocol(self, protocol, options["ssl"], waiter, server_side=True)
        wire, _ = self._connect(lambda: tls, 40000, 5000)
        self.accepted.append(wire)
        await waiter
        return tls._app_transport, protocol

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if options.get("sock") is not None:
            return await super().create_connection(protocol_factory, host, port, **options)
        wire, protocol = self._connect(protocol_factory, 5000, 40000, socket=NoSocket())
        self.dialed.append(wire)
        return wire, protocol

    def _connect(self, factory: Any, far: int, near: int, **more: Any) -> tuple[Wire, Any]:
        protocol = factory()
        extra = {"peername": ("127.0.0.1", far), "sockname": ("127.0.0.1", near), **more}
        wire = Wire(self, protocol, extra)
        protocol.connection_made(wire)
        return wire, protocol


# -- the server that is tried


class Item(Struct):
    """A part of an order."""

    name: str
    amount: int
    tags: list[str] = []


def new_server(tools: int = 0) -> Server:
    """Make a server with something of everything."""
    server = Server("fuzz", keepalive_interval=None, init_timeout=None)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(value: Any) -> str:
        return "heard"

    @server.tool
    async def say(text: str) -> int:
        return len(text)

    @server.tool
    async def count(numbers: list[int]) -> int:
        return len(numbers)

    @server.tool
    async def order(items: list[Item], note: str | None = None) -> int:
        return len(items)

    schema = {
        "type": "object",
        "properties": {
            "value": {
                "type": "object",
                "properties": {"kind": {"enum": ["a", "b"]}, "text": {"type": "string", "maxLength": 50}},
                "required": ["kind"],
            }
        },
        "required": ["value"],
    }

    @server.tool(schema=schema)
    async def check(**given: Any) -> int:
        return len(given)

    @server.resource("note://{number}")
    async def note(number: str) -> str:
        return "a note"

    @server.resource("file://static")
    async def static() -> str:
        return "static"

    @server.prompt
    async def greet(name: str = "") -> str:
        return "Hello"

    @server.completion("greet.name")
    async def names(value: str) -> list[str]:
        return ["you"]

    for number in range(tools):
        server.tool(name=f"tool_{number}_of_many_with_a_long_name")(add)
    return server


# -- targets: one hostile client and one server


class Target:
    """A server behind one kind of wire, and how a case is sent over it."""

    name = ""
    modern = False
    """Whether requests bring their version with them (stateless era)."""
    one_answer_each = False
    """Whether the wire itself pairs each request with one answer, as HTTP does."""

    def __init__(self, loop: WireLoop, server: AnyServer) -> None:
        self.loop = loop
        self.server = server
        self.wire: Wire | None = None
        self.looking = 0.0
        """Seconds of CPU that went into looking whether an answer has come."""
        self.in_time = True

    async def start(self) -> None:
        """Begin to serve."""

    async def stop(self) -> None:
        """End all of it."""

    async def open(self) -> None:
        """Make sure there is a conversation."""

    def forget_session(self) -> None:
        """Begin a new session with the next message, where a session is more than a connection."""

    def encode(self, case: Case, frame: bytes) -> bytes:
        """Write a frame as the bytes of this wire."""
        raise NotImplementedError

    @property
    def opened(self) -> bool:
        """Whether the conversation goes on."""
        return self.wire is not None and not self.wire.closed

    def sent(self) -> tuple[int, int]:
        """Return how many bytes and how many answers the server has written since the last `heard`."""
        raise NotImplementedError

    def heard(self) -> list[Any]:
        """Return the answers since the last time."""
        raise NotImplementedError

    def send(self, data: bytes) -> None:
        """Let bytes arrive."""
        assert self.wire is not None
        self.wire.feed(data)

    async def quiet(self, answers: int) -> bool:
        """Wait until all is read and so many answers are there. Return whether they came."""
        loop, until = self.loop, 0.0
        stuck = time.monotonic() + STUCK
        while True:
            await asyncio.sleep(0)
            if not loop.idle or (self.wire is not None and self.wire.pending and self.opened):
                if time.monotonic() > stuck:
                    return False
                continue
            if self.sent()[1] >= answers or not self.opened:
                return True
            now = time.monotonic()
            until = until or now + PATIENCE
            if now > until:
                return False
            before = time.thread_time()
            await asyncio.sleep(0.0005)
            self.looking += time.thread_time() - before

    async def run(self, case: Case, number: int) -> Cost:
        """Bring a case. Return what it cost."""
        await self.open()
        self.heard()
        data = case.numbered(number)
        if not case.raw:
            data = self.encode(case, data)
        if self.wire is not None:
            self.wire.piece = case.piece or READ_SIZE
        await asyncio.sleep(0)
        self.loop.longest = 0.0  # the turn in which the case was written is over: to seal it takes long, too
        self.looking = 0.0
        before = time.process_time()
        self.send(data)
        self.in_time = await self.quiet(case.awaits)
        cpu = time.process_time() - before - self.looking
        answered, answers = self.sent()
        dearer = case.dearer
        if case.piece:
            dearer["reads"] = len(data) // case.piece + 1
        size = max(len(data), case.inflated)
        return Cost(size, case.messages, cpu, self.loop.longest, answered, answers, case.requests, dearer)

    def ping_case(self) -> Case:
        """Return a plain request that is always answered."""
        if self.modern:
            return Case(
                "ping", MODERN_PING, requests=1, identity="ping", method="server/discover", params={"_meta": META}
            )
        return Case("ping", PING, requests=1, identity="ping", method="ping", params={})

    async def base(self) -> float:
        """Return what a plain message costs on this wire."""
        costs = [await self.run(self.ping_case(), number) for number in range(30)]
        return min(cost.cpu for cost in costs)


def initialize(version: str) -> bytes:
    """Write the first message of a client of the handshake era."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()


INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Far:
    """The client's end of a pair in memory: keeps the frames that come."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.size = 0
        self.lost = False

    def channel_opened(self, channel: Channel) -> None:
        """Nothing to do."""

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        self.frames.append(frame)
        self.size += len(frame)
        return False

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Nothing to do."""

    def end_received(self, channel: Channel) -> None:
        """Nothing to do."""

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.lost = True


class MemoryTarget(Target):
    """A link alone: for volume."""

    def __init__(self, loop: WireLoop, server: AnyServer, version: str) -> None:
        super().__init__(loop, server)
        self.version = version
        self.modern = version == NEWEST
        self.name = f"memory {version}"
        self.far = Far()
        self.far.lost = True

    @property
    def opened(self) -> bool:
        return not self.far.lost

    async def open(self) -> None:
        if self.opened:
            return
        self.far = Far()
        self.link = self.server.link(Origin("memory"))
        _, self.channel = memory_pair(self.far, self.link)
        if not self.modern:
            self.send(initialize(self.version))
            self.send(INITIALIZED)
            await self.quiet(1)

    def encode(self, case: Case, frame: bytes) -> bytes:
        return frame

    def send(self, data: bytes) -> None:
        self.link.frame_received(data, self.channel)

    def sent(self) -> tuple[int, int]:
        return self.far.size, len(self.far.frames)

    def heard(self) -> list[Any]:
        frames, self.far.frames, self.far.size = self.far.frames, [], 0
        return read_all(frames)

    async def stop(self) -> None:
        if self.opened:
            self.channel.close()
            await asyncio.sleep(0)
        await asyncio.sleep(0)


class ListeningTarget(Target):
    """A server behind one of its listeners."""

    listener: Any

    async def start(self) -> None:
        self.listener = self.make()
        ready = asyncio.Event()
        self.serving = asyncio.ensure_future(self.listener.serve(self.server.host, ready.set))
        await asyncio.wait([self.serving, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)

    def make(self) -> Any:
        """Make the listener."""
        raise NotImplementedError

    async def arrive(self) -> Wire:
        """Connect to the listener for real, and return the wire that takes the place of the socket."""
        loop = self.loop
        loop.accepted.clear()
        with socket.create_connection(self.listener.address):
            while not loop.accepted:
                await asyncio.sleep(0.001)
        return loop.accepted.popleft()

    def sent(self) -> tuple[int, int]:
        assert self.wire is not None
        return sum(map(len, self.wire.written)), sum(part.count(b"\n") for part in self.wire.written)

    async def stop(self) -> None:
        if self.wire is not None:
            self.wire.hang_up()
        await self.listener.close(0.0)
        await self.serving


class TcpTarget(ListeningTarget):
    """Lines over TCP."""

    def __init__(self, loop: WireLoop, server: AnyServer, version: str, framing: str = "line") -> None:
        super().__init__(loop, server)
        self.version = version
        self.framing = framing
        self.modern = version == NEWEST
        self.name = f"tcp {framing} {version}"

    def make(self) -> Any:
        return Tcp(port=0, framing=self.framing)

    async def open(self) -> None:
        if self.opened:
            return
        self.wire = await self.arrive()
        if not self.modern:
            case = Case("", b"")
            self.send(self.encode(case, initialize(self.version)) + self.encode(case, INITIALIZED))
            await self.quiet(1)

    def encode(self, case: Case, frame: bytes) -> bytes:
        if self.framing == "line":
            return frame + b"\n"
        return b"Content-Length: %d\r\n\r\n%b" % (len(frame), frame)

    def sent(self) -> tuple[int, int]:
        if self.framing == "line":
            return super().sent()
        assert self.wire is not None
        written = self.wire.written
        return sum(map(len, written)), sum(part.count(b"Content-Length:") for part in written)

    def heard(self) -> list[Any]:
        lines = self.wire.take().split(b"\n") if self.wire is not None else []
        return read_all([line for line in lines if line.startswith((b"{", b"["))])


class StdioTarget(TcpTarget):
    """Lines over stdin and stdout."""

    def __init__(self, loop: WireLoop, server: AnyServer, version: str) -> None:
        super().__init__(loop, server, version)
        self.name = f"stdio {version}"

    async def start(self) -> None:
        """A new peer is a new process: nothing is served until one comes."""

    async def arrive(self) -> Wire:
        from ferrule.transports.process import stdio

        await self._end()
        made: list[Wire] = []

        def connect(read_fd: int, write_fd: int, protocol: Any) -> None:
            os.close(read_fd)
            os.close(write_fd)
            wire = Wire(self.loop, protocol, {})
            made.append(wire)
            protocol.connection_made(wire)

        null = os.open(os.devnull, os.O_RDWR)
        streams, stdio.StandardStreams = stdio.StandardStreams, connect  # type: ignore[misc, assignment]
        try:
            self.listener = Stdio(read_fd=null, write_fd=null)
            self.serving = asyncio.ensure_future(self.listener.serve(self.server.host, lambda: None))
            while not made:
                await asyncio.sleep(0)
        finally:
            stdio.StandardStreams = streams  # type: ignore[misc]
            os.close(null)
        return made[0]

    async def _end(self) -> None:
        if self.wire is not None:
            self.wire.hang_up()
            await asyncio.wait([self.serving])
            self.serving.exception()
            self.wire = None

    async def stop(self) -> None:
        await self._end()


class WebSocketTarget(ListeningTarget):
    """One message a text frame, each masked."""

    def __init__(self, loop: WireLoop, server: AnyServer, version: str, *, compression: bool = False) -> None:
        super().__init__(loop, server)
        self.version = version
        self.compression = compression
        self.modern = version == NEWEST
        self.name = f"websocket {version}"

    def make(self) -> Any:
        return Http(port=0, websocket={"path": "/ws", "compression": self.compression})

    async def open(self) -> None:
        if self.opened:
            return
        if self.wire is not None:
            self.wire.hang_up()
        self.wire = await self.arrive()
        host, port = self.listener.address
        self.send(
            b"GET /ws HTTP/1.1\r\nHost: %b:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: %b\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n%b\r\n"
            % (host.encode(), port, KEY, DEFLATE if self.compression else b"")
        )
        await self.quiet(1)
        head = self.wire.take()
        assert head.startswith(b"HTTP/1.1 101"), head
        assert (b"permessage-deflate" in head) is self.compression
        if not self.modern:
            self.send(ws_frame(initialize(self.version), masked=True) + ws_frame(INITIALIZED, masked=True))
            await self.quiet(1)

    @property
    def opened(self) -> bool:
        if self.wire is None or self.wire.closed:
            return False
        return not (self.wire.written and ws_closes(self.wire.written[-1]))

    def sent(self) -> tuple[int, int]:
        assert self.wire is not None
        written = self.wire.written
        return sum(map(len, written)), sum(map(ws_answers, written))

    def encode(self, case: Case, frame: bytes) -> bytes:
        return ws_frame(frame, masked=True)

    def heard(self) -> list[Any]:
        if self.wire is None:
            return []
        data = self.wire.take()
        if ws_closes(data):
            self.wire.hang_up()
        return read_all(ws_texts(data))


def ws_closes(data: bytes) -> bool:
    """Whether frames without masks end with a close."""
    return any(
        data[-2 - size : -1 - size] == b"\x88" and data[-1 - size] == size for size in range(min(126, len(data) - 1))
    )


def ws_frame(payload: bytes, *, masked: bool = False, first: int = 0x81) -> bytes:
    """Write a WebSocket frame; the mask is all zeros, which is as good as any."""
    bit, size = 0x80 if masked else 0, len(payload)
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 65536:
        head = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + payload


def ws_answers(data: bytes) -> int:
    """Count the texts in frames without masks, or the answer to the handshake.

    Line ends are no measure: the size of a frame may look like one or two.
    """
    if data.startswith(b"HTTP/1.1 "):
        return 1
    return len(ws_texts(data))


def ws_texts(data: bytes) -> list[bytes]:
    """Return the texts of frames without masks."""
    texts, at = [], 0
    while at + 2 <= len(data):
        size, start = data[at + 1] & 0x7F, at + 2
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, start = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        if data[at] & 0x0F == 1:
            texts.append(data[start : start + size])
        at = start + size
    return texts


def read_all(frames: list[bytes]) -> list[Any]:
    """Read JSON texts; batches are taken apart."""
    found: list[Any] = []
    for frame in frames:
        message = json.loads(frame)
        found.extend(message if isinstance(message, list) else [message])
    return found


class HttpTarget(ListeningTarget):
    """One message a POST."""

    one_answer_each = True

    def __init__(self, loop: WireLoop, server: AnyServer, version: str) -> None:
        super().__init__(loop, server)
        self.version = version
        self.modern = version == NEWEST
        self.name = f"http {version}"
        self.session = b""

    def make(self) -> Any:
        return Http(port=0)

    async def open(self) -> None:
        if not self.opened:
            self.wire = await self.arrive()
        if not self.modern and not self.session:
            self.send(self.post(initialize(self.version), {}))
            await self.quiet(1)
            assert self.wire is not None
            found = re.search(rb"(?i)mcp-session-id: (\S+)", self.wire.take())
            assert found is not None
            self.session = found[1]
            self.send(self.post(INITIALIZED, self.lines(Case("", b""))))
            await self.quiet(1)

    def forget_session(self) -> None:
        self.session = b""

    def lines(self, case: Case) -> dict[str, str]:
        """Return the headers that go with a case."""
        if self.modern:
            return mirrored_headers(case.method, case.params or {}, version=NEWEST)
        return {"Mcp-Session-Id": self.session.decode(), "Mcp-Protocol-Version": self.version}

    def post(self, body: bytes, headers: dict[str, str]) -> bytes:
        """Write a whole request."""
        host, port = self.listener.address
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return (
            f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def encode(self, case: Case, frame: bytes) -> bytes:
        if case.method == "initialize" and not self.modern:
            return self.post(frame, {})
        return self.post(frame, self.lines(case))

    def sent(self) -> tuple[int, int]:
        assert self.wire is not None
        written = self.wire.written
        return sum(map(len, written)), sum(part.count(b"HTTP/1.1 ") for part in written)

    def heard(self) -> list[Any]:
        return [message for body in http_bodies(self.wire.take()) for message in body] if self.wire is not None else []


class Bodies:
    """Collects what HTTP answers carry."""

    def __init__(self) -> None:
        self.found: list[list[Any]] = []
        self._body = b""

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.found.append(read_body(self._body))


def read_body(body: bytes) -> list[Any]:
    """Read the messages of one body: JSON, or events."""
    if body.startswith((b"{", b"[")):
        return read_all([body])
    lines = [line[5:].strip() for line in body.split(b"\n") if line.startswith(b"data:")]
    return read_all([line for line in lines if line.startswith((b"{", b"["))])


def http_bodies(data: bytes) -> list[list[Any]]:
    """Return the messages of each HTTP answer."""
    bodies = Bodies()
    if data:
        with suppress(HttpParserError):  # the answer to a HEAD says the length of a body that it has not
            HttpResponseParser(bodies).feed_data(data)
    return bodies.found


class AsgiTarget(Target):
    """One message a POST, below somebody else's HTTP server."""

    one_answer_each = True

    def __init__(self, loop: WireLoop, server: AnyServer, version: str) -> None:
        super().__init__(loop, server)
        self.version = version
        self.modern = version == NEWEST
        self.name = f"asgi {version}"
        self.session = ""
        self.events: list[dict[str, Any]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.app: Any = None

    @property
    def opened(self) -> bool:
        return self.app is not None

    async def start(self) -> None:
        self.app = self.server.asgi()
        await self.app.start()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await self.app.stop()

    def forget_session(self) -> None:
        self.session = ""

    async def open(self) -> None:
        if not self.modern and not self.session:
            self.headers: dict[str, str] = {}
            self.send(initialize(self.version))
            await self.quiet(1)
            headers = dict(self.events[0]["headers"])
            self.session = headers[b"mcp-session-id"].decode()
            self.headers = {"mcp-session-id": self.session, "mcp-protocol-version": self.version}
            self.send(INITIALIZED)
            await self.quiet(1)

    def encode(self, case: Case, frame: bytes) -> bytes:
        if self.modern:
            self.headers = mirrored_headers(case.method, case.params or {}, version=NEWEST)
        elif case.method == "initialize":
            self.headers = {}
        else:
            self.headers = {"mcp-session-id": self.session, "mcp-protocol-version": self.version}
        return frame

    def send(self, data: bytes) -> None:
        fixed = {
            "host": "127.0.0.1",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        headers = [(name.lower().encode(), value.encode()) for name, value in {**fixed, **self.headers}.items()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "scheme": "http",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 5000),
        }
        parts = [data[at : at + 65536] for at in range(0, len(data), 65536)]
        waiting = deque(
            {"type": "http.request", "body": part, "more_body": at < len(parts)} for at, part in enumerate(parts, 1)
        )
        gone = self.loop.create_future()
        events: list[dict[str, Any]] = []
        self.events = events  # what is said on a stream that still stands is not part of this answer

        async def receive() -> Any:
            if waiting:
                return waiting.popleft()
            await gone
            return {"type": "http.disconnect"}

        async def send(event: Any) -> None:
            events.append(event)

        task = asyncio.ensure_future(self.app(scope, receive, send))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def sent(self) -> tuple[int, int]:
        size = sum(len(event.get("body", b"")) for event in self.events)
        ended = sum(event["type"] == "http.response.body" and not event.get("more_body") for event in self.events)
        return size, ended

    def heard(self) -> list[Any]:
        body = b"".join(event.get("body", b"") for event in self.events)
        self.events.clear()
        return read_body(body)


class TlsTarget(TcpTarget):
    """Lines over TCP, sealed by TLS: the records of both sides pass through memory."""

    def __init__(self, loop: WireLoop, server: AnyServer, version: str, folder: Path) -> None:
        super().__init__(loop, server, version)
        self.name = f"tls {version}"
        self.certificate, self.key = write_certificate(folder)
        self.record = 16 * 1024
        """Bytes that are sealed together."""

    def make(self) -> Any:
        return Tcp(port=0, framing="line", certificate=self.certificate, private_key=self.key)

    async def arrive(self) -> Wire:
        self.wire = await super().arrive()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.sealed, self.outgoing, self.clear = ssl.MemoryBIO(), ssl.MemoryBIO(), b""
        self.tls = context.wrap_bio(self.sealed, self.outgoing)
        while True:
            self.sealed.write(self.wire.take())
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.wire.feed(self.outgoing.read())
                await asyncio.sleep(0)
        self.wire.feed(self.outgoing.read())
        await asyncio.sleep(0)
        return self.wire

    def seal(self, data: bytes) -> bytes:
        """Write bytes as records of TLS."""
        for start in range(0, len(data), self.record):
            self.tls.write(data[start : start + self.record])
        return self.outgoing.read()

    def send(self, data: bytes) -> None:
        assert self.wire is not None
        self.wire.feed(data)

    def encode(self, case: Case, frame: bytes) -> bytes:
        return self.seal(super().encode(case, frame))

    def unseal(self) -> None:
        """Read what the server has written."""
        assert self.wire is not None
        self.sealed.write(self.wire.take())
        try:
            while part := self.tls.read(256 * 1024):
                self.clear += part
        except ssl.SSLError:
            pass

    def sent(self) -> tuple[int, int]:
        self.unseal()
        return len(self.clear), self.clear.count(b"\n")

    def heard(self) -> list[Any]:
        if self.wire is None:
            return []
        self.unseal()
        clear, self.clear = self.clear, b""
        return read_all([line for line in clear.split(b"\n") if line.startswith((b"{", b"["))])


class AsgiSocketTarget(Target):
    """One message a text, below somebody else's WebSocket server."""

    def __init__(self, loop: WireLoop, server: AnyServer, version: str) -> None:
        super().__init__(loop, server)
        self.version = version
        self.modern = version == NEWEST
        self.name = f"asgi websocket {version}"
        self.events: list[dict[str, Any]] = []
        self.serving: asyncio.Future[None] | None = None

    @property
    def opened(self) -> bool:
        return self.serving is not None and not self.serving.done() and not self.closes

    @property
    def closes(self) -> bool:
        """Whether the server has closed the WebSocket."""
        return any(event["type"] == "websocket.close" for event in self.events)

    async def start(self) -> None:
        self.app = self.server.asgi(websocket={"path": "/ws"})
        await self.app.start()

    async def stop(self) -> None:
        await self._end()
        await self.app.stop()

    async def _end(self) -> None:
        if self.serving is not None:
            self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
            await asyncio.wait([self.serving])
        self.serving = None
        self.events = []

    async def open(self) -> None:
        if self.opened:
            return
        await self._end()
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.incoming.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "path": "/ws",
            "raw_path": b"/ws",
            "query_string": b"",
            "scheme": "ws",
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1")],
            "subprotocols": ["mcp"],
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 5000),
        }

        async def send(event: Any) -> None:
            self.events.append(event)

        self.serving = asyncio.ensure_future(self.app(scope, self.incoming.get, send))
        while not self.events:
            await asyncio.sleep(0)
        assert self.events.pop(0)["type"] == "websocket.accept"
        if not self.modern:
            self.send(initialize(self.version))
            self.send(INITIALIZED)
            await self.quiet(1)

    def encode(self, case: Case, frame: bytes) -> bytes:
        return frame

    def send(self, data: bytes) -> None:
        # What is no text never gets through an ASGI server.
        self.incoming.put_nowait({"type": "websocket.receive", "text": data.decode(errors="replace")})

    def sent(self) -> tuple[int, int]:
        texts = [event["text"] for event in self.events if event["type"] == "websocket.send"]
        return sum(map(len, texts)), len(texts)

    def heard(self) -> list[Any]:
        texts = [event["text"].encode() for event in self.events if event["type"] == "websocket.send"]
        self.events = [event for event in self.events if event["type"] == "websocket.close"]
        return read_all(texts)


# -- what a hostile server needs: the requests a client wrote


class HttpExchange:
    """Reads what a client writes, and returns the JSON of its requests."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.closed = False
        """Whether the client has said that it closes."""

    def requests(self, wire: Wire) -> list[Any]:
        """Return the messages written since the last time."""
        data = wire.take()
        if self.kind in ("tcp", "child"):
            return read_all([line for line in data.split(b"\n") if line])
        if self.kind == "websocket":
            frames = ws_client_frames(data)
            self.closed = any(opcode == 8 for opcode, _ in frames)
            return read_all([payload for opcode, payload in frames if opcode == 1 and payload])
        return http_requests(data)


def ws_client_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return the opcodes and payloads of masked frames."""
    frames, at = [], 0
    while at + 2 <= len(data):
        size, start = data[at + 1] & 0x7F, at + 2
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, start = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        key, start = data[start : start + 4], start + 4
        payload = data[start : start + size]
        mask = (key * (size // 4 + 1))[: len(payload)]
        unmasked = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
        frames.append((data[at] & 0x0F, unmasked.to_bytes(len(payload), "big")))
        at = start + size
    return frames


class HttpRequests:
    """Collects the bodies of HTTP requests."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._body = b""

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.found.extend(read_all([self._body]) if self._body else [{"http": True}])


def http_requests(data: bytes) -> list[Any]:
    """Return the messages of HTTP requests; one without a body is `{"http": True}`."""
    parsed = HttpRequests()
    if data:
        HttpRequestParser(parsed).feed_data(data)
    return parsed.found


def ws_accept(request: bytes) -> bytes:
    """Write a server's answer to the opening of a WebSocket."""
    found = re.search(rb"(?i)sec-websocket-key: (\S+)", request)
    key = found[1] if found is not None else b""
    value = base64.b64encode(hashlib.sha1(key + GUID).digest())
    protocol = b"Sec-WebSocket-Protocol: mcp\r\n" if b"sec-websocket-protocol" in request.lower() else b""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"%bSec-WebSocket-Accept: %b\r\n\r\n" % (protocol, value)
    )
