"""One verifier, one server, and every way by which others reach it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from certificates import Authority

from ferrule import Client, Context, Forbidden, Http, Principal, RequestFacts, Server, Tcp, Unauthorized, Verifier
from ferrule.testing import ERAS
from ferrule.transports.http.listener import Sse

HTTP_WAYS = [(way, era) for way in ("engine", "asgi") for era in ERAS]
SOCKETS = [(way, era) for way in ("websocket", "asgi websocket", "tcp") for era in ERAS]
SPOKEN = [*HTTP_WAYS, ("sse", "handshake"), *SOCKETS]
"""Every way by which others reach a server, with the eras it has: the old pair of HTTP and SSE has only one."""

CHALLENGE = 'Bearer realm="tests"'
STEP_UP = 'Bearer error="insufficient_scope", scope="seats:write"'


class ByHeader(Verifier):
    """Believes the header `X-User`, or the name in a certificate, and writes down what it was asked."""

    def __init__(self, *, pause: float | None = None, keep: float = 0.0, lifetime: float | None = None) -> None:
        self.pause = pause
        self.keep = keep
        self.lifetime = lifetime
        self.asked: list[RequestFacts] = []

    def verify(self, facts: RequestFacts) -> Any:
        """Answer at once, or after a while."""
        self.asked.append(facts)
        verdict = self.judge(facts)
        return verdict if self.pause is None else self.later(verdict)

    async def later(self, verdict: Any) -> Any:
        """Answer after a while."""
        await asyncio.sleep(self.pause or 0.0)
        return verdict

    def judge(self, facts: RequestFacts) -> Any:
        """Say who it is."""
        user = facts.headers.get("x-user", "") if facts.certificate is None else facts.certificate.name
        if not user:
            return Unauthorized("Unauthorized: send X-User", headers={"WWW-Authenticate": CHALLENGE})
        if user == "mallory":
            return Forbidden("Forbidden: not you", status=403, headers={"WWW-Authenticate": STEP_UP})
        expires = None if self.lifetime is None else time.time() + self.lifetime
        return Principal(issuer="staff", subject=user, client="tests", scopes=frozenset({"read"}), expires=expires)


def new_server(verifier: Verifier | None) -> Server:
    """Make a server whose tools tell who calls, ask, and demand more rights."""
    app = Server("seats", version="1", auth=verifier)

    @app.tool
    async def whoami(ctx: Context) -> str:
        return str(ctx.principal)

    @app.tool
    async def scopes(ctx: Context) -> list[str]:
        return [] if ctx.identity is None else sorted(ctx.identity.scopes)

    @app.tool
    async def book(ctx: Context) -> str:
        return f"{ctx.principal} row {await ctx.ask('Which row?', int)}"

    @app.tool
    async def count(ctx: Context) -> int:
        ctx.state["calls"] = ctx.state.get("calls", 0) + 1
        return int(ctx.state["calls"])

    @app.tool
    async def change(ctx: Context) -> str:
        raise Forbidden("Forbidden: seats:write is needed", status=403, headers={"WWW-Authenticate": STEP_UP})

    return app


class Place:
    """A server that is reached in one way."""

    def __init__(self, url: str, options: Callable[[str], dict[str, Any]]) -> None:
        self.url = url
        self._options = options

    def client(self, user: str, era: str = "handshake", **options: Any) -> Client:
        """Return a client that says it is somebody; nobody for an empty name."""
        options.setdefault("elicitation", lambda question: {"value": 12})
        return Client(self.url, mode=era, reconnect=False, **self._options(user), **options)


def _by_header(user: str) -> dict[str, Any]:
    return {"headers": {"X-User": user} if user else {}}


@asynccontextmanager
async def _listening(app: Server, listener: Any) -> AsyncIterator[Any]:
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener))
    while not ready.is_set():
        with suppress(Exception):
            _ = listener.address
            ready.set()
        await asyncio.sleep(0.005)
        assert not serving.done(), serving.result()
    try:
        yield listener
    finally:
        await app.stop()
        await serving


@asynccontextmanager
async def _under_uvicorn(app: Server) -> AsyncIterator[int]:
    site = app.asgi(websocket=True, health=True)
    config = uvicorn.Config(
        site, port=0, log_config=None, log_level="critical", ws="wsproto", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)

    running = asyncio.ensure_future(server._serve())
    while not server.started:
        await asyncio.sleep(0.005)
        assert not running.done(), running.result()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def served(app: Server, way: str, folder: Path, **options: Any) -> AsyncIterator[Place]:
    """Serve an app in one way while the block runs."""
    if way in ("asgi", "asgi websocket"):
        async with _under_uvicorn(app) as port:
            url = f"http://127.0.0.1:{port}/mcp" if way == "asgi" else f"ws://127.0.0.1:{port}/mcp/ws"
            yield Place(url, _by_header)
    elif way == "tcp":
        authority = Authority(folder)
        certificate, key = authority.sign("localhost")
        listener = Tcp(port=0, certificate=certificate, private_key=key, client_ca=authority.file)

        def certified(user: str) -> dict[str, Any]:
            return {"tcp": {"ca": authority.file, "cert": authority.sign(user or "mallory")}}

        async with _listening(app, listener):
            yield Place(f"tls://localhost:{listener.address[1]}", certified)
    else:
        listener = Sse(port=0, **options) if way == "sse" else Http(port=0, websocket=True, **options)
        async with _listening(app, listener):
            port = listener.address[1]
            urls = {
                "sse": f"sse+http://127.0.0.1:{port}/sse",
                "engine": f"http://127.0.0.1:{port}/mcp",
                "websocket": f"ws://127.0.0.1:{port}/mcp/ws",
            }
            yield Place(urls[way], _by_header)
