"""The endpoint of the handshake era: sessions, POST and its streams, the GET stream, DELETE, resuming.

MCP 2025-11-25 basic/transports, Streamable HTTP; the headings below are its.
"""

from __future__ import annotations

import asyncio

from msgspec import UNSET

from ferrule.protocol.handshake import HEADERLESS
from ferrule.supervision.scope import Scope
from ferrule.transports.http import mirror
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor
from ferrule.transports.http.endpoint.caller import EVERYONE, binding_of, expiry_of, origin_of
from ferrule.transports.http.endpoint.exchange import NullChannel, SessionlessExchange
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.endpoint.session import NO_SESSION, SessionExchange, SessionOpening
from ferrule.transports.http.endpoint.sessions import EndpointSession, Sessions
from ferrule.transports.http.endpoint.streams import Streaming
from ferrule.transports.http.heads import EMPTY_HEAD, JSON_HEAD, RETRY_AFTER, TOO_MANY_STREAMS, refuse
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.wire.channel import Origin, Receiver
from ferrule.wire.codec import Unreadable, decode, encode
from ferrule.wire.messages import ErrorObject, Failure, Request

SESSION_FIELD, LAST_EVENT_FIELD = b"mcp-session-id", b"last-event-id"


class HandshakeEndpoint:
    """Serves sessions that begin with `initialize`; or, without sessions, requests that pretend they had."""

    def __init__(self, acceptor: HttpAcceptor, sessions: Sessions, shared: Streaming, guard: Guard) -> None:
        self._acceptor = acceptor
        self.sessions = sessions
        self._shared = shared
        self._guard = guard
        self._versions = frozenset(map(str.encode, acceptor.eras.handshake.versions))
        self._sessionless_links: dict[str, Receiver] = {}
        self._everyone = NullChannel()
        self._scope = Scope(asyncio.get_running_loop())

    async def close(self) -> None:
        """End everything that runs here."""
        for link in self._sessionless_links.values():
            link.channel_lost(self._everyone, None)
        self._sessionless_links.clear()
        await self._scope.close()

    def speaks(self, request: HttpRequest) -> bool:
        """Return whether the version a request names is one of this era; naming none is fine where there are any."""
        version = request.headers.get(mirror.VERSION_FIELD)
        return version in self._versions or (version is None and bool(self._versions))

    # -- POST

    def post(self, request: HttpRequest, responder: Responder, head: bytes) -> EndpointSession | None:
        """Take one message, or a batch, of a session. Return the session, if there is one."""
        identity = request.headers.get(SESSION_FIELD)
        if identity is None:
            self._without_session(request, responder, head)
            return None
        session = self.sessions.find(identity, binding_of(request))
        if session is None:
            # Session Management, item 3.
            refuse(responder, 404, NO_SESSION, head)
        else:
            self.take(session, request, origin_of(request, request.identity), responder, head)
        return session

    def take(
        self, session: EndpointSession, request: HttpRequest, origin: Origin, responder: Responder, head: bytes
    ) -> None:
        """Take one message of a session that was found."""
        exchange = SessionExchange(session, session.standing, responder, head)
        try:
            expects_answer = session.link.frame_received(request.body, exchange, origin)
        except Exception:
            # It may have stopped halfway, so the session ends: its next request is told 404, and no other notices.
            self.sessions.end(session)
            raise
        if expects_answer:
            if exchange.open:
                exchange.wait()
        elif exchange.end():
            # Sending Messages to the Server, item 4.
            responder.reply(202, EMPTY_HEAD + head)

    def _without_session(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        if not self._shared.settings.stateless:
            refuse(responder, 400, "Bad request: the header Mcp-Session-Id is missing", head)
            return
        # Protocol Version Header: what a request without one is taken for.
        version = request.headers.get(mirror.VERSION_FIELD, HEADERLESS.encode()).decode("latin-1")
        if version.encode() not in self._versions:
            refuse(responder, 400, "Bad request: the header Mcp-Protocol-Version is missing", head)
            return
        link = self._sessionless_links.get(version)
        if link is None:
            link = self._sessionless_links[version] = self._acceptor.sessionless_link(EVERYONE, version)
            link.channel_opened(self._everyone)
        self._pass_on(link, request, responder, head)

    def unreadable(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Answer a body that is not one message: in the session it names, or, before there is one, with the reason."""
        if not self._shared.settings.stateless and SESSION_FIELD not in request.headers:
            try:
                message = decode(request.body)
            except Unreadable as reason:
                refusal = reason.refusal
                identity = None if reason.id is UNSET else reason.id
                if self._acceptor.observer is not None:
                    self._acceptor.observer.refused(
                        identity, "", refusal, origin_of(request, request.identity, brief=True)
                    )
                failure = Failure(identity, ErrorObject(refusal.own_code, refusal.message, refusal.data))
                responder.reply(400, JSON_HEAD + head, encode(failure))
                return
            if isinstance(message, Request) and message.method == "initialize":
                # Its params are none: what is wrong with them is not that a session is missing.
                self.initialize(request, responder, head)
                return
        self.post(request, responder, head)

    def _pass_on(self, link: Receiver, request: HttpRequest, responder: Responder, head: bytes) -> None:
        exchange = SessionlessExchange(link, responder, head, self._shared.settings, self._shared.keepalive)
        origin = origin_of(request, request.identity)
        if link.frame_received(request.body, exchange, origin):
            if exchange.open:
                exchange.wait()
        elif exchange.open:
            exchange.lost()
            responder.reply(202, EMPTY_HEAD + head)

    def initialize(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Open a session; an id the client brings along is ignored."""
        origin = origin_of(request, request.identity)
        lasting = not self._shared.settings.stateless
        session = self.sessions.prepare(origin, lasting=lasting)
        opening = SessionOpening(session, responder, head)
        if not session.link.frame_received(request.body, opening, origin):
            responder.reply(202, EMPTY_HEAD + head)
        if opening.opened and lasting:
            self.sessions.add(session, request.body)
        else:
            session.link.channel_lost(session.standing, None)

    # -- GET and DELETE

    def get(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Open the session's own stream (Listening for Messages from the Server), or resume another."""
        if not self._guard.takes_events[request.headers.get(b"accept", b"")]:
            refuse(responder, 406, "Not acceptable: a GET is answered with text/event-stream", head)
            return
        session = self._named(request, responder, head)
        if session is None:
            return
        last = request.headers.get(LAST_EVENT_FIELD)
        if self._shared.full:
            refuse(responder, 503, TOO_MANY_STREAMS, head + RETRY_AFTER)
        elif last is None:
            session.standing.attach(responder, head, expires=expiry_of(request))
        else:
            self._scope.spawn(self._resume(session, last.decode("latin-1"), request, responder, head))

    def _named(self, request: HttpRequest, responder: Responder, head: bytes) -> EndpointSession | None:
        identity = request.headers.get(SESSION_FIELD)
        if identity is None:
            refuse(responder, 400, "Bad request: the header Mcp-Session-Id is missing", head)
            return None
        session = self.sessions.find(identity, binding_of(request))
        if session is None:
            refuse(responder, 404, NO_SESSION, head)
        return session

    async def _resume(
        self, session: EndpointSession, event_id: str, request: HttpRequest, responder: Responder, head: bytes
    ) -> None:
        # Resumability and Redelivery: only of the stream that was disconnected.
        found = session.stream_of(event_id)
        if found is None:
            missed = None
        else:
            missed = await found[0].missed(found[1])
        if found is None or missed is None:
            refuse(responder, 404, "Nothing to resume: that event is unknown or no longer kept", head)
            return
        stream = found[0]
        if stream.attached:
            refuse(responder, 409, "Conflict: that stream has a reader already", head)
            return
        stream.attach(responder, head, missed, expires=expiry_of(request))
        if stream.ended:
            stream.finish()

    def delete(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """End a session (Session Management, item 5)."""
        session = self._named(request, responder, head)
        if session is not None:
            self.sessions.end(session, deleted=True)
            responder.reply(204, EMPTY_HEAD + head)

    def drain(self) -> None:
        """Send the readers of standing streams away; they come back elsewhere, or later."""
        for session in self.sessions:
            stream = session.standing.stream
            if stream is not None:
                stream.release()
                stream.finish()
