"""`OAuthProxy`: logs people in with a provider that registers no clients, and gives those clients tokens of its own.

Rule: the provider's tokens stay in the vault. A handler gets one by asking for it (`upstream_token`); nothing is
handed on by itself, in either direction (MCP AUTH-8).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from msgspec import structs

from ferrule.auth.address import AddressRules, is_loopback_name
from ferrule.auth.fetch import Fetcher
from ferrule.auth.jose import BadToken
from ferrule.auth.proxy.access_tokens import AccessTokens
from ferrule.auth.proxy.browser import Browsers
from ferrule.auth.proxy.clients import AUTH_METHODS, GRANTS, Clients
from ferrule.auth.proxy.codes import Codes
from ferrule.auth.proxy.documents import ClientDocuments
from ferrule.auth.proxy.grants import Grants
from ferrule.auth.proxy.keys import Keys, random_text, read_key_file
from ferrule.auth.proxy.login import LoginFlow
from ferrule.auth.proxy.pages import failure_page
from ferrule.auth.proxy.parameters import AddressRate, OAuthError, error_answer
from ferrule.auth.proxy.profiles import Profile, profile_of
from ferrule.auth.proxy.settings import ProxySettings
from ferrule.auth.proxy.token_endpoint import TokenEndpoint
from ferrule.auth.proxy.upstream import Person, Upstream, UpstreamDown, UpstreamRefused
from ferrule.auth.proxy.vault import Vault
from ferrule.auth.server.resource import PUBLIC, public_route, require_resource
from ferrule.auth.server.token_cache import KnownToken
from ferrule.auth.server.token_verifier import TokenVerifier
from ferrule.balancing.rate import Rate
from ferrule.errors import Busy, Refusal, SetupError
from ferrule.identity.principal import Principal, require_scopes
from ferrule.settings.option import read
from ferrule.stores.contracts import Store
from ferrule.stores.memory import MemoryStore
from ferrule.stores.stores import Stores
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.web import WebRequest, WebResponse

if TYPE_CHECKING:
    from ferrule.auth.proxy.keywords import ProxyKeywords

logger = logging.getLogger("ferrule.auth")

METADATA = "/.well-known/oauth-authorization-server"
MAX_IN_MEMORY = 100_000
NO_ROOM = "Too many people are logging in; try again in a while"
RETRY_AFTER = {"Retry-After": "10"}

Answer = Callable[[WebRequest], Awaitable[WebResponse]]

CALLABLE_BY_PAGES = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, MCP-Protocol-Version",
    "Cache-Control": "no-store",
}
"""What clients call has no cookies, so pages of any origin may: a client may be one."""


class OAuthProxy(TokenVerifier):
    """Lets in who has logged in with a provider, through pages and tokens of our own.

    `upstream` is the name of a provider, or a `Profile` of one; `client` the id and the secret it gave you, for the
    redirect URI `/callback` at the origin of the resource; `resource` the URL clients type, byte for byte. `allow`
    decides who of the provider's users may log in. The options are those of `ProxySettings`.
    """

    def __init__(
        self,
        upstream: str | Profile,
        client: tuple[str, str],
        *,
        resource: str,
        allow: Callable[[Person], bool] | None = None,
        clock: Callable[[], float] = time.time,
        **options: Unpack[ProxyKeywords],
    ) -> None:
        settings = read(ProxySettings, options, "OAuthProxy")
        profile = profile_of(upstream, settings.tenant)
        if not isinstance(client, tuple) or len(client) != 2 or not all(isinstance(x, str) and x for x in client):
            raise SetupError("OAuthProxy: client must be (id, secret), as the provider gave them to you")
        require_resource(resource)
        self.issuer = settings.public_url(resource)
        super().__init__(settings.protection(resource), issuers=[self.issuer], clock=clock)
        self.settings = settings
        self._url = resource
        self.profile = profile
        self._store, self._own_store = _store_of(settings, clock)
        keys = _keys_of(settings)
        fetcher = Fetcher(AddressRules(loopback=profile.is_local, private=settings.allow_private))
        self.upstream = Upstream(profile, client, f"{self.issuer}/callback", fetcher, clock)
        self._vault = Vault(self._store, keys, self.upstream, settings.refresh_lifetime, clock)
        self._tokens = AccessTokens(keys, self.issuer, resource, settings.access_lifetime, clock)
        self._endpoint, self._login = self._endpoints(keys, allow)

    def _endpoints(self, keys: Keys, allow: Callable[[Person], bool] | None) -> tuple[TokenEndpoint, LoginFlow]:
        """Return what clients call, and what people see."""
        settings = self.settings
        host = urlsplit(self._url).hostname or ""
        registrations = AddressRate(Rate.parse(settings.registration_rate))
        # A client on this machine describes itself from there, in development.
        documents = ClientDocuments(Fetcher(AddressRules(loopback=is_loopback_name(host))), registrations, self.clock)
        clients = Clients(keys, documents, self.clock, settings.redirect_schemes)
        codes = Codes(self._store)
        endpoint = TokenEndpoint(
            resource=self._url,
            clients=clients,
            codes=codes,
            grants=Grants(self._store, keys, settings.refresh_lifetime, self.clock),
            vault=self._vault,
            tokens=self._tokens,
            rate=registrations,
            sender=self.proxies.sender,
            ended=self._forget,
            clock=self.clock,
        )
        flow = LoginFlow(
            issuer=self.issuer,
            resource=self._url,
            server=settings.resource_name or host,
            scopes=self.resource.scopes,
            more_scopes=require_scopes(settings.more_scopes, "more_scopes"),
            keys=keys,
            store=self._store,
            clients=clients,
            browsers=Browsers(keys, self._store, secure=self.issuer.startswith("https:")),
            upstream=self.upstream,
            vault=self._vault,
            codes=codes,
            rate=AddressRate(Rate.parse(settings.login_rate)),
            sender=self.proxies.sender,
            allow=allow,
            clock=self.clock,
        )
        return endpoint, flow

    # -- who calls

    def check(self, token: str, now: float, resource: str) -> KnownToken:
        """Return whom a token of ours stands for; raises BadToken."""
        principal = self._tokens.verify(token)
        if principal is None or principal.expires is None:
            raise BadToken("the token is not one of this server's, or has expired")
        until = min(now + self.keep_good, principal.expires)
        scopes = self.resource.hierarchy.expand(principal.scopes)
        if scopes != principal.scopes:
            principal = structs.replace(principal, scopes=scopes)
        return KnownToken(principal, until)

    async def upstream_token(self, caller: Principal | None) -> str:
        """Return the provider's access token of a caller, `ctx.identity`; raises a Refusal where there is none."""
        sid = ""
        if caller is not None and caller.issuer == self.issuer:
            sid = str(caller.claims.get("sid", ""))
        try:
            tokens = await self._vault.fresh(sid)
        except UpstreamRefused:
            why = f"the login with {self.profile.title} has ended: log in again"
            raise self.resource.invalid(self._url, why) from None
        except UpstreamDown as reason:
            logger.error("the token of a caller could not be refreshed: %s", reason)
            why = f"Unavailable: {self.profile.title} cannot be asked now"
            raise Refusal(why, status=503, headers={"Retry-After": "2"}) from None
        return tokens.access

    def _forget(self, grant_id: str) -> None:
        self.cache.forget_where(lambda known: known.principal.claims.get("sid") == grant_id)

    async def start(self) -> None:
        """Open the file of logins, where there is one."""
        await super().start()
        if self._own_store is not None:
            await self._own_store.open()

    async def close(self) -> None:
        """Release what was opened here."""
        await super().close()
        if self._own_store is not None:
            await self._own_store.close()

    # -- routes

    def routes(self, path: str) -> Sequence[CustomRoute]:
        """Return the metadata of the resource, and the endpoints of the authorization server."""
        routes = [*super().routes(path)]
        issuer_path = urlsplit(self.issuer).path
        for place in dict.fromkeys([METADATA, METADATA + issuer_path]):
            routes.append(public_route(place, self._metadata))
        for place, answer in (
            ("/token", self._endpoint.token),
            ("/register", self._endpoint.register),
            ("/revoke", self._endpoint.revoke),
        ):
            routes.append(_client_route(place, answer))
        routes.append(_page_route("/authorize", ["GET", "POST"], self._login.authorize))
        routes.append(_page_route("/consent", ["POST"], self._login.consent))
        routes.append(_page_route("/callback", ["GET"], self._login.callback))
        return routes

    async def _metadata(self, request: WebRequest) -> WebResponse:
        return WebResponse(self.metadata(), 200, PUBLIC)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the authorization server (RFC 8414)."""
        base = self.issuer
        scopes = dict.fromkeys([*self.resource.scopes, *self.settings.more_scopes])
        return {
            "issuer": base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "registration_endpoint": f"{base}/register",
            "revocation_endpoint": f"{base}/revoke",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": list(GRANTS),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
            "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
            "scopes_supported": list(scopes),
        }


def _page_route(path: str, methods: Sequence[str], answer: Answer) -> CustomRoute:
    """Return a route that people see; it judges by itself from which page they come, and knows our own address."""

    async def respond(request: WebRequest) -> WebResponse:
        try:
            return await answer(request)
        except Busy:
            return failure_page(NO_ROOM, 503, RETRY_AFTER)

    return CustomRoute(path, methods, respond, auth=False, any_origin=True)


def _client_route(path: str, answer: Answer) -> CustomRoute:
    """Return a route that clients call, which may be pages of any origin."""

    async def respond(request: WebRequest) -> WebResponse:
        if request.method == "OPTIONS":
            return WebResponse(None, 204, CALLABLE_BY_PAGES)
        try:
            response = await answer(request)
        except Busy:
            response = error_answer(OAuthError("temporarily_unavailable", NO_ROOM, status=503, headers=RETRY_AFTER))
        headers: Mapping[str, str | Sequence[str]] = {**CALLABLE_BY_PAGES, **response.headers}
        return WebResponse(response.content, response.status_code, headers, response.media_type)

    return CustomRoute(path, ["POST", "OPTIONS"], respond, auth=False, any_origin=True)


def _keys_of(settings: ProxySettings) -> Keys:
    if settings.keys:
        return Keys(settings.keys)
    if settings.key_file is not None:
        return Keys(read_key_file(os.fspath(settings.key_file)))
    logger.warning("OAuthProxy has no keys: every login ends with this process; give key_file or keys")
    return Keys([random_text()])


def _store_of(settings: ProxySettings, clock: Callable[[], float]) -> tuple[Store, Stores | None]:
    """Return where logins are kept, and the same where it is ours to close."""
    given = settings.store
    if given is None:
        return MemoryStore(clock, max_values=MAX_IN_MEMORY), None
    if not isinstance(given, str | os.PathLike):
        return given, None
    opened = Stores.sqlite(given, clock=clock)
    return opened.values, opened
