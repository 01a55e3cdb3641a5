"""The clients a server knows: registered by hand, by themselves (RFC 7591), or by a document they publish (CIMD)."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit

from msgspec import Struct

from ferrule.auth.address import AddressRefused
from ferrule.auth.devserver.assertions import Assertions
from ferrule.auth.devserver.parameters import OAuthError, Parameters
from ferrule.auth.devserver.store import Store
from ferrule.auth.fetch import Fetched, Fetcher, FetchFailed
from ferrule.auth.jose import BadToken, Key, read_key, read_part
from ferrule.auth.redirect_uri import is_redirect_uri

AuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
AUTH_METHODS: tuple[AuthMethod, ...] = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
JWT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
CODE = "authorization_code"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
GRANTS = (
    CODE,
    DEVICE_CODE,
    "refresh_token",
    "client_credentials",
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "urn:ietf:params:oauth:grant-type:token-exchange",
)
MAX_REDIRECT_URIS = 20
MAX_KEYS = 20
LONGEST_NAME = 200
SHORTEST_CACHE = 300.0
LONGEST_CACHE = 86_400.0


class RegisteredClient(Struct, frozen=True, kw_only=True):
    """One client."""

    id: str
    secret: str = ""
    auth_method: AuthMethod = "none"
    name: str = ""
    redirect_uris: Sequence[str] = ()
    grants: Sequence[str] = GRANTS
    keys: Sequence[Key] = ()
    """What its assertions are verified with."""
    key_url: str = ""
    """Where these are published."""
    elsewhere: Mapping[str, str] = {}
    """Its ids at other authorization servers, by their issuers."""

    def __repr__(self) -> str:
        return f"RegisteredClient({self.id!r})"


class Clients:
    """Finds clients, and makes sure of them."""

    def __init__(
        self, fetcher: Fetcher, clock: Callable[[], float], *, documents: bool, token_audiences: Callable[[], list[str]]
    ) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._documents = documents
        """Whether a client id may be the URL of a document."""
        self._token_audiences = token_audiences
        """Whom the assertion of a client may be for."""
        self._assertions = Assertions(clock)
        self._by_hand: dict[str, RegisteredClient] = {}
        self._registered: Store[RegisteredClient] = Store(clock)
        self._published: Store[RegisteredClient] = Store(clock)

    def add(self, client: RegisteredClient) -> None:
        """Register a client by hand."""
        self._by_hand[client.id] = client

    async def find(self, client_id: str) -> RegisteredClient:
        """Return a client; raises OAuthError where there is none of this id."""
        found = self._by_hand.get(client_id) or self._registered.get(client_id) or self._published.get(client_id)
        if found is not None:
            return found
        if self._documents and client_id.startswith(("https://", "http://")):
            return await self._read_document(client_id)
        raise OAuthError("invalid_client", "there is no such client", 401)

    # -- registration by the client itself

    def register(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Register a client that describes itself; return its description, with its id (RFC 7591 §3.2.1)."""
        client = _described(secrets.token_urlsafe(16), document, default="client_secret_basic")
        if client.auth_method.startswith("client_secret"):
            client = _with_secret(client)
        self._registered.put(client.id, client, LONGEST_CACHE * 365)
        answer: dict[str, Any] = {
            "client_id": client.id,
            "client_id_issued_at": int(self._clock()),
            "client_name": client.name,
            "redirect_uris": list(client.redirect_uris),
            "grant_types": list(client.grants),
            "response_types": ["code"],
            "token_endpoint_auth_method": client.auth_method,
        }
        for name in ("application_type", "scope"):
            if isinstance(document.get(name), str):
                answer[name] = document[name]
        if client.secret:
            answer["client_secret"] = client.secret
            answer["client_secret_expires_at"] = 0
        return answer

    # -- registration by a document (draft-ietf-oauth-client-id-metadata-document)

    async def _read_document(self, url: str) -> RegisteredClient:
        parts = urlsplit(url)
        if len(parts.path) < 2 or parts.fragment or parts.username or {".", ".."} & set(parts.path.split("/")):
            raise OAuthError("invalid_client", "a client id that is a URL must have a path, and no fragment", 401)
        try:
            answer = await self._fetcher.get(url, redirects=0)
            document = answer.document()
        except (AddressRefused, FetchFailed) as reason:
            raise OAuthError("invalid_client", f"the client's document cannot be read: {reason}", 401) from None
        if answer.status != 200 or document.get("client_id") != url:
            raise OAuthError("invalid_client", "the client's document is not at its own client_id", 401)
        if "client_secret" in document or not document.get("client_name"):
            raise OAuthError("invalid_client", "the client's document has a secret, or no client_name", 401)
        client = _described(url, document, default="none")
        if client.auth_method.startswith("client_secret"):
            raise OAuthError("invalid_client", "a client with a document can have no secret", 401)
        self._published.put(url, client, _cache_time(answer))
        return client

    # -- authentication at the token endpoint

    async def authenticate(self, parameters: Parameters, authorization: str) -> RegisteredClient:
        """Return the client that sent a request; raises OAuthError."""
        ways: list[AuthMethod] = []
        client_id = parameters.get("client_id")
        secret = parameters.get("client_secret")
        assertion = parameters.get("client_assertion")
        if authorization:
            ways.append("client_secret_basic")
            basic_id, secret = _basic(authorization)
            if client_id not in ("", basic_id):
                raise OAuthError("invalid_request", "two client ids were sent")
            client_id = basic_id
        if parameters.get("client_secret"):
            ways.append("client_secret_post")
        if assertion:
            ways.append("private_key_jwt")
            client_id = client_id or _claimed_id(assertion)
        if len(ways) > 1:
            raise OAuthError("invalid_request", "a client authenticates in one way only (RFC 6749 section 2.3)")
        if not client_id:
            raise OAuthError("invalid_client", "no client_id was sent", 401)
        client = await self.find(client_id)
        used: AuthMethod = ways[0] if ways else "none"
        if used != client.auth_method:
            raise OAuthError("invalid_client", f"this client authenticates with {client.auth_method}", 401)
        if assertion:
            await self._check_assertion(client, parameters)
        elif not hmac.compare_digest(secret.encode(), client.secret.encode()):
            raise OAuthError("invalid_client", "the client's secret is wrong", 401)
        return client

    async def _check_assertion(self, client: RegisteredClient, parameters: Parameters) -> None:
        if parameters.get("client_assertion_type") != JWT_ASSERTION:
            raise OAuthError("invalid_client", "the assertion has another type than RFC 7523 names", 401)
        keys = client.keys
        try:
            if client.key_url:
                keys = _read_keys((await self._fetcher.get(client.key_url)).document())
            claims = self._assertions.check(
                parameters.get("client_assertion"), keys, issuer=client.id, audience=self._token_audiences()
            )
            if claims.get("sub") != client.id:
                raise BadToken("the assertion has another subject")
        except (BadToken, AddressRefused, FetchFailed) as reason:
            raise OAuthError("invalid_client", str(reason), 401) from None


