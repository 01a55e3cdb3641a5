"""The options of getting tokens as a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from ferrule.auth.client.code_flow import LOOPBACK, OpenPage, require_redirect_uri
from ferrule.auth.client.code_request import OURS
from ferrule.auth.client.device_flow import ShowCode
from ferrule.auth.client.registration import require_metadata_url
from ferrule.auth.client.store import Storage, TokenStore
from ferrule.errors import SetupError
from ferrule.settings.option import FilePath, Port, PositiveSeconds, check

SECRETS = frozenset({"client_secret", "idp_client_secret", "key", "token"})
"""Options that no error and no text ever shows."""


class TokenOptions(Struct, frozen=True, kw_only=True):
    """What every way to get tokens has."""

    scopes: Sequence[str] | None = None
    """What to ask for; None for what the server asks for."""
    issuer: str | None = None
    """The only authorization server to use, as it writes itself; None for the one the server names."""
    resource_parameter: bool = True
    """Whether tokens are asked for one resource (RFC 8707); False only for a server known to refuse the parameter."""
    assume_pkce: bool = False
    """Whether an authorization server that does not say so is taken to support PKCE with S256."""
    any_tenant: bool = False
    """Whether metadata of all tenants, with `{tenantid}` in its issuer, is taken for an issuer with `common` there."""
    dpop: bool = False
    """Whether tokens are bound to a key (RFC 9449) also where the server does not ask for that."""
    allow_foreign_metadata: bool = False
    """Whether a server may name its metadata at another origin than its own."""
    allow_private: Sequence[str] = ()
    """Networks of one's own that may be asked, as in ['10.0.0.0/8']."""

    def __post_init__(self) -> None:
        for name in SECRETS.intersection(self.__struct_fields__):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | bytes) and not callable(value):
                raise SetupError(f"{name} must be a str")
        check(self)
        if self.issuer is not None and urlsplit(self.issuer).scheme not in ("https", "http"):
            raise SetupError(f"issuer must be a URL, not {self.issuer!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class OAuthOptions(TokenOptions, frozen=True, kw_only=True):
    """How a person logs in, and where what they got is kept."""

    client_id: str | None = None
    """Who we are at the authorization server, where we are registered there; nothing is registered then."""
    client_secret: str | None = None
    """What proves it, where the client is not public."""
    key: str | bytes | None = None
    """A private key in PEM that proves it, in place of a secret (private_key_jwt)."""
    algorithm: str = "ES256"
    """What the key signs with."""
    client_metadata_url: str | None = None
    """The URL of a document about our client: its id for servers that read such documents (CIMD)."""
    client_name: str = "Ferrule"
    """What people are told we are called, where we register."""
    callback_port: Port | None = None
    """The port of this machine that the browser is sent back to; None for any that is free."""
    callback_host: str = LOOPBACK
    """The address to listen on for it: another than this machine's only inside a container."""
    redirect_uri: str | None = None
    """The URL the browser is sent back to, where it must be a certain one; None: http://127.0.0.1:port/callback."""
    storage: Storage | FilePath | TokenStore = "auto"
    """Where logins are kept: the system's keyring or else a file; or keyring, file, memory, a path, a store."""
    open_browser: bool | OpenPage = True
    """Whether a browser is opened; or a function that is given the URL, and may return the one it leads back to."""
    device: bool | ShowCode = False
    """Whether the person logs in on another device, with a code that is shown here; or a function that shows it."""
    paste: bool = False
    """Whether the person may paste the last URL into the terminal."""
    login_timeout: PositiveSeconds = 300.0
    """How long a person may take to log in."""
    user: str = ""
    """Keeps the logins of several people apart."""
    extra: Mapping[str, str] = {}
    """More parameters of the authorization request, as some providers want them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_metadata_url is not None:
            require_metadata_url(self.client_metadata_url)
        if self.redirect_uri is not None:
            require_redirect_uri(self.redirect_uri)
        if self.client_secret is not None and self.client_id is None:
            raise SetupError("client_secret without a client_id: give both")
        if self.key is not None and self.client_id is None:
            raise SetupError("key without a client_id: give both")
        if self.client_secret is not None and self.key is not None:
            raise SetupError("give a client_secret or a key, and not both")
        if not OURS.isdisjoint(self.extra):
            raise SetupError(f"extra: {min(OURS & self.extra.keys())} is not for you to set")


class ClientCredentialsOptions(TokenOptions, frozen=True, kw_only=True):
    """How a program that has rights of its own proves who it is."""

    client_secret: str | None = None
    """What proves it; or a key does."""
    key: str | bytes | None = None
    """A private key in PEM, with which we sign who we are."""
    algorithm: str = "ES256"
    """What the key signs with."""


class WorkloadOptions(TokenOptions, frozen=True, kw_only=True):
    """Where a program has the token of the platform it runs on; one of the three is given."""

    token: str | Callable[[], object] | None = None
    """The token of the platform, or a function that returns it."""
    token_file: FilePath | None = None
    """The file it is in; read each time one is needed."""
    token_variable: str | None = None
    """The variable of the environment it is in."""


class EnterpriseOptions(TokenOptions, frozen=True, kw_only=True):
    """How we prove who we are to the two who vouch for a person."""

    client_secret: str | None = None
    """What proves it to the authorization server of the server."""
    idp_client_secret: str | None = None
    """What proves it to the identity provider, where the client is not public."""
