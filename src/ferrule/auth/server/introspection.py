"""Tokens that only their issuer can read: it is asked (RFC 7662).

Rule: what the issuer says holds for a minute at most, and while it cannot be asked nobody new is let in.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote_plus, urlsplit

from ferrule.auth.address import AddressRefused
from ferrule.auth.fetch import FetchFailed
from ferrule.auth.jose import BadToken
from ferrule.auth.server.claims import ClaimRules
from ferrule.auth.server.jwt import fetcher_for
from ferrule.auth.server.keys import FETCH_TIMEOUT
from ferrule.auth.server.settings import TokenSettings
from ferrule.auth.server.token_cache import KnownToken
from ferrule.auth.server.token_verifier import CannotCheck, TokenVerifier
from ferrule.errors import SetupError
from ferrule.settings.option import read

if TYPE_CHECKING:
    from ferrule.auth.server.keywords import TokenKeywords

KEEP = 60.0
"""For how many seconds an answer holds."""


class Introspection(TokenVerifier):
    """Lets in who shows a token that its issuer calls active."""

    keep_good = KEEP
    recheck = KEEP

    def __init__(
        self,
        url: str,
        *,
        client: tuple[str, str],
        issuer: str | None = None,
        clock: Callable[[], float] = time.time,
        **options: Unpack[TokenKeywords],
    ) -> None:
        settings = read(TokenSettings, options, "Introspection")
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.netloc or "@" in parts.netloc:
            raise SetupError("Introspection: the URL must be that of the introspection endpoint, without a user")
        if not isinstance(client, tuple | list) or len(client) != 2 or not all(client):
            raise SetupError("Introspection: client=(id, secret) says who asks")
        origin = f"{parts.scheme}://{parts.netloc}"
        super().__init__(settings, issuers=[issuer] if issuer else [], clock=clock)
        self._url = url
        self._issuer = issuer
        self._rules = ClaimRules(issuer or origin, settings)
        self._fetcher = fetcher_for(url, settings)
        # RFC 6749 §2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(client[0])}:{quote_plus(client[1])}"
        self._authorization = "Basic " + b64encode(pair.encode()).decode()

    def check(self, token: str, now: float, resource: str) -> Any:
        """Ask the issuer."""
        return self._ask(token, resource)

    async def _ask(self, token: str, resource: str) -> KnownToken:
        fields = {"token": token, "token_type_hint": "access_token"}
        try:
            async with asyncio.timeout(FETCH_TIMEOUT):
                answer = await self._fetcher.post_form(self._url, fields, {"authorization": self._authorization})
            if answer.status != 200:
                raise FetchFailed(f"the issuer answered HTTP {answer.status}")
            said = answer.document()
        except TimeoutError:
            raise CannotCheck("the issuer took too long to say whether a token is active") from None
        except (FetchFailed, AddressRefused) as reason:
            raise CannotCheck(f"the issuer could not be asked: {reason}") from None
        return self._read(said, self.clock(), resource)

    def _read(self, said: Mapping[str, Any], now: float, resource: str) -> KnownToken:
        if said.get("active") is not True:
            raise BadToken("the token is not active")
        # An issuer need not say again who it is, nor when the token ends (RFC 7662 §2.2).
        claims = {"iss": self._rules.issuer, "exp": int(now + KEEP), **said}
        if self._issuer is None:
            claims["iss"] = self._rules.issuer
        self._rules.check(claims, now, resource)
        if "exp" not in said:
            del claims["exp"]
        claims.pop("active")
        scopes = self.resource.hierarchy.expand(self._rules.scopes(claims))
        principal = self._rules.principal(claims, scopes, "introspection")
        until = now + KEEP
        if principal.expires is not None:
            until = min(until, principal.expires)
        return KnownToken(principal, until)
