"""Requests whose head was judged before: a client repeats it with every call, and only the body is new.

Rule 1: what depends on the body, on the session or on the tool is looked at every time; whatever is not as it was goes
the usual way.
Rule 2: the verdict on the sender is kept for as long as its verifier lets it, and never beyond the principal's expiry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from ferrule.identity.principal import Principal
from ferrule.transports.http import mirror
from ferrule.transports.http.endpoint.caller import EVERYONE, origin_of
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.wire.channel import Origin

if TYPE_CHECKING:
    from ferrule.transports.http.endpoint.handshake import HandshakeEndpoint
    from ferrule.transports.http.endpoint.sessions import EndpointSession
    from ferrule.transports.http.endpoint.stateless import StatelessEndpoint

MARK, INITIALIZE, ESCAPE = b"protocolVersion", b'"initialize"', b"\\"
"""Only a body with one of these can be a handshake or belong to the stateless era; an escape can hide either."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


NOTHING_READ = mirror.Peek()


def unmistakable(body: bytes) -> bool:
    """Return whether a body can only be an ordinary message of the handshake era."""
    return not (MARK in body or INITIALIZE in body or ESCAPE in body)


class Sender:
    """Who sends requests with one head: built once, and again where the head is not the very same."""

    __slots__ = ("_headers", "_identity", "_origin", "_version")

    def __init__(self, version: str = "", identity: Principal | None = None) -> None:
        self._version = version
        self._identity = identity
        self._headers: dict[bytes, bytes] = {}
        self._origin: Origin = EVERYONE

    def of(self, request: HttpRequest) -> Origin:
        """Return the sender of a request; a head is a connection's own, so the same headers have the same sender."""
        if request.headers is not self._headers:
            self._headers = request.headers
            self._origin = origin_of(request, self._identity, self._version)
        return self._origin


class Endpoint(Protocol):
    """What judges a request whose head is not known, and takes one whose head is."""

    draining: bool
    clock: Callable[[], float]
    handshake: HandshakeEndpoint
    stateless: StatelessEndpoint

    def judge(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a request, or refuse it."""

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return which arguments of a tool its HTTP headers mirror."""


class HeadCache:
    """Posts to one session, with a head that was judged."""

    __slots__ = ("_endpoint", "_head", "_sender", "_session")

    def __init__(self, endpoint: Endpoint, session: EndpointSession, head: bytes, identity: Principal | None) -> None:
        self._endpoint = endpoint
        self._session = session
        self._head = head
        self._sender = Sender(identity=identity)

    def __call__(self, request: HttpRequest, responder: Responder) -> None:
        """Take one message of the session."""
        session = self._session
        if session.over or not unmistakable(request.body):
            self._endpoint.judge(request, responder)
        else:
            session.used = session.shared.now
            self._endpoint.handshake.take(session, request, self._sender.of(request), responder, self._head)


class ToolCalls:
    """Calls of one tool in the stateless era, with a head that was judged."""

    __slots__ = ("_endpoint", "_head", "_name", "_sender", "_version")

    def __init__(self, endpoint: Endpoint, body: mirror.Peek, head: bytes, identity: Principal | None) -> None:
        self._endpoint = endpoint
        self._name = body.params.name
        self._version = body.version or ""
        self._head = head
        self._sender = Sender(self._version, identity)

    def __call__(self, request: HttpRequest, responder: Responder) -> None:
        """Take one call of the tool, if that is what the body says too."""
        endpoint = self._endpoint
        try:
            body = mirror.peek(request.body)
        except UNREADABLE:
            body = NOTHING_READ
        if (
            body.params.name != self._name
            or body.version != self._version
            or body.method != "tools/call"
            or endpoint.draining
            or endpoint.mirrored(self._name)
        ):
            endpoint.judge(request, responder)
        else:
            endpoint.stateless.take(request, self._sender.of(request), responder, self._head, "tools/call")


class Expiring:
    """What was decided about a head while the verdict on its sender holds."""

    __slots__ = ("_decided", "_endpoint", "_until")

    def __init__(self, endpoint: Endpoint, decided: HeadCache | ToolCalls, until: float) -> None:
        self._endpoint = endpoint
        self._decided = decided
        self._until = until

    def __call__(self, request: HttpRequest, responder: Responder) -> None:
        """Take one request, after its sender was verified again where the verdict is too old."""
        if self._endpoint.clock() < self._until:
            self._decided(request, responder)
        else:
            self._endpoint.judge(request, responder)


def remember(endpoint: Endpoint, request: HttpRequest, decided: HeadCache | ToolCalls) -> None:
    """Let the next request with the same head take the short way, while the verdict on its sender holds."""
    known = request.known
    if known is None:
        return
    if request.until == math.inf:
        known.decided = decided
    elif request.until > endpoint.clock():
        known.decided = Expiring(endpoint, decided, request.until)
    else:
        known.decided = None
