"""Tokens of an issuer that says itself where its keys are (OpenID Connect Discovery, RFC 8414)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from ferrule.auth.fetch import FetchFailed
from ferrule.auth.server.claims import PROFILES, STANDARD
from ferrule.auth.server.jwt import ALGORITHMS, SignedTokens, fetcher_for, require_algorithms
from ferrule.auth.server.keys import FetchedKeys
from ferrule.auth.server.resource import PUBLIC, public_route
from ferrule.auth.server.settings import TokenSettings
from ferrule.auth.tenants import TENANT, template_of
from ferrule.errors import SetupError
from ferrule.settings.option import read
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.web import WebRequest, WebResponse

if TYPE_CHECKING:
    from ferrule.auth.server.keywords import TokenKeywords

OPENID = "/.well-known/openid-configuration"
OAUTH = "/.well-known/oauth-authorization-server"


class OIDC(SignedTokens):
    """Lets in who shows a token of an issuer, whose keys are found by its name."""

    def __init__(
        self,
        issuer: str,
        *,
        algorithms: Collection[str] | None = None,
        legacy_as: bool = False,
        clock: Callable[[], float] = time.time,
        **options: Unpack[TokenKeywords],
    ) -> None:
        settings = read(TokenSettings, options, "OIDC")
        profile = STANDARD if settings.provider is None else PROFILES[settings.provider]
        if not urlsplit(issuer).scheme or not urlsplit(issuer).netloc:
            raise SetupError("OIDC: the issuer must be a URL, such as https://login.example.com")
        expected = issuer
        if profile.several_tenants:
            # Entra signs for all tenants with one set of keys, and names the tenant in each token.
            expected = template_of(issuer)
        chosen = ALGORITHMS if algorithms is None else require_algorithms(algorithms, symmetric=False)
        super().__init__(expected, settings, algorithms=chosen, issuers=[issuer], clock=clock)
        self._named = issuer
        self._fetcher = fetcher_for(issuer, settings)
        self._legacy_as = legacy_as
        self._metadata: Mapping[str, Any] = {}
        self.keys = FetchedKeys(self._locate, self._fetcher, on_dropped=self._dropped)

    async def _locate(self) -> str:
        """Return where the keys are, as the issuer's metadata says now."""
        self._metadata = document = await self._discover()
        found = document.get("jwks_uri")
        if not isinstance(found, str):
            raise FetchFailed("the metadata of the issuer does not say where its keys are")
        return found

    async def _discover(self) -> Mapping[str, Any]:
        for url in metadata_urls(self._named):
            answer = await self._fetcher.get(url)
            if answer.status == 200:
                document = answer.document()
                said = document.get("issuer")
                if said not in (self._named, self.rules.issuer):
                    # RFC 8414 §3.3: it must be identical, or another issuer's keys could be slipped in.
                    raise FetchFailed(f"the metadata at {answer.url} is of another issuer")
                return document
        raise FetchFailed(f"{self._named.replace(TENANT, '')} publishes no metadata")

    def routes(self, path: str) -> Sequence[CustomRoute]:
        """Return the metadata of the resource; with `legacy_as`, that of the issuer too, for the oldest clients."""
        routes = list(super().routes(path))
        if self._legacy_as:
            routes.append(public_route(OAUTH, self._mirror))
        return routes

    async def _mirror(self, request: WebRequest) -> WebResponse:
        """Show the issuer's own metadata, marked as a copy."""
        if not self._metadata:
            return WebResponse("the metadata of the issuer cannot be had now\n", 503, {**PUBLIC, "Retry-After": "2"})
        return WebResponse({**self._metadata, "ferrule_mirror_of": self._named}, 200, PUBLIC)


def metadata_urls(issuer: str) -> list[str]:
    """Return where an issuer's metadata may be: OpenID Connect first, then RFC 8414."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    return [f"{issuer.rstrip('/')}{OPENID}", f"{parts.scheme}://{parts.netloc}{OAUTH}{path}"]
