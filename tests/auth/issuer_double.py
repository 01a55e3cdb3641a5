"""An issuer in this process: keys, tokens, and what it would publish, with a clock that stands still."""

from __future__ import annotations

from typing import Any

from forgery import forge

from ferrule.auth.jose import Key, make_key
from ferrule.auth.server.jwt import JWT
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import RequestFacts, Verdict

NOW = 1_800_000_000.0
ISSUER = "https://login.example.com"
RESOURCE = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
KEYS = {"RS256": make_key("RS256"), "ES256": make_key("ES256"), "EdDSA": make_key("EdDSA")}
JWKS = {"keys": [key.public() for key in KEYS.values()]}


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def claims(**changes: Any) -> dict[str, Any]:
    """Return right claims with changes; None leaves one out."""
    right = {
        "iss": ISSUER,
        "sub": "ada",
        "client_id": "editor",
        "aud": RESOURCE,
        "exp": int(NOW) + 600,
        "iat": int(NOW),
        "scope": "notes",
    }
    return {name: value for name, value in {**right, **changes}.items() if value is not None}


def token(header: dict[str, Any] | None = None, *, how: str = "ES256", key: Key | None = None, **changes: Any) -> str:
    """Return a token that is right but for the changes."""
    signer = key or KEYS[how]
    head = {"alg": how, "kid": signer.id, "typ": "at+jwt", **(header or {})}
    return forge({name: value for name, value in head.items() if value is not None}, claims(**changes), signer, how)


def verifier(**options: Any) -> JWT:
    """Return a verifier of this issuer's tokens."""
    given = {"jwks": JWKS, "resource": RESOURCE, "clock": Clock(), **options}
    return JWT(ISSUER, **given)


def facts(authorization: str | None = None, **changes: Any) -> RequestFacts:
    """Return what is known of a request that shows a header."""
    headers = {"host": "mcp.example.com", **changes.pop("headers", {})}
    if authorization is not None:
        headers["authorization"] = authorization
    said = {"transport": "http", "method": "POST", "url": RESOURCE, "address": "192.0.2.7", **changes}
    return RequestFacts(headers=headers, **said)


def judged(shown: str, by: Any = None, scheme: str = "Bearer", **changes: Any) -> Verdict:
    """Return the verdict on a request with a token."""
    verdict: Verdict = (by or verifier()).verify(facts(f"{scheme} {shown}", **changes))
    return verdict


def let_in(shown: str, by: Any = None, **changes: Any) -> Principal:
    """Return the principal of a token that is let in."""
    verdict = judged(shown, by, **changes)
    assert isinstance(verdict, Principal), verdict
    return verdict
