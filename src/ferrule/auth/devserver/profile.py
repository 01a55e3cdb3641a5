"""Providers as tables of facts: how each differs from what the RFCs would have it do.

A double is the development server with one of these tables. What a fact does stands where it is used, never here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from ferrule.errors import SetupError

TENANT = "7d1f0c52-9a4e-4c6f-8b1a-5e3d2c1b0a99"
"""The tenant of the Entra double."""
API = "3f2a9d10-6c1b-4e0f-a7d5-0c9b8e7f6a51"
"""The client id of the protected API in the Entra double: the `aud` of its tokens."""
GRAPH = "00000003-0000-0000-c000-000000000000"
"""Microsoft Graph, which Entra takes where no scope names another API."""

PATHS = {
    "authorize": "/authorize",
    "token": "/token",
    "register": "/register",
    "introspect": "/introspect",
    "revoke": "/revoke",
    "keys": "/jwks",
    "user": "/userinfo",
    "device": "/device_authorization",
    "device_page": "/device",
}
"""The endpoints of a server and where they are."""

USER = {"name": "{user}", "email": "{user}@example.com"}
"""What most say of a user."""

Resource = Literal["audience", "known", "filter", "configured", "asked", "scopes", "nothing"]


class Profile(Struct, frozen=True, kw_only=True):
    """One provider."""

    title: str
    """Its name, for the sign-in page."""
    issuer_path: str = ""
    """What follows the origin in its issuer."""
    shared_path: str = ""
    """What follows it in the issuer of all tenants, whose metadata has `{tenantid}` in the place of one."""
    paths: Mapping[str, str] = {}
    """Endpoints that are not where `PATHS` has them."""
    without: frozenset[str] = frozenset()
    """Endpoints it does not have."""
    discovery: frozenset[str] = frozenset({"oauth", "inserted", "appended"})
    """Where its metadata is: RFC 8414, OpenID Connect with the path inserted, OpenID Connect with the path before."""
    lists_pkce: bool = True
    """Whether its metadata says that it takes S256; it does so anyway."""
    client_documents: bool = False
    """Whether a client id may be the URL of a document (CIMD)."""
    names_issuer: bool = False
    """Whether its authorization responses have `iss` (RFC 9207)."""
    any_loopback_port: bool = True
    """Whether the port of a loopback redirect URI may differ from the registered one (RFC 8252 §7.3)."""

    error_page_status: int = 400
    """The status of the page that tells a user what is wrong with a client."""

    resource: Resource = "nothing"
    """What decides `aud`: `audience`: the parameter `resource`. `known`: the same, where it is an API it knows.
    `filter`: the APIs it knows, of which `resource` selects some. `configured`: the APIs it knows. `asked`: the
    parameter `audience`, one of the APIs it knows. `scopes`: the prefix of the scopes. `nothing`: always the same."""
    audience: tuple[str, ...] = ()
    """The `aud` of a token that is for nothing in particular."""
    opaque: bool = False
    """Whether access tokens are random text."""
    opaque_prefix: str = ""
    """How such a token begins."""
    jwt_type: str = "at+jwt"
    """The `typ` of an access token that is a JWT."""
    scope_claim: Literal["scope", "scp", "scp_list"] = "scope"
    client_claim: str = "client_id"
    claims: Mapping[str, Any] = {}
    """Claims that every access token has."""
    permissions: bool = False
    """Whether scopes are listed as `permissions` too."""
    expires: bool = True
    """Whether access tokens end."""
    user: Mapping[str, str] = {}
    """What ID tokens and the user endpoint say of a user beside `sub`, where that is not what `USER` has."""

    refresh: Literal["rotate", "renew", "keep", "none"] = "rotate"
    """Each refresh token is good once; or there is a new one and the old stays good; or it stays and is not repeated
    in the answer; or there are none."""
    refresh_scope: str = ""
    """The scope without which there is no refresh token."""
    refresh_parameters: Mapping[str, str] = {}
    """Parameters of the authorization request without which there is no refresh token."""
    refused_scopes: frozenset[str] = frozenset()
    """Scopes that are no scopes here."""
    errors_are_200: bool = False
    """Whether the token endpoint answers HTTP 200 for errors too."""
    forms_by_default: bool = False
    """Whether the token endpoint answers a form unless JSON is asked for."""
    scope_separator: str = " "
    """What stands between scopes in the answer of the token endpoint."""

    def user_claims(self, name: str) -> dict[str, str]:
        """Return what it says of a user beside `sub`."""
        return {member: text.replace("{user}", name) for member, text in (self.user or USER).items()}

    def endpoints(self) -> dict[str, str]:
        """Return the path of every endpoint it has."""
        found = {}
        for name, path in {**PATHS, **self.paths}.items():
            if name not in self.without:
                found[name] = path
        return found

    def discovery_paths(self) -> list[str]:
        """Return where it publishes its metadata."""
        path = self.issuer_path.rstrip("/")
        places = {
            "oauth": f"/.well-known/oauth-authorization-server{path}",
            "inserted": f"/.well-known/openid-configuration{path}",
            "appended": f"{path}/.well-known/openid-configuration",
        }
        found = []
        for name, place in places.items():
            if name in self.discovery and place not in found:
                found.append(place)
        return found


PROFILES: dict[str, Profile] = {
    # What MCP asks of an authorization server.
    "plain": Profile(title="Ferrule", client_documents=True, names_issuer=True, resource="audience"),
    # `resource` must be an Application ID URI of the API that the scopes name, else AADSTS9010010; scopes without one
    # are looked for in Graph, AADSTS650053 (claude-code#73460); metadata without S256 (typescript-sdk#832).
    "entra": Profile(
        title="Microsoft Entra ID",
        issuer_path=f"/{TENANT}/v2.0",
        shared_path="/common/v2.0",
        paths={
            "authorize": f"/{TENANT}/oauth2/v2.0/authorize",
            "token": f"/{TENANT}/oauth2/v2.0/token",
            "keys": f"/{TENANT}/discovery/v2.0/keys",
            "user": "/oidc/userinfo",
        },
        without=frozenset({"register", "introspect", "revoke"}),
        discovery=frozenset({"appended"}),
        lists_pkce=False,
        resource="scopes",
        audience=(GRAPH,),
        jwt_type="JWT",
        scope_claim="scp",
        client_claim="azp",
        claims={"ver": "2.0", "tid": TENANT},
        user={"oid": "{user}", "tid": TENANT, "preferred_username": "{user}@example.com", "name": "{user}"},
        refresh="renew",
        refresh_scope="offline_access",
    ),
    # A refresh token only for access_type=offline with prompt=consent, and only once (pi-mcp-adapter#238);
    # offline_access is no scope (home-assistant#180546).
    "google": Profile(
        title="Google",
        paths={
            "authorize": "/o/oauth2/v2/auth",
            "keys": "/oauth2/v3/certs",
            "user": "/v1/userinfo",
            "tokeninfo": "/tokeninfo",
        },
        without=frozenset({"register", "introspect"}),
        discovery=frozenset({"appended"}),
        opaque=True,
        opaque_prefix="ya29.",
        refresh="keep",
        refresh_parameters={"access_type": "offline", "prompt": "consent"},
        refused_scopes=frozenset({"offline_access"}),
    ),
    # No registration, opaque tokens without an end, errors with HTTP 200 (mcpproxy-go#975, github-mcp-server#1404).
    "github": Profile(
        title="GitHub",
        issuer_path="/login/oauth",
        paths={"authorize": "/login/oauth/authorize", "token": "/login/oauth/access_token", "user": "/user"},
        without=frozenset({"register", "introspect", "revoke", "keys"}),
        discovery=frozenset({"oauth"}),
        error_page_status=404,
        user={"id": "{user}", "login": "{user}", "name": "{user}"},
        opaque=True,
        opaque_prefix="gho_",
        expires=False,
        refresh="none",
        errors_are_200=True,
        forms_by_default=True,
        scope_separator=",",
    ),
    # `audience` decides, not `resource`; without it the token is opaque (LibreChat#13401). The issuer ends in a slash.
    "auth0": Profile(
        title="Auth0",
        issuer_path="/",
        paths={
            "token": "/oauth/token",
            "register": "/oidc/register",
            "revoke": "/oauth/revoke",
            "keys": "/.well-known/jwks.json",
        },
        without=frozenset({"introspect"}),
        discovery=frozenset({"oauth", "appended"}),
        resource="asked",
        client_claim="azp",
        permissions=True,
        refresh_scope="offline_access",
    ),
    # `resource` selects among the audiences a mapper adds, and adds none itself (keycloak#39629).
    "keycloak": Profile(
        title="Keycloak",
        issuer_path="/realms/dev",
        paths={
            "authorize": "/realms/dev/protocol/openid-connect/auth",
            "token": "/realms/dev/protocol/openid-connect/token",
            "register": "/realms/dev/clients-registrations/openid-connect",
            "introspect": "/realms/dev/protocol/openid-connect/token/introspect",
            "revoke": "/realms/dev/protocol/openid-connect/revoke",
            "keys": "/realms/dev/protocol/openid-connect/certs",
            "user": "/realms/dev/protocol/openid-connect/userinfo",
        },
        discovery=frozenset({"oauth", "appended"}),
        names_issuer=True,
        resource="filter",
        jwt_type="JWT",
        client_claim="azp",
        claims={"typ": "Bearer"},
    ),
    # A Resource Indicator must be registered exactly, else the token is for the default (docfork#161).
    "workos": Profile(
        title="WorkOS AuthKit",
        paths={
            "authorize": "/oauth2/authorize",
            "token": "/oauth2/token",
            "register": "/oauth2/register",
            "introspect": "/oauth2/introspection",
            "keys": "/oauth2/jwks",
            "user": "/oauth2/userinfo",
        },
        without=frozenset({"revoke"}),
        client_documents=True,
        resource="known",
        audience=("client_01DEFAULT",),
        jwt_type="JWT",
        refresh_scope="offline_access",
    ),
    # Metadata without S256, no registration, tokens without `aud` (claude-ai-mcp#946, fastmcp#3739).
    "cognito": Profile(
        title="Amazon Cognito",
        issuer_path="/eu-west-1_DEVPOOL",
        paths={
            "authorize": "/oauth2/authorize",
            "token": "/oauth2/token",
            "revoke": "/oauth2/revoke",
            "keys": "/eu-west-1_DEVPOOL/.well-known/jwks.json",
            "user": "/oauth2/userInfo",
        },
        without=frozenset({"device", "device_page", "register", "introspect"}),
        discovery=frozenset({"appended"}),
        lists_pkce=False,
        jwt_type="JWT",
        claims={"token_use": "access"},
        refresh="keep",
    ),
    # Scopes are a list; an audience of one's own needs a custom authorization server.
    "okta": Profile(
        title="Okta",
        issuer_path="/oauth2/default",
        paths={
            "authorize": "/oauth2/default/v1/authorize",
            "token": "/oauth2/default/v1/token",
            "register": "/oauth2/v1/clients",
            "introspect": "/oauth2/default/v1/introspect",
            "revoke": "/oauth2/default/v1/revoke",
            "keys": "/oauth2/default/v1/keys",
            "user": "/oauth2/default/v1/userinfo",
        },
        resource="configured",
        audience=("api://default",),
        jwt_type="JWT",
        scope_claim="scp_list",
        client_claim="cid",
        claims={"ver": 1},
        refresh_scope="offline_access",
    ),
    # Ignores `resource`; `aud` is empty unless the client has an audience and asks for it (agentarea#381).
    "hydra": Profile(
        title="Ory Hydra",
        paths={
            "authorize": "/oauth2/auth",
            "token": "/oauth2/token",
            "register": "/oauth2/register",
            "introspect": "/admin/oauth2/introspect",
            "revoke": "/oauth2/revoke",
            "keys": "/.well-known/jwks.json",
        },
        without=frozenset({"device", "device_page"}),
        discovery=frozenset({"appended"}),
        resource="asked",
        jwt_type="JWT",
        scope_claim="scp_list",
        claims={"aud": []},
        refresh_scope="offline_access",
    ),
    # `aud` is the same for every token (supabase/auth#2610).
    "supabase": Profile(
        title="Supabase",
        issuer_path="/auth/v1",
        paths={
            "authorize": "/auth/v1/oauth/authorize",
            "token": "/auth/v1/oauth/token",
            "register": "/auth/v1/oauth/clients/register",
            "keys": "/auth/v1/.well-known/jwks.json",
            "user": "/auth/v1/oauth/userinfo",
        },
        without=frozenset({"device", "device_page", "introspect", "revoke"}),
        audience=("authenticated",),
        jwt_type="JWT",
        claims={"role": "authenticated"},
    ),
    # No `aud` (casdoor#5096).
    "casdoor": Profile(
        title="Casdoor",
        paths={
            "authorize": "/login/oauth/authorize",
            "token": "/api/login/oauth/access_token",
            "register": "/api/oauth/register",
            "introspect": "/api/login/oauth/introspect",
            "keys": "/.well-known/jwks",
            "user": "/api/userinfo",
        },
        without=frozenset({"device", "device_page", "revoke"}),
        jwt_type="JWT",
        client_claim="azp",
    ),
    # One registered http://localhost:<port>/callback, no registration, errors with HTTP 200 (mastra#19467).
    "slack": Profile(
        title="Slack",
        paths={
            "authorize": "/oauth/v2_user/authorize",
            "token": "/api/oauth.v2.user.access",
            "user": "/api/auth.test",
        },
        without=frozenset({"device", "device_page", "register", "introspect", "revoke", "keys"}),
        discovery=frozenset({"oauth"}),
        any_loopback_port=False,
        user={"user_id": "{user}", "user": "{user}", "team_id": "T0DEV"},
        opaque=True,
        opaque_prefix="xoxp-",
        refresh="none",
        expires=False,
        errors_are_200=True,
        scope_separator=",",
    ),
    # Documents of clients, whose redirect URIs must match with their port (claude-code#47185).
    "linear": Profile(
        title="Linear",
        without=frozenset({"device", "device_page", "introspect", "keys"}),
        discovery=frozenset({"oauth"}),
        client_documents=True,
        any_loopback_port=False,
        opaque=True,
        opaque_prefix="lin_oauth_",
    ),
}


class Issuer(Struct, frozen=True, kw_only=True):
    """What every part of a server knows of the server."""

    profile: Profile
    name: Callable[[], str]
    """Returns what its tokens name as their issuer; known once it listens."""
    clock: Callable[[], float]
    scopes: Sequence[str]
    """The scopes there are; empty for any."""
    audiences: Sequence[str]
    """The APIs it was told of."""


def find_profile(given: str | Profile) -> Profile:
    """Return a profile by its name; raises SetupError with the names there are."""
    if isinstance(given, Profile):
        return given
    found = PROFILES.get(given)
    if found is None:
        raise SetupError(f"there is no profile {given!r}; there are {', '.join(PROFILES)}")
    return found
