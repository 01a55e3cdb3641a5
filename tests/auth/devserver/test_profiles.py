"""Each double misbehaves as its provider does."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import pytest
from oauth_caller import CALLBACK, RESOURCE, Caller, Clock, back, claims_of, error_of

from ferrule.auth.devserver.profile import API, GRAPH, PROFILES, TENANT
from ferrule.auth.devserver.server import DevServer
from ferrule.errors import SetupError

PLAIN: dict[str, Any] = {}
HELD: dict[str, dict[str, Any]] = {
    "entra": {"scope": f"api://{API}/notes offline_access", "resource": None},
    "google": {"access_type": "offline", "prompt": "consent"},
    "auth0": {"audience": RESOURCE, "scope": "notes offline_access"},
    "workos": {"scope": "notes offline_access"},
    "okta": {"scope": "notes offline_access"},
    "hydra": {"audience": RESOURCE, "scope": "notes offline_access"},
}
"""What a client must send to be given a good token, and a refresh token, beyond what MCP asks."""


def double(profile: str, **options: Any) -> DevServer:
    """Return a double that knows our API and one client, where `ada` is signed in at once."""
    server = DevServer(profile, **{"user": "ada", "audiences": [RESOURCE], **options})
    server.add_client("app", redirect_uris=[CALLBACK])
    return server


def name_of(caller: Caller) -> str:
    """Return the name of the profile a caller's server has."""
    return next(name for name, profile in PROFILES.items() if profile is caller.server.profile)


async def login(caller: Caller, **changes: Any) -> dict[str, Any]:
    """Sign in as the profile wants it; return what the token endpoint gave."""
    sent = {**HELD.get(name_of(caller), PLAIN), **changes}
    code = await caller.code(**sent)
    answer = await caller.redeem(code, resource=sent.get("resource", RESOURCE))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_double_signs_in_and_says_where_its_endpoints_are(profile: str) -> None:
    async with double(profile) as server, Caller(server) as caller:
        for path in server.profile.discovery_paths():
            said = (await caller.get(path)).json()
            assert said["issuer"] == server.issuer
            assert said["ferrule_dev"] is True
            assert said["token_endpoint"] == server.url("token")
        given = await login(caller)
        assert server.tokens.find_access(given["access_token"]) is not None


REFRESHED = [name for name in PROFILES if PROFILES[name].refresh != "none"]


@pytest.mark.parametrize("profile", REFRESHED)
async def test_a_double_refreshes(profile: str) -> None:
    clock = Clock()
    async with double(profile, clock=clock) as server, Caller(server) as caller:
        first = (await login(caller))["refresh_token"]
        answer = (await caller.refresh(first)).json()
        rotates = server.profile.refresh != "keep"
        assert ("refresh_token" in answer) is rotates
        clock.now += 61
        again = await caller.refresh(first)
        if server.profile.refresh == "rotate":
            assert error_of(again) == (400, "invalid_grant")
        else:
            assert again.status_code == 200


@pytest.mark.parametrize("profile", [name for name in HELD if name != "google"])
async def test_there_is_no_refresh_token_without_offline_access(profile: str) -> None:
    async with double(profile) as server, Caller(server) as caller:
        scope = HELD[profile]["scope"].replace(" offline_access", "")
        assert "refresh_token" not in await login(caller, scope=scope)


AUDIENCES: dict[str, Any] = {
    "plain": RESOURCE,
    "entra": API,
    "auth0": RESOURCE,
    "keycloak": RESOURCE,
    "workos": RESOURCE,
    "cognito": None,
    "okta": RESOURCE,
    "hydra": [RESOURCE],
    "supabase": "authenticated",
    "casdoor": None,
}
"""The `aud` of a token for an API the provider knows; None where there is none."""


@pytest.mark.parametrize("profile", AUDIENCES)
async def test_the_audience_of_a_token_is_what_the_provider_makes_of_it(profile: str) -> None:
    """AUT-03."""
    async with double(profile) as server, Caller(server) as caller:
        claims = claims_of((await login(caller))["access_token"])
        assert claims.get("aud") == AUDIENCES[profile]
        assert claims["sub"] == "ada"
        assert claims[server.profile.client_claim] == "app"


UNKNOWN: dict[str, Any] = {
    "plain": RESOURCE,
    "keycloak": None,
    "workos": "client_01DEFAULT",
    "okta": "api://default",
    "supabase": "authenticated",
}


@pytest.mark.parametrize("profile", UNKNOWN)
async def test_a_resource_the_provider_was_not_told_of(profile: str) -> None:
    """AUT-03: Keycloak filters, WorkOS falls back to its default, Okta and Supabase do not look at it."""
    async with double(profile, audiences=[]) as server, Caller(server) as caller:
        claims = claims_of((await login(caller))["access_token"])
        assert claims.get("aud") == UNKNOWN[profile]


SCOPES: dict[str, tuple[str, Any]] = {
    "plain": ("scope", "notes"),
    "entra": ("scp", "notes"),
    "okta": ("scp", ["notes", "offline_access"]),
    "hydra": ("scp", ["notes", "offline_access"]),
    "auth0": ("permissions", ["notes"]),
}


@pytest.mark.parametrize("profile", SCOPES)
async def test_scopes_stand_where_the_provider_writes_them(profile: str) -> None:
    async with double(profile) as server, Caller(server) as caller:
        name, value = SCOPES[profile]
        assert claims_of((await login(caller))["access_token"])[name] == value


