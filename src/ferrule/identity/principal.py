"""Who sent a request: an authenticated principal, or nobody in particular."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from ferrule.errors import SetupError

CERTIFICATE = "certificate"
"""The issuer of principals that a TLS client certificate names."""

OFFLINE = "offline_access"
"""Asks for a refresh token; it is no right of its own, and a resource never asks for it (MCP AUTH-10)."""

_SCOPE = r"[\x21\x23-\x5b\x5d-\x7e]+"
"""RFC 6749 §3.3."""


class Principal(Struct, frozen=True, kw_only=True, eq=True):
    """Who is authenticated, by whom, with which rights, and until when.

    The same subject of two issuers is two principals.
    """

    issuer: str
    """Who vouches for the subject: the `iss` of a token, a name of your own, or `CERTIFICATE`."""
    subject: str = ""
    """Whom it names: the `sub` of a token, the common name of a certificate. Empty where only a client is known."""
    client: str = ""
    """The program the subject uses: the `client_id` of a token."""
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    """When the proof ends, in seconds since 1970; None where it does not."""
    claims: Mapping[str, Any] = {}
    """Whatever else is known of it."""
    method: str = ""
    """How it was proved: `jwt`, `introspection`, `static` or `certificate`; empty where nobody says."""
    confirmation: Mapping[str, Any] = {}
    """What its proof is bound to (the `cnf` of a token, RFC 7800): each request must prove that anew."""

    def __post_init__(self) -> None:
        if not self.issuer:
            raise SetupError("Principal: issuer must name who vouches for the subject")
        if not self.subject and not self.client:
            raise SetupError("Principal: subject or client must say who it is")
        if isinstance(self.scopes, str):
            raise SetupError(f"Principal: scopes must be a frozenset of str, not the str {self.scopes!r}")

    @property
    def key(self) -> str:
        """The text that stands for this principal and no other: `ctx.principal`, and the owner of what is kept for it.

        `issuer#subject`, or `issuer##client` without a subject. The name in a certificate stands alone; no other key
        is without a `#`, so a certificate's `ada` is never a token's.
        """
        if self.issuer == CERTIFICATE and self.subject:
            return _escaped(self.subject)
        if self.subject:
            key = f"{self.issuer}#{self.subject}"
            if "%" not in key and key.count("#") == 1:
                return key
            return f"{_escaped(self.issuer)}#{_escaped(self.subject)}"
        return f"{_escaped(self.issuer)}##{_escaped(self.client)}"

    @property
    def binding(self) -> str:
        """What a session is bound to: the key, and the client where one is named beside the subject."""
        if self.subject and self.client:
            return f"{_escaped(self.issuer)}#{_escaped(self.subject)}#{_escaped(self.client)}"
        return self.key

    def expired(self, now: float) -> bool:
        """Return whether its proof has ended."""
        return self.expires is not None and now >= self.expires

    def __str__(self) -> str:
        return self.key

    def __repr__(self) -> str:
        # Claims may hold what nobody should read in a log.
        return f"Principal({self.key!r})"


def require_scopes(given: Collection[str], where: str) -> tuple[str, ...]:
    """Return scopes of an option, each once and in their order; raises SetupError for what is none."""
    if isinstance(given, str):
        raise SetupError(f"{where} must be a list of scopes, not the str {given!r}")
    for scope in given:
        if not isinstance(scope, str) or not re.fullmatch(_SCOPE, scope):
            raise SetupError(f"{where}: {scope!r} is not a valid scope: a word without blanks, quotes and backslashes")
        if "*" in scope:
            raise SetupError(f"{where}: {scope!r} is a wildcard: name what is needed, and nothing else")
        if scope == OFFLINE:
            raise SetupError(f"{where}: {OFFLINE} is for clients to ask for, a server must not list it")
    return tuple(dict.fromkeys(given))


def _escaped(part: str) -> str:
    """Write a part so that it holds no `#`, which separates parts."""
    return part.replace("%", "%25").replace("#", "%23")
