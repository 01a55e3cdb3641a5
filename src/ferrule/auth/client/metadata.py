"""What a resource and an authorization server publish of themselves, read within bounds (RFC 9728, RFC 8414)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ferrule.errors import AuthorizationFailed

MOST = 200
"""How many words one list may have."""

S256 = "S256"


class ResourceMetadata(Struct, frozen=True):
    """What a protected resource says of itself (RFC 9728 §2)."""

    resource: str
    authorization_servers: list[str] = []
    scopes_supported: list[str] = []
    dpop_bound_access_tokens_required: bool = False


class ServerMetadata(Struct, frozen=True):
    """What an authorization server says of itself (RFC 8414 §2, OpenID Connect Discovery §3)."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    device_authorization_endpoint: str = ""
    scopes_supported: list[str] = []
    code_challenge_methods_supported: list[str] = []
    token_endpoint_auth_methods_supported: list[str] = []
    grant_types_supported: list[str] = []
    dpop_signing_alg_values_supported: list[str] = []
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


M = TypeVar("M", ResourceMetadata, ServerMetadata)


def read_metadata(kind: type[M], document: Mapping[str, Any], url: str) -> M:
    """Read a document; raises AuthorizationFailed with what is wrong in it."""
    said = {}
    for name, value in document.items():
        # Some write null for what they do not have.
        if value is None:
            continue
        if isinstance(value, list) and len(value) > MOST:
            raise AuthorizationFailed(f"{url} lists more than {MOST} {name[:40]!r}")
        said[name] = value
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as reason:
        raise AuthorizationFailed(f"{url} is malformed: {reason}") from None


def covers(resource: str, url: str) -> bool:
    """Return whether a resource is a server's URL, or what it begins with up to the end of a part of its path."""
    wanted = _parts(url)
    given = _parts(resource)
    if wanted is None or given is None or given[:3] != wanted[:3]:
        return False
    path = given[3].rstrip("/")
    own = wanted[3].rstrip("/")
    return own == path or own.startswith(f"{path}/")


def _parts(url: str) -> tuple[str, str, int | None, str] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.fragment or "@" in parts.netloc:
        return None
    if "/../" in f"{parts.path}/" or "/./" in f"{parts.path}/":
        return None
    usual = {"https": 443, "http": 80}[parts.scheme]
    return parts.scheme, parts.hostname, port or usual, parts.path
