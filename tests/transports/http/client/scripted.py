"""A server that says over HTTP just what a test tells it, byte for byte where that matters."""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.wire.sse import event


def _lines(headers: dict[str, str]) -> bytes:
    return "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()).encode()


Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Seen:
    """One request as it came, and the way back."""

    def __init__(self, line: str, headers: dict[str, str], body: bytes, way: Way) -> None:
        self.headers, self.body = headers, body
        self._reader, self._writer = way
        self.verb, self.target, _ = line.split(" ")
        self.message: Any = json.loads(body) if body else None
        self.connection = id(self._writer)
        self.keep = True

    @property
    def method(self) -> str:
        """The JSON-RPC method, or the HTTP one where there is no message."""
        if isinstance(self.message, dict):
            return str(self.message.get("method", "response"))
        return "batch" if self.message else self.verb

    @property
    def id(self) -> Any:
        return self.message["id"]

    # -- answering

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    def status(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.raw(b"HTTP/1.1 %d Said\r\n%bcontent-length: %d\r\n\r\n%b" % (status, _lines(headers), len(body), body))

    def json(self, message: Any, status: int = 200, **headers: str) -> None:
        self.status(status, json.dumps(message).encode(), content_type="application/json", **headers)

    def result(self, result: Any, **headers: str) -> None:
        self.json({"jsonrpc": "2.0", "id": self.id, "result": result}, **headers)

    def text(self, text: str) -> None:
        """Answer a tool call."""
        self.result(text_result(text))

    def error(self, code: int, message: str = "no", status: int = 200, **error: Any) -> None:
        self.json({"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": message, **error}}, status)

    def stream(self, **headers: str) -> None:
        """Begin an answer that is a stream."""
        self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + _lines(headers))
        self.raw(b"transfer-encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, message: Any = b"", mark: str | None = None, retry: int | None = None, name: Any = None) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.chunk(event(data, id=mark, retry=retry, name=name))

    def event_result(self, result: Any, mark: str | None = None, identity: Any = None) -> None:
        self.event({"jsonrpc": "2.0", "id": self.id if identity is None else identity, "result": result}, mark)

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """Cut the connection."""
        self.keep = False
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has cut the connection."""
        with suppress(ConnectionError):
            await self._reader.read(1)
        self.keep = False

    async def flushed(self) -> None:
        await self._writer.drain()
        await asyncio.sleep(0.01)


Script = Callable[[Seen], Any]


class Hosted(ABC):
    """Something that takes connections on a port of this machine, inside `async with`, and leaves no task behind."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0, ssl=self._tls, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await self._serve(reader, writer)

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak on one connection until its end."""


class Site(Hosted):
    """The server: `async with Site("stateless") as site`; what it says to each method is told with `on`."""

    def __init__(self, era: str = "stateless", *, tls: ssl.SSLContext | None = None, **capabilities: Any) -> None:
        super().__init__(tls)
        self.era = era
        self.capabilities = {"tools": {}, **capabilities}
        self.seen: list[Seen] = []
        self.connections = 0
        self._scripts: dict[str, list[Script]] = {}
        self._news = asyncio.Event()
        self.sessions = 0

    async def stop_listening(self) -> None:
        """Refuse new connections."""
        self._server.close()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/mcp"

    def on(self, method: str, *scripts: Script) -> None:
        """Answer a method so, one script after another; the last stays."""
        self._scripts[method] = list(scripts)

    def got(self, method: str) -> list[Seen]:
        """Return the requests of a method."""
        return [seen for seen in self.seen if seen.method == method]

    async def until(self, true: Callable[[], Any]) -> Any:
        """Wait until what has come makes something true."""
        while not (value := true()):
            self._news.clear()
            await self._news.wait()
        return value

    async def heard(self, method: str, count: int = 1) -> Seen:
        await self.until(lambda: len(self.got(method)) >= count)
        return self.got(method)[count - 1]

    # -- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        seen = Seen(line, headers, body, (reader, writer))
        self.seen.append(seen)
        self._news.set()
        scripts = self._scripts.get(seen.method)
        script = self._usual if scripts is None else scripts.pop(0) if len(scripts) > 1 else scripts[0]
        said = script(seen)
        if inspect.isawaitable(said):
            await said
        if seen.keep:
            await writer.drain()
        return seen.keep

    def _usual(self, seen: Seen) -> None:
        match seen.method:
            case "server/discover" if self.era == "stateless":
                facts = {"supportedVersions": [STATELESS.version], "capabilities": self.capabilities}
                seen.result({"resultType": "complete", **facts})
            case "initialize":
                self.sessions += 1
                info = {"name": "scripted", "version": "1"}
                facts = {"capabilities": self.capabilities, "serverInfo": info}
                seen.result({"protocolVersion": HANDSHAKE.version, **facts}, mcp_session_id=f"session-{self.sessions}")
            case "tools/list":
                seen.result({"tools": []})
            case "tools/call":
                seen.text("done")
            case "GET":
                seen.status(405, allow="POST")
            case "DELETE":
                seen.status(200)
            case _ if isinstance(seen.message, dict) and "id" in seen.message and "method" in seen.message:
                seen.error(-32601, "Method not found", 404 if self.era == "stateless" else 200)
            case _:
                seen.status(202)


def text_result(text: str) -> dict[str, Any]:
    """Return the result of a tool that says something."""
    return {"content": [{"type": "text", "text": text}], "resultType": "complete"}


def tool(name: str, *, properties: Any = None, **hints: bool) -> dict[str, Any]:
    """Return a tool as it is listed."""
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "inputSchema": schema, **({"annotations": hints} if hints else {})}
