"""Streamable HTTP as a listener, and with HTTP+SSE beside it: the endpoint on our own engine."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from msgspec import structs

from ferrule.errors import SetupError
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.beside import OnEngine, on_engine
from ferrule.transports.http.endpoint.acceptor import require_http
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.endpoint.sessions import MovedSession
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.engine.state import Heir
from ferrule.transports.http.settings import split_options
from ferrule.transports.shutdown import ListenerEnd, left_of_grace
from ferrule.transports.sockets.bind import ListeningPlace
from ferrule.transports.verification import require_verified

if TYPE_CHECKING:
    from ferrule.transports.keywords import HttpKeywords

logger = logging.getLogger("ferrule.http")


class Http:
    """Lets clients reach us over HTTP; the options are those of `EndpointSettings` and `EngineSettings`."""

    carrier = "http"

    def __init__(self, **options: Unpack[HttpKeywords]) -> None:
        self._endpoint_settings, self._engine_settings = split_options(options)
        self._new_websocket = on_engine(self._engine_settings.websocket, self._endpoint_settings.path)
        self.shows_metrics = self._endpoint_settings.metrics
        self._engine: Engine | None = None
        self._endpoint: HttpEndpoint | None = None
        self._websocket: OnEngine | None = None
        self._end = ListenerEnd()
        self.bound_port: int | None = None
        """The port to bind in place of that in the options; None for that one."""
        self.inherited: Sequence[socket.socket] = ()
        """The listening sockets to use instead of opening some."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port we listen on; raises SetupError before we do."""
        if self._engine is None or not self._engine.address[1]:
            raise SetupError("this Http does not listen yet: its address is known when it is ready")
        return self._engine.address

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        """Serve until closed."""
        if self._engine is not None:
            raise SetupError("this Http serves already")
        settings = self._engine_settings
        if self.bound_port is not None:
            settings = structs.replace(settings, port=self.bound_port)
        require_verified(
            acceptor.verifier,
            settings.host,
            self.carrier,
            client_ca=settings.client_ca,
            allow_remote=settings.allow_remote,
        )
        endpoint = HttpEndpoint(require_http(acceptor), self._endpoint_settings, bound_to=settings.host)
        engine = Engine(
            endpoint.handle,
            settings,
            max_body_size=self._endpoint_settings.max_body_size,
            observer=acceptor.observer,
            failed=self._end.fail,
        )
        endpoint.count_bytes(lambda: engine.traffic)
        self._engine = engine
        self._endpoint = endpoint
        self._end.begin()
        self._open_websocket(acceptor, endpoint)
        try:
            await endpoint.start()
            await engine.start(self.inherited)
            logger.info("serving on %s", self.url)
            ready()
            await self._end.wait()
        finally:
            await endpoint.close()
            await engine.close()
            self._engine = self._endpoint = self._websocket = None

    def _open_websocket(self, acceptor: Acceptor, endpoint: HttpEndpoint) -> None:
        if self._new_websocket is not None:
            websocket = self._websocket = self._new_websocket(acceptor, endpoint.guard)
            endpoint.routes[websocket.path] = websocket.handle
            endpoint.self_verifying.add(websocket.path)

    def adopt(self, connected: socket.socket, received: bytes, transfers: int) -> None:
        """Serve a connection that another process has accepted, and has read the beginning of."""
        if self._engine is None:
            connected.close()
        else:
            self._engine.adopt(connected, received, transfers)

    async def leave_to(self, give: Heir, give_session: Callable[[MovedSession], None]) -> None:
        """Leave all sessions and connections to another process, also those that are still opened here."""
        engine = self._engine
        endpoint = self._endpoint
        if engine is not None and endpoint is not None:
            endpoint.leave_to(give_session)
            engine.leave_to(give)
            # After the connections: what is asked on those waits at the other process, and changes nothing left.
            await endpoint.leave_by_store(give_session)

    @property
    def drain_delay(self) -> float:
        """How many seconds it accepts more after it was told to end."""
        return self._endpoint_settings.drain_delay

    @property
    def place(self) -> ListeningPlace:
        """Where it would listen."""
        return self._engine_settings

    @property
    def endpoint(self) -> HttpEndpoint | None:
        """What answers the requests; None while it does not serve."""
        return self._endpoint

    async def close(self, grace: float) -> None:
        """Accept nobody new, answer what has begun to come within `grace` seconds, then end."""
        # Held here: whoever closes us at the same time may be done first, and we forget them then.
        engine = self._engine
        endpoint = self._endpoint
        websocket = self._websocket
        if engine is None or endpoint is None or not engine.address[1]:
            self._end.close()
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        endpoint.draining = True
        if websocket is not None:
            websocket.draining = True
        if self._endpoint_settings.drain_delay:
            engine.end_after_answers()
            await asyncio.sleep(self._endpoint_settings.drain_delay)
        engine.stop()
        await endpoint.drain(grace)
        if websocket is not None:
            await websocket.close(left_of_grace(until))
        # Streams for what belongs to no call would stay open for ever: the endpoint ends them.
        await endpoint.close()
        await engine.drain(left_of_grace(until))
        self._end.close()

    @property
    def url(self) -> str:
        """Where clients find us, once we listen."""
        host, port = self.address
        name = f"[{host}]" if ":" in host else host
        scheme = "https" if self._engine_settings.certificate else "http"
        return f"{scheme}://{name}:{port}{self._endpoint_settings.path}"


class Sse(Http):
    """Lets clients reach us over HTTP+SSE; `path` is where the stream is opened, all else is as for `Http`."""

    carrier = "sse"

    def __init__(self, **options: Unpack[HttpKeywords]) -> None:
        if "path" in options:
            options["sse_path"] = options.pop("path")
        options.setdefault("sse", True)
        super().__init__(**options)

    @property
    def url(self) -> str:
        """Where clients find us, once we listen."""
        settings = self._endpoint_settings
        return super().url.removesuffix(settings.path) + settings.sse_path
