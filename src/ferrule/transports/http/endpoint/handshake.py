"""The endpoint of the handshake era: sessions, POST and its streams, the GET stream, DELETE, resuming.

MCP 2025-11-25 basic/transports, Streamable HTTP; the headings below are its.
"""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec import UNSET

from ferrule.errors import InvalidRequest
from ferrule.protocol.handshake import HEADERLESS
from ferrule.supervision.scope import Scope
from ferrule.transports.http import mirror
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor
from ferrule.transports.http.endpoint.caller import EVERYONE, binding_of, expiry_of, origin_of
from ferrule.transports.http.endpoint.cluster import ClusterEndpoint
from ferrule.transports.http.endpoint.exchange import NullChannel, SessionlessExchange
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.endpoint.held_reply import HeldReply
from ferrule.transports.http.endpoint.session import NO_SESSION, SessionExchange, SessionOpening
from ferrule.transports.http.endpoint.sessions import EndpointSession, Sessions
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.http.heads import (
    EMPTY_HEAD,
    JSON_HEAD,
    RETRY_AFTER,
    STREAM_HEAD,
    TOO_MANY_STREAMS,
    refuse,
)
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.wire.channel import Origin, Receiver
from ferrule.wire.codec import Unreadable, decode, encode
from ferrule.wire.messages import ErrorObject, Failure, Request

NOTHING_TO_RESUME = "Nothing to resume: that event is unknown or no longer kept"
SESSION_FIELD, LAST_EVENT_FIELD = b"mcp-session-id", b"last-event-id"


