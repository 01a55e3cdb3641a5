"""Authorization codes: used once, within 60 seconds, by the client and the verifier they were made for.

Rule: a code that comes again was stolen. What its first use has given ends then (RFC 6749 §4.1.2).
"""

from __future__ import annotations

import hmac

import msgspec
from msgspec import Struct

from ferrule.auth.proxy.grants import Grant
from ferrule.auth.proxy.keys import digest, random_text
from ferrule.auth.proxy.parameters import OAuthError
from ferrule.auth.proxy.upstream import challenge_of
from ferrule.stores.contracts import Store

WRONG = "The code is not valid, was used before, or belongs to another request"
USED = b"used "
REMEMBERED = 600.0
"""For how long a used code is known as one."""
VERIFIER_SIZES = range(43, 129)
"""RFC 7636 §4.1."""


class Code(Struct, frozen=True, kw_only=True):
    """What a code stands for."""

    grant: Grant
    redirect: str
    challenge: str


class CodeReplayed(OAuthError):
    """A code came again: the grant of its first use must end."""

    def __init__(self, grant_id: str) -> None:
        super().__init__("invalid_grant", WRONG)
        self.grant_id = grant_id


class Codes:
    """Gives out codes and takes them back."""

    LIFETIME = 60.0

    def __init__(self, store: Store) -> None:
        self._store = store

    async def issue(self, grant: Grant, redirect: str, challenge: str) -> str:
        """Return a new code for a grant that begins when the code is used."""
        code = random_text()
        kept = Code(grant=grant, redirect=redirect, challenge=challenge)
        await self._store.put(_key(code), msgspec.json.encode(kept), self.LIFETIME)
        return code

    async def redeem(self, code: str, verifier: str, client: str, redirect: str | None) -> Grant:
        """Return the grant of a code; raises OAuthError, and `CodeReplayed` for one that was used before."""
        raw = await self._store.get(_key(code))
        if raw is None:
            raise OAuthError("invalid_grant", WRONG)
        if raw.startswith(USED):
            raise CodeReplayed(raw.removeprefix(USED).decode())
        kept = msgspec.json.decode(raw, type=Code)
        # Used up before it is looked at, so that nobody can try again.
        if not await self._store.replace(_key(code), raw, USED + kept.grant.id.encode(), REMEMBERED):
            raise CodeReplayed(kept.grant.id)
        right = len(verifier) in VERIFIER_SIZES and hmac.compare_digest(challenge_of(verifier), kept.challenge)
        if not right or kept.grant.client != client or redirect not in (None, kept.redirect):
            raise OAuthError("invalid_grant", WRONG)
        return kept.grant


def _key(code: str) -> str:
    return f"code:{digest(code)}"
