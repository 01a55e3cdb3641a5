"""An ASGI server of one WebSocket, as a test plays it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from raw_websocket import INITIALIZE, message, new_server

from ferrule import Server

PATH = "/mcp/ws"
CONNECT = {"type": "websocket.connect"}
LEFT = {"type": "websocket.disconnect", "code": 1000}


class Desk:
    """Hands an app what a peer says, and keeps what the app says."""

    def __init__(self, app: Any, path: str = PATH, **changes: Any) -> None:
        headers = changes.pop("headers", {})
        self.scope = {
            "type": "websocket",
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "subprotocols": ["mcp"],
            "client": ("203.0.113.9", 4711),
            "scheme": "ws",
            "extensions": {"websocket.http.response": {}},
            **changes,
        }
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.said.put_nowait(CONNECT)
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.readable = asyncio.Event()
        """While it is clear, the peer takes nothing."""
        self.readable.set()
        self.broken = False
        self.running = asyncio.ensure_future(app(self.scope, self.said.get, self._send))

    async def _send(self, event: Any) -> None:
        await self.readable.wait()
        if self.broken:
            raise RuntimeError("the socket is gone")
        self.heard.put_nowait(event)

    def say(self, text: str | bytes) -> None:
        """Let the peer send a text, or bytes as binary."""
        kind = "text" if isinstance(text, str) else "bytes"
        self.said.put_nowait({"type": "websocket.receive", kind: text})

    async def hear(self) -> Any:
        """Wait for what the app does next."""
        return await self.heard.get()

    async def answer(self) -> Any:
        """Wait for a message of the app, one text with its line feed."""
        event = await self.hear()
        assert event["type"] == "websocket.send", event
        assert event["text"].endswith("\n")
        return json.loads(event["text"])

    async def greet(self) -> Desk:
        """Be accepted, and make the handshake."""
        assert await self.hear() == {"type": "websocket.accept", "subprotocol": "mcp"}
        self.say(message(0, "initialize", INITIALIZE).decode())
        assert (await self.answer())["id"] == 0
        self.say('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    async def leave(self) -> None:
        """Hang up, and wait until the app has noticed."""
        self.said.put_nowait(LEFT)
        await self.running


@asynccontextmanager
async def site(server: Server | None = None, **options: Any) -> AsyncIterator[Any]:
    """Yield the server as an ASGI app while the block runs; afterwards no link and no task is left."""
    server = server or new_server()
    before = asyncio.all_tasks()
    app = server.asgi(websocket=options.pop("websocket", True), **options)
    yield app
    await app.stop()
    assert len(server.host.links) == 0
    assert asyncio.all_tasks() - before == set()
