"""Our server and our client with the double of each provider: login, refresh, step-up, restart, logout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from msgspec import Struct
from provider_desk import Person, free_port, upstream

from ferrule import Client, Context, Http, OAuth, Server
from ferrule.auth.client import token
from ferrule.auth.devserver.profile import API, PROFILES
from ferrule.auth.devserver.server import DevServer
from ferrule.auth.proxy.profiles import Profile
from ferrule.auth.proxy.proxy import OAuthProxy
from ferrule.auth.server.oidc import OIDC
from ferrule.identity.verifier import Verifier
from ferrule.testing import ERAS
from ferrule.transports.sockets.tls import TlsSettings

READ, WRITE = "notes", "notes:write"

Options = Callable[[str], dict[str, Any]]


class Setup(Struct, frozen=True):
    """How our server and our client are told about a provider; `url` is that of our server."""

    server: Options = lambda url: {}
    client: Options = lambda url: {}
    scopes: tuple[str, str] = (READ, WRITE)
    """As clients ask for them."""
    upstream: Callable[[DevServer], Profile] | None = None
    """The provider as a proxy knows it, where it needs one."""
    issuer_path: str = ""
    """What our server is told after the origin, where that is not the issuer of the tokens."""


def entra_scope(name: str) -> str:
    """Return a scope as Entra wants to be asked for it."""
    return f"api://{API}/{name}"


SETUPS: dict[str, Setup] = {
    "plain": Setup(),
    "entra": Setup(
        # Tokens have the short names of scopes, clients must ask for the long ones.
        lambda url: {
            "provider": "entra",
            "audience": API,
            "implies": {READ: [entra_scope(READ)], WRITE: [entra_scope(WRITE)]},
        },
        lambda url: {"client_id": "app", "resource_parameter": False, "assume_pkce": True},
        (entra_scope(READ), entra_scope(WRITE)),
    ),
    "entra common": Setup(
        lambda url: {
            "provider": "entra",
            "audience": API,
            "implies": {READ: [entra_scope(READ)], WRITE: [entra_scope(WRITE)]},
        },
        lambda url: {"client_id": "app", "resource_parameter": False, "assume_pkce": True, "any_tenant": True},
        (entra_scope(READ), entra_scope(WRITE)),
        issuer_path="/common/v2.0",
    ),
    "auth0": Setup(lambda url: {"provider": "auth0"}, lambda url: {"extra": {"audience": url}}),
    "keycloak": Setup(lambda url: {"provider": "keycloak"}),
    "workos": Setup(lambda url: {"provider": "workos"}),
    "cognito": Setup(
        lambda url: {"provider": "cognito", "audience": ["app"]},
        lambda url: {"client_id": "app", "assume_pkce": True},
    ),
    "okta": Setup(lambda url: {"provider": "okta"}),
    "hydra": Setup(client=lambda url: {"extra": {"audience": url}}),
    "supabase": Setup(lambda url: {"provider": "supabase", "audience": "authenticated"}),
    "google": Setup(scopes=("email", "profile"), upstream=upstream("google")),
    "github": Setup(scopes=("read:user", "repo"), upstream=upstream("github")),
    "slack": Setup(scopes=("users:read", "chat:write"), upstream=upstream("slack")),
    "linear": Setup(scopes=("read", "write"), upstream=upstream("linear")),
    "casdoor": Setup(lambda url: {"audience_claim": "azp", "audience": ["app"]}, lambda url: {"client_id": "app"}),
}


class Clock:
    """The time of the provider, the server and the client, which a test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class World(Struct):
    """A provider, a server it protects, and a person."""

    issuer: DevServer
    setup: Setup
    clock: Clock
    person: Person
    store: Path
    audiences: list[str]
    port: int = 0
    url: str = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the protected server; a second time at the same port, as after a restart."""
        if not self.port:
            self.port = free_port()
            self.url = f"http://127.0.0.1:{self.port}/mcp"
            self.audiences.append(self.url)
        _, write = self.setup.scopes
        app = Server("notes", auth=self.verifier())

        @app.tool
        async def whoami(ctx: Context) -> str:
            assert ctx.identity is not None
            return f"{ctx.identity.subject} of {ctx.identity.issuer}"

        @app.tool(scopes=[write])
        async def save() -> str:
            return "saved"

        ready = asyncio.Event()
        task = asyncio.create_task(app.serve(Http(port=self.port), ready=ready.set))
        await ready.wait()
        try:
            yield
        finally:
            await app.stop(0.0)
            await task

    def verifier(self) -> Verifier:
        """Return who decides who may call: the provider's tokens do, or those of a proxy before it."""
        read, write = self.setup.scopes
        options = {"resource": self.url, "scopes": [read], "clock": self.clock}
        if self.setup.upstream is None:
            issuer = self.issuer.issuer
            if self.setup.issuer_path:
                issuer = self.issuer.origin + self.setup.issuer_path
            return OIDC(issuer, **options, **self.setup.server(self.url))
        folder = self.store.parent
        kept = {"key_file": folder / "keys", "store": folder / "logins.db", "more_scopes": [write]}
        self.issuer.add_client(
            "proxy",
            secret="s3cret",
            auth_method="client_secret_post",
            redirect_uris=[self.url.removesuffix("mcp") + "callback"],
        )
        return OAuthProxy(self.setup.upstream(self.issuer), ("proxy", "s3cret"), **options, **kept)

    def auth(self) -> OAuth:
        """Return a client's way in, as a program that starts anew has it."""
        made = OAuth(storage=self.store, open_browser=self.person, **self.setup.client(self.url))
        session: Any = made.credentials(self.url, TlsSettings())
        session._clock = self.clock
        return made

    @property
    def who(self) -> str:
        """Who the person is to our server."""
        if self.setup.upstream is None:
            return f"ada of {self.issuer.issuer}"
        return f"{self.user} of {self.url.removesuffix('/mcp')}"

    @property
    def user(self) -> str:
        """The person as the proxy knows them; those of Slack belong to a team."""
        return "T0DEV:ada" if self.issuer.profile is PROFILES["slack"] else "ada"

    def grants(self) -> list[str]:
        """Return what the token endpoint was asked for, and granted, in order."""
        return [each.grant for each in self.issuer.seen if each.endpoint == "token" and each.status == 200]


