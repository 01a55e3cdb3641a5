"""What a client says of itself, and how its requests carry it."""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ferrule.schema.model import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    VERSION_KEY,
    ClientCapabilities,
    Implementation,
)
from ferrule.wire.messages import Id

_write = msgspec.json.Encoder().encode


class Introduction(Protocol):
    """How requests of this era are stamped with who sends them."""

    plain: Raw | UnsetType
    """The `_meta` of a request whose caller adds nothing to it, encoded once; UNSET where it has none."""

    def stamp(
        self, params: dict[str, object], token: Id | None = None, meta: dict[str, object] | None = None
    ) -> object:
        """Return the params with `_meta` added."""


class OnceIntroduced:
    """The handshake era: the server knows us already."""

    plain: Raw | UnsetType = UNSET

    def stamp(
        self, params: dict[str, object], token: Id | None = None, meta: dict[str, object] | None = None
    ) -> object:
        """Add the caller's metadata and the progress token, if any."""
        if token is None and not meta:
            return params or UNSET
        extra = dict(meta or {})
        if token is not None:
            extra["progressToken"] = token
        return {**params, "_meta": extra}


class AlwaysIntroduced:
    """The stateless era: every request says who we are, in words encoded once."""

    def __init__(
        self,
        version: str,
        capabilities: ClientCapabilities,
        implementation: Implementation | None,
        log_level: str | None = None,
    ) -> None:
        self._facts: dict[str, object] = {VERSION_KEY: version, CLIENT_CAPABILITIES_KEY: Raw(_write(capabilities))}
        if implementation is not None:
            self._facts[CLIENT_INFO_KEY] = Raw(_write(implementation))
        if log_level is not None:
            self._facts[LOG_LEVEL_KEY] = log_level
        self.plain: Raw | UnsetType = Raw(_write(self._facts))

    def stamp(
        self, params: dict[str, object], token: Id | None = None, meta: dict[str, object] | None = None
    ) -> object:
        """Add who we are, the caller's metadata and the progress token."""
        if token is None and not meta:
            return {**params, "_meta": self.plain}
        extra = {**(meta or {}), **self._facts}
        if token is not None:
            extra["progressToken"] = token
        return {**params, "_meta": extra}
