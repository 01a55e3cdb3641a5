"""The options of auth as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from ferrule.auth.server.settings import Dpop, Provider
from ferrule.settings.option import Seconds


class ProtectionKeywords(TypedDict, total=False):
    """The options of every verifier of tokens."""

    resource: str | None
    """The URL clients type, byte for byte; None: taken from each request, on loopback only."""
    resource_name: str | None
    """What people call the server."""
    scopes: Collection[str]
    """Scopes every request needs."""
    implies: Mapping[str, Collection[str]] | None
    """Which scopes include others: `{"admin": ["read", "write"]}`."""
    authorization_servers: Collection[str]
    """Who issues tokens for this server, as clients are told; none: the issuer."""
    metadata_url: str | None
    """Where clients find the metadata, where that is not the well-known place of the resource's origin."""
    dpop: Dpop
    """Whether tokens must be bound to a key of the client (RFC 9449), or may be."""
    dpop_nonce: bool
    """Whether proofs need a nonce of this server's."""
    certificate_header: str | None
    """The header in which a trusted proxy hands on the client's certificate (PEM, percent-encoded)."""
    trusted_proxies: Collection[str]
    """The addresses of proxies, or networks such as 10.0.0.0/8, whose word is taken: that header, X-Forwarded-For."""
    allow_private: Sequence[str]
    """Networks beside the public internet from which keys and metadata may be fetched, such as 10.0.0.0/8."""


class TokenKeywords(TypedDict, total=False):
    """The options of a verifier of tokens that say who issued them."""

    resource: str | None
    """The URL clients type, byte for byte; None: taken from each request, on loopback only."""
    resource_name: str | None
    """What people call the server."""
    scopes: Collection[str]
    """Scopes every request needs."""
    implies: Mapping[str, Collection[str]] | None
    """Which scopes include others: `{"admin": ["read", "write"]}`."""
    authorization_servers: Collection[str]
    """Who issues tokens for this server, as clients are told; none: the issuer."""
    metadata_url: str | None
    """Where clients find the metadata, where that is not the well-known place of the resource's origin."""
    dpop: Dpop
    """Whether tokens must be bound to a key of the client (RFC 9449), or may be."""
    dpop_nonce: bool
    """Whether proofs need a nonce of this server's."""
    certificate_header: str | None
    """The header in which a trusted proxy hands on the client's certificate (PEM, percent-encoded)."""
    trusted_proxies: Collection[str]
    """The addresses of proxies, or networks such as 10.0.0.0/8, whose word is taken: that header, X-Forwarded-For."""
    allow_private: Sequence[str]
    """Networks beside the public internet from which keys and metadata may be fetched, such as 10.0.0.0/8."""
    audience: str | Collection[str] | None
    """For whom tokens must be issued, exactly; None: the resource."""
    audience_claim: str | None
    """Which claim says it; None: `aud`, or what the provider's profile says."""
    provider: Provider | None
    """A profile of claims for one provider of identities."""
    scope_claims: Collection[str] | None
    """Which claims hold scopes; None: `scope` and `scp`, or what the provider's profile says."""
    require_claims: Mapping[str, str] | None
    """Claims that must have exactly these values."""
    tenants: Collection[str] | None
    """Which tenants may call, where the issuer is a template with `{tenantid}`; None: any."""
    leeway: Seconds
    """How far clocks may differ."""
