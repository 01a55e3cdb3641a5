"""Peers that send whatever they like over real pipes and sockets, also what no client of ours would send."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ferrule import Http, Server, Stdio, Tcp, WebSocket

PATIENCE = 60.0
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
REVISIONS = {"handshake": HANDSHAKE, "stateless": STATELESS}
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
INITIALIZE = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
NAMELESS = "nameless"
"""Stands for the id of an answer that has none."""


class Wire:
    """One peer of a server; what it asks is answered by id."""

    def __init__(self, era: str) -> None:
        self.era = era

    async def begin(self) -> None:
        """Make the handshake, where the era has one."""
        if self.era == "handshake":
            await self.ask(0, "initialize", INITIALIZE)
            await self.tell("notifications/initialized", {})

    def request(self, identity: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Write a request as the era has it."""
        if self.era == "stateless":
            params = {**params, "_meta": META}
        return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}

    async def ask(self, identity: Any, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its answer."""
        raise NotImplementedError

    async def send_garbage(self, data: bytes) -> Any:
        """Send what is no message, and return the answer."""
        raise NotImplementedError

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        raise NotImplementedError

    async def cancel(self, identity: Any) -> None:
        """Cancel a request."""
        await self.tell("notifications/cancelled", {"requestId": identity, "reason": "enough"})

    async def close(self) -> None:
        """Go away."""


class LineWire(Wire):
    """A peer on a stream of lines."""

    def __init__(self, era: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(era)
        self._reader, self._writer = reader, writer
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._reading = asyncio.ensure_future(self._read())

    async def ask(self, identity: Any, method: str, params: dict[str, Any]) -> Any:
        return await self._answered(identity, json.dumps(self.request(identity, method, params)).encode())

    async def send_garbage(self, data: bytes) -> Any:
        return await self._answered(NAMELESS, data)

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    async def _answered(self, identity: Any, frame: bytes) -> Any:
        self._waiting[identity] = answer = asyncio.get_running_loop().create_future()
        self.write(frame)
        return await asyncio.wait_for(answer, PATIENCE)

    async def _read(self) -> None:
        while frame := await self.read():
            answer = json.loads(frame)
            identity = answer.get("id")
            self._waiting.pop(NAMELESS if identity is None else identity).set_result(answer)

    def write(self, frame: bytes) -> None:
        """Write one frame."""
        self._writer.write(frame + b"\n")

    async def read(self) -> bytes:
        """Read one frame; empty at the end."""
        return await self._reader.readline()

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        await asyncio.wait([self._reading])


class SocketWire(LineWire):
    """A peer on a WebSocket."""

    def write(self, frame: bytes) -> None:
        assert len(frame) < 65536
        length = bytes([0x80 | len(frame)]) if len(frame) < 126 else bytes([0x80 | 126]) + len(frame).to_bytes(2)
        self._writer.write(b"\x81" + length + bytes(4) + frame)  # a mask of zeros changes nothing

    async def read(self) -> bytes:
        try:
            head = await self._reader.readexactly(2)
            size = head[1]
            if size >= 126:
                size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8))
            return await self._reader.readexactly(size) if head[0] == 0x81 else b""
        except asyncio.IncompleteReadError:
            return b""


class HttpWire(Wire):
    """A peer that opens a connection for each request."""

    def __init__(self, era: str, port: int) -> None:
        super().__init__(era)
        self._port = port
        self._session = ""
        self._open: dict[Any, asyncio.StreamWriter] = {}

    async def ask(self, identity: Any, method: str, params: dict[str, Any]) -> Any:
        headers = {"Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        body = json.dumps(self.request(identity, method, params)).encode()
        return await self.post(identity, body, headers)

    async def send_garbage(self, data: bytes) -> Any:
        return await self.post(NAMELESS, data, {})

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        await self.post(method, json.dumps(body).encode(), {})

    async def cancel(self, identity: Any) -> None:
        if self.era == "stateless":
            self._open.pop(identity).close()
        else:
            await super().cancel(identity)

    async def post(self, identity: Any, body: bytes, headers: dict[str, str]) -> Any:
        """Send one body and return what it is answered with, None for nothing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._open[identity] = writer
        lines = {
            "Host": "localhost",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }
        if self.era == "stateless" or self._session:
            lines["Mcp-Protocol-Version"] = REVISIONS[self.era]
        if self._session:
            lines["Mcp-Session-Id"] = self._session
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        answered, _, content = (await asyncio.wait_for(reader.read(), PATIENCE)).partition(b"\r\n\r\n")
        writer.close()
        for line in answered.decode().split("\r\n"):
            name, _, value = line.partition(": ")
            if name.lower() == "mcp-session-id":
                self._session = value
        start, end = content.find(b"{"), content.rfind(b"}")
        return None if start < 0 else json.loads(content[start : end + 1])

    async def close(self) -> None:
        for writer in self._open.values():
            writer.close()


@asynccontextmanager
async def serving(app: Server, listener: Any) -> AsyncIterator[Any]:
    """Let a listener serve, and end it."""
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE)
        yield listener
    finally:
        await app.stop(5.0)
        await serving


@asynccontextmanager
async def raw_wire(name: str, era: str, app: Server) -> AsyncIterator[Wire]:
    """Serve over one transport, and connect a raw peer to it."""
    if name == "stdio":
        async with _piped(era, app) as wire:
            yield wire
        return
    listeners: dict[str, Any] = {"tcp": Tcp, "http": Http, "websocket": WebSocket}
    async with serving(app, listeners[name](port=0)) as listener:
        port = listener.address[1]
        wire = HttpWire(era, port) if name == "http" else await _connected(name, era, port)
        try:
            await wire.begin()
            yield wire
        finally:
            await wire.close()


async def _connected(name: str, era: str, port: int) -> Wire:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if name == "tcp":
        return LineWire(era, reader, writer)
    key = base64.b64encode(bytes(16)).decode()
    writer.write(
        b"GET /mcp/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        + f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return SocketWire(era, reader, writer)


@asynccontextmanager
async def _piped(era: str, app: Server) -> AsyncIterator[Wire]:
    """Serve over two pipes, as over stdin and stdout."""
    loop = asyncio.get_running_loop()
    their_stdin, our_end = os.pipe()
    our_start, their_stdout = os.pipe()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), open(our_start, "rb", 0))  # noqa: SIM115
    writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, open(our_end, "wb", 0))  # noqa: SIM115
    try:
        async with serving(app, Stdio(read_fd=their_stdin, write_fd=their_stdout)):
            wire = LineWire(era, reader, asyncio.StreamWriter(writing, flow, reader, loop))
            await wire.begin()
            yield wire
            await wire.close()
    finally:
        reading.close()
        writing.close()
        os.close(their_stdin)
        os.close(their_stdout)
