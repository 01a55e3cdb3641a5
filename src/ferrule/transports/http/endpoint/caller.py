"""Who sent an HTTP request: settled here, once, before any handler of the endpoint sees it.

Rule 1: only this module makes an `Origin` of an HTTP request, for every handler of an endpoint and for WebSockets.
Rule 2: the page and the host are judged first (`Guard`), then the caller, then the body.
Rule 3: whoever waits for a verdict holds up only its own connection, on which one request is answered at a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import UNSET

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.errors import Refusal
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import Anonymous, RequestFacts, Verdict, Verifier
from ferrule.supervision.scope import Scope
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.heads import EMPTY_HEAD, JSON_HEAD, own_head, refuse
from ferrule.transports.http.message import Handle, Headers, HttpRequest, Responder
from ferrule.transports.verification import CallerWatch, Verification
from ferrule.wire.channel import Origin
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Failure

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers

logger = logging.getLogger("ferrule.http")

CARRIER = "http"
EVERYONE = Origin(CARRIER)
"""The origin of the link that all requests without a session share; each of them brings its own."""
NO_HEADERS: Mapping[str, str] = {}
"""A session outlives the request that opened it; every call has the headers of its own."""
MAX_WAITING = 16 * 1024 * 1024
"""Bytes of all bodies whose callers are being verified."""
DEFAULT_STATUS = 403
"""Of a refusal that names no status."""
STOPPING = "Unavailable: the server is stopping"
NO_ROOM = "Unavailable: too many callers are being verified"


def origin_of(
    request: HttpRequest, identity: Principal | None, version: str = "", *, carrier: str = CARRIER, brief: bool = False
) -> Origin:
    """Return who sent a request; `brief` leaves out its headers, for what outlives it."""
    headers = NO_HEADERS if brief else Headers(request.headers)
    key = None if identity is None else identity.key
    return Origin(carrier, request.address, headers, key, version, identity=identity, http=request.http)


def binding_of(request: HttpRequest) -> str | None:
    """Return what a session of a request's sender is bound to."""
    if request.identity is None:
        return None
    return request.identity.binding


def expiry_of(request: HttpRequest) -> float:
    """Return when the credentials of a request's sender end, or must be looked at again, in seconds since 1970."""
    identity = request.identity
    if identity is None or identity.expires is None:
        return request.recheck_at
    return min(identity.expires, request.recheck_at)


def facts_of(request: HttpRequest, transport: str, endpoint: str = "") -> RequestFacts:
    """Return what a verifier may know of a request; `endpoint` is the path of its endpoint, if not the main one."""
    scheme = "https" if request.secure else "http"
    query = f"?{request.query}" if request.query else ""
    if request.scope is None:
        path = request.root + request.path
    else:
        path = _outer_path(request.scope)
    host = request.headers.get(b"host", b"").decode("latin-1")
    return RequestFacts(
        transport=transport,
        method=request.method,
        url=f"{scheme}://{host}{path}{query}",
        root=request.root,
        endpoint=endpoint,
        headers=Headers(request.headers),
        address=request.address,
        certificate=request.certificate,
        scope=request.scope or NO_HEADERS,
    )


def _outer_path(scope: Mapping[str, Any]) -> str:
    """Return the path an ASGI server was asked for, wherever we are mounted in it."""
    raw: bytes | None = scope.get("raw_path")
    if not raw:
        return quote(scope["path"])
    return raw.decode("latin-1").partition("?")[0]


