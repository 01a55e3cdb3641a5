"""The server's side of the HTTP+SSE pair: one stream down, one address to post to, and a session that binds them.

MCP 2024-11-05 basic/transports, HTTP with SSE.

Rule 1: everything the server says goes out on the session's one stream; a POST is only acknowledged.
Rule 2: the id of an event holds the id of its session, so a reader that comes back needs nothing else.
Rule 3: a session of another worker is that worker's to answer.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qsl

from ferrule.supervision.scope import Scope
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor
from ferrule.transports.http.endpoint.caller import binding_of, expiry_of, origin_of
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.endpoint.sessions import Sessions
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.http.heads import EMPTY_HEAD, RETRY_AFTER, TOO_MANY_STREAMS, refuse
from ferrule.transports.http.message import HttpRequest, Responder, header_lines
from ferrule.transports.http.old_sse.session import PostChannel, SseSession, key

Route = Callable[[HttpRequest, Responder], None]

LAST_EVENT_FIELD = b"last-event-id"

ALLOW = {method: header_lines({"Allow": f"{method}, OPTIONS"}) for method in ("GET", "POST")}

NO_SESSION = "Session not found: unknown or expired; open a new stream"
NOTHING_TO_RESUME = "Nothing to resume: that event is unknown or no longer kept"

MOST_NAMES = 16
"""Names in a query that is read."""

LAST_WORDS = 1.0
"""How long readers that are answered in the end may take to be told so."""


class SseEndpoint:
    """Serves clients that read everything from one stream and post to the address it names."""

    def __init__(self, acceptor: HttpAcceptor, sessions: Sessions, shared: EndpointStreams, guard: Guard) -> None:
        self._acceptor = acceptor
        self._sessions = sessions
        self._guard = guard
        self._lost: dict[SseSession, float] = {}
        """Since when a session has no reader, or one that has posted nothing yet; the longest first."""
        self.shared = shared
        self.scope = Scope(asyncio.get_running_loop())
        self.draining = False

    def routes(self, sse_path: str, messages_path: str) -> dict[str, Route]:
        """Return the two routes of a pair."""
        return {sse_path: partial(self._read, messages_path), messages_path: self._post}

    # -- life

    def sweep(self, now: float) -> None:
        """End the sessions whose clients did not come back in time, or opened a stream for nothing."""
        since = now - self.shared.settings.sse_grace
        while self._lost:
            session = next(iter(self._lost))
            if self._lost[session] > since:
                return
            self._give_up(session)

    async def close(self) -> None:
        """End every session with a word to its reader."""
        for session in self._sessions:
            if isinstance(session, SseSession):
                session.why = ""
                self._sessions.end(session)
        await self.scope.close(LAST_WORDS)

    # -- what every route begins with

    def admit(self, request: HttpRequest, responder: Responder, method: str) -> bytes | None:
        """Judge a request to a route of one method. Return the header lines for its answer, None if it was answered."""
        verdict = self._guard.judge(request)
        if verdict.status:
            refuse(responder, verdict.status, verdict.why)
        elif request.method == "OPTIONS":
            preflight = self._guard.preflight(request, f"{method}, OPTIONS")
            responder.reply(204, EMPTY_HEAD + ALLOW[method] + verdict.head + preflight)
        elif request.method != method:
            refuse(responder, 405, f"Method not allowed: {request.method}", ALLOW[method] + verdict.head)
        else:
            return verdict.head
        return None

    def find(self, identity: str, request: HttpRequest, responder: Responder, head: bytes) -> SseSession | None:
        """Return the session of a request; or let the worker answer that has it, or refuse the request."""
        if not identity:
            refuse(responder, 400, "Bad request: session_id is missing in the query", head)
            return None
        session = self._sessions.find(key(identity).encode("latin-1", "replace"), binding_of(request))
        if isinstance(session, SseSession):
            return session
        neighbours = self._acceptor.neighbours
        if neighbours is None or not neighbours.pass_on(identity, request, responder):
            refuse(responder, 404, NO_SESSION, head)
        return None

    def open(
        self, request: HttpRequest, responder: Responder, head: bytes, *, created: bool = False
    ) -> SseSession | None:
        """Open a session, or refuse the request."""
        if self.draining:
            refuse(responder, 503, "Unavailable: the server is stopping", head + RETRY_AFTER)
            return None
        origin = origin_of(request, request.identity, brief=True)
        link = self._acceptor.link(origin)
        session = SseSession(
            self._sessions.mark + str(uuid.uuid4()),
            link,
            self.shared,
            self._sessions.end,
            created=created,
            binding=origin.binding,
        )
        if not created:
            session.stream.lost = partial(self._miss, session)
            self._miss(session)
        session.owner = origin.principal or origin.address
        link.channel_opened(session.standing)
        self._sessions.add(session)
        return session

    def _miss(self, session: SseSession) -> None:
        self._lost.setdefault(session, self.shared.now)
        if len(self._lost) > self.shared.settings.sse_max_lost:
            self._give_up(next(iter(self._lost)))

    def _give_up(self, session: SseSession) -> None:
        del self._lost[session]
        self._sessions.end(session)

    # -- the stream

    def _read(self, messages_path: str, request: HttpRequest, responder: Responder) -> None:
        """Open a session with its stream, or come back for the stream of a session."""
        messages_path = request.root + messages_path
        head = self.admit(request, responder, "GET")
        if head is None:
            return
        if not self._guard.takes_events[request.headers.get(b"accept", b"")]:
            refuse(responder, 406, "Not acceptable: this is answered with text/event-stream", head)
            return
        if self.shared.full:
            refuse(responder, 503, TOO_MANY_STREAMS, head + RETRY_AFTER)
            return
        last = request.header(LAST_EVENT_FIELD)
        named = query_of(request).get("session_id", "")
        if last or named:
            # A browser comes back to the same address, so it names the session by the event alone.
            session = self.find(named or last.rpartition("-")[0] or last, request, responder, head)
            if session is not None:
                self.scope.spawn(self._resume(session, last, request, responder, head, messages_path))
            return
        session = self.open(request, responder, head)
        if session is not None:
            session.stream.begin(responder, head, messages_path, 0, b"", expires=expiry_of(request))

    async def _resume(
        self,
        session: SseSession,
        last: str,
        request: HttpRequest,
        responder: Responder,
        head: bytes,
        messages_path: str,
    ) -> None:
        stream = session.stream
        after = stream.position(last)
        if after is None:
            missed = None
        else:
            missed = await stream.missed(after)
        if after is None or missed is None or stream.ended:
            refuse(responder, 404, NOTHING_TO_RESUME, head)
        elif not responder.gone:
            self._lost.pop(session, None)
            stream.begin(responder, head, messages_path, after, missed, expires=expiry_of(request))

    # -- the messages

    def _post(self, request: HttpRequest, responder: Responder) -> None:
        """Take one message, or a batch, of a session."""
        head = self.admit(request, responder, "POST")
        if head is None:
            return
        headers = request.headers
        limit = self.shared.settings.max_body_size
        if not self._guard.is_json[headers.get(b"content-type", b"")] or b"content-encoding" in headers:
            refuse(responder, 415, "Unsupported media type: send application/json, not encoded otherwise", head)
        elif len(request.body) > limit:
            refuse(responder, 413, f"Too large: the limit is {limit} bytes", head)
        elif session := self.find(query_of(request).get("session_id", ""), request, responder, head):
            if session.stream.attached:
                self._lost.pop(session, None)
            posted = PostChannel(session.standing, responder, head, limit)
            try:
                session.link.frame_received(request.body, posted, origin_of(request, request.identity))
            except Exception:
                # It may have stopped halfway, so the session ends, and no other.
                self._sessions.end(session)
                raise
            posted.accept()


def query_of(request: HttpRequest) -> dict[str, str]:
    """Read the query of a request; of a name that comes twice the last one counts, and of too many names none."""
    if request.query.count("&") > MOST_NAMES:
        return {}
    return dict(parse_qsl(request.query))
