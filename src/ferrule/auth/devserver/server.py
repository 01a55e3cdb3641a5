"""A development authorization server: real flows, no passwords, only for this machine.

Rule: it cannot be taken for a real one. It listens on loopback only, runs only where `FERRULE_ENV` is `dev` or pytest
runs, says `ferrule_dev` in its metadata, and its keys end with it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack
from urllib.parse import urlencode

from msgspec import Struct

from ferrule.auth.address import AddressRules
from ferrule.auth.devserver.authorize import Authorization
from ferrule.auth.devserver.clients import AUTH_METHODS, GRANTS, Clients, RegisteredClient
from ferrule.auth.devserver.device import DeviceAuthorization
from ferrule.auth.devserver.grants import Asking, Grants
from ferrule.auth.devserver.parameters import OAuthError, Parameters
from ferrule.auth.devserver.profile import Issuer, Profile, find_profile
from ferrule.auth.devserver.tokens import Login, Tokens
from ferrule.auth.dpop import NonceNeeded, Nonces, ProofChecker
from ferrule.auth.fetch import Fetcher
from ferrule.auth.jose import ASYMMETRIC, BadToken, Key
from ferrule.auth.tenants import template_of
from ferrule.errors import SetupError
from ferrule.settings.option import Port, PositiveSeconds, Seconds, check, read
from ferrule.transports.http.endpoint.guard import is_loopback
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.routes.web import WebRequest, WebResponse

if TYPE_CHECKING:
    from ferrule.auth.devserver.keywords import DevServerKeywords

MAX_SEEN = 10_000
PUBLIC = {"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=300"}
"""Headers of what pages of any origin may read."""
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}

ENDPOINTS = {
    "authorize": "authorization_endpoint",
    "token": "token_endpoint",
    "register": "registration_endpoint",
    "introspect": "introspection_endpoint",
    "revoke": "revocation_endpoint",
    "keys": "jwks_uri",
    "user": "userinfo_endpoint",
    "device": "device_authorization_endpoint",
}
"""What the metadata calls each endpoint (RFC 8414 §2)."""

Answer = Callable[[WebRequest], Awaitable[WebResponse]]


class DevSettings(Struct, frozen=True, kw_only=True):
    """How a development server behaves; times are seconds."""

    host: str = "127.0.0.1"
    """The address to listen on, which must be one of this machine."""
    port: Port = 0
    """The port to listen on; 0 for any that is free."""
    user: str = ""
    """Who is signed in at once, without a page; empty shows the page."""
    clients: Sequence[RegisteredClient] = ()
    """Clients that are registered already."""
    scopes: Sequence[str] = ()
    """The scopes there are; empty for any."""
    audiences: Sequence[str] = ()
    """The APIs it was told of; what they are for depends on the profile."""
    access_lifetime: PositiveSeconds = 3600.0
    """How long access tokens are good."""
    refresh_lifetime: PositiveSeconds = 30 * 86_400.0
    """How long refresh tokens are good."""
    code_lifetime: PositiveSeconds = 60.0
    """How long an authorization code is good."""
    device_lifetime: PositiveSeconds = 600.0
    """How long the code of a login on another device is good."""
    device_interval: PositiveSeconds = 5.0
    """How often a client may ask whether that login is done."""
    refresh_grace: Seconds = 60.0
    """For how long a used refresh token still gives the successor it gave."""
    dpop: Literal["off", "optional", "nonce"] = "optional"
    """Whether proofs are taken at the token endpoint, or taken only with our nonce."""
    algorithm: Literal["ES256", "RS256", "PS256", "Ed25519"] = "ES256"
    """What tokens are signed with."""
    allowed_origins: Collection[str] = ()
    """Web pages that may call it: exact origins, or "*"."""
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""

    def __post_init__(self) -> None:
        check(self)


class Seen(Struct, frozen=True):
    """One request that was answered, for tests that count."""

    endpoint: str
    """`authorize`, `token`, `register`, … or `metadata`."""
    status: int
    grant: str = ""
    """The `grant_type` at the token endpoint."""


class Fault(Struct):
    """What an endpoint does in place of its work."""

    status: int
    times: int
    delay: float
    body: bytes


class DevServer:
    """A development authorization server; the options are those of `DevSettings`."""

    def __init__(
        self, profile: str | Profile = "plain", *, fetcher: Fetcher | None = None, **options: Unpack[DevServerKeywords]
    ) -> None:
        settings = read(DevSettings, options, "DevServer")
        _refuse_production(settings.host)
        self.profile = find_profile(profile)
        self.settings = settings
        self.clock = settings.clock
        self.seen: deque[Seen] = deque(maxlen=MAX_SEEN)
        """The requests that were answered, the newest last."""
        self._trusted: dict[str, Sequence[Key]] = {}
        self._faults: dict[str, Fault] = {}
        issuer = Issuer(
            profile=self.profile,
            name=lambda: self.issuer,
            clock=settings.clock,
            scopes=settings.scopes,
            audiences=settings.audiences,
        )
        self.tokens = Tokens(
            issuer,
            algorithm=settings.algorithm,
            access_lifetime=settings.access_lifetime,
            refresh_lifetime=settings.refresh_lifetime,
            grace=settings.refresh_grace,
        )
        self.clients = Clients(
            fetcher or Fetcher(AddressRules(loopback=True)),
            settings.clock,
            documents=self.profile.client_documents,
            token_audiences=lambda: [self.issuer, self.url("token")],
        )
        for client in settings.clients:
            self.clients.add(client)
        self.authorization = Authorization(issuer, self.clients, code_lifetime=settings.code_lifetime)
        self.authorization.user = settings.user
        self.devices = _devices(self.profile, settings)
        self.grants = Grants(issuer, self.tokens, self.authorization, self.devices, trusted=self._trusted)
        self._proofs: ProofChecker | None = None
        if settings.dpop != "off":
            nonces = Nonces() if settings.dpop == "nonce" else None
            self._proofs = ProofChecker(nonces=nonces)
        self._site = Site(
            self._routes(), host=settings.host, port=settings.port, allowed_origins=settings.allowed_origins
        )

    # -- life

    async def start(self) -> None:
        """Listen, and serve whoever comes."""
        await self._site.start()

    async def close(self) -> None:
        """Release everything."""
        await self._site.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def origin(self) -> str:
        """Where it is served, without a path."""
        return self._site.origin

    @property
    def issuer(self) -> str:
        """What its tokens name as their issuer."""
        return self._site.origin + self.profile.issuer_path

    def url(self, endpoint: str) -> str:
        """Return where an endpoint is; raises SetupError where the profile has none of this name."""
        path = self.profile.endpoints().get(endpoint)
        if path is None:
            raise SetupError(f"this profile has no endpoint {endpoint!r}; it has {', '.join(self.profile.endpoints())}")
        return self._site.origin + path

    # -- what tests need

    def add_client(self, client_id: str, **fields: Any) -> RegisteredClient:
        """Register a client by hand; the fields are those of `RegisteredClient`."""
        client = RegisteredClient(id=client_id, **fields)
        self.clients.add(client)
        return client

    def trust(self, other: DevServer) -> None:
        """Take the assertions of another server, as it signs them now."""
        self._trusted[other.issuer] = other.tokens.keys

    def trust_keys(self, issuer: str, keys: Sequence[Key]) -> None:
        """Take the assertions an issuer signs with these keys."""
        self._trusted[issuer] = keys

    def access_token(
        self,
        subject: str = "ada",
        *,
        client: str = "client",
        scopes: Sequence[str] = (),
        audience: str | Sequence[str] = (),
        lifetime: float | None = None,
        thumbprint: str = "",
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """Issue an access token without any flow; `claims` replace those it would have, and None leaves one out."""
        named = (audience,) if isinstance(audience, str) else tuple(audience)
        login = Login(
            client=client,
            subject=subject,
            scopes=tuple(scopes),
            audience=named,
            signed_in=self.clock(),
            thumbprint=thumbprint,
        )
        return self.tokens.issue(login, login.scopes, lifetime=lifetime, claims=claims)

    def id_token(self, subject: str = "ada", *, client: str = "client", lifetime: float | None = None) -> str:
        """Issue an ID token without any flow."""
        return self.tokens.id_token(Login(client=client, subject=subject, signed_in=self.clock()), lifetime=lifetime)

    def fail(self, endpoint: str, status: int = 500, *, times: int = 1, delay: float = 0.0, body: bytes = b"") -> None:
        """Let the next requests to an endpoint fail; with status 0 they are only late."""
        self._faults[endpoint] = Fault(status, times, delay, body)

    def count(self, endpoint: str, grant: str = "") -> int:
        """Return how many requests an endpoint has answered, of one grant where it is named."""
        return sum(1 for each in self.seen if each.endpoint == endpoint and grant in ("", each.grant))

    # -- routes

    def _routes(self) -> list[CustomRoute]:
        answers: dict[str, tuple[list[str], Answer]] = {
            "authorize": (["GET"], self.authorization.ask),
            "token": (["POST"], self._token),
            "register": (["POST"], self._register),
            "introspect": (["POST"], self._introspect),
            "revoke": (["POST"], self._revoke),
            "keys": (["GET"], self._keys),
            "user": (["GET"], self._user),
            "tokeninfo": (["GET"], self._tokeninfo),
            "device": (["POST"], self._device),
            "device_page": (["GET"], self.devices.ask),
        }
        paths = self.profile.endpoints()
        routes = []
        for name, path in paths.items():
            methods, answer = answers[name]
            public = name == "keys"
            routes.append(CustomRoute(path, methods, self._endpoint(name, answer), auth=False, any_origin=public))
        decide = self._endpoint("decide", self.authorization.answer)
        routes.append(CustomRoute(paths["authorize"], ["POST"], decide, auth=False))
        if "device" in paths:
            decide = self._endpoint("decide", self.devices.answer)
            routes.append(CustomRoute(paths["device_page"], ["POST"], decide, auth=False))
        described = self._endpoint("metadata", self._metadata)
        for path in self.profile.discovery_paths():
            routes.append(CustomRoute(path, ["GET"], described, auth=False, any_origin=True))
        if self.profile.shared_path:
            shared = self._endpoint("metadata", self._tenants_metadata)
            path = self.profile.shared_path + "/.well-known/openid-configuration"
            routes.append(CustomRoute(path, ["GET"], shared, auth=False, any_origin=True))
        return routes

    def _endpoint(self, name: str, answer: Answer) -> Callable[[WebRequest], Awaitable[WebResponse]]:
        """Return what answers a route: the endpoint, its errors in JSON, and a note of what was answered."""

        async def respond(request: WebRequest) -> WebResponse:
            grant = await _grant_of(name, request)
            response = await self._fault(name)
            if response is None:
                try:
                    response = await answer(request)
                except OAuthError as error:
                    response = self._error(name, error)
            self.seen.append(Seen(name, response.status_code, grant))
            return response

        return respond

    async def _fault(self, name: str) -> WebResponse | None:
        fault = self._faults.get(name)
        if fault is None or fault.times <= 0:
            return None
        fault.times -= 1
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if not fault.status:
            return None
        return WebResponse(fault.body, fault.status, NO_STORE, media_type="application/json")

    def _error(self, name: str, error: OAuthError) -> WebResponse:
        said = {"error": error.error, "error_description": error.description}
        status = error.status
        headers = dict(NO_STORE)
        if name == "token" and self.profile.errors_are_200:
            status = 200
        elif status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="ferrule-dev"'
        headers |= self._nonce()
        return WebResponse(said, status, headers)

    async def _metadata(self, request: WebRequest) -> WebResponse:
        return WebResponse(self._described(self.issuer), 200, PUBLIC)

    async def _tenants_metadata(self, request: WebRequest) -> WebResponse:
        """Show the metadata of all tenants (Entra: `common`)."""
        return WebResponse(self._described(template_of(self.origin + self.profile.shared_path)), 200, PUBLIC)

    def _described(self, issuer: str) -> dict[str, Any]:
        profile = self.profile
        document: dict[str, Any] = {"issuer": issuer, "ferrule_dev": True}
        paths = profile.endpoints()
        for name, member in ENDPOINTS.items():
            if name in paths:
                document[member] = self.origin + paths[name]
        document |= {
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": list(GRANTS),
            "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
            "token_endpoint_auth_signing_alg_values_supported": list(ASYMMETRIC),
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.settings.algorithm],
        }
        if self.settings.scopes:
            document["scopes_supported"] = list(self.settings.scopes)
        if profile.lists_pkce:
            document["code_challenge_methods_supported"] = ["S256"]
        if profile.names_issuer:
            document["authorization_response_iss_parameter_supported"] = True
        if profile.client_documents:
            document["client_id_metadata_document_supported"] = True
        if self._proofs is not None:
            document["dpop_signing_alg_values_supported"] = list(self._proofs.algorithms)
        return document

    async def _keys(self, request: WebRequest) -> WebResponse:
        keys = []
        for key in self.tokens.keys:
            keys.append({**key.public(), "alg": self.settings.algorithm, "use": "sig"})
        return WebResponse({"keys": keys}, 200, PUBLIC)

    async def _register(self, request: WebRequest) -> WebResponse:
        try:
            document = await request.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise OAuthError("invalid_client_metadata", "the body is a JSON object (RFC 7591 section 3.1)")
        return WebResponse(self.clients.register(document), 201, NO_STORE)

    async def _token(self, request: WebRequest) -> WebResponse:
        parameters, client = await self._authenticated(request)
        answer = await self.grants.answer(Asking(client, parameters, self._thumbprint(request)))
        if self.profile.forms_by_default and "json" not in request.headers.get("accept", ""):
            kind = "application/x-www-form-urlencoded"
            return WebResponse(urlencode(answer), 200, NO_STORE, media_type=kind)
        return WebResponse(answer, 200, {**NO_STORE, **self._nonce()})

    async def _device(self, request: WebRequest) -> WebResponse:
        """Begin a login on another device (RFC 8628)."""
        parameters, client = await self._authenticated(request)
        return WebResponse(self.devices.begin(client, parameters, self.url("device_page")), 200, NO_STORE)

    def _nonce(self) -> dict[str, str]:
        """Return the header that tells a client which nonce its next proof needs (RFC 9449 §8)."""
        if self._proofs is None or self._proofs.nonces is None:
            return {}
        return {"DPoP-Nonce": self._proofs.nonces.newest(self.clock())}

    def _thumbprint(self, request: WebRequest) -> str:
        """Return the thumbprint of the key a request proves to have; empty where it proves none (RFC 9449 §5)."""
        proof = request.headers.get("dpop", "")
        if not proof or self._proofs is None:
            return ""
        try:
            return self._proofs.check(proof, method="POST", url=self.url("token"), now=self.clock())
        except NonceNeeded as reason:
            raise OAuthError("use_dpop_nonce", str(reason)) from None
        except BadToken as reason:
            raise OAuthError("invalid_dpop_proof", str(reason)) from None

    async def _authenticated(self, request: WebRequest) -> tuple[Parameters, RegisteredClient]:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise OAuthError("invalid_request", "the body is a form (application/x-www-form-urlencoded)")
        try:
            parameters = Parameters((await request.body()).decode())
        except UnicodeDecodeError:
            raise OAuthError("invalid_request", "the body is not UTF-8") from None
        client = await self.clients.authenticate(parameters, request.headers.get("authorization", ""))
        return parameters, client

    async def _introspect(self, request: WebRequest) -> WebResponse:
        """Say what is known of a token (RFC 7662)."""
        parameters, client = await self._authenticated(request)
        if client.auth_method == "none":
            raise OAuthError("invalid_client", "whoever asks about tokens needs credentials", 401)
        found = self.tokens.find_access(parameters.require("token"))
        if found is None:
            return WebResponse({"active": False}, 200, NO_STORE)
        kind = "DPoP" if found.login.thumbprint else "Bearer"
        said = {**found.claims, "active": True, "token_type": kind, "client_id": found.login.client}
        said["scope"] = " ".join(found.scopes)
        return WebResponse(said, 200, NO_STORE)

    async def _revoke(self, request: WebRequest) -> WebResponse:
        """End a token (RFC 7009)."""
        parameters, client = await self._authenticated(request)
        self.tokens.revoke(parameters.require("token"), client.id)
        return WebResponse(b"", 200, NO_STORE)

    async def _user(self, request: WebRequest) -> WebResponse:
        """Say whose token was sent (OpenID Connect Core §5.3; GitHub: GET /user)."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        found = self.tokens.find_access(token.strip())
        if scheme.lower() not in ("bearer", "token") or found is None:
            headers = {**NO_STORE, "WWW-Authenticate": 'Bearer error="invalid_token"'}
            return WebResponse({"error": "invalid_token"}, 401, headers)
        name = found.login.subject
        return WebResponse({"sub": name, **self.profile.user_claims(name)}, 200, NO_STORE)

    async def _tokeninfo(self, request: WebRequest) -> WebResponse:
        """Say what an access token of Google is for."""
        found = self.tokens.find_access(Parameters(request.query).get("access_token"))
        if found is None:
            raise OAuthError("invalid_token", "Invalid Value")
        said = {
            "azp": found.login.client,
            "aud": found.login.client,
            "sub": found.login.subject,
            "scope": " ".join(found.scopes),
            "exp": str(found.claims["exp"]),
            "expires_in": str(int(found.claims["exp"] - self.clock())),
        }
        return WebResponse(said, 200, NO_STORE)


def _devices(profile: Profile, settings: DevSettings) -> DeviceAuthorization:
    """Return what logs in on other devices."""
    devices = DeviceAuthorization(
        profile,
        settings.clock,
        scopes=settings.scopes,
        audiences=settings.audiences,
        interval=settings.device_interval,
        lifetime=settings.device_lifetime,
    )
    devices.user = settings.user
    return devices


async def _grant_of(endpoint: str, request: WebRequest) -> str:
    """Return the kind of grant a request to the token endpoint names."""
    if endpoint != "token":
        return ""
    try:
        return (await request.form()).get("grant_type", "")
    except ValueError:
        return ""


def _refuse_production(host: str) -> None:
    """Raise SetupError where a development server may not run."""
    if not is_loopback(host):
        raise SetupError(f"DevServer: host must be an address of this machine, such as 127.0.0.1, not {host!r}")
    if os.environ.get("FERRULE_ENV") != "dev" and "PYTEST_VERSION" not in os.environ:
        raise SetupError("DevServer knows no passwords: it runs only with FERRULE_ENV=dev set, or in pytest")
