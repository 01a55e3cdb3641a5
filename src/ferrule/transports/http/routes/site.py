"""Routes on a port of their own, without an MCP server: the way back of a sign-in, a development server."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Self

from ferrule.errors import SetupError
from ferrule.identity.verifier import ALLOW_ALL
from ferrule.transports.http.endpoint.caller import Callers
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.heads import TEXT_HEAD
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.routes.custom import CustomRoute, RoutesEndpoint
from ferrule.transports.http.settings import EndpointSettings, EngineSettings

MAX_BODY_SIZE = 64 * 1024
MAX_CONNECTIONS = 256


class Site:
    """Serves routes at one address, to whoever can reach it."""

    def __init__(
        self,
        routes: Sequence[CustomRoute],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        allowed_origins: Collection[str] = (),
        max_body_size: int = MAX_BODY_SIZE,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._routes = routes
        self._guard = Guard(EndpointSettings(allowed_origins=allowed_origins), host)
        settings = EngineSettings(host=host, port=port, max_connections=max_connections, http2=False)
        self._engine = Engine(self._handle, settings, max_body_size=max_body_size)
        self._endpoint: RoutesEndpoint | None = None

    async def start(self) -> None:
        """Listen, and serve whoever comes; once only. Raises CarrierError."""
        if self._engine.address[1]:
            raise SetupError("a site is served once: make another")
        self._endpoint = RoutesEndpoint(self._routes, self._guard, Callers(ALLOW_ALL, self._guard))
        await self._engine.start()

    async def close(self, grace: float = 0.0) -> None:
        """Accept nobody new, let answers end within `grace` seconds, and release everything."""
        if self._endpoint is None:
            return
        self._engine.stop()
        await self._endpoint.close(grace)
        await self._engine.drain(grace)
        self._endpoint = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def port(self) -> int:
        """The port we listen on, once started."""
        return self._engine.address[1]

    @property
    def origin(self) -> str:
        """Where it is served, without a path; raises SetupError before it is."""
        host, port = self._engine.address
        if not port:
            raise SetupError("this site is not served yet: its address is known when it is")
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}"

    def _handle(self, request: HttpRequest, responder: Responder) -> None:
        endpoint = self._endpoint
        if endpoint is None or not endpoint.handle(request, responder):
            responder.reply(404, TEXT_HEAD, b"Not found\n")