@pytest.mark.parametrize("profile", ["entra", "google", "github", "cognito", "slack"])
async def test_providers_without_registration(profile: str) -> None:
    async with double(profile) as server, Caller(server) as caller:
        said = (await caller.get(server.profile.discovery_paths()[0])).json()
        assert "registration_endpoint" not in said
        assert "client_id_metadata_document_supported" not in said
        assert (await caller._http.post(server.origin + "/register", json={})).status_code == 404


@pytest.mark.parametrize("profile", ["entra", "cognito"])
async def test_providers_that_do_not_say_that_they_take_pkce(profile: str) -> None:
    """AUT-08: a client has to be told so by hand."""
    async with double(profile) as server, Caller(server) as caller:
        said = (await caller.get(server.profile.discovery_paths()[0])).json()
        assert "code_challenge_methods_supported" not in said
        assert back(await caller.authorize(code_challenge=None, **HELD.get(profile, {})))["error"] == "invalid_request"


@pytest.mark.parametrize("profile", ["google", "github", "slack", "linear"])
async def test_providers_whose_tokens_nobody_else_can_read(profile: str) -> None:
    async with double(profile) as server, Caller(server) as caller:
        token = (await login(caller))["access_token"]
        assert token.startswith(server.profile.opaque_prefix)
        assert token.count(".") < 2
        headers = {"authorization": f"Bearer {token}"}
        assert (await caller.get(server.url("user"), headers=headers)).json()["sub"] == "ada"
        assert (await caller.get(server.url("user"), headers={"authorization": "Bearer x"})).status_code == 401


# -- one by one


async def test_entra_refuses_a_resource_that_its_scopes_do_not_name() -> None:
    async with double("entra") as server, Caller(server) as caller:
        said = back(await caller.authorize(scope=f"api://{API}/notes"))
        assert said["error"] == "invalid_target"
        assert "AADSTS9010010" in said["error_description"]
        # The MCP URL is an Application ID URI here, and the scopes name it.
        code = await caller.code(scope=f"{RESOURCE}/notes")
        assert claims_of((await caller.redeem(code)).json()["access_token"])["aud"] == API


async def test_entra_looks_for_bare_scopes_in_graph() -> None:
    async with double("entra") as server, Caller(server) as caller:
        said = back(await caller.authorize(scope="notes", resource=None))
        assert "AADSTS650053" in said["error_description"]
        given = await login(caller, scope="openid")
        claims = claims_of(given["access_token"])
        assert (claims["aud"], claims["tid"]) == (GRAPH, TENANT)
        assert claims_of(given["id_token"])["aud"] == "app"


@pytest.mark.parametrize("changes", [{"access_type": None}, {"prompt": None}])
async def test_google_gives_a_refresh_token_only_to_who_asks_in_its_way(changes: dict[str, Any]) -> None:
    async with double("google") as server, Caller(server) as caller:
        assert "refresh_token" not in await login(caller, **changes)
        assert back(await caller.authorize(scope="offline_access"))["error"] == "invalid_scope"


async def test_google_says_what_a_token_is_for() -> None:
    async with double("google") as server, Caller(server) as caller:
        token = (await login(caller))["access_token"]
        said = (await caller.get(server.url("tokeninfo"), params={"access_token": token})).json()
        assert (said["aud"], said["sub"]) == ("app", "ada")
        assert (await caller.get(server.url("tokeninfo"), params={"access_token": "x"})).status_code == 400


async def test_github_answers_errors_with_200_and_forms_by_default() -> None:
    async with double("github") as server, Caller(server) as caller:
        assert error_of(await caller.redeem("x")) == (200, "invalid_grant")
        answer = await caller.redeem(await caller.code(scope="repo gist"), {"accept": "*/*"})
        said = parse_qs(answer.text)
        assert said["scope"] == ["repo,gist"]
        assert "expires_in" not in said
        assert "refresh_token" not in said
        assert (await caller.authorize(client_id="")).status_code == 404


async def test_auth0_does_not_look_at_resource() -> None:
    async with double("auth0") as server, Caller(server) as caller:
        token = (await login(caller, audience=None))["access_token"]
        assert token.count(".") < 2
        assert back(await caller.authorize(audience="https://unknown.example.com"))["error"] == "invalid_target"
        assert server.issuer == server.origin + "/"


async def test_keycloak_refuses_a_refresh_for_another_resource() -> None:
    async with double("keycloak") as server, Caller(server) as caller:
        token = (await login(caller))["refresh_token"]
        answer = await caller.refresh(token, resource="https://other.example.com/mcp")
        assert error_of(answer) == (400, "invalid_target")


async def test_cognito_says_that_a_token_is_for_access() -> None:
    async with double("cognito") as server, Caller(server) as caller:
        claims = claims_of((await login(caller))["access_token"])
        assert (claims["token_use"], claims["client_id"]) == ("access", "app")


@pytest.mark.parametrize("profile", ["slack", "linear"])
async def test_providers_that_take_only_the_registered_port(profile: str) -> None:
    async with double(profile) as server, Caller(server) as caller:
        other = CALLBACK.replace("8765", "8766")
        assert (await caller.authorize(redirect_uri=other)).status_code == 400
        assert (await caller.authorize()).status_code == 303


def test_a_profile_nobody_knows_is_told() -> None:
    with pytest.raises(SetupError, match="there is no profile 'azure'; there are plain, entra"):
        DevServer("azure")
