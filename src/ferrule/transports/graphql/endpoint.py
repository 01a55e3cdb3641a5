"""GraphQL over HTTP: POST for every operation, GET for queries, and the WebSockets of subscriptions at the same path.

After https://graphql.github.io/graphql-over-http/draft/. A browser sends JSON to another origin only when that origin
allows it (CORS), so a POST must be `application/json`; a GET runs queries only, and none from a page of another site.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from graphql import OperationType

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.supervision.scope import Scope
from ferrule.transports.graphql.errors import BAD_REQUEST, FORBIDDEN, UNAVAILABLE, unexpected
from ferrule.transports.graphql.operation import (
    BUSY,
    Operation,
    Payload,
    Refused,
    answer_of,
    debit,
    prepare,
    read_body,
    read_query,
    written,
)
from ferrule.transports.graphql.requests import CARRIER, Backend, Requests
from ferrule.transports.graphql.settings import GraphqlSettings
from ferrule.transports.graphql.socket import SUBPROTOCOL, OperationSocket
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor
from ferrule.transports.http.endpoint.caller import STOPPING, Callers, origin_of
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.heads import ALWAYS, EMPTY_HEAD, RETRY_AFTER, TEXT_HEAD
from ferrule.transports.http.message import HttpRequest, Responder, header_lines
from ferrule.transports.websocket.endpoint import WebSocketEndpoint
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.wire.channel import Origin

METHODS = "GET, POST, OPTIONS"
RESPONSE = "application/graphql-response+json"
JSON = "application/json"
MAX_FIELDS = 10
"""Names in the query of a URL."""
MAX_RUNNING = 16 * 1024 * 1024
"""Bytes of all requests whose operations run, as they were estimated to take them."""
OWN_SITE = (b"same-origin", b"none")
"""Sec-Fetch-Site of a request that no page of another site has made (W3C Fetch Metadata)."""


class GraphqlEndpoint:
    """Answers the requests of one listener."""

    def __init__(self, acceptor: HttpAcceptor, settings: GraphqlSettings, guard: Guard) -> None:
        self._settings = settings
        self._guard = guard
        self._callers = Callers(acceptor.verifier, guard, CARRIER)
        self._backend = Backend(acceptor, settings.max_body_size)
        self._scope = Scope(asyncio.get_running_loop())
        self._running = Account("requests whose GraphQL operations run", MAX_RUNNING, within=process.requests)
        websocket = WebSocketSettings(
            path=settings.path, max_connections=settings.max_websockets, max_message_size=settings.max_body_size
        )
        self._websocket = WebSocketEndpoint(acceptor, websocket, guard, subprotocol=SUBPROTOCOL, new_link=self._socket)
        self.draining = False

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a request, now or later."""
        if request.path != self._settings.path:
            responder.reply(404, TEXT_HEAD, f"Not found; GraphQL is served at {self._settings.path}\n".encode())
        elif b"websocket" in request.headers.get(b"upgrade", b"").lower():
            self._websocket.handle(request, responder)
        else:
            self._callers.admit(request, responder, self._answer)

    def drain(self) -> None:
        """Take no new operations."""
        self.draining = True
        self._websocket.draining = True

    async def close(self, grace: float) -> None:
        """End what runs after `grace` seconds, and every WebSocket."""
        self.drain()
        await asyncio.gather(self._scope.close(grace), self._websocket.close(grace), self._callers.close())
        self._backend.close()

    def _socket(self, request: HttpRequest) -> OperationSocket:
        return OperationSocket(self._settings, partial(Requests, self._backend, self._origin(request)), self._running)

    def _origin(self, request: HttpRequest) -> Origin:
        return origin_of(request, request.identity, self._backend.version, carrier=CARRIER)

    # -- one request

    def _answer(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a request whose sender is known."""
        head = self._guard.judge(request).head
        if request.method == "OPTIONS":
            lines = header_lines({"Allow": METHODS}) + self._guard.preflight(request, METHODS)
            responder.reply(204, EMPTY_HEAD + head + lines)
            return
        problem = self._problem(request)
        if problem is not None:
            status, why = problem
            if status == 405:
                head += header_lines({"Allow": METHODS})
            elif status == 503:
                head += RETRY_AFTER
            code = {503: UNAVAILABLE, 403: FORBIDDEN}.get(status, BAD_REQUEST)
            self._reply(request, responder, status, {"errors": Refused.because(why, code).errors}, head)
            return
        try:
            operation = self._operation(request)
        except Refused as refused:
            self._reply(request, responder, self._status(request), {"errors": refused.errors}, head)
            return
        why = _misplaced(request, operation)
        if why:
            head += header_lines({"Allow": "POST"})
            self._reply(request, responder, 405, {"errors": Refused.because(why).errors}, head)
        else:
            self._start(request, operation, responder, head)

    def _problem(self, request: HttpRequest) -> tuple[int, str] | None:
        """Return why a request is refused before it is read: a status and a sentence."""
        headers = request.headers
        if request.method == "GET":
            if headers.get(b"sec-fetch-site", b"none") not in OWN_SITE and b"origin" not in headers:
                return 403, "Forbidden: a page of another site may not send this; use POST"
        elif request.method != "POST":
            return 405, f"Method not allowed; use {METHODS}"
        elif not self._guard.is_json[headers.get(b"content-type", b"")] or b"content-encoding" in headers:
            return 415, "Unsupported media type: send application/json, not encoded otherwise"
        elif len(request.body) > self._settings.max_body_size:
            return 413, f"Too large: the limit is {self._settings.max_body_size} bytes"
        if self.draining:
            return 503, STOPPING
        if len(self._scope.tasks) >= self._settings.max_operations:
            return 503, f"Unavailable: {self._settings.max_operations} operations run already"
        return None

    def _operation(self, request: HttpRequest) -> Operation:
        payload: Payload
        if request.method == "POST":
            payload = read_body(request.body)
        elif request.query.count("&") >= MAX_FIELDS:
            raise Refused.because("The URL has too many fields")
        else:
            payload = read_query(dict(parse_qsl(request.query, keep_blank_values=True)))
        return prepare(payload, self._settings)

    def _start(self, request: HttpRequest, operation: Operation, responder: Responder, head: bytes) -> None:
        amount = debit(self._running, request.body or request.query.encode())
        if amount is None:
            errors = Refused.because(BUSY, UNAVAILABLE).errors
            self._reply(request, responder, 503, {"errors": errors}, head + RETRY_AFTER)
            return
        task = self._scope.spawn(self._run(request, operation, responder, head))
        task.add_done_callback(lambda _: self._running.give(amount))
        # Whoever has gone away has cancelled the operation.
        responder.watch(lambda: self._scope.cancel(task))

    async def _run(self, request: HttpRequest, operation: Operation, responder: Responder, head: bytes) -> None:
        try:
            answer = answer_of(await operation.run(Requests(self._backend, self._origin(request))))
            status = 200 if "data" in answer else self._status(request)
            self._reply(request, responder, status, answer, head)
        except Exception as error:
            self._reply(request, responder, 500, {"errors": unexpected(error)}, head)

    def _status(self, request: HttpRequest) -> int:
        """Return the status of an operation that was not run: a client that knows no other type than JSON wants 200."""
        if _takes_response(request):
            return 400
        return 200

    def _reply(
        self, request: HttpRequest, responder: Responder, status: int, answer: dict[str, Any], head: bytes
    ) -> None:
        kind = RESPONSE if _takes_response(request) else JSON
        lines = header_lines({"Content-Type": kind, "Cache-Control": "no-store", **ALWAYS})
        responder.reply(status, lines + head, written(answer, self._settings.max_body_size))


def _takes_response(request: HttpRequest) -> bool:
    return RESPONSE in request.header(b"accept")


def _misplaced(request: HttpRequest, operation: Operation) -> str:
    """Return why an operation cannot be run by this request; empty where it can."""
    if operation.kind is OperationType.SUBSCRIPTION:
        return "Subscriptions run over WebSocket, with the subprotocol graphql-transport-ws"
    if request.method == "GET" and operation.kind is not OperationType.QUERY:
        return "GET runs queries only; send mutations with POST"
    return ""
