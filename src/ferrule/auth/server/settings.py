"""The options of those who verify tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ferrule.settings.option import Seconds, check

Dpop = Literal["accepted", "required"]
Provider = Literal["auth0", "cognito", "entra", "google", "keycloak", "okta", "supabase", "workos"]


class ResourceSettings(Struct, frozen=True, kw_only=True):
    """What a server says of itself to clients that need a token; times are seconds."""

    resource: str | None = None
    """The URL clients type, byte for byte; None: taken from each request, on loopback only."""
    resource_name: str | None = None
    """What people call the server."""
    scopes: Collection[str] = ()
    """Scopes every request needs."""
    implies: Mapping[str, Collection[str]] | None = None
    """Which scopes include others: `{"admin": ["read", "write"]}`."""
    authorization_servers: Collection[str] = ()
    """Who issues tokens for this server, as clients are told; none: the issuer."""
    metadata_url: str | None = None
    """Where clients find the metadata, where that is not the well-known place of the resource's origin."""
    dpop: Dpop = "accepted"
    """Whether tokens must be bound to a key of the client (RFC 9449), or may be."""
    dpop_nonce: bool = False
    """Whether proofs need a nonce of this server's."""
    certificate_header: str | None = None
    """The header in which a trusted proxy hands on the client's certificate (PEM, percent-encoded)."""
    trusted_proxies: Collection[str] = ()
    """The addresses of proxies, or networks such as 10.0.0.0/8, whose word is taken: that header, X-Forwarded-For."""
    allow_private: Sequence[str] = ()
    """Networks beside the public internet from which keys and metadata may be fetched, such as 10.0.0.0/8."""

    def __post_init__(self) -> None:
        check(self)


class TokenSettings(ResourceSettings, frozen=True, kw_only=True):
    """What a token must say; times are seconds."""

    audience: str | Collection[str] | None = None
    """For whom tokens must be issued, exactly; None: the resource."""
    audience_claim: str | None = None
    """Which claim says it; None: `aud`, or what the provider's profile says."""
    provider: Provider | None = None
    """A profile of claims for one provider of identities."""
    scope_claims: Collection[str] | None = None
    """Which claims hold scopes; None: `scope` and `scp`, or what the provider's profile says."""
    require_claims: Mapping[str, str] | None = None
    """Claims that must have exactly these values."""
    tenants: Collection[str] | None = None
    """Which tenants may call, where the issuer is a template with `{tenantid}`; None: any."""
    leeway: Seconds = 60.0
    """How far clocks may differ."""