class HandshakeEndpoint:
    """Serves sessions that begin with `initialize`; or, without sessions, requests as if that had been sent before."""

    def __init__(self, acceptor: HttpAcceptor, sessions: Sessions, shared: EndpointStreams, guard: Guard) -> None:
        self._acceptor = acceptor
        self._cluster = acceptor.cluster
        self.sessions = sessions
        self._shared = shared
        self._guard = guard
        self._versions = frozenset(map(str.encode, acceptor.eras.handshake.versions))
        self._sessionless_links: dict[str, Receiver] = {}
        self._everyone = NullChannel()
        self._scope = Scope(asyncio.get_running_loop())
        self.cluster_endpoint: ClusterEndpoint | None = None
        """The endpoint this is a part of, where there is a cluster."""

    async def close(self) -> None:
        """End everything that runs here."""
        for link in self._sessionless_links.values():
            link.channel_lost(self._everyone, None)
        self._sessionless_links.clear()
        await self._scope.close()

    def speaks(self, request: HttpRequest) -> bool:
        """Return whether a request names a version of this era, or none, where we speak any of this era."""
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
            self._unknown(identity, request, responder, head)
        else:
            self.take(session, request, origin_of(request, request.identity), responder, head)
        return session

    def take(
        self, session: EndpointSession, request: HttpRequest, origin: Origin, responder: Responder, head: bytes
    ) -> None:
        """Take one message of a session that was found."""
        exchange = SessionExchange(responder, head, session, session.standing)
        try:
            expects_answer = session.link.frame_received(request.body, exchange, origin)
        except Exception:
            # It may have stopped halfway, so the session ends: its next request is told 404, and no other notices.
            self.sessions.end(session)
            raise
        if expects_answer:
            if exchange.open:
                exchange.mark_pending()
        elif exchange.end():
            # Sending Messages to the Server, item 4.
            responder.reply(202, EMPTY_HEAD + head)

    def _without_session(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        if not self._shared.settings.stateless:
            self._refuse(request, responder, 400, "Bad request: the header Mcp-Session-Id is missing", head)
            return
        # Protocol Version Header: what a request without one is taken for.
        version = request.headers.get(mirror.VERSION_FIELD, HEADERLESS.encode()).decode("latin-1")
        if version.encode() not in self._versions:
            self._refuse(request, responder, 400, "Bad request: the header Mcp-Protocol-Version is missing", head)
            return
        link = self._sessionless_links.get(version)
        if link is None:
            link = self._sessionless_links[version] = self._acceptor.sessionless_link(EVERYONE, version)
            link.channel_opened(self._everyone)
        self._pass_on(link, request, responder, head)

    def _refuse(self, request: HttpRequest, responder: Responder, status: int, why: str, head: bytes) -> None:
        """Refuse a message that belongs to no session; observers are told which request it was."""
        refuse(responder, status, why, head)
        if self._acceptor.observer is None:
            return
        try:
            message = decode(request.body)
        except Unreadable:
            return
        if isinstance(message, Request):
            origin = origin_of(request, request.identity)
            self._acceptor.observer.refused(message.id, message.method, InvalidRequest(why), origin, message.params)

    def unreadable(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Answer a body that is not one message: in the session it names, or, before there is one, with the reason."""
        if not self._shared.settings.stateless and SESSION_FIELD not in request.headers:
            try:
                message = decode(request.body)
            except Unreadable as reason:
                refusal = reason.refusal
                identity = None if reason.id is UNSET else reason.id
                if self._acceptor.observer is not None:
                    self._acceptor.observer.refused(identity, "", refusal, origin_of(request, request.identity))
                failure = Failure(identity, ErrorObject(refusal.own_code, refusal.message, refusal.data))
                responder.reply(400, JSON_HEAD + head, encode(failure))
                return
            if isinstance(message, Request) and message.method == "initialize":
                # Its params are none: what is wrong with them is not that a session is missing.
                self.initialize(request, responder, head)
                return
        self.post(request, responder, head)

    def _pass_on(self, link: Receiver, request: HttpRequest, responder: Responder, head: bytes) -> None:
        exchange = SessionlessExchange(responder, head, link, self._shared.settings, self._shared.keepalive)
        origin = origin_of(request, request.identity)
        if link.frame_received(request.body, exchange, origin):
            if exchange.open:
                exchange.mark_pending()
        elif exchange.open:
            exchange.lost()
            responder.reply(202, EMPTY_HEAD + head)

    def initialize(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Open a session; an id the client brings along is ignored."""
        origin = origin_of(request, request.identity)
        lasting = not self._shared.settings.stateless
        session = self.sessions.prepare(origin, lasting=lasting)
        cluster = self._cluster
        if cluster is None or not lasting:
            held = None
        else:
            held = responder = HeldReply(responder)
        opening = SessionOpening(session, responder, head)
        if not session.link.frame_received(request.body, opening, origin):
            responder.reply(202, EMPTY_HEAD + head)
        if opening.opened and lasting:
            self.sessions.add(session, request.body, origin)
        else:
            session.link.channel_lost(session.standing, None)
        if held is not None:
            if opening.opened and not session.over and cluster is not None and self.cluster_endpoint is not None:
                # The next request may come to another node, which has to find the session.
                self._scope.spawn(held.release_after(cluster.keep(self.cluster_endpoint, session)))
            else:
                held.release()

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
            self._unknown(identity, request, responder, head)
        return session

    def _unknown(self, identity: bytes, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Let the worker or the node that has a session answer; a session that nobody has is not found."""
        neighbours = self._acceptor.neighbours
        name = identity.decode("latin-1")
        if neighbours is not None and neighbours.pass_on(name, request, responder):
            return
        # Session Management, item 3.
        not_found = partial(self._refuse, request, responder, 404, NO_SESSION, head)
        cluster = self._cluster
        if cluster is None or self.cluster_endpoint is None:
            not_found()
        else:
            cluster.look_for(self.cluster_endpoint, name, request, responder, not_found)

    async def _resume(
        self, session: EndpointSession, event_id: str, request: HttpRequest, responder: Responder, head: bytes
    ) -> None:
        # Resumability and Redelivery: only of the stream that was disconnected.
        found = session.stream_of(event_id)
        if found is None:
            await self._resume_past(session, event_id, request, responder, head)
            return
        stream, number = found
        missed = await stream.missed(number)
        if missed is None:
            refuse(responder, 404, NOTHING_TO_RESUME, head)
            return
        if stream.attached:
            refuse(responder, 409, "Conflict: that stream has a reader already", head)
            return
        stream.attach(responder, head, missed, expires=expiry_of(request))
        if stream.ended:
            stream.finish()

    async def _resume_past(
        self, session: EndpointSession, event_id: str, request: HttpRequest, responder: Responder, head: bytes
    ) -> None:
        """Go on with a stream that began at another node, which has the session no more."""
        past = None
        if self.cluster_endpoint is not None:
            past = await session.past_stream(event_id)
        if past is None:
            refuse(responder, 404, NOTHING_TO_RESUME, head)
            return
        is_standing, events = past
        if is_standing:
            session.standing.attach(responder, head, events, expires=expiry_of(request))
        elif events:
            # What is not there was not said: the call ended with its node.
            responder.reply(200, STREAM_HEAD + head, events)
        else:
            refuse(responder, 404, NOTHING_TO_RESUME, head)

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
