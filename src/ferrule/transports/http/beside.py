"""What is served at the port of HTTP beside it: WebSockets, at a path of their own.

Rule: they build on HTTP, and HTTP knows nothing of them but this. The table of transports says who makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ferrule.transports.contract import Acceptor
from ferrule.transports.http.asgi.answer import Event, Receive, Send
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.registry import TRANSPORTS, load

KIND = "ws"


class Beside(Protocol):
    """An endpoint beside that of HTTP."""

    draining: bool

    @property
    def path(self) -> str:
        """Where it is served."""

    async def close(self, grace: float) -> None:
        """Close every connection within `grace` seconds."""


class OnEngine(Beside, Protocol):
    """One that takes requests of our own engine."""

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Take over the connection of a request, or refuse it."""


class UnderAsgi(Beside, Protocol):
    """One that takes the WebSockets of an ASGI server."""

    async def serve(self, scope: Event, request: HttpRequest, receive: Receive, send: Send) -> None:
        """Serve one connection to its end, or refuse it."""


def on_engine(given: bool | Mapping[str, object], taken: str) -> Callable[[Acceptor, Guard], OnEngine] | None:
    """Return what makes the endpoint that the option `websocket` asks for; None where it asks for none."""
    maker = TRANSPORTS[KIND].beside_http
    if given is False or maker is None:
        return None
    made: Callable[[Acceptor, Guard], OnEngine] = load(maker)(given, taken)
    return made


def under_asgi(given: bool | Mapping[str, object], taken: str) -> Callable[[Acceptor, Guard], UnderAsgi] | None:
    """Return what makes that endpoint for an ASGI app; None where it asks for none."""
    maker = TRANSPORTS[KIND].beside_asgi
    if given is False or maker is None:
        return None
    made: Callable[[Acceptor, Guard], UnderAsgi] = load(maker)(given, taken)
    return made
