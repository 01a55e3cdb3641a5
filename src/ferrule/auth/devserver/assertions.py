"""Assertions: JWTs that a client or another server made (RFC 7523 §3), checked here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ferrule.auth.devserver.store import Store
from ferrule.auth.jose import ASYMMETRIC, BadToken, Key, read_header, read_object, verify

LEEWAY = 60.0
LONGEST_LIFE = 3600.0
"""How many seconds ahead an assertion may end."""


class Assertions:
    """Checks assertions, and remembers which were used."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used: Store[bool] = Store(clock)

    def check(
        self, token: str, keys: Sequence[Key], *, issuer: str, audience: Collection[str], once: bool = True
    ) -> dict[str, Any]:
        """Return the claims of an assertion; raises BadToken. `once` refuses one that came before."""
        claims = self._verified(token, keys)
        now = self._clock()
        expires = claims.get("exp")
        if claims.get("iss") != issuer:
            raise BadToken("the assertion has another issuer")
        if not audiences_of(claims) & set(audience):
            raise BadToken("the assertion is for another audience")
        if not isinstance(expires, int | float) or isinstance(expires, bool) or expires <= now - LEEWAY:
            raise BadToken("the assertion has expired, or does not say when it does")
        if expires > now + LONGEST_LIFE:
            raise BadToken("the assertion ends too late")
        begins = claims.get("nbf", now)
        if not isinstance(begins, int | float) or begins > now + LEEWAY:
            raise BadToken("the assertion is not good yet")
        if once:
            self._note(issuer, claims, expires - now + LEEWAY)
        return claims

    def _verified(self, token: str, keys: Sequence[Key]) -> dict[str, Any]:
        header = read_header(token)
        algorithm = header.get("alg")
        if algorithm not in ASYMMETRIC or "crit" in header:
            raise BadToken("the assertion has an algorithm that is not taken")
        named = header.get("kid", "")
        for key in keys:
            meant = named in ("", key.id) or not key.id
            if meant and key.fits(str(algorithm)):
                return read_object(verify(token, key, str(algorithm)))
        raise BadToken("no known key signed the assertion")

    def _note(self, issuer: str, claims: dict[str, Any], lifetime: float) -> None:
        identity = claims.get("jti")
        if not isinstance(identity, str):
            # RFC 7523 §3: `jti` is optional.
            return
        name = f"{issuer} {identity}"
        if self._used.get(name):
            raise BadToken("the assertion was used before")
        self._used.put(name, value=True, lifetime=lifetime)


def audiences_of(claims: dict[str, Any]) -> set[str]:
    """Return the audiences of a token: `aud` is a string or a list (RFC 7519 §4.1.3)."""
    said = claims.get("aud")
    if isinstance(said, str):
        return {said}
    if isinstance(said, list):
        return {each for each in said if isinstance(each, str)}
    return set()
