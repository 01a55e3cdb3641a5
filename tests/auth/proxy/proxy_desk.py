"""A provider's double, a server behind a proxy for it, clients and browsers that do as tests tell them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from hashlib import sha256
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from msgspec import structs

from ferrule import Context, Http, Server
from ferrule.auth.devserver.clients import RegisteredClient
from ferrule.auth.devserver.profile import API, TENANT
from ferrule.auth.devserver.server import DevServer
from ferrule.auth.proxy.profiles import PROFILES, Profile
from ferrule.auth.proxy.proxy import OAuthProxy

CLIENT = ("proxy-app", "the-secret-of-the-proxy")
LOOPBACK = "http://127.0.0.1:33418/callback"
WEB = "https://app.example.com/callback"
KEYS = ["k" * 32]
SCOPES = {"entra": f"api://{API}/notes", "google": "email", "slack": "chat:write"}
"""A scope that the double of a provider knows."""
MORE = f"api://{API}/more"
"""A scope that one tool needs; Entra knows it by this name, the others by any."""


class Clock:
    """Time that a test moves, ahead of the time on the wall."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def profile_at(double: DevServer, name: str) -> Profile:
    """Return the profile of a provider with the addresses of its double."""
    changes: dict[str, Any] = {"authorize": double.url("authorize"), "token": double.url("token")}
    profile = PROFILES[name]
    if profile.identity_url:
        changes["identity_url"] = double.url("tokeninfo" if profile.identity == "tokeninfo" else "user")
    if profile.issuer:
        changes["issuer"] = double.issuer
    if name in ("entra", "slack"):
        # The doubles name users by one claim.
        changes["subject"] = ("sub",)
    return structs.replace(profile, **changes)


class Desk:
    """A server behind a proxy, and the double of its provider."""

    def __init__(self, double: DevServer, proxy: OAuthProxy, base: str, clock: Clock, name: str) -> None:
        self.double = double
        self.proxy = proxy
        self.base = base
        self.clock = clock
        self.scope = SCOPES.get(name, "notes")

    @property
    def resource(self) -> str:
        """The URL of the server."""
        return f"{self.base}/mcp"

    async def call(self, token: str, tool: str = "whoami") -> httpx.Response:
        """Call a tool in the stateless era."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": {}, "_meta": meta},
        }
        headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        async with httpx.AsyncClient(trust_env=False) as http:
            return await http.post(self.resource, json=body, headers=headers)

    async def said(self, token: str, tool: str = "whoami") -> str:
        """Return the text a tool answers."""
        answer = await self.call(token, tool)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["result"]["content"][0]["text"]
        return text


def new_server(proxy: OAuthProxy) -> Server:
    """Make a server whose tools tell who calls, and what the provider's token of the caller is."""
    app = Server("notes", version="1", auth=proxy)

    @app.tool
    async def whoami(ctx: Context) -> str:
        return str(ctx.principal)

    @app.tool
    async def upstream(ctx: Context) -> str:
        return await proxy.upstream_token(ctx.identity)

    @app.tool(scopes=[MORE])
    async def more() -> str:
        return "more"

    return app


@contextlib.asynccontextmanager
async def serving(app: Server, port: int, **options: Any) -> AsyncIterator[None]:
    """Serve over HTTP while the block runs."""
    listener = Http(port=port, **options)
    running = asyncio.ensure_future(app.serve(listener))
    while True:
        assert not running.done(), running.result()
        with contextlib.suppress(Exception):
            if listener.address[1]:
                break
        await asyncio.sleep(0.005)
    try:
        yield
    finally:
        await app.stop()
        await running


@contextlib.asynccontextmanager
async def a_desk(name: str = "github", double: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Desk]:
    """A double of a provider and a server behind a proxy for it; the options are those of the proxy."""
    clock = options.pop("clock", None) or Clock()
    port = options.pop("port", 0) or free_port()
    base = f"http://127.0.0.1:{port}"
    registered = RegisteredClient(
        id=CLIENT[0],
        secret=CLIENT[1],
        auth_method="client_secret_basic" if name == "cognito" else "client_secret_post",
        redirect_uris=[f"{base}/callback"],
    )
    given = {"user": "ada", "clients": [registered], "clock": clock, **(double or {})}
    async with DevServer(name, **given) as provider:
        proxy = OAuthProxy(
            profile_at(provider, name),
            CLIENT,
            **{
                "resource": f"{base}/mcp",
                "scopes": [SCOPES.get(name, "notes")],
                "keys": KEYS,
                "tenant": TENANT,
                "clock": clock,
                **options,
            },
        )
        async with serving(new_server(proxy), port):
            yield Desk(provider, proxy, base, clock, name)


