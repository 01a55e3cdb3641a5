"""WebSocket alone: a listener that serves nothing else."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.settings.option import pick, read, require_known
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.endpoint.acceptor import verifier_routes
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.heads import TEXT_HEAD
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.routes.custom import RoutesEndpoint
from ferrule.transports.http.settings import EndpointSettings, EngineSettings
from ferrule.transports.shutdown import LAST_GRACE, ListenerEnd, left_of_grace
from ferrule.transports.sockets.bind import ListeningPlace
from ferrule.transports.verification import require_verified
from ferrule.transports.websocket.endpoint import WebSocketEndpoint
from ferrule.transports.websocket.settings import WebSocketSettings

if TYPE_CHECKING:
    from ferrule.transports.keywords import WebSocketListenerKeywords

logger = logging.getLogger("ferrule.http")

GUARDING = ("allowed_origins", "allowed_hosts")
SPARE_CONNECTIONS = 64
"""Room beside the WebSockets for requests that are refused with an answer."""


class Options(Struct, frozen=True):
    """The options of a listener, sorted by whom they are for."""

    websocket: WebSocketSettings
    engine: EngineSettings
    endpoint: EndpointSettings


def sort_options(options: Mapping[str, object]) -> Options:
    """Sort keyword options; refuses unknown ones."""
    known = {*WebSocketSettings.__struct_fields__, *EngineSettings.__struct_fields__, *GUARDING} - {
        "websocket",
        "http2",
    }
    require_known("ws", options, known)
    settings = read(WebSocketSettings, pick(WebSocketSettings, options), "ws")
    engine = pick(EngineSettings, options)
    engine["max_connections"] = settings.max_connections + SPARE_CONNECTIONS
    # A WebSocket begins with a request of HTTP/1.1.
    engine["http2"] = False
    guarding = {}
    for name in GUARDING:
        if name in options:
            guarding[name] = options[name]
    return Options(settings, read(EngineSettings, engine, "ws"), read(EndpointSettings, guarding, "ws"))


class WebSocket:
    """Lets clients reach us over WebSocket; the options are those of `WebSocketSettings` and `EngineSettings`."""

    carrier = "ws"

    def __init__(self, **options: Unpack[WebSocketListenerKeywords]) -> None:
        self._options = sort_options(options)
        self._engine: Engine | None = None
        self._endpoint: WebSocketEndpoint | None = None
        self._routes: RoutesEndpoint | None = None
        """What the verifier of the server offers, as how to get a token."""
        self._end = ListenerEnd()
        self.bound_port: int | None = None
        """The port to bind in place of that in the options; None for that one."""
        self.inherited: Sequence[socket.socket] = ()
        """The listening sockets to use instead of opening some."""

    @property
    def place(self) -> ListeningPlace:
        """Where it would listen."""
        return self._options.engine

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port we listen on; raises SetupError before we do."""
        if self._engine is None or not self._engine.address[1]:
            raise SetupError("this WebSocket does not listen yet: its address is known when it is ready")
        return self._engine.address

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        """Serve until closed."""
        if self._engine is not None:
            raise SetupError("this WebSocket serves already")
        options = self._options
        settings = options.engine
        if self.bound_port is not None:
            settings = structs.replace(settings, port=self.bound_port)
        require_verified(
            acceptor.verifier,
            settings.host,
            self.carrier,
            client_ca=settings.client_ca,
            allow_remote=settings.allow_remote,
        )
        endpoint = WebSocketEndpoint(acceptor, options.websocket, Guard(options.endpoint, settings.host))
        routes = verifier_routes(acceptor.verifier, options.websocket.path)
        self._routes = RoutesEndpoint(routes, Guard(options.endpoint, settings.host), endpoint.callers)
        engine = Engine(self._handle, settings, observer=acceptor.observer, failed=self._end.fail)
        self._engine = engine
        self._endpoint = endpoint
        self._acceptor = acceptor
        self._end.begin()
        await acceptor.enter()
        try:
            await engine.start(self.inherited)
            logger.info("serving on %s", self.url)
            ready()
            await self._end.wait()
        finally:
            await self._routes.close()
            await engine.close()
            await acceptor.leave()
            self._engine = self._endpoint = self._routes = None

    async def close(self, grace: float) -> None:
        """Accept nobody new, let running calls end within `grace` seconds, close with 1001, then end."""
        if self._engine is not None and self._endpoint is not None and self._engine.address[1]:
            until = asyncio.get_running_loop().time() + grace
            self._endpoint.draining = True
            self._engine.stop()
            await self._acceptor.drain(grace)
            await self._endpoint.close(left_of_grace(until))
            await self._engine.drain(LAST_GRACE)
        self._end.close()

    def _handle(self, request: HttpRequest, responder: Responder) -> None:
        assert self._endpoint is not None
        assert self._routes is not None
        path = self._options.websocket.path
        if request.path == path:
            self._endpoint.handle(request, responder)
        elif not self._routes.handle(request, responder):
            responder.reply(404, TEXT_HEAD, f"Not found; MCP is served at {path}\n".encode())

    @property
    def url(self) -> str:
        """Where clients find us, once we listen."""
        host, port = self.address
        name = f"[{host}]" if ":" in host else host
        scheme = "wss" if self._options.engine.certificate else "ws"
        return f"{scheme}://{name}:{port}{self._options.websocket.path}"
