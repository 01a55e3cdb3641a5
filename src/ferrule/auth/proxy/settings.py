"""The options of a proxy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from ferrule.auth.server.resource import require_resource
from ferrule.auth.server.settings import ResourceSettings
from ferrule.balancing.rate import Rate
from ferrule.errors import SetupError
from ferrule.settings.option import FilePath, FiniteSeconds, PositiveInt, check
from ferrule.stores.contracts import Store


class ProxySettings(Struct, frozen=True, kw_only=True):
    """What a proxy grants and where it keeps it; times are seconds."""

    resource_name: str | None = None
    """What people call the server; None: its host."""
    issuer: str | None = None
    """Where the proxy's own pages are, where that is not the origin of the resource."""
    tenant: str = ""
    """The tenant or domain in the provider's addresses, where it has one: Entra, Cognito."""
    scopes: Collection[str] = ()
    """Scopes every request needs; the provider is asked for the same."""
    more_scopes: Collection[str] = ()
    """Scopes clients may ask for beside those."""
    implies: Mapping[str, Collection[str]] | None = None
    """Which scopes include others: `{"admin": ["read", "write"]}`."""
    keys: Sequence[str | bytes] = ()
    """Secrets of 32 bytes or more that seal and sign, the newest first; none: those of the key file."""
    key_file: FilePath | None = None
    """A file of such secrets, one a line; made where there is none. Without it logins end with the process."""
    store: FilePath | Store | None = None
    """The file, or the store, that keeps logins; None keeps them in memory."""
    workers: PositiveInt = 1
    """How many processes serve this resource; several need keys and a store that they share."""
    access_lifetime: FiniteSeconds = 600.0
    """How long an access token is good."""
    refresh_lifetime: FiniteSeconds = 30 * 86_400.0
    """How long a login is kept that nobody refreshes."""
    registration_rate: str = "10/min"
    """How often an address may register a client, or have its document fetched."""
    login_rate: str = "60/min"
    """How often an address may begin a login."""
    redirect_schemes: Sequence[str] = ()
    """URI schemes of applications that clients may be sent back by, beside https and this machine: `cursor`."""
    trusted_proxies: Collection[str] = ()
    """The addresses of reverse proxies, or networks such as 10.0.0.0/8, whose X-Forwarded-For says who calls."""
    allow_private: Sequence[str] = ()
    """Networks beside the public internet in which the provider may be, such as 10.0.0.0/8."""

    def __post_init__(self) -> None:
        check(self, "OAuthProxy: ")
        if self.issuer is not None:
            require_resource(self.issuer)
            if self.issuer.endswith("/"):
                raise SetupError("OAuthProxy: issuer must not end in a slash")
        Rate.parse(self.registration_rate)
        Rate.parse(self.login_rate)
        if self.keys and self.key_file is not None:
            raise SetupError("OAuthProxy: give keys or key_file, not both")
        if self.workers > 1 and ((not self.keys and self.key_file is None) or self.store is None):
            raise SetupError(
                f"OAuthProxy: {self.workers} workers need secrets and a store that they share: give keys or key_file, "
                "and store; a login of one worker would be unknown to the others"
            )

    def __repr__(self) -> str:
        # The keys are among them.
        return "ProxySettings(…)"

    def public_url(self, resource: str) -> str:
        """Return where the pages of the proxy for a resource are."""
        if self.issuer is not None:
            return self.issuer
        parts = urlsplit(resource)
        return f"{parts.scheme}://{parts.netloc}"

    def protection(self, resource: str) -> ResourceSettings:
        """Return what a resource says of itself to clients without a token."""
        return ResourceSettings(
            resource=resource,
            resource_name=self.resource_name,
            scopes=self.scopes,
            implies=self.implies,
            trusted_proxies=self.trusted_proxies,
            allow_private=self.allow_private,
        )
