"""The options of auth as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from ferrule.settings.option import FilePath, FiniteSeconds, PositiveInt
from ferrule.stores.contracts import Store


class ProxyKeywords(TypedDict, total=False):
    """The options of an OAuth proxy."""

    resource_name: str | None
    """What people call the server; None: its host."""
    issuer: str | None
    """Where the proxy's own pages are, where that is not the origin of the resource."""
    tenant: str
    """The tenant or domain in the provider's addresses, where it has one: Entra, Cognito."""
    scopes: Collection[str]
    """Scopes every request needs; the provider is asked for the same."""
    more_scopes: Collection[str]
    """Scopes clients may ask for beside those."""
    implies: Mapping[str, Collection[str]] | None
    """Which scopes include others: `{"admin": ["read", "write"]}`."""
    keys: Sequence[str | bytes]
    """Secrets of 32 bytes or more that seal and sign, the newest first; none: those of the key file."""
    key_file: FilePath | None
    """A file of such secrets, one a line; made where there is none. Without it logins end with the process."""
    store: FilePath | Store | None
    """The file, or the store, that keeps logins; None keeps them in memory."""
    workers: PositiveInt
    """How many processes serve this resource; several need keys and a store that they share."""
    access_lifetime: FiniteSeconds
    """How long an access token is good."""
    refresh_lifetime: FiniteSeconds
    """How long a login is kept that nobody refreshes."""
    registration_rate: str
    """How often an address may register a client, or have its document fetched."""
    login_rate: str
    """How often an address may begin a login."""
    redirect_schemes: Sequence[str]
    """URI schemes of applications that clients may be sent back by, beside https and this machine: `cursor`."""
    trusted_proxies: Collection[str]
    """The addresses of reverse proxies, or networks such as 10.0.0.0/8, whose X-Forwarded-For says who calls."""
    allow_private: Sequence[str]
    """Networks beside the public internet in which the provider may be, such as 10.0.0.0/8."""