@contextlib.asynccontextmanager
async def world(profile: str, folder: Path) -> AsyncIterator[World]:
    """Open a provider's double that knows one client and the scopes of our server."""
    clock = Clock()
    setup = SETUPS[profile]
    profile = profile.partition(" ")[0]
    scopes = [*setup.scopes, *(["openid"] if setup.upstream else [])]
    if PROFILES[profile].refresh_scope:
        scopes.append(PROFILES[profile].refresh_scope)
    audiences: list[str] = []
    server = DevServer(profile, user="ada", clock=clock, scopes=scopes, audiences=audiences)
    server.add_client("app", redirect_uris=["http://127.0.0.1/callback"])
    # Tokens are dated where they are read, with the time on the wall.
    with mock.patch.object(token, "time", SimpleNamespace(time=clock)):
        async with server:
            yield World(server, setup, clock, Person(), folder / "tokens.json", audiences)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("profile", SETUPS)
async def test_a_client_of_ours_uses_a_server_of_ours_with_each_provider(
    profile: str, era: str, tmp_path: Path
) -> None:
    """ACLI-7, ACLI-9, ACLI-17, AUTH-5."""
    async with world(profile, tmp_path) as place:
        async with place.serving(), Client(place.url, auth=place.auth(), mode=era) as client:
            # Login.
            assert (await client.call_tool("whoami")).text == place.who
            assert place.grants() == ["authorization_code"]
            # Refresh: the token has expired.
            place.clock.now += 3700
            assert (await client.call_tool("whoami")).text == place.who
            if place.setup.upstream is None:
                assert place.grants() == ["authorization_code", "refresh_token"]
            assert len(place.person.pages) == 1
            # Step-up: what was asked for before is asked for again, and more.
            assert (await client.call_tool("save")).text == "saved"
            assert len(place.person.pages) == 2
            asked = place.person.pages[1].params["scope"].split()
            assert set(place.setup.scopes) <= set(asked)
        # Restart of the server and of the client: what was kept still serves.
        async with place.serving():
            auth = place.auth()
            async with Client(place.url, auth=auth, mode=era) as client:
                assert (await client.call_tool("save")).text == "saved"
                assert len(place.person.pages) == 2
            # Logout: the next program has to log in again.
            session: Any = auth.credentials(place.url, TlsSettings())
            assert await session.forget()
            async with Client(place.url, auth=place.auth(), mode=era) as client:
                await client.call_tool("whoami")
            assert len(place.person.pages) == 3


CYCLES = 1000 if os.environ.get("FERRULE_LONG") else 40
CLIENTS = 3


async def test_no_login_is_lost_when_tokens_expire_again_and_again_for_several_programs(tmp_path: Path) -> None:
    """AUT-14: rotation and reuse detection are on; every program holds a session of its own and shares one store."""
    async with world("plain", tmp_path) as place, place.serving(), contextlib.AsyncExitStack() as stack:
        clients = []
        for _ in range(CLIENTS):
            clients.append(await stack.enter_async_context(Client(place.url, auth=place.auth())))
            await clients[-1].call_tool("whoami")
        for _ in range(CYCLES):
            place.clock.now += 3700
            said = await asyncio.gather(*(client.call_tool("whoami") for client in clients))
            assert [each.text for each in said] == [place.who] * CLIENTS
        assert len(place.person.pages) == 1
        assert place.grants() == ["authorization_code"] + ["refresh_token"] * CYCLES
