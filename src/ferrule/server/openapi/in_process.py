"""Calls an ASGI application in this process, as an HTTP client would call it over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from ferrule.errors import CarrierError

Event = MutableMapping[str, Any]
Application = Callable[[Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]]

ENCODED_SLASH = re.compile("%2F", re.IGNORECASE)


class InProcessResponse(Struct, frozen=True):
    """The whole answer of an application."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class InProcess:
    """Makes requests to an ASGI application without a network."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._state: dict[str, Any] = {}

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> InProcessResponse:
        """Send a request and return the whole answer."""
        path, _, query = url.partition("?")
        lines = {"host": "localhost", **{name.lower(): value for name, value in (headers or {}).items()}}
        if content is not None:
            lines["content-length"] = str(len(content))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": _decoded(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in lines.items()],
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
            "state": dict(self._state),
        }
        exchange = _Exchange(content or b"")
        await self._application(scope, exchange.receive, exchange.send)
        return exchange.response()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start the application, and stop it in the end; one that has no lifespan is left alone."""
        life = _Life()
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.3"}, "state": self._state}
        running = asyncio.ensure_future(self._application(scope, life.receive, life.send))
        try:
            await _first(running, life.started)
            if running.done() and not life.started.done():
                # It does not know the word: an application without a lifespan raises, or returns at once.
                if not running.cancelled():
                    running.exception()
                yield
                return
            if life.started.result():
                raise CarrierError(f"the application did not start: {life.started.result()}")
            yield
            life.stop.set()
            await _first(running, life.stopped)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running


def _decoded(path: str) -> str:
    """Decode a path, all but the slashes in its segments: they are no separators (RFC 3986 §2.2)."""
    return "%2F".join(map(unquote, ENCODED_SLASH.split(path)))


async def _first(running: asyncio.Future[Any], told: asyncio.Future[Any]) -> None:
    await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)


class _Life:
    """What an application is told of its life, and what it tells."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[str] = loop.create_future()
        self.stopped: asyncio.Future[str] = loop.create_future()
        self.stop = asyncio.Event()
        self._asked = False

    async def receive(self) -> Event:
        if not self._asked:
            self._asked = True
            return {"type": "lifespan.startup"}
        await self.stop.wait()
        return {"type": "lifespan.shutdown"}

    async def send(self, event: Event) -> None:
        if event["type"].startswith("lifespan.startup"):
            told = self.started
        else:
            told = self.stopped
        if not told.done():
            failed = event["type"].endswith("failed")
            told.set_result(event.get("message") or "it said no why" if failed else "")


class _Exchange:
    """One request and its answer."""

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._over = asyncio.Event()

    async def receive(self) -> Event:
        if self._content is not None:
            content = self._content
            self._content = None
            return {"type": "http.request", "body": content, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self._status = event["status"]
            self._headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in event.get("headers", ())}
        else:
            self._body += event.get("body", b"")
            if not event.get("more_body"):
                self._over.set()

    def response(self) -> InProcessResponse:
        if not self._status:
            raise CarrierError("the application gave no answer")
        return InProcessResponse(self._status, self._headers, bytes(self._body))
