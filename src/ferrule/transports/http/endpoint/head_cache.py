"""Requests whose head was judged before: a client repeats it with every call, and only the body is new.

Rule 1: what depends on the body, on the session or on the tool is looked at every time; whatever is not as it was goes
the usual way.
Rule 2: the verdict on the sender is kept for as long as its verifier lets it, and never beyond the principal's expiry.
Then the sender is verified anew; the head, which is the same, is not judged again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from ferrule.identity.principal import Principal
from ferrule.identity.verifier import RequestFacts
from ferrule.transports.http import mirror
from ferrule.transports.http.endpoint.caller import EVERYONE, origin_of
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.wire.channel import Origin

if TYPE_CHECKING:
    from ferrule.transports.http.endpoint.caller import Callers
    from ferrule.transports.http.endpoint.handshake import HandshakeEndpoint
    from ferrule.transports.http.endpoint.sessions import EndpointSession
    from ferrule.transports.http.endpoint.stateless import StatelessEndpoint

MARK, INITIALIZE, ESCAPE = b"protocolVersion", b'"initialize"', ord("\\")
"""Only a body with one of these can be a handshake or belong to the stateless era; an escape can hide either."""
IN_MARK, IN_INITIALIZE = ord("V"), ord("z")
"""A letter of each that is rare elsewhere: a letter is found many times faster than a word."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


Proceed = Callable[[HttpRequest, Responder, bytes], object]
"""Takes a request whose head was judged, with the lines that its answer must have."""

NOTHING_READ = mirror.Peek()
NO_FACTS = RequestFacts(transport="")
peek = mirror.peek


def unmistakable(body: bytes) -> bool:
    """Return whether a body can only be an ordinary message of the handshake era."""
    # `in` is for one byte: of several it asks first whether they are a number, which makes an exception each time.
    if ESCAPE in body or (IN_MARK in body and body.find(MARK) >= 0):
        return False
    return IN_INITIALIZE not in body or body.find(INITIALIZE) < 0


class Sender:
    """Who sends requests with one head: built once, and again where the head is not the very same."""

    __slots__ = ("_version", "headers", "identity", "origin")

    def __init__(self, version: str = "", identity: Principal | None = None) -> None:
        self._version = version
        self.identity = identity
        self.headers: dict[bytes, bytes] = {}
        """Of the last request; a head is a connection's own, so the same headers have the same sender."""
        self.origin: Origin = EVERYONE
        """Who sent that request."""

    def of(self, request: HttpRequest) -> Origin:
        """Return the sender of a request."""
        if request.headers is not self.headers:
            self.headers = request.headers
            self.origin = origin_of(request, self.identity, self._version)
        return self.origin

    def forget(self) -> None:
        """Keep nothing of the last request."""
        self.headers = {}
        self.origin = EVERYONE

    def renew(self, identity: Principal | None) -> None:
        """Take what was found out of the sender anew; mostly that is what was known of it."""
        if identity is not self.identity and identity != self.identity:
            self.identity = identity
            self.headers = {}


class Endpoint(Protocol):
    """What judges a request whose head is not known, and takes one whose head is."""

    draining: bool
    clock: Callable[[], float]
    callers: Callers
    handshake: HandshakeEndpoint
    stateless: StatelessEndpoint

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a request, or refuse it."""

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return which arguments of a tool its HTTP headers mirror."""


class SessionVerdict:
    """Takes posts to one session, with a head that was judged."""

    __slots__ = ("_handle", "_head", "_sender", "_session", "_take")

    def __init__(self, endpoint: Endpoint, session: EndpointSession, head: bytes, identity: Principal | None) -> None:
        self._handle = endpoint.handle
        self._take = endpoint.handshake.take
        self._session = session
        self._head = head
        self._sender = Sender(identity=identity)

    def take(self, request: HttpRequest, responder: Responder) -> None:
        """Take one message of the session."""
        session = self._session
        if session.over or not unmistakable(request.body):
            self._handle(request, responder)
        else:
            session.used = session.shared.now
            sender = self._sender
            origin = sender.origin if request.headers is sender.headers else sender.of(request)
            take = self._take
            take(session, request, origin, responder, self._head)

    def renew(self, identity: Principal | None) -> bool:
        """Take what was found out of the sender anew. Return whether the session is still theirs."""
        if self._session.binding != (None if identity is None else identity.binding):
            return False
        self._sender.renew(identity)
        return True


