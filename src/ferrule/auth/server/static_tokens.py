"""Tokens that are written down beforehand: for development, tests, and a handful of machines."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Unpack

from msgspec import structs

from ferrule.auth.jose import BadToken
from ferrule.auth.server.settings import ResourceSettings
from ferrule.auth.server.token_cache import KnownToken, digest
from ferrule.auth.server.token_verifier import TokenVerifier, is_token
from ferrule.errors import SetupError
from ferrule.identity.principal import Principal
from ferrule.settings.option import read

if TYPE_CHECKING:
    from ferrule.auth.server.keywords import ProtectionKeywords


class StaticTokens(TokenVerifier):
    """Lets in who shows one of a few tokens."""

    def __init__(
        self,
        tokens: Mapping[str, Principal],
        *,
        clock: Callable[[], float] = time.time,
        **options: Unpack[ProtectionKeywords],
    ) -> None:
        settings = read(ResourceSettings, options, "StaticTokens")
        super().__init__(settings, clock=clock)
        if not tokens:
            raise SetupError("StaticTokens: give at least one token and the Principal it stands for")
        self._principals: dict[bytes, Principal] = {}
        for token, principal in tokens.items():
            if not isinstance(token, str) or not is_token(token):
                raise SetupError("StaticTokens: a token has letters, digits and -._~+/ only, and at least one of them")
            if not isinstance(principal, Principal):
                raise SetupError("StaticTokens: each token stands for a Principal")
            scopes = self.resource.hierarchy.expand(principal.scopes)
            self._principals[digest(token)] = structs.replace(principal, scopes=scopes, method="static")

    def check(self, token: str, now: float, resource: str) -> KnownToken:
        """Return whom a token stands for; how long that takes says nothing of the tokens there are."""
        shown = digest(token)
        found: Principal | None = None
        for known, principal in self._principals.items():
            if hmac.compare_digest(known, shown):
                found = principal
        if found is None or found.expired(now):
            raise BadToken("the token is not known")
        until = now + self.keep_good
        return KnownToken(found, min(until, math.inf if found.expires is None else found.expires))