def pkce() -> tuple[str, str]:
    """Return a verifier and its challenge."""
    verifier = secrets.token_urlsafe(48)
    return verifier, urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def back(answer: httpx.Response) -> dict[str, str]:
    """Return the parameters with which a browser was sent on."""
    assert answer.status_code == 303, (answer.status_code, answer.text)
    found = parse_qs(urlsplit(answer.headers["location"]).query, keep_blank_values=True)
    return {name: values[0] for name, values in found.items()}


def ticket_of(page: httpx.Response) -> str:
    """Return the ticket in a consent page."""
    found = re.search(r'name="ticket" value="([^"]*)"', page.text)
    assert found, page.text
    return unescape(found[1])


class Visitor:
    """One browser and the client its user has started."""

    def __init__(self, desk: Desk, redirect: str = LOOPBACK) -> None:
        self.desk = desk
        self.redirect = redirect
        self.client_id = ""
        self.client: dict[str, Any] = {}
        self.verifier, self.challenge = pkce()
        self.http = httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=30)

    async def __aenter__(self) -> Visitor:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.http.aclose()

    async def register(self, **changes: Any) -> dict[str, Any]:
        """Register the client."""
        document = {"client_name": "Notebook", "redirect_uris": [self.redirect], **changes}
        answer = await self.http.post(f"{self.desk.base}/register", json=document)
        assert answer.status_code == 201, answer.text
        self.client = answer.json()
        self.client_id = self.client["client_id"]
        return self.client

    async def authorize(self, **changes: Any) -> httpx.Response:
        """Open the authorization page; a change of None leaves a parameter out."""
        if not self.client_id:
            await self.register()
        fields: dict[str, Any] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect,
            "state": "s1",
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "scope": self.desk.scope,
            "resource": self.desk.resource,
            **changes,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return await self.http.get(f"{self.desk.base}/authorize", params=given)

    async def consent(self, page: httpx.Response, answer: str = "allow", **headers: str) -> httpx.Response:
        """Answer the consent page."""
        fields = {"ticket": ticket_of(page), "answer": answer}
        return await self.http.post(f"{self.desk.base}/consent", data=fields, headers=headers)

    async def at_provider(self, answer: httpx.Response) -> str:
        """Go to the provider, which knows the user. Return where it sends the browser back to."""
        assert answer.status_code == 303, answer.text
        found = await self.http.get(answer.headers["location"])
        assert found.status_code in (302, 303), found.text
        there: str = found.headers["location"]
        return there

    async def come_back(self, **changes: Any) -> httpx.Response:
        """Log in up to the answer that sends the browser to the client."""
        page = await self.authorize(**changes)
        answer = page
        if page.status_code == 200:
            answer = await self.consent(page)
        return await self.http.get(await self.at_provider(answer))

    async def post(self, path: str, fields: dict[str, Any], **options: Any) -> httpx.Response:
        """Post a form as the client."""
        if "auth" not in options:
            fields = {"client_id": self.client_id, **fields}
        given = {name: value for name, value in fields.items() if value is not None}
        return await self.http.post(f"{self.desk.base}{path}", data=given, **options)

    async def redeem(self, code: str, **changes: Any) -> httpx.Response:
        """Exchange a code."""
        options = {name: changes.pop(name) for name in ("auth",) if name in changes}
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect,
            "code_verifier": self.verifier,
            "resource": self.desk.resource,
            **changes,
        }
        return await self.post("/token", fields, **options)

    async def refresh(self, token: str, **changes: Any) -> httpx.Response:
        """Use a refresh token."""
        return await self.post("/token", {"grant_type": "refresh_token", "refresh_token": token, **changes})

    async def login(self, **changes: Any) -> dict[str, Any]:
        """Log in. Return what the token endpoint gave."""
        answer = await self.redeem(back(await self.come_back(**changes))["code"])
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the error of an answer."""
    return answer.status_code, answer.json()["error"]
