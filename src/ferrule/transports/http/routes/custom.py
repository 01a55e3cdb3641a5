"""HTTP routes that a server offers beside MCP: a health page, a webhook, the way back of a sign-in."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from ferrule.errors import SetupError
from ferrule.supervision.scope import Scope
from ferrule.transports.http.endpoint.caller import Callers
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.heads import ALWAYS, EMPTY_HEAD, TEXT_HEAD
from ferrule.transports.http.message import HttpRequest, Responder, header_lines
from ferrule.transports.http.routes.path_pattern import PathPattern
from ferrule.transports.http.routes.web import WebRequest, WebResponse, respond

logger = logging.getLogger("ferrule.http")

Endpoint = Callable[[WebRequest], Awaitable[object]]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class CustomRoute:
    """One path beside MCP, the methods it takes, and who answers."""

    def __init__(
        self, path: str, methods: Sequence[str], answer: Endpoint, *, auth: bool = True, any_origin: bool = False
    ) -> None:
        if not path.startswith("/"):
            raise SetupError(f"custom_route: the path {path!r} must begin with a slash")
        self.methods = frozenset(map(str.upper, methods))
        if not self.methods or self.methods - METHODS:
            wrong = ", ".join(sorted(self.methods - METHODS)) or "none at all"
            raise SetupError(f"custom_route {path}: methods are some of {', '.join(sorted(METHODS))}, not {wrong}")
        if "GET" in self.methods:
            self.methods |= {"HEAD"}
        self.path = path
        self.answer = answer
        self.auth = auth
        """Whether the server's verifier decides who may call it."""
        self.any_origin = any_origin
        """Whether pages of any origin may call it: the answer says by itself what they may read (CORS)."""
        self._pattern = PathPattern(path)

    def match(self, path: str) -> dict[str, str] | None:
        """Return the values of the path's variables, or None when this is another path."""
        found = self._pattern.match(path)
        if found is None:
            return None
        values = {}
        for name, given in found.items():
            value = unquote(given)
            if _strays(given, value):
                return None
            values[name] = value
        return values


def _strays(given: str, value: str) -> bool:
    """Return whether a value is more than the segments it seemed to be, or a path that leads elsewhere in a folder."""
    hides = value.count("/") != given.count("/")
    return hides or value.startswith("/") or not {".", ".."}.isdisjoint(value.split("/"))


class RoutesEndpoint:
    """Finds the route of a request, runs its handler, and writes what it gives."""

    def __init__(
        self, routes: Sequence[CustomRoute], guard: Guard, callers: Callers, *, also: Sequence[CustomRoute] = ()
    ) -> None:
        self._routes = routes
        """Those of the server; more may come while it serves."""
        self._also = also
        self._guard = guard
        self._callers = callers
        self._scope = Scope(asyncio.get_running_loop())

    def handle(self, request: HttpRequest, responder: Responder) -> bool:
        """Answer a request, now or later. Return False when no route has its path."""
        found: list[tuple[CustomRoute, dict[str, str]]] = []
        for route in (*self._routes, *self._also):
            values = route.match(request.path)
            if values is not None:
                found.append((route, values))
        if not found:
            return False
        if all(route.any_origin for route, _ in found):
            verdict = self._guard.judge_host(request)
        else:
            verdict = self._guard.judge(request)
        if verdict.status:
            responder.reply(verdict.status, TEXT_HEAD, f"{verdict.why}\n".encode())
            return True
        for route, values in found:
            if request.method in route.methods:
                run = partial(self._run, route, values, verdict.head)
                if not route.auth:
                    run(request, responder)
                elif request.method == "OPTIONS":
                    # Here it is no preflight that we answer, but one more way to run the handler.
                    self._callers.verify(request, responder, run, self._callers.facts(request))
                else:
                    self._callers.admit(request, responder, run)
                return True
        self._refuse(request, responder, verdict.head, found)
        return True

    def _run(
        self, route: CustomRoute, values: dict[str, str], head: bytes, request: HttpRequest, responder: Responder
    ) -> None:
        task = self._scope.spawn(self._answer(route, WebRequest(request, values), responder, head))
        responder.watch(lambda: self._scope.cancel(task))

    def _refuse(
        self, request: HttpRequest, responder: Responder, head: bytes, found: list[tuple[CustomRoute, dict[str, str]]]
    ) -> None:
        allowed = {"OPTIONS"}
        for route, _ in found:
            allowed |= route.methods
        methods = ", ".join(sorted(allowed))
        head += header_lines({"Allow": methods})
        if request.method == "OPTIONS":
            responder.reply(204, EMPTY_HEAD + head + self._guard.preflight(request, methods))
        else:
            responder.reply(405, TEXT_HEAD + head, f"Method not allowed; use {methods}\n".encode())

    async def _answer(self, route: CustomRoute, request: WebRequest, responder: Responder, head: bytes) -> None:
        try:
            response = respond(await route.answer(request))
            own = response.head(ALWAYS)
            body = b"" if response.streams else response.body
        except BaseException as error:  # a handler may raise anything; only its caller may cancel it
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            reference = secrets.token_hex(4)
            logger.error("the route %s failed (reference %s)", route.path, reference, exc_info=error)
            responder.reply(500, TEXT_HEAD + head, f"Internal error (reference {reference})\n".encode())
            return
        head += own
        if response.streams and request.method == "HEAD":
            # Nobody reads the parts, so nothing would slow them down.
            responder.begin(response.status_code, head)
            responder.finish()
        elif response.streams:
            await _stream(response, responder, head)
        else:
            responder.reply(response.status_code, head, body)

    async def close(self, grace: float = 0.0) -> None:
        """Let handlers end within `grace` seconds, then end them."""
        await self._scope.close(grace)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _stream(response: WebResponse, responder: Responder, head: bytes) -> None:
    """Write a body in its parts, as fast as they are taken."""
    responder.begin(response.status_code, head)
    parts: AsyncIterable[Any] = response.content
    try:
        async for part in parts:
            responder.write(part.encode() if isinstance(part, str) else part)
            await responder.wait_writable()
    except Exception:
        # The head has gone out: cutting the body short is the only way left to tell.
        logger.exception("a streamed answer failed")
        responder.abort()
    else:
        responder.finish()
