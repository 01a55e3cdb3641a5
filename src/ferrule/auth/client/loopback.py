"""The listener that a browser is sent back to after a login (RFC 8252 §7.3).

Rule: a request that is not the answer we wait for is refused and changes nothing: any program here could send one.
Nothing of a request is ever shown: the page is always the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from ferrule.errors import AuthorizationFailed

LONGEST_HEAD = 16 * 1024
READ_TIMEOUT = 5.0
FAREWELL = 1.0
MOST_AT_ONCE = 8
MOST_REQUESTS = 200
"""How many requests are looked at before the listener gives up."""

PAGE = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>Login</title>"
    b"<style>body{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:32em;padding:0 1em}"
    b"@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}</style>"
    b"<h1>You can close this window</h1><p>The rest happens in the program that asked you to log in.</html>"
)
REFUSED = b"This is not the answer that is waited for.\n"
HEAD = (
    b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\ncache-control: no-store\r\n"
    b"content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    b"referrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\n\r\n%b"
)


class CallbackListener:
    """Listens for one answer at a port of this machine."""

    def __init__(self, *, host: str, ports: Sequence[int], path: str) -> None:
        self._is_answer: Callable[[str], bool] = _nothing
        self._host = host
        self._ports = ports
        """Tried in this order; 0 for any that is free."""
        self._path = path
        self._server: asyncio.Server | None = None
        self._running: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._seen = 0
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        failure: OSError | None = None
        for port in self._ports:
            try:
                self._server = await asyncio.start_server(self._serve, self._host, port, limit=LONGEST_HEAD)
                return self
            except OSError as reason:
                failure = reason
        why = "" if failure is None else failure.strerror or failure
        raise AuthorizationFailed(
            f"port {self._ports[-1]} of {self._host} is needed for the answer of a login: {why}"
        ) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        if self._running:
            # The browser gets its page.
            await asyncio.wait(list(self._running), timeout=FAREWELL)
        # Cut, not cancelled: Python 3.11 logs an error for each reader that is cancelled.
        for writer in self._running.values():
            writer.transport.abort()
        if self._running:
            await asyncio.wait(list(self._running))
        self._answer.cancel()

    async def wait(self, is_answer: Callable[[str], bool]) -> str:
        """Return the query of the request that is the answer."""
        self._is_answer = is_answer
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._seen += 1
        task = asyncio.current_task()
        assert task is not None
        if len(self._running) >= MOST_AT_ONCE or self._seen > MOST_REQUESTS:
            writer.transport.abort()
            return
        self._running[task] = writer
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            del self._running[task]
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _respond(self, head: bytes) -> bytes:
        """Return the answer to a request, and take note of the one that is waited for."""
        line, _, _ = head.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or words[0] != "GET" or not words[2].startswith("HTTP/1."):
            return _written(b"400 Bad Request", b"text/plain", REFUSED)
        path, _, query = words[1].partition("?")
        if path != self._path:
            return _written(b"404 Not Found", b"text/plain", REFUSED)
        if self._answer.done() or not self._is_answer(query):
            return _written(b"400 Bad Request", b"text/plain", REFUSED)
        self._answer.set_result(query)
        return _written(b"200 OK", b"text/html; charset=utf-8", PAGE)


def _nothing(query: str) -> bool:
    return False


def _written(status: bytes, kind: bytes, body: bytes) -> bytes:
    return HEAD % (status, kind, len(body), body)
