"""The options of auth as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypedDict

from ferrule.auth.devserver.clients import RegisteredClient
from ferrule.settings.option import Port, PositiveSeconds, Seconds


class DevServerKeywords(TypedDict, total=False):
    """The options of `DevServer`."""

    host: str
    """The address to listen on, which must be one of this machine."""
    port: Port
    """The port to listen on; 0 for any that is free."""
    user: str
    """Who is signed in at once, without a page; empty shows the page."""
    clients: Sequence[RegisteredClient]
    """Clients that are registered already."""
    scopes: Sequence[str]
    """The scopes there are; empty for any."""
    audiences: Sequence[str]
    """The APIs it was told of; what they are for depends on the profile."""
    access_lifetime: PositiveSeconds
    """How long access tokens are good."""
    refresh_lifetime: PositiveSeconds
    """How long refresh tokens are good."""
    code_lifetime: PositiveSeconds
    """How long an authorization code is good."""
    device_lifetime: PositiveSeconds
    """How long the code of a login on another device is good."""
    device_interval: PositiveSeconds
    """How often a client may ask whether that login is done."""
    refresh_grace: Seconds
    """For how long a used refresh token still gives the successor it gave."""
    dpop: Literal["off", "optional", "nonce"]
    """Whether proofs are taken at the token endpoint, or taken only with our nonce."""
    algorithm: Literal["ES256", "RS256", "PS256", "Ed25519"]
    """What tokens are signed with."""
    allowed_origins: Collection[str]
    """Web pages that may call it: exact origins, or "*"."""
    clock: Callable[[], float]
    """Seconds since 1970."""
