"""A client of authorization servers that does exactly what a test tells it, right or wrong."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import httpx

from ferrule.auth.devserver.server import DevServer
from ferrule.auth.jose import read_part

CALLBACK = "http://127.0.0.1:8765/callback"
RESOURCE = "https://mcp.example.com/mcp"


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def pkce() -> tuple[str, str]:
    """Return a verifier and its challenge."""
    verifier = secrets.token_urlsafe(48)
    return verifier, urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def claims_of(token: str) -> dict[str, Any]:
    """Read the claims of a JWT."""
    return read_part(token.split(".")[1])


class Caller:
    """Calls one server; `client_id` is its own."""

    def __init__(self, server: DevServer, client_id: str = "app", secret: str = "") -> None:
        self.server = server
        self.client_id = client_id
        self.secret = secret
        self.verifier, self.challenge = pkce()
        self._http = httpx.AsyncClient(follow_redirects=False, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """GET a path of the server, or a URL."""
        if path.startswith("/"):
            path = self.server.origin + path
        return await self._http.get(path, **options)

    async def authorize(self, **changes: Any) -> httpx.Response:
        """Send an authorization request; a change of None leaves a parameter out."""
        fields: dict[str, Any] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": CALLBACK,
            "state": "s1",
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "scope": "notes",
            "resource": RESOURCE,
        }
        fields |= changes
        given = {name: value for name, value in fields.items() if value is not None}
        return await self._http.get(self.server.url("authorize"), params=given)

    async def code(self, **changes: Any) -> str:
        """Return a code."""
        return back(await self.authorize(**changes))["code"]

    async def post(
        self, endpoint: str, fields: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Post a form to an endpoint, with the client's credentials."""
        auth = (self.client_id, self.secret) if self.secret else None
        if auth is None and "client_assertion" not in fields:
            fields = {"client_id": self.client_id, **fields}
        given = {name: value for name, value in fields.items() if value is not None}
        options: dict[str, Any] = {"auth": auth} if auth else {}
        sent = {"accept": "application/json", **(headers or {})}
        return await self._http.post(self.server.url(endpoint), data=given, headers=sent, **options)

    async def redeem(self, code: str, headers: dict[str, str] | None = None, **changes: Any) -> httpx.Response:
        """Exchange a code."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": CALLBACK,
            "code_verifier": self.verifier,
            "resource": RESOURCE,
        }
        return await self.post("token", {**fields, **changes}, headers)

    async def refresh(self, token: str, headers: dict[str, str] | None = None, **changes: Any) -> httpx.Response:
        """Use a refresh token."""
        return await self.post("token", {"grant_type": "refresh_token", "refresh_token": token, **changes}, headers)

    async def login(self, **changes: Any) -> dict[str, Any]:
        """Sign in, and return what the token endpoint gave."""
        answer = await self.redeem(await self.code(**changes))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def back(answer: httpx.Response) -> dict[str, str]:
    """Return the parameters with which a browser was sent back."""
    assert answer.status_code in (302, 303), answer.text
    found = parse_qs(urlsplit(answer.headers["location"]).query, keep_blank_values=True)
    return {name: values[0] for name, values in found.items()}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the error of an answer."""
    return answer.status_code, answer.json()["error"]