class ToolCallVerdict:
    """Takes calls of one tool in the stateless era, with a head that was judged."""

    __slots__ = ("_endpoint", "_head", "_mirrored", "_name", "_sender", "_take", "_version")

    def __init__(self, endpoint: Endpoint, body: mirror.Peek, head: bytes, identity: Principal | None) -> None:
        self._endpoint = endpoint
        self._mirrored = endpoint.mirrored
        self._take = endpoint.stateless.take
        self._name = body.params.name
        self._version = body.version or ""
        self._head = head
        self._sender = Sender(self._version, identity)

    def take(self, request: HttpRequest, responder: Responder) -> None:
        """Take one call of the tool, if that is what the body says too."""
        name = self._name
        mirrored = self._mirrored
        try:
            body = peek(request.body)
        except UNREADABLE:
            body = NOTHING_READ
        params = body.params
        meta = params.meta
        if (
            params.name != name
            or meta is None
            or meta.version != self._version
            or body.method != "tools/call"
            or self._endpoint.draining
            or mirrored(name)
        ):
            self._endpoint.handle(request, responder)
        else:
            sender = self._sender
            origin = sender.origin if request.headers is sender.headers else sender.of(request)
            take = self._take
            take(request, origin, responder, self._head, "tools/call")

    def take_first(self, request: HttpRequest, responder: Responder) -> None:
        """Take the first call on a connection, whose head was judged on another."""
        decision = request.decision
        if decision is not None:
            # The next one is judged, so that the connection has a verdict with a sender of its own, and for itself.
            decision.take = None
            decision.shared = None
        if request.certificate is None:
            try:
                self.take(request, responder)
            finally:
                self._sender.forget()
        else:
            self._endpoint.handle(request, responder)

    def renew(self, identity: Principal | None) -> bool:
        """Take what was found out of the sender anew. Return True: anybody may call, and is asked what they may."""
        self._sender.renew(identity)
        return True


class EndpointVerdict:
    """Takes requests with a head that was judged before; whatever does not follow from it is looked at each time."""

    __slots__ = ("_handle", "_head", "_proceed")

    def __init__(self, endpoint: Endpoint, proceed: Proceed, head: bytes) -> None:
        self._handle = endpoint.handle
        self._proceed = proceed
        self._head = head

    def take(self, request: HttpRequest, responder: Responder) -> None:
        """Take one request as if its head had been judged now."""
        if request.certificate is None:
            self._proceed(request, responder, self._head)
        else:
            self._handle(request, responder)


class ExpiringVerdict:
    """Takes requests with a head that was judged, and verifies their sender anew when the verdict on it has expired."""

    __slots__ = ("_callers", "_clock", "_expires", "_facts", "_handle", "_headers", "_verdict")

    def __init__(self, endpoint: Endpoint, verdict: SessionVerdict | ToolCallVerdict, expires: float) -> None:
        self._clock = endpoint.clock
        self._callers = endpoint.callers
        self._handle = endpoint.handle
        self._verdict = verdict
        self._expires = expires
        self._headers: dict[bytes, bytes] = {}
        """Of the request that was last verified: a head is a connection's own, so its facts are too."""
        self._facts = NO_FACTS
        """What a verifier may know of that request."""

    def take(self, request: HttpRequest, responder: Responder) -> None:
        """Take one request, after its sender was verified again where the verdict is too old."""
        if self._clock() < self._expires:
            self._verdict.take(request, responder)
            return
        if request.headers is not self._headers:
            self._facts = self._callers.facts(request)
            self._headers = request.headers
        self._callers.verify(request, responder, self._verified, self._facts)

    def _verified(self, request: HttpRequest, responder: Responder) -> None:
        if self._verdict.renew(request.identity):
            self._expires = request.verdict_expires
            self._verdict.take(request, responder)
        else:
            # The verdict stays expired: it is of another sender than the head has now.
            self._handle(request, responder)


def remember(endpoint: Endpoint, request: HttpRequest, verdict: SessionVerdict | ToolCallVerdict) -> None:
    """Let the next request with the same head take the short way; its sender may have to be verified anew."""
    decision = request.decision
    if decision is None:
        return
    if request.verdict_expires == math.inf:
        decision.take = verdict.take
    elif request.verdict_expires > 0:
        decision.take = ExpiringVerdict(endpoint, verdict, request.verdict_expires).take
    else:
        # A proof of possession is for one request, and no other has this head.
        decision.take = None


def remember_judged(endpoint: Endpoint, request: HttpRequest, proceed: Proceed, head: bytes) -> None:
    """Judge the same head no more, on this connection or any other, where everybody may call."""
    decision = request.decision
    if decision is not None and endpoint.callers.open_to_all and request.certificate is None:
        decision.take = EndpointVerdict(endpoint, proceed, head).take
        if decision.shared is not None:
            decision.shared.take = decision.take


def remember_for_all(endpoint: Endpoint, request: HttpRequest, body: mirror.Peek, head: bytes) -> None:
    """Let the first call with the same head on any connection take the short way, where everybody may call."""
    decision = request.decision
    if decision is None or decision.shared is None:
        return
    if endpoint.callers.open_to_all and request.certificate is None:
        decision.shared.take = ToolCallVerdict(endpoint, body, head, None).take_first
