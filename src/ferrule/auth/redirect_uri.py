"""Redirect URIs: which may be registered, and which of them a request may name (OAuth 2.1 §4.1.3, RFC 8252 §7)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import SplitResult, urlencode, urlsplit

from ferrule.auth.address import LONGEST_URL

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
REFUSED_SCHEMES = frozenset({"javascript", "data", "file", "vbscript", "about", "blob", "ftp", "ws", "wss"})
"""Schemes a browser acts upon, or that no application of a user is reached by."""

_AUTHORITY = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
"""A host and a port, without what could mean something else where it is written down: `;` in a policy, for one."""


def is_redirect_uri(uri: str, schemes: Collection[str] | None = None) -> bool:
    """Return whether a URI may be registered: https, http on this machine, or the scheme of an application.

    `schemes` are those of the applications that are known; None takes every domain name in reverse (RFC 8252 §7.1).
    """
    parts = _split(uri)
    if parts is None or parts.scheme in REFUSED_SCHEMES:
        return False
    if parts.scheme == "https":
        return bool(parts.hostname)
    if parts.scheme == "http":
        return parts.hostname in LOOPBACK_HOSTS
    if schemes is not None:
        return parts.scheme in schemes
    return "." in parts.scheme


def matches(registered: Iterable[str], given: str, *, any_port: bool = True) -> bool:
    """Return whether a URI is one of those registered, byte for byte; only the port of a loopback one may differ."""
    parts = _split(given)
    if parts is None:
        return False
    for uri in registered:
        if uri == given:
            return True
        known = _split(uri)
        if any_port and known is not None and _differ_in_port(known, parts):
            return True
    return False


def _differ_in_port(known: SplitResult, given: SplitResult) -> bool:
    """Return whether two URIs lead to one host of this machine, and only their ports differ (RFC 8252 §7.3)."""
    if known.scheme != "http" or given.scheme != "http":
        return False
    if known.hostname not in LOOPBACK_HOSTS or _without_port(known) != _without_port(given):
        return False
    return (known.path, known.query) == (given.path, given.query)


def _without_port(parts: SplitResult) -> str:
    netloc = parts.netloc
    if parts.port is None:
        return netloc
    return netloc.removesuffix(f":{parts.port}")


def _split(uri: str) -> SplitResult | None:
    """Return the parts of a URI; None for one that may never be redirected to."""
    if len(uri) > LONGEST_URL or any(c <= " " or c > "~" or c in '\\"<>^`{|}' for c in uri):
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    if not parts.scheme or "#" in uri:
        return None
    if parts.netloc and not _AUTHORITY.fullmatch(parts.netloc):
        return None
    if {".", ".."} & set(parts.path.split("/")):
        return None
    return parts


def is_loopback_uri(uri: str) -> bool:
    """Return whether a redirect URI leads to this machine, where any program may be listening."""
    parts = _split(uri)
    return parts is not None and parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS


def with_parameters(uri: str, parameters: Mapping[str, str]) -> str:
    """Return a URI with more parameters in its query."""
    joint = "&" if "?" in uri else "?"
    return f"{uri}{joint}{urlencode(parameters)}"
