"""Who we are at an authorization server: told, published, or registered there (MCP authorization, client registration).

Order: a client id we were given, a metadata document of our own (CIMD), dynamic registration (RFC 7591), nobody.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from ferrule.auth.address import AddressRefused, is_loopback_name
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.token import ClientIdentity, TokenUnavailable
from ferrule.auth.fetch import Fetcher, FetchFailed
from ferrule.errors import AuthorizationFailed, SetupError, quoted

METHODS = ("client_secret_basic", "client_secret_post", "none")
"""How we can prove who we are with a secret or without, the best first."""
LONGEST = 4096
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


def secret_method(server: ServerMetadata, secret: str) -> str:
    """Return how a client proves who it is, by what the server supports; RFC 8414 §2 says what that is unsaid."""
    supported = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    if not secret:
        return "none"
    for method in METHODS:
        if method in supported:
            return method
    raise AuthorizationFailed(f"{server.issuer} takes none of {', '.join(METHODS)} at its token endpoint")


def require_metadata_url(url: str) -> None:
    """Refuse what is no client id of the kind that is fetched: https, with a path (MCP ACLI-14)."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/") or parts.fragment or parts.query:
        raise SetupError(f"client_metadata_url must be an https URL with a path, not {url!r}")


async def register(
    fetcher: Fetcher, server: ServerMetadata, name: str, redirect_uri: str, scopes: Sequence[str]
) -> ClientIdentity:
    """Register dynamically (RFC 7591); raises AuthorizationFailed. Logins on another device have no redirect URI."""
    supported = server.token_endpoint_auth_methods_supported
    method = "none"
    if supported and "none" not in supported:
        method = next((each for each in METHODS if each in supported), "client_secret_basic")
    wish: dict[str, Any] = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": application_type(redirect_uri),
    }
    if not redirect_uri:
        # Whoever logs in on another device is not sent back (RFC 8628).
        wish |= {"redirect_uris": [], "grant_types": [DEVICE_CODE, "refresh_token"], "response_types": []}
    if scopes:
        wish["scope"] = " ".join(scopes)
    try:
        answer = await fetcher.post_json(server.registration_endpoint, wish)
        document = answer.document()
    except FetchFailed as reason:
        raise TokenUnavailable(f"registering at {server.issuer} failed: {reason}") from None
    except AddressRefused as reason:
        raise AuthorizationFailed(f"{server.issuer} cannot be registered at: {reason}") from None
    if answer.status not in (200, 201):
        raise AuthorizationFailed(_refusal(server, answer.status, document, redirect_uri))
    return _registered(server, document, redirect_uri)


def application_type(redirect_uri: str) -> str:
    """Return what kind of application we are: one whose answers come to this machine is native."""
    parts = urlsplit(redirect_uri)
    if parts.scheme == "https" and not is_loopback_name(parts.hostname or ""):
        return "web"
    return "native"


def _refusal(server: ServerMetadata, status: int, document: dict[str, Any], redirect_uri: str) -> str:
    error = document.get("error")
    said = document.get("error_description")
    why = f"HTTP {status}"
    for each in (error, said):
        if isinstance(each, str) and each.isprintable():
            why += f", {quoted(each)}"
    hint = "register a client there by hand and give OAuth(client_id=…)"
    if error == "invalid_redirect_uri":
        hint = (
            f"it does not take the redirect URI {redirect_uri}: give redirect_uri= or callback_port= as it wants them"
        )
    return f"{server.issuer} does not register us: {why}; {hint}"


def _registered(server: ServerMetadata, document: dict[str, Any], redirect_uri: str) -> ClientIdentity:
    client_id = document.get("client_id")
    secret = document.get("client_secret", "")
    if not isinstance(client_id, str) or not 0 < len(client_id) <= LONGEST or not client_id.isprintable():
        raise AuthorizationFailed(f"{server.issuer} registered us without a client id")
    if not isinstance(secret, str) or len(secret) > LONGEST:
        secret = ""
    ends = document.get("client_secret_expires_at", 0)
    if not isinstance(ends, int | float) or isinstance(ends, bool):
        ends = 0
    # What was registered wins over what the server supports in general (RFC 7591 §3.2.1).
    method = document.get("token_endpoint_auth_method")
    if method not in METHODS or (method != "none" and not secret):
        method = secret_method(server, secret)
    return ClientIdentity(client_id, method, secret, redirect_uri, float(ends))


def is_current(client: ClientIdentity, redirect_uri: str) -> bool:
    """Return whether what was registered still serves."""
    if client.expires and client.expires <= time.time() + 60:
        return False
    return client.redirect_uri == redirect_uri
