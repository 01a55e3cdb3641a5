"""The small correct server over HTTP, spoilt in one place."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec import Struct
from plain_server import META, NEW_VERSION, OLD_VERSIONS, PlainServer

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Asked(Struct):
    """One HTTP request."""

    method: str
    headers: dict[str, str]
    body: bytes
    message: Any = None

    @property
    def rpc(self) -> str:
        """The method of the message."""
        return str(self.message.get("method")) if isinstance(self.message, dict) else ""


class Answered(Struct):
    """One HTTP answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}


Spoilt = Callable[[Asked, Answered], Answered]


def refused(status: int, code: int, identity: Any = None) -> Answered:
    body = {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": "no"}}
    return Answered(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


class HttpServer:
    """Serves a `PlainServer` over HTTP."""

    def __init__(self, spoil: Spoilt | None = None, *, streams: bool = False) -> None:
        self.plain = PlainServer()
        self.spoil: Spoilt = spoil or (lambda asked, answered: answered)
        self.sessions: set[str] = set()
        self.deleted = 0
        self.streams = streams
        """Whether answers are streams of events."""

    def answer(self, asked: Asked) -> Answered:
        headers = asked.headers
        if "origin" in headers or not headers["host"].startswith("127.0.0.1"):
            return Answered(403)
        if asked.method == "GET":
            return Answered(405)
        if asked.method == "DELETE":
            self.sessions.discard(headers.get("mcp-session-id", ""))
            self.deleted += 1
            return Answered(200)
        if headers.get("content-type") != "application/json":
            return Answered(415)
        try:
            asked.message = json.loads(asked.body)
        except ValueError:
            return refused(400, -32700)
        meta = asked.message.get("params", {}).get("_meta", {}) if isinstance(asked.message, dict) else {}
        if f"{META}protocolVersion" in meta:
            return self.stateless(asked, meta)
        return self.handshake(asked)

    def handshake(self, asked: Asked) -> Answered:
        session = asked.headers.get("mcp-session-id")
        more: dict[str, str] = {}
        if asked.rpc == "initialize":
            session = f"session-{len(self.sessions) + self.deleted}"
            self.sessions.add(session)
            more["Mcp-Session-Id"] = session
        elif session is None:
            return Answered(400)
        elif session not in self.sessions:
            return Answered(404)
        elif asked.headers.get("mcp-protocol-version", OLD_VERSIONS[0]) not in OLD_VERSIONS:
            return Answered(400)
        return self.replied(asked, more)

    def stateless(self, asked: Asked, meta: dict[str, Any]) -> Answered:
        headers, message = asked.headers, asked.message
        identity = message.get("id")
        if headers.get("mcp-protocol-version") != meta[f"{META}protocolVersion"]:
            return refused(400, -32020, identity)
        if "id" in message and headers.get("mcp-method") != message["method"]:
            return refused(400, -32020, identity)
        if message["method"] in NAMED and headers.get("mcp-name") != message["params"][NAMED[message["method"]]]:
            return refused(400, -32020, identity)
        answered = self.replied(asked, {})
        code = json.loads(answered.body or b"{}").get("error", {}).get("code") if not self.streams else None
        if code == -32601:
            answered.status = 404
        elif code in (-32022,) or f"{META}clientCapabilities" not in meta:
            answered.status = 400
        return answered

    def replied(self, asked: Asked, more: dict[str, str]) -> Answered:
        lines = self.plain.read(asked.body)
        if not lines:
            return Answered(202, headers=more)
        if self.streams:
            return Answered(200, b"data: " + lines[0] + b"\n\n", {**more, "Content-Type": "text/event-stream"})
        return Answered(200, lines[0], {**more, "Content-Type": "application/json"})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {}
            for line in head[1:]:
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            asked = Asked(head[0].partition(" ")[0], headers, body)
            answered = self.spoil(asked, self.answer(asked))
            lines = [f"HTTP/1.1 {answered.status} X", f"Content-Length: {len(answered.body)}"]
            lines += [f"{name}: {value}" for name, value in answered.headers.items()]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + answered.body)
            await writer.drain()
        writer.close()

    @contextlib.asynccontextmanager
    async def on_port(self) -> AsyncIterator[str]:
        """Serve on a port while the block runs; gives the URL."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        finally:
            server.close()


__all__ = ["NEW_VERSION", "Answered", "Asked", "HttpServer", "refused"]
