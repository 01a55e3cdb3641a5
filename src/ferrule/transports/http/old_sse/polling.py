"""Sessions that are created before their stream, which is then read as one, by polling or by long polling."""

from __future__ import annotations

from functools import partial

import msgspec

from ferrule.transports.http.heads import JSON_HEAD, refuse
from ferrule.transports.http.message import HttpRequest, Responder, header_lines
from ferrule.transports.http.old_sse.endpoint import LAST_EVENT_FIELD, Route, SseEndpoint, query_of
from ferrule.transports.http.old_sse.session import SseSession
from ferrule.wire.sse import SseParser

SSE_PATH = "/mcp/sse"
MESSAGES_PATH = "/mcp/messages"
CREATE_PATH = "/mcp/sessions/create"
EVENTS_PATH = "/mcp/events"

LOST = "Events were lost: more were said than are kept for a client that does not ask for them"


class Polling:
    """Serves clients that create their session, and may ask for events instead of reading a stream."""

    def __init__(self, sse: SseEndpoint) -> None:
        self._sse = sse

    def routes(self) -> dict[str, Route]:
        """Return the routes."""
        own = {CREATE_PATH: self._create, EVENTS_PATH: self._poll}
        return {**self._sse.routes(SSE_PATH, MESSAGES_PATH), **own}

    def _create(self, request: HttpRequest, responder: Responder) -> None:
        """Create a session that has no stream yet."""
        head = self._sse.admit(request, responder, "POST")
        if head is None:
            session = None
        else:
            session = self._sse.open(request, responder, head, created=True)
        if head is not None and session is not None:
            responder.reply(200, JSON_HEAD + head, msgspec.json.encode({"session_id": session.stream.name}))

    def _poll(self, request: HttpRequest, responder: Responder) -> None:
        """Hand out what was said since the last time, at once or when there is something."""
        head = self._sse.admit(request, responder, "GET")
        if head is None:
            return
        query = query_of(request)
        session = self._sse.find(query.get("session_id", ""), request, responder, head)
        if session is None:
            return
        if session.stream.attached:
            refuse(responder, 409, "Conflict: the events of this session are read as a stream", head)
            return
        if query.get("wait") == "true":
            wait = self._sse.shared.settings.poll_timeout
        else:
            wait = 0.0
        answering = self._answer(session, request.header(LAST_EVENT_FIELD), wait, responder, head)
        task = self._sse.scope.spawn(answering)
        # Whoever is gone got nothing: what comes next is for the poll after this one.
        responder.watch(partial(self._sse.scope.cancel, task))

    async def _answer(self, session: SseSession, last: str, wait: float, responder: Responder, head: bytes) -> None:
        stream = session.stream
        after = stream.position(last)
        if after is None:
            refuse(responder, 404, "No such event in this session", head)
            return
        missed = await stream.missed(after)
        if missed == b"" and wait:
            await stream.wait_news(wait)
            missed = b"" if stream.attached else await stream.missed(after)
        if missed is None and not stream.ended:
            stream.skip()
            refuse(responder, 410, LOST, head)
            return
        parser = SseParser(self._sse.shared.settings.max_body_size)
        events = parser.feed(missed or b"")
        newest = parser.last_id or f"{stream.name}-{after}"
        stream.delivered(newest)
        body = b"[%b]" % b",".join(each.data for each in events)
        responder.reply(200, JSON_HEAD + head + header_lines({"Last-Event-ID": newest}), body)