def _described(client_id: str, document: Mapping[str, Any], *, default: AuthMethod) -> RegisteredClient:
    """Return a client that describes itself; raises OAuthError."""
    method = document.get("token_endpoint_auth_method", default)
    grants = document.get("grant_types", [CODE])
    uris = document.get("redirect_uris", [])
    name = document.get("client_name", "")
    if method not in AUTH_METHODS:
        raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(AUTH_METHODS)}")
    if not isinstance(grants, list) or not all(grant in GRANTS for grant in grants):
        raise OAuthError("invalid_client_metadata", f"grant_types are some of {', '.join(GRANTS)}")
    if not isinstance(uris, list) or len(uris) > MAX_REDIRECT_URIS or not all(isinstance(uri, str) for uri in uris):
        raise OAuthError("invalid_redirect_uri", f"redirect_uris is a list of at most {MAX_REDIRECT_URIS} URIs")
    if not all(map(is_redirect_uri, uris)) or (CODE in grants and not uris):
        raise OAuthError("invalid_redirect_uri", "a redirect URI is https, http on loopback, or com.example.app:/path")
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise OAuthError("invalid_client_metadata", f"client_name is text of at most {LONGEST_NAME} characters")
    keys: Sequence[Key] = ()
    key_url = document.get("jwks_uri", "")
    if "jwks" in document:
        try:
            keys = _read_keys(document["jwks"])
        except BadToken as reason:
            raise OAuthError("invalid_client_metadata", f"jwks: {reason}") from None
    if not isinstance(key_url, str) or (method == "private_key_jwt" and not keys and not key_url):
        raise OAuthError("invalid_client_metadata", "private_key_jwt needs jwks or jwks_uri")
    return RegisteredClient(
        id=client_id, auth_method=method, name=name, redirect_uris=uris, grants=grants, keys=keys, key_url=key_url
    )


def _with_secret(client: RegisteredClient) -> RegisteredClient:
    return RegisteredClient(
        id=client.id,
        secret=secrets.token_urlsafe(32),
        auth_method=client.auth_method,
        name=client.name,
        redirect_uris=client.redirect_uris,
        grants=client.grants,
    )


def _read_keys(document: Any) -> list[Key]:
    """Return the keys of a JSON Web Key Set."""
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list) or len(found) > MAX_KEYS or not all(isinstance(each, dict) for each in found):
        raise BadToken(f"a key set is an object with at most {MAX_KEYS} keys")
    return [read_key(each) for each in found]


def _basic(authorization: str) -> tuple[str, str]:
    """Return the id and the secret of an Authorization header (RFC 6749 §2.3.1)."""
    scheme, _, credentials = authorization.partition(" ")
    try:
        text = b64decode(credentials, validate=True).decode()
    except (NotBase64, UnicodeDecodeError):
        text = ""
    name, colon, secret = text.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise OAuthError("invalid_client", "the Authorization header is not HTTP Basic", 401)
    return unquote_plus(name), unquote_plus(secret)


def _claimed_id(assertion: str) -> str:
    """Return the client an assertion claims to be of, which proves nothing."""
    try:
        return str(read_part(assertion.split(".")[1]).get("sub", ""))
    except (BadToken, IndexError):
        raise OAuthError("invalid_client", "the assertion cannot be read", 401) from None


def _cache_time(answer: Fetched) -> float:
    """Return how many seconds a document may be kept by its own words, within our bounds."""
    for part in answer.headers.get("cache-control", "").split(","):
        name, _, value = part.strip().partition("=")
        if name.lower() == "max-age" and value.isdecimal() and len(value) < 10:
            return min(LONGEST_CACHE, max(SHORTEST_CACHE, float(value)))
    return SHORTEST_CACHE
