"""The form of `_meta` keys and extension names, and which prefixes the protocol keeps for itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ferrule.errors import SetupError

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_KEY = rf"(?:(?P<prefix>{_LABEL}(?:\.{_LABEL})*)/)?(?P<name>{_NAME})"

RESERVED_LABELS = frozenset({"mcp", "modelcontextprotocol"})
VERSION_KEY = "ferrule/version"
"""The version of a tool or prompt: of one that is listed, or that a request asks for."""
FOREIGN_VERSION_KEY = "fastmcp"
"""Where clients of FastMCP ask for a version."""
UNPREFIXED = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})


def is_key(text: str) -> bool:
    """Return whether a text has the form of a `_meta` key: an optional dotted prefix with a slash, then a name."""
    return re.fullmatch(_KEY, text) is not None


def asks_version(meta: Mapping[str, object] | None) -> bool:
    """Return whether the `_meta` of a request asks for a version of a tool or prompt."""
    return meta is not None and (VERSION_KEY in meta or FOREIGN_VERSION_KEY in meta)


def is_reserved(key: str) -> bool:
    """Return whether a key is the protocol's: `mcp` or `modelcontextprotocol` next to another label, or its own."""
    prefix, slash, _ = key.rpartition("/")
    labels = prefix.split(".")
    if not slash:
        return key in UNPREFIXED
    second = len(labels) > 1 and labels[1] in RESERVED_LABELS
    return second or any(label in RESERVED_LABELS for label in labels[:-1])


def check_keys(keys: Iterable[str], where: str) -> None:
    """Refuse metadata keys of a wrong form, and those only the protocol may use."""
    for key in keys:
        if not is_key(key):
            raise SetupError(f"{where}: {key!r} is no `_meta` key; write it like com.example/name")
        if is_reserved(key):
            raise SetupError(f"{where}: the `_meta` key {key!r} is reserved for the protocol; use a prefix of your own")


def check_extensions(names: Iterable[str], where: str) -> None:
    """Refuse names of extensions that have no prefix or a wrong form."""
    for name in names:
        if "/" not in name or not is_key(name) or name.endswith("/"):
            raise SetupError(f"{where}: {name!r} is not a valid extension name; write it like com.example/name")
