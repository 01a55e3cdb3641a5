"""The same endpoint as an ASGI app, to mount inside other applications.

Rule: what `start` enters is left by the same task of the same event loop: lifespans of users rely on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Unpack
from urllib.parse import quote

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.errors import SetupError
from ferrule.settings.option import read
from ferrule.supervision.scope import Scope
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.asgi.answer import AsgiAnswer, Event, QuietCalls, Receive, Send, refuse_websocket
from ferrule.transports.http.beside import UnderAsgi, under_asgi
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.heads import RETRY_AFTER, refuse
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import EndpointSettings
from ferrule.transports.shutdown import left_of_grace

if TYPE_CHECKING:
    from ferrule.transports.keywords import AsgiKeywords

logger = logging.getLogger("ferrule.http")

NO_WEBSOCKETS = "Forbidden: MCP is served over HTTP here, without WebSockets"
NewWebSocket = Callable[[Acceptor, Guard], UnderAsgi]
MAX_READING = 32 * 1024 * 1024
"""Bytes of all bodies that are being read."""
PATH_CHARACTERS = "/:@!$&'()*+,;=-._~"


class AsgiApp:
    """A server as an ASGI 3 application: serve it, or mount it anywhere; it starts when it is first needed."""

    def __init__(
        self,
        acceptor: HttpAcceptor,
        grace: float,
        path: str = "/mcp",
        websocket: bool | Mapping[str, object] = False,
        **options: Unpack[AsgiKeywords],
    ) -> None:
        self._acceptor = acceptor
        self._grace = grace
        # The application around it has its own health and metrics.
        given = {"path": path, "health": False, "metrics": False, **options}
        self._settings = read(EndpointSettings, given, "asgi", beside=["websocket"])
        self._new_websocket = under_asgi(websocket, self._settings.path)
        self._stay: LoopEndpoint | None = None

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, one WebSocket, or the lifespan of the whole."""
        kind = scope["type"]
        if kind == "http":
            stay = self._stay
            if stay is None or not stay.ready or stay.loop is not asyncio.get_running_loop():
                stay = await self._arrive()
            await stay.serve(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)
        elif kind == "websocket":
            await (await self._arrive()).converse(scope, receive, send)
        else:
            raise SetupError(f"this ASGI app serves http, websocket and lifespan, not {kind}")

    @asynccontextmanager
    async def lifespan(self, outer: object = None) -> AsyncIterator[None]:
        """Start and stop together with the application it is mounted in: `FastAPI(lifespan=mcp.lifespan)`."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def start(self) -> None:
        """Get ready now, not at the first request; raises what the server's own lifespan raises."""
        if self._stay is not None and self._stay.endpoint.draining:
            self._stay = None
        await self._arrive()

    async def stop(self) -> None:
        """Answer what runs, then release everything; whatever comes later is refused."""
        if self._stay is not None and self._stay.ready:
            await self._stay.end(self._grace)

    async def _arrive(self) -> LoopEndpoint:
        stay = self._stay
        if stay is None or stay.loop is not asyncio.get_running_loop():
            if stay is not None and stay.loop.is_running():
                raise SetupError("a server lives in one event loop at a time, and another one runs this ASGI app now")
            stay = self._stay = LoopEndpoint(self._acceptor, self._settings, self._new_websocket, stay)
        try:
            await stay.wait_ready()
        except Exception:
            # Whoever comes next tries again.
            if self._stay is stay:
                self._stay = None
            raise
        return stay

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as reason:
            logger.exception("the server could not start")
            await send({"type": "lifespan.startup.failed", "message": str(reason)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await self.stop()
        except Exception as reason:
            logger.exception("the server did not stop in order")
            await send({"type": "lifespan.shutdown.failed", "message": str(reason)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


class LoopEndpoint:
    """The endpoint in one event loop, from its start to its end."""

    def __init__(
        self,
        acceptor: HttpAcceptor,
        settings: EndpointSettings,
        new_websocket: NewWebSocket | None,
        before: LoopEndpoint | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.endpoint = HttpEndpoint(acceptor, settings, bound_to="")
        self._websocket: UnderAsgi | None = None
        if new_websocket is not None:
            self._websocket = new_websocket(acceptor, self.endpoint.guard)
        self.ready = False
        self._acceptor = acceptor
        self._before = before
        self._left = False
        self._started = self.loop.create_future()
        self._leaving = asyncio.Event()
        self._quiet_calls = QuietCalls(self.loop)
        self._requests = Account("requests being read", MAX_READING, within=process.requests)
        self._keeper = Scope(self.loop).spawn(self._keep())

    async def _keep(self) -> None:
        before = self._before
        self._before = None
        try:
            if before is not None:
                await before.leave_late()
            await self.endpoint.start()
        except Exception as reason:
            self._left = True
            self._started.set_exception(reason)
            return
        self.ready = True
        self._started.set_result(None)
        try:
            # Where no lifespan tells of the end, the end of the loop does: it cancels this task.
            await self._leaving.wait()
        finally:
            self._left = True
            await self.endpoint.close()

    async def wait_ready(self) -> None:
        """Wait until requests can be handled; raises what kept us from it."""
        await asyncio.wait([self._started])
        self._started.result()

    async def end(self, grace: float) -> None:
        """Answer what runs, within `grace` seconds, then release everything."""
        until = self.loop.time() + grace
        try:
            if self._websocket is not None:
                self._websocket.draining = True
            await self.endpoint.drain(grace)
            if self._websocket is not None:
                await self._websocket.close(left_of_grace(until))
        finally:
            self._leaving.set()
            await asyncio.wait([self._keeper])
        self._keeper.result()

    async def leave_late(self) -> None:
        """Leave what was entered in a loop that was closed while its tasks still ran."""
        if not self._left:
            self._left = True
            try:
                await self._acceptor.leave()
            except Exception:
                logger.exception("what was started in a closed event loop did not end in order")

    async def serve(self, scope: Event, receive: Receive, send: Send) -> None:
        """Read a request, and stay with it until it is answered."""
        endpoint = self.endpoint
        request = _request(scope, endpoint)
        answer = AsgiAnswer(request.method, receive, send, self._quiet_calls)
        most = endpoint.settings.max_body_size
        body = await _read(receive, request.headers.get(b"content-length", b""), most, self._requests)
        if body is GONE:
            return
        if body is TOO_LARGE:
            refuse(answer, 413, f"Too large: the limit is {most} bytes")
        elif body is NO_ROOM:
            refuse(answer, 503, "Unavailable: too many requests are being read", RETRY_AFTER)
        else:
            assert isinstance(body, bytes)
            request.body = body
            endpoint.handle(request, answer)
        await answer.deliver()

    async def converse(self, scope: Event, receive: Receive, send: Send) -> None:
        """Open a WebSocket and stay with it until its end."""
        if self._websocket is None:
            await receive()
            await refuse_websocket(scope, send, 403, NO_WEBSOCKETS)
        else:
            request = _request({**scope, "method": "GET"}, self.endpoint)
            request.path = _socket_path(scope, self.endpoint, self._websocket.path)
            await self._websocket.serve(scope, request, receive, send)


class Unread(Enum):
    """Why a body could not be read."""

    GONE = "the client went away in the middle of its request"
    TOO_LARGE = "it is longer than the limit"
    NO_ROOM = "all bodies that are being read take too much"


GONE, TOO_LARGE, NO_ROOM = Unread


async def _read(receive: Receive, announced: bytes, most: int, requests: Account) -> bytes | Unread:
    """Read a body; one that comes in pieces is on the account of the process until it is whole."""
    if announced.isdigit() and int(announced) > most:
        return TOO_LARGE
    parts: list[bytes] = []
    size = 0
    more = True
    try:
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return GONE
            part = event.get("body", b"")
            more = event.get("more_body", False)
            if size + len(part) > most:
                return TOO_LARGE
            if more or parts:
                if not requests.take(len(part)):
                    return NO_ROOM
                size += len(part)
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return b"".join(parts)
    finally:
        requests.give(size)


def _request(scope: Event, endpoint: HttpEndpoint) -> HttpRequest:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers:
            headers[name] = headers[name] + b", " + value.strip()
        else:
            headers[name] = value.strip()
    client = scope.get("client")
    return HttpRequest(
        scope["method"],
        _path(scope, endpoint),
        scope.get("query_string", b"").decode("latin-1"),
        headers,
        address=str(client[0]) if client else "",
        secure=scope.get("scheme") in ("https", "wss"),
        root=scope.get("root_path", "").rstrip("/"),
        scope=scope,
        http=scope.get("http_version", "1.1"),
    )


def _path(scope: Event, endpoint: HttpEndpoint) -> str:
    """Return the path below the place we are mounted at."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    own = endpoint.settings.path
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    if path in ("", "/"):
        # Mounted at our own path, the mount itself is what was meant: `api.mount("/mcp", app.asgi())`.
        if root.endswith(own):
            return own
        return "/"
    if path in endpoint.routes:
        return path
    raw: bytes | None = scope.get("raw_path")
    # Only there can an encoded slash be told from a slash.
    if root or not raw:
        return quote(path, PATH_CHARACTERS)
    return raw.decode("latin-1").partition("?")[0]


def _socket_path(scope: Event, endpoint: HttpEndpoint, wanted: str) -> str:
    """Return the path of a WebSocket below our mount; mounted at our own path, that path still counts as given."""
    path = _path(scope, endpoint)
    root = scope.get("root_path", "").rstrip("/")
    own = endpoint.settings.path
    if root.endswith(own) and own + path == wanted:
        return wanted
    return path
