"""GraphQL as a listener, on our own HTTP engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Unpack

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.settings.option import pick, read, require_known
from ferrule.transports.contract import Acceptor
from ferrule.transports.graphql.settings import GraphqlSettings
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor, require_http
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.settings import EndpointSettings, EngineSettings
from ferrule.transports.shutdown import LAST_GRACE, left_of_grace
from ferrule.transports.verification import require_verified

if TYPE_CHECKING:
    from ferrule.transports.graphql.endpoint import GraphqlEndpoint
    from ferrule.transports.graphql.keywords import GraphqlKeywords

logger = logging.getLogger("ferrule.http")

GUARDING = ("allowed_origins", "allowed_hosts")
NOT_INSTALLED = "GraphQL needs graphql-core: install it with pip install 'ferrule[graphql]'"


class Options(Struct, frozen=True):
    """The options of a listener, sorted by whom they are for."""

    graphql: GraphqlSettings
    engine: EngineSettings
    endpoint: EndpointSettings


def sort_options(options: Mapping[str, object]) -> Options:
    """Sort keyword options; refuses unknown ones."""
    known = {*GraphqlSettings.__struct_fields__, *EngineSettings.__struct_fields__, *GUARDING} - {"websocket"}
    require_known("graphql", options, known)
    settings = read(GraphqlSettings, pick(GraphqlSettings, options), "graphql")
    engine = pick(EngineSettings, options)
    engine["port"] = settings.port
    guarding = {}
    for name in GUARDING:
        if name in options:
            guarding[name] = options[name]
    return Options(settings, read(EngineSettings, engine, "graphql"), read(EndpointSettings, guarding, "graphql"))


def new_endpoint(acceptor: HttpAcceptor, options: Options) -> GraphqlEndpoint:
    """Make the endpoint of a listener; raises SetupError where graphql-core is not installed."""
    try:
        from ferrule.transports.graphql.endpoint import GraphqlEndpoint
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "graphql":
            raise
        raise SetupError(NOT_INSTALLED) from None
    return GraphqlEndpoint(acceptor, options.graphql, Guard(options.endpoint, options.engine.host))


class Graphql:
    """Lets clients reach us over GraphQL; the options are those of `GraphqlSettings` and `EngineSettings`."""

    def __init__(self, **options: Unpack[GraphqlKeywords]) -> None:
        self._options = sort_options(options)
        self._engine: Engine | None = None
        self._endpoint: GraphqlEndpoint | None = None
        self._closed = asyncio.Event()

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port we listen on; raises SetupError before we do."""
        if self._engine is None or not self._engine.address[1]:
            raise SetupError("this Graphql does not listen yet: its address is known when it is ready")
        return self._engine.address

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        """Serve until closed."""
        if self._engine is not None:
            raise SetupError("this Graphql serves already")
        options = self._options
        require_verified(
            acceptor.verifier,
            options.engine.host,
            "graphql",
            client_ca=options.engine.client_ca,
            allow_remote=options.engine.allow_remote,
        )
        endpoint = new_endpoint(require_http(acceptor), options)
        engine = Engine(
            endpoint.handle,
            options.engine,
            max_body_size=options.graphql.max_body_size,
            observer=acceptor.observer,
        )
        self._engine = engine
        self._endpoint = endpoint
        self._acceptor = acceptor
        self._closed.clear()
        await acceptor.enter()
        try:
            await engine.start()
            logger.info("serving on %s", self.url)
            ready()
            await self._closed.wait()
        finally:
            await endpoint.close(0.0)
            await engine.close()
            await acceptor.leave()
            self._engine = self._endpoint = None

    async def close(self, grace: float) -> None:
        """Accept nobody new, answer what runs within `grace` seconds, close WebSockets with 1001, then end."""
        engine = self._engine
        endpoint = self._endpoint
        if engine is not None and endpoint is not None and engine.address[1]:
            until = asyncio.get_running_loop().time() + grace
            endpoint.drain()
            engine.stop()
            await self._acceptor.drain(grace)
            await endpoint.close(left_of_grace(until))
            await engine.drain(LAST_GRACE)
        self._closed.set()

    @property
    def url(self) -> str:
        """Where clients find us, once we listen."""
        host, port = self.address
        name = f"[{host}]" if ":" in host else host
        scheme = "https" if self._options.engine.certificate else "http"
        return f"{scheme}://{name}:{port}{self._options.graphql.path}"
