"""A peer that says on a WebSocket just what a test tells it, byte for byte, and a server to say it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from ferrule import Context, Server
from ferrule.testing import run_in_virtual_time
from ferrule.transports.websocket.frames import CLOSE, FIN, MASKED, TEXT, apply_mask, frame_head
from ferrule.transports.websocket.listener import WebSocket

FOREVER = 1_000_000.0
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The example of RFC 6455 1.3."""
MASK = b"\x37\xfa\x21\x3d"
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def run_unhurried(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in virtual time, for as long as it takes."""
    run_in_virtual_time(asyncio.wait_for(work, FOREVER))


def opening(path: str = "/mcp/ws", *, without: str = "", **changes: str) -> bytes:
    """The request that opens a WebSocket, with headers changed, added or left out."""
    headers = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY.decode(),
        "Sec-WebSocket-Version": "13",
    }
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if name.lower() != without.lower()]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def frame(first: int, payload: bytes = b"", *, mask: bytes | None = MASK) -> bytes:
    """One frame, masked unless told otherwise."""
    if mask is None:
        return frame_head(first, len(payload)) + payload
    return frame_head(first, len(payload), MASKED) + mask + apply_mask(payload, mask)


def text(payload: bytes | str) -> bytes:
    return frame(FIN | TEXT, payload.encode() if isinstance(payload, str) else payload)


def close_frame(code: int, reason: bytes = b"") -> bytes:
    return frame(FIN | CLOSE, code.to_bytes(2) + reason)


def message(identity: Any, method: str, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}).encode()


def ping_message(identity: Any) -> bytes:
    """A request that is answered before any handshake."""
    return message(identity, "ping")


class Tester(Server):
    """A server with a tool that says much."""

    said = 0
    """How many messages of a flood were taken from it."""


def new_server(**options: Any) -> Tester:
    """A server that is patient with silent peers, so that only the WebSocket's own timers are seen."""
    server = Tester("tester", **{"init_timeout": None, "keepalive_interval": None, **options})

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def flood(count: int, size: int, ctx: Context) -> int:
        """Send messages as fast as the client takes them."""
        for _ in range(count):
            await ctx.info("x" * size)
            server.said += 1
        return count

    return server


@contextlib.asynccontextmanager
async def serving(server: Server | None = None, kind: Any = WebSocket, **options: Any) -> AsyncIterator[Any]:
    """Serve while the block runs, and end in order."""
    OPEN.clear()
    listener, ready = kind(port=0, **options), asyncio.Event()
    task = asyncio.ensure_future(listener.serve((server or new_server()).host, ready.set))
    while not (ready.is_set() or task.done()):
        # Addresses are looked up in a thread: a virtual clock must not run to the end of time meanwhile.
        await asyncio.sleep(0.001)
    if task.done():
        await task
    try:
        yield listener
    finally:
        while OPEN:
            await OPEN.pop().leave()
        await listener.close(0.5)
        await task


def url(listener: Any, path: str = "/mcp/ws") -> str:
    return f"ws://127.0.0.1:{listener.address[1]}{path}"


OPEN: list[RawWebSocket] = []
"""Those that are left when nothing is served any more."""


class RawWebSocket:
    """One connection to a server, opened or not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.head = b""
        OPEN.append(self)

    @classmethod
    async def connect(cls, listener: Any, **options: Any) -> RawWebSocket:
        """Connect, and say nothing."""
        return cls(*await asyncio.open_connection("127.0.0.1", listener.address[1], **options))

    @classmethod
    async def open(cls, listener: Any, request: bytes | None = None, **options: Any) -> RawWebSocket:
        """Connect, and make the opening handshake."""
        peer = await cls.connect(listener, **options)
        await peer.ask(request or opening())
        assert peer.status == 101, peer.head
        return peer

    async def ask(self, request: bytes) -> int:
        """Send the opening request and read the head of the answer; gives the status."""
        self.writer.write(request)
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        return self.status

    @property
    def status(self) -> int:
        return int(self.head.split(b" ")[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode().split("\r\n")[1:-2]
        return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    async def greet(self) -> RawWebSocket:
        """Make the handshake of MCP."""
        self.send(text(message(0, "initialize", INITIALIZE)))
        assert "result" in await self.answer()
        self.send(text('{"jsonrpc":"2.0","method":"notifications/initialized"}'))
        return self

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def frame(self) -> tuple[int, bytes]:
        """The first byte and the payload of the next frame; a server's is never masked."""
        first, size = await self.reader.readexactly(2)
        assert not size & MASKED
        if size >= 126:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
        return first, await self.reader.readexactly(size)

    async def answer(self) -> Any:
        """The JSON of the next text."""
        first, payload = await self.frame()
        assert first == FIN | TEXT, (first, payload)
        assert payload.endswith(b"\n")
        return json.loads(payload)

    async def closed_with(self) -> int:
        """Skip to the close frame; gives its code, 1005 where it has none. The connection must end behind it."""
        while True:
            first, payload = await self.frame()
            if first == FIN | CLOSE:
                return int.from_bytes(payload[:2]) if payload else 1005

    async def ended(self) -> bool:
        """Wait until the server has ended the connection; tells whether nothing came before."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def leave(self) -> None:
        """Go, without a word."""
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
