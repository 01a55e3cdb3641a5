"""Doors with a server behind them, asked without a socket: every answer is kept as it was written."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from ferrule import Context, Server
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.sse import Event, SseParser

OLDEST = "2024-11-05"


class Page:
    """The way back of one request, and all that was written to it."""

    def __init__(self) -> None:
        self.status = 0
        self.head: dict[str, str] = {}
        self.body = b""
        self.whole = self.cut = self.gone = False
        self.backlog = 0
        self.unacknowledged: int | None = None
        self._lost: Callable[[], None] | None = None
        self._events: list[Event] = []
        self._parser = SseParser()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        assert not self.status, "answered twice"
        self.status = status
        self.head = dict(line.split(": ", 1) for line in head.decode().splitlines())

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        if not self.gone:
            self.begin(status, head)
            self.body, self.whole = body, True

    def write(self, data: bytes) -> None:
        if not self.gone:
            assert self.status, "a part before the beginning"
            self.body += data
            self._events += self._parser.feed(data)

    def finish(self) -> None:
        self.whole = self.gone = True

    def abort(self) -> None:
        self.cut = self.gone = True

    def watch(self, lost: Callable[[], None]) -> None:
        self._lost = lost

    async def wait_writable(self) -> None:
        """There is room for everything."""

    def lose(self) -> None:
        """The reader goes away."""
        self.gone = True
        if self._lost is not None:
            self._lost()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Event]:
        """What was said on the stream, after where to post."""
        return [each for each in self._events if each.name != "endpoint"]

    @property
    def endpoint(self) -> str:
        """Where the stream says to post."""
        return next(each.data.decode() for each in self._events if each.name == "endpoint")

    @property
    def messages(self) -> list[Any]:
        return [json.loads(each.data) for each in self._events if each.name in {"message", "notification"}]

    async def until(self, count: int) -> list[Any]:
        """Wait for as many messages."""
        for _ in range(6000):
            if len(self.messages) >= count:
                break
            await asyncio.sleep(0.01)
        assert len(self.messages) >= count, self.body
        return self.messages


class Desk:
    """Asks the doors."""

    def __init__(self, doors: HttpEndpoint) -> None:
        self.doors = doors

    def ask(self, method: str, url: str, body: bytes = b"", **headers: str) -> Page:
        path, _, query = url.partition("?")
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        named.setdefault(b"host", b"127.0.0.1:8000")
        page = Page()
        self.doors.handle(HttpRequest(method, path, query, named, body, "127.0.0.1"), page)
        return page

    async def get(self, url: str, **headers: str) -> Page:
        """Ask with GET, and let the answer begin."""
        page = self.ask("GET", url, **headers)
        for _ in range(5):
            await asyncio.sleep(0)
        return page

    def post(self, url: str, body: Any, **headers: str) -> Page:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", url, raw, **{"content_type": "application/json", **headers})

    async def connect(self, url: str = "/sse", version: str = OLDEST, **headers: str) -> Page:
        """Open a stream and make the handshake on it."""
        page = await self.get(url, **headers)
        await self.greet(page.endpoint, version)
        await page.until(1)
        return page

    async def greet(self, endpoint: str, version: str = OLDEST) -> None:
        """Make the handshake."""
        assert self.post(endpoint, initialize(version)).status == 202
        assert self.post(endpoint, {"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202


@contextlib.asynccontextmanager
async def desk(server: Server | None = None, **settings: Any) -> AsyncIterator[Desk]:
    """Open the doors of a server."""
    chosen = {"sse": True, **settings}
    doors = HttpEndpoint((server or new_server()).host, EndpointSettings(**chosen), bound_to="127.0.0.1")
    await doors.start()
    try:
        yield Desk(doors)
    finally:
        await doors.close()


def new_server(**options: Any) -> Server:
    server = Server("pair", version="1.0.0", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"

    @server.tool(structured_output=False)
    async def repeat(size: int) -> str:
        return "x" * size

    @server.tool
    async def roots(ctx: Context) -> str:
        return " ".join(str(root.uri) for root in await ctx.list_roots())

    @server.tool
    async def name_of(ctx: Context, header: str) -> str:
        return ctx.headers[header]

    @server.resource("note://one")
    async def note() -> str:
        return "one"

    return server


def initialize(version: str = OLDEST) -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "reader", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def call(identity: int, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}


def text(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])