class Callers:
    """Settles who sends the requests of one endpoint."""

    def __init__(
        self,
        verifier: Verifier,
        guard: Guard,
        transport: str = CARRIER,
        *,
        clock: Callable[[], float] = time.time,
        observer: Observers | None = None,
    ) -> None:
        self._verification = Verification(verifier, clock, transport=transport, observer=observer)
        self.open_to_all = self._verification.open_to_all
        """Whether nobody need be asked about a caller without a certificate."""
        self.endpoints: dict[str, str] = {}
        """Of each path that belongs to another endpoint than the main one, the path of that endpoint."""
        self._guard = guard
        self._transport = transport
        self._waiting = Account("requests whose callers are being verified", MAX_WAITING, within=process.requests)
        self._scope: Scope | None = None

    def admit(self, request: HttpRequest, responder: Responder, proceed: Handle) -> None:
        """Go on with a request whose sender is known, now or later; one that is refused is answered here."""
        guarded = self._guard.judge(request)
        if guarded.status:
            refuse(responder, guarded.status, guarded.why)
        elif (self.open_to_all and request.certificate is None) or request.method == "OPTIONS":
            # A browser asks with OPTIONS before it may send credentials (CORS preflight).
            proceed(request, responder)
        else:
            self.verify(request, responder, proceed, self.facts(request))

    def verify(self, request: HttpRequest, responder: Responder, proceed: Handle, facts: RequestFacts) -> None:
        """Go on with a request that is for us once its sender is known, now or later, or refuse it."""
        verdict = self._verification.ask(facts)
        if isinstance(verdict, Principal):
            self._note(request, verdict)
            proceed(request, responder)
        elif isinstance(verdict, Verdict):
            self._settle(request, responder, proceed, verdict)
        else:
            self._wait(request, responder, proceed, verdict)

    async def identify(self, request: HttpRequest) -> Refusal | None:
        """Find out who sent a request that the caller goes on with; return why it is refused, if it is."""
        if self.open_to_all and request.certificate is None:
            return None
        verdict = await self._verification.verdict(self.facts(request))
        if isinstance(verdict, Refusal):
            return verdict
        self._note(request, verdict)
        return None

    def facts(self, request: HttpRequest) -> RequestFacts:
        """Return what the verifier may know of a request."""
        return facts_of(request, self._transport, self.endpoints.get(request.path, ""))

    def _note(self, request: HttpRequest, verdict: Principal | Anonymous) -> None:
        """Note with a request who sent it, and until when that also holds for others with the same head."""
        verifier = self._verification.verifier
        now = self._verification.clock()
        until = now + verifier.keep
        if isinstance(verdict, Principal):
            request.identity = verdict
            if verdict.confirmation:
                # A proof of possession is for one request (RFC 9449 §4.3).
                until = 0.0
            elif verdict.expires is not None and verdict.expires < until:
                until = verdict.expires
        request.verdict_expires = until
        if verifier.recheck:
            request.recheck_at = now + verifier.recheck

    def watch(self, request: HttpRequest, end: Callable[[], None]) -> CallerWatch | None:
        """End a connection that a request has opened with the right of its sender to it."""
        return self._verification.watch(request.identity, self.facts(request), end)

    def _settle(self, request: HttpRequest, responder: Responder, proceed: Handle, verdict: Verdict) -> None:
        if isinstance(verdict, Refusal):
            self.deny(request, responder, verdict)
        else:
            self._note(request, verdict)
            proceed(request, responder)

    def _wait(self, request: HttpRequest, responder: Responder, proceed: Handle, pending: Awaitable[Verdict]) -> None:
        """Let a verdict take a while; the request's body is on an account meanwhile."""
        if self._scope is None:
            self._scope = Scope(asyncio.get_running_loop())
        size = len(request.body)
        waiting = self._verification.wait(pending)
        if not self._waiting.take(size):
            waiting.close()
            _drop(pending)
            self.deny(request, responder, Refusal(NO_ROOM, status=503))
            return
        task = self._scope.spawn(waiting)
        task.add_done_callback(partial(self._waited, request, responder, proceed, size))
        # Whoever has gone away need not be verified.
        responder.watch(partial(self._scope.cancel, task))

    def _waited(
        self, request: HttpRequest, responder: Responder, proceed: Handle, size: int, task: asyncio.Task[Verdict]
    ) -> None:
        self._waiting.give(size)
        if responder.gone:
            return
        responder.watch(_nothing)
        verdict: Verdict
        if task.cancelled():
            verdict = Refusal(STOPPING, status=503)
        else:
            verdict = task.result()
        try:
            self._settle(request, responder, proceed, verdict)
        except Exception:
            logger.exception("failed on %s %s", request.method, request.path)
            try:
                responder.reply(500, EMPTY_HEAD)
            except RuntimeError:  # it has begun already
                responder.abort()

    def deny(self, request: HttpRequest, responder: Responder, refusal: Refusal) -> None:
        """Answer a request whose sender may not come in."""
        status, lines = denial(refusal)
        # A page may read why, where it may read answers at all.
        head = JSON_HEAD + self._guard.judge(request).head + lines
        error = ErrorObject(refusal.own_code, refusal.message, refusal.data)
        responder.reply(status, head, encode(Failure(UNSET, error)))

    async def close(self) -> None:
        """Stop waiting for verdicts; who waited is refused, for the server is stopping."""
        if self._scope is not None:
            await self._scope.close()


def denial(refusal: Refusal) -> tuple[int, bytes]:
    """Return the status and the header lines of a refusal's HTTP answer."""
    return own_head(refusal.status or DEFAULT_STATUS, refusal.headers)


def _drop(pending: Awaitable[Verdict]) -> None:
    """Close a coroutine that nobody will await."""
    close = getattr(pending, "close", None)
    if close is not None:
        close()


def _nothing() -> None:
    """The peer has gone away, and nothing of it runs."""
