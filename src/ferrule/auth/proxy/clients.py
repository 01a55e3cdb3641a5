"""Clients of the proxy: registered (RFC 7591), or described by a document at the URL that is their id (CIMD).

Rule 1: nothing is kept of a registration. The client id is what was registered, sealed.
Rule 2: what a client says of itself is shown to people, and never believed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ferrule.auth.proxy.documents import ClientDocuments, is_document_url
from ferrule.auth.proxy.keys import Keys
from ferrule.auth.proxy.parameters import OAuthError
from ferrule.auth.redirect_uri import is_redirect_uri, matches

PURPOSE = "client"
OF_SECRETS = "secret of a client"
MAX_REDIRECTS = 10
MAX_METADATA = 2048
"""Bytes of what is sealed into a client id, which travels in a URL."""
MAX_REGISTRATION = 16 * 1024
LONGEST_NAME = 64
LONGEST_ID = 4096
AUTH_METHODS = ("none", "client_secret_post", "client_secret_basic")
GRANTS = ("authorization_code", "refresh_token")
BAD_REDIRECT = (
    "A redirect URI must begin with https://, or with http:// for this machine (127.0.0.1, [::1], localhost), "
    "and have neither a fragment nor a user name"
)
WITHOUT_NAME = "An application without a name"


class ProxyClient(Struct, frozen=True):
    """A program that asks for tokens."""

    id: str
    name: str
    """As it calls itself; printable."""
    redirects: tuple[str, ...]
    method: str = "none"
    """How it authenticates itself to the token endpoint."""
    origin: str = ""
    """Where its document is; empty for one that registered."""

    def check_redirect(self, uri: str) -> None:
        """Raise OAuthError unless this is one of its redirect URIs."""
        if not matches(self.redirects, uri):
            raise OAuthError("invalid_request", "The redirect_uri is not one that this client has registered")


class Clients:
    """Registers clients and finds them again."""

    def __init__(
        self, keys: Keys, documents: ClientDocuments, clock: Callable[[], float], schemes: Sequence[str] = ()
    ) -> None:
        self._keys = keys
        self._documents = documents
        self._clock = clock
        self._schemes = frozenset(schemes)

    def register(self, body: bytes) -> dict[str, Any]:
        """Return the client information response to a registration (RFC 7591 §3.2); raises OAuthError."""
        asked = _read_registration(body)
        name = shown_name(asked.get("client_name"))
        uris = self._read_redirects(asked.get("redirect_uris"))
        method = asked.get("token_endpoint_auth_method", "none")
        if method not in AUTH_METHODS:
            raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method must be {_one_of(AUTH_METHODS)}")
        grants = asked.get("grant_types", ["authorization_code"])
        if not isinstance(grants, list) or "authorization_code" not in grants:
            raise OAuthError("invalid_client_metadata", "grant_types must have authorization_code")
        payload = msgspec.json.encode([name, uris, method])
        if len(payload) > MAX_METADATA:
            raise OAuthError("invalid_client_metadata", f"The metadata is longer than {MAX_METADATA} bytes")
        client_id = self._keys.seal(PURPOSE, payload)
        answer = {
            "client_id": client_id,
            "client_id_issued_at": int(self._clock()),
            "client_name": name,
            "redirect_uris": uris,
            "token_endpoint_auth_method": method,
            "grant_types": list(GRANTS),
            "response_types": ["code"],
        }
        if method != "none":
            answer["client_secret"] = self._keys.mac(OF_SECRETS, client_id)
            answer["client_secret_expires_at"] = 0
        return answer

    def _read_redirects(self, uris: object) -> list[str]:
        """Return redirect URIs that may be registered; raises OAuthError for one that may not."""
        if not isinstance(uris, list) or not 1 <= len(uris) <= MAX_REDIRECTS:
            raise OAuthError("invalid_redirect_uri", f"redirect_uris must be a list of 1 to {MAX_REDIRECTS} URIs")
        found = []
        for uri in uris:
            if not isinstance(uri, str) or not is_redirect_uri(uri, self._schemes):
                raise OAuthError("invalid_redirect_uri", BAD_REDIRECT)
            found.append(uri)
        return found

    async def find(self, client_id: str, address: str = "") -> ProxyClient:
        """Return the client of an id; raises OAuthError where there is none."""
        if not client_id:
            raise OAuthError("invalid_request", "The client_id is missing")
        if len(client_id) <= LONGEST_ID and is_document_url(client_id):
            return await self._described(client_id, address)
        payload = None
        if len(client_id) <= LONGEST_ID:
            payload = self._keys.open(PURPOSE, client_id, self._clock())
        if payload is None:
            raise OAuthError("invalid_client", "The client_id is not known here; register again", status=401)
        name, uris, method = msgspec.json.decode(payload, type=tuple[str, tuple[str, ...], str])
        return ProxyClient(client_id, name, uris, method)

    async def _described(self, url: str, address: str) -> ProxyClient:
        document = await self._documents.get(url, address)
        uris = self._read_redirects(document.get("redirect_uris"))
        method = document.get("token_endpoint_auth_method", "none")
        # A shared secret cannot be in a public document (draft-ietf-oauth-client-id-metadata-document §4.1).
        if method != "none":
            raise OAuthError("invalid_client", "The client's document must have token_endpoint_auth_method none")
        return ProxyClient(url, shown_name(document.get("client_name")), tuple(uris), origin=urlsplit(url).netloc)

    def authenticate(self, client: ProxyClient, secret: str) -> None:
        """Raise OAuthError unless a client has proved that it is the one it says, if it has a secret."""
        if client.method == "none":
            return
        if not self._keys.is_mac(OF_SECRETS, client.id, secret):
            raise OAuthError("invalid_client", "The client_secret is not right", status=401)


def shown_name(name: object) -> str:
    """Return a name as it may be shown: without control characters and those that turn text around."""
    if not isinstance(name, str):
        return WITHOUT_NAME
    kept = "".join(filter(str.isprintable, name[: 16 * LONGEST_NAME]))
    kept = " ".join(kept.split())
    if len(kept) > LONGEST_NAME:
        kept = f"{kept[: LONGEST_NAME - 1]}…"
    return kept or WITHOUT_NAME


def _read_registration(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_REGISTRATION:
        raise OAuthError("invalid_client_metadata", f"A registration has at most {MAX_REGISTRATION} bytes", status=413)
    try:
        asked = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise OAuthError("invalid_client_metadata", "A registration must be a JSON object")
    return asked


def _one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
