"""The endpoint of the stateless era: POST only, every request stands alone and says in its headers what it is.

MCP 2026-07-28 transports/streamable-http.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType, structs

from ferrule.errors import HeaderMismatch, Refusal
from ferrule.schema.methods import METHODS
from ferrule.transports.http import mirror
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor
from ferrule.transports.http.endpoint.caller import EVERYONE, expiry_of, origin_of
from ferrule.transports.http.endpoint.exchange import Exchange, NullChannel
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.heads import EMPTY_HEAD, JSON_HEAD, RETRY_AFTER, TOO_MANY_STREAMS, refuse
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.channel import Origin, Receiver
from ferrule.wire.codec import Unreadable, decode, encode
from ferrule.wire.messages import ErrorObject, Failure, Id, Request

STANDING = frozenset(name for name, row in METHODS.items() if row.standing)
"""What is a stream by its nature, whatever form other answers have."""


class StatelessEndpoint:
    """Answers requests that bring their own introduction."""

    def __init__(self, acceptor: HttpAcceptor, settings: EndpointSettings, keepalive: Keepalive) -> None:
        self._acceptor = acceptor
        self._settings = settings
        streams = settings.response != "json"
        if streams:
            self._standing_settings = settings
        else:
            self._standing_settings = structs.replace(settings, response="auto")
        self._keepalive = keepalive
        self.link: Receiver = acceptor.sessionless_link(EVERYONE)
        self._everyone = NullChannel()
        self.link.channel_opened(self._everyone)

    def close(self) -> None:
        """End everything that runs here."""
        self.link.channel_lost(self._everyone, None)

    def post(self, request: HttpRequest, body: mirror.Peek | None, responder: Responder, head: bytes) -> bool:
        """Answer one request, `body` being None where it cannot be read. Return whether its headers fit it."""
        if body is not None:
            try:
                mirror.check(request.headers, body)
                if body.method == "tools/call":
                    self._check_arguments(request.headers, body)
            except HeaderMismatch as mismatch:
                if body.method == "initialize" and not self._acceptor.eras.handshake.versions:
                    mismatch = self._without_handshake(mismatch)
                self._mismatched(request, mismatch, responder, head)
                return False
        version = request.header(mirror.VERSION_FIELD)
        origin = origin_of(request, request.identity, version)
        self.take(request, origin, responder, head, "" if body is None else body.method)
        return body is not None

    def take(self, request: HttpRequest, origin: Origin, responder: Responder, head: bytes, method: str) -> None:
        """Answer one request whose headers fit it, or one that cannot be read, which the link explains best."""
        if method in STANDING:
            if self._keepalive.open_streams >= self._settings.max_streams:
                refuse(responder, 503, TOO_MANY_STREAMS, head + RETRY_AFTER)
                return
            exchange = Exchange(responder, head, self.link, self._standing_settings, self._keepalive)
            exchange.expires = expiry_of(request)
        else:
            exchange = Exchange(responder, head, self.link, self._settings, self._keepalive)
        if self.link.frame_received(request.body, exchange, origin):
            if exchange.open:
                exchange.mark_pending()
        elif exchange.open:
            exchange.lost()
            responder.reply(202, EMPTY_HEAD + head)

    def _without_handshake(self, mismatch: HeaderMismatch) -> HeaderMismatch:
        """Name our versions to a client of the handshake era, which sends none of the headers (VER-11)."""
        supported = list(self._acceptor.eras.stateless.versions)
        text = f"{mismatch.message}; this server takes no initialize, it speaks {', '.join(supported)}"
        return HeaderMismatch(text, {"supported": supported})

    def _check_arguments(self, headers: dict[bytes, bytes], body: mirror.Peek) -> None:
        name = body.params.name
        annotated = self._acceptor.mirrored(name) if isinstance(name, str) else None
        if annotated:
            try:
                mirror.check_arguments(headers, body, annotated)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return  # The link refuses a body that cannot be read.

    def _mismatched(self, request: HttpRequest, mismatch: HeaderMismatch, responder: Responder, head: bytes) -> None:
        """Refuse a message whose headers say something else than its body, or a body that is no message.

        `Mcp-Method` is demanded of requests only: a notification without it is taken, and acts on nothing.
        """
        identity: Id | UnsetType = UNSET
        method = ""
        params: object = None
        refusal: Refusal = mismatch
        try:
            message = decode(request.body)
        except Unreadable as unreadable:
            refusal = unreadable.refusal
            identity = unreadable.id
        else:
            if isinstance(message, Request):
                identity = message.id
                method = message.method
                params = message.params
            elif mirror.VERSION_FIELD in request.headers and mirror.METHOD_FIELD not in request.headers:
                responder.reply(202, EMPTY_HEAD + head)
                return
        if self._acceptor.observer is not None:
            origin = origin_of(request, request.identity, request.header(mirror.VERSION_FIELD))
            self._acceptor.observer.refused(identity, method, refusal, origin, params)
        failure = Failure(identity, ErrorObject(refusal.own_code, refusal.message, refusal.data))
        responder.reply(400, JSON_HEAD + head, encode(failure))
