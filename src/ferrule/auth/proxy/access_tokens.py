"""Access tokens of the proxy: JSON Web Tokens that only we issue and only we verify, in a few microseconds.

Rule: a header is one of those we write, byte for byte, so no token can choose its algorithm or its key (RFC 8725 §3.1).
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from collections.abc import Callable

import msgspec
from msgspec import Struct

from ferrule.auth.proxy.grants import Grant
from ferrule.auth.proxy.keys import Keys, digest, encoded
from ferrule.identity.principal import Principal

LONGEST = 8 * 1024
MAX_REVOKED = 10_000
PURPOSE = "access token"


class Claims(Struct, frozen=True):
    """What a token says."""

    iss: str
    sub: str
    aud: str
    client_id: str
    scope: str
    iat: int
    exp: int
    sid: str
    """The grant it belongs to."""
    name: str = ""


class AccessTokens:
    """Issues tokens and verifies them."""

    def __init__(self, keys: Keys, issuer: str, audience: str, lifetime: float, clock: Callable[[], float]) -> None:
        self.lifetime = max(1, int(lifetime))
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._read = msgspec.json.Decoder(Claims).decode
        self._keys: dict[str, bytes] = {}
        """By the header of their tokens; the first signs."""
        for key in keys.derived(PURPOSE):
            kid = digest(key.hex())[:8]
            header = msgspec.json.encode({"alg": "HS256", "typ": "at+jwt", "kid": kid})
            self._keys[encoded(header)] = key
        self._revoked: dict[str, float] = {}
        """Grants that ended here, until their last tokens have expired."""

    def issue(self, grant: Grant, scopes: tuple[str, ...]) -> str:
        """Return a token for a grant."""
        now = int(self._clock())
        claims = Claims(
            iss=self._issuer,
            sub=grant.subject,
            aud=self._audience,
            client_id=grant.client,
            scope=" ".join(scopes),
            iat=now,
            exp=now + self.lifetime,
            sid=grant.id,
            name=grant.name,
        )
        header, key = next(iter(self._keys.items()))
        signed = f"{header}.{encoded(msgspec.json.encode(claims))}"
        return f"{signed}.{encoded(hmac.digest(key, signed.encode(), 'sha256'))}"

    def verify(self, token: str) -> Principal | None:
        """Return whom a token stands for; None for one that is not ours, not for us, or over."""
        claims = self.read(token)
        if claims is None or claims.exp <= self._clock() or claims.sid in self._revoked:
            return None
        if claims.iss != self._issuer or claims.aud != self._audience:
            return None
        return Principal(
            issuer=claims.iss,
            subject=claims.sub,
            client=claims.client_id,
            scopes=frozenset(claims.scope.split()),
            expires=float(claims.exp),
            claims={"sid": claims.sid, "name": claims.name},
        )

    def read(self, token: str) -> Claims | None:
        """Return the claims of a token that we have signed, be it over or not."""
        if len(token) > LONGEST or not token.isascii():
            return None
        signed, _, signature = token.rpartition(".")
        header, _, payload = signed.partition(".")
        key = self._keys.get(header)
        if key is None:
            return None
        made = encoded(hmac.digest(key, signed.encode(), "sha256"))
        if not hmac.compare_digest(made, signature):
            return None
        return self._read(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))

    def revoke(self, grant_id: str) -> None:
        """Refuse the tokens of a grant from now on, in this process; elsewhere they end at their time."""
        now = self._clock()
        self._revoked.pop(grant_id, None)
        self._revoked[grant_id] = now + self.lifetime
        while self._revoked:
            oldest = next(iter(self._revoked))
            if self._revoked[oldest] > now and len(self._revoked) <= MAX_REVOKED:
                return
            del self._revoked[oldest]
