"""A protected server, its authorization server, and a person who agrees to everything at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from ferrule import Context, Http, OAuth, Server
from ferrule.auth.address import AddressRules
from ferrule.auth.client.discovery import Discovery
from ferrule.auth.devserver.server import DevServer
from ferrule.auth.fetch import Fetched, FetchFailed
from ferrule.auth.server.oidc import OIDC
from ferrule.identity.verifier import RequestFacts

JSON = {"content-type": "application/json"}


class Watching(OIDC):
    """Notes what each request shows."""

    def __init__(self, issuer: str, **options: Any) -> None:
        super().__init__(issuer, **options)
        self.shown: list[tuple[str, str]] = []

    def verify(self, facts: RequestFacts) -> Any:
        """Note the request, then judge it."""
        self.shown.append((facts.method, facts.headers.get("authorization", "").partition(" ")[0]))
        return super().verify(facts)


class Person:
    """Follows the page to log in at, and counts how often."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    async def __call__(self, url: str) -> str:
        self.pages.append(url)
        async with httpx.AsyncClient(trust_env=False) as browser:
            answer = await browser.get(url, follow_redirects=False)
        return answer.headers["location"]

    @property
    def scopes(self) -> list[str]:
        """What was asked for, each time."""
        return [httpx.URL(url).params.get("scope", "") for url in self.pages]


class Place(Struct, frozen=True):
    """What a test works with."""

    url: str
    issuer: DevServer
    verifier: Watching
    person: Person

    def oauth(self, **options: Any) -> OAuth:
        """Return how the person is asked, with nothing kept unless told."""
        return OAuth(**{"storage": "memory", "open_browser": self.person, **options})


@contextlib.asynccontextmanager
async def protected(
    *, profile: str = "plain", verifier: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[Place]:
    """Serve a protected server and its authorization server."""
    async with DevServer(profile, user="ada", **options) as issuer:
        watching = Watching(issuer.issuer, **(verifier or {}))
        app = Server("notes", auth=watching)

        @app.tool
        async def whoami(ctx: Context) -> str:
            return str(ctx.principal)

        erased = []

        @app.tool(scopes=["notes:write"])
        async def erase() -> str:
            erased.append(1)
            return f"erased {len(erased)}"

        listener = Http(port=0, websocket=True, sse=True, sse_path="/mcp/sse", messages_path="/mcp/messages")
        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(listener, ready=ready.set))
        await ready.wait()
        try:
            yield Place(listener.url, issuer, watching, Person())
        finally:
            await app.stop(0.0)
            await serving


class Documents:
    """Stands for a fetcher: what is at each URL is given, and what was asked for is noted."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.rules = AddressRules(loopback=True)
        self.documents = documents
        self.asked: list[str] = []

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Fetched:
        """Return what is there: a document, a status, or bytes."""
        self.asked.append(url)
        found = self.documents.get(url, 404)
        if isinstance(found, int):
            if found == 0:
                raise FetchFailed(f"{url} did not answer")
            return Fetched(url, found, {}, b"")
        if isinstance(found, bytes):
            return Fetched(url, 200, {}, found)
        return Fetched(url, 200, JSON, msgspec.json.encode(found))


def discovery(documents: Documents, url: str = "https://a.example/mcp", **options: Any) -> Discovery:
    """Return what looks for the authorization server of a URL among documents."""
    return Discovery(documents, url, **options)  # type: ignore[arg-type]


def paths(asked: Sequence[str]) -> list[str]:
    """Return the paths of URLs."""
    return [httpx.URL(url).path for url in asked]
