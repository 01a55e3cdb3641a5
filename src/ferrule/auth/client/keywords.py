"""The options of auth as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from ferrule.auth.client.code_flow import OpenPage
from ferrule.auth.client.device_flow import ShowCode
from ferrule.auth.client.store import Storage, TokenStore
from ferrule.settings.option import FilePath, Port, PositiveSeconds


class OAuthKeywords(TypedDict, total=False):
    """The options of `OAuth`."""

    scopes: Sequence[str] | None
    """What to ask for; None for what the server asks for."""
    issuer: str | None
    """The only authorization server to use, as it writes itself; None for the one the server names."""
    resource_parameter: bool
    """Whether tokens are asked for one resource (RFC 8707); False only for a server known to refuse the parameter."""
    assume_pkce: bool
    """Whether an authorization server that does not say so is taken to support PKCE with S256."""
    any_tenant: bool
    """Whether metadata of all tenants, with `{tenantid}` in its issuer, is taken for an issuer with `common` there."""
    dpop: bool
    """Whether tokens are bound to a key (RFC 9449) also where the server does not ask for that."""
    allow_foreign_metadata: bool
    """Whether a server may name its metadata at another origin than its own."""
    allow_private: Sequence[str]
    """Networks of one's own that may be asked, as in ['10.0.0.0/8']."""
    client_id: str | None
    """Who we are at the authorization server, where we are registered there; nothing is registered then."""
    client_secret: str | None
    """What proves it, where the client is not public."""
    key: str | bytes | None
    """A private key in PEM that proves it, in place of a secret (private_key_jwt)."""
    algorithm: str
    """What the key signs with."""
    client_metadata_url: str | None
    """The URL of a document about our client: its id for servers that read such documents (CIMD)."""
    client_name: str
    """What people are told we are called, where we register."""
    callback_port: Port | None
    """The port of this machine that the browser is sent back to; None for any that is free."""
    callback_host: str
    """The address to listen on for it: another than this machine's only inside a container."""
    redirect_uri: str | None
    """The URL the browser is sent back to, where it must be a certain one; None: http://127.0.0.1:port/callback."""
    storage: Storage | FilePath | TokenStore
    """Where logins are kept: the system's keyring or else a file; or keyring, file, memory, a path, a store."""
    open_browser: bool | OpenPage
    """Whether a browser is opened; or a function that is given the URL, and may return the one it leads back to."""
    device: bool | ShowCode
    """Whether the person logs in on another device, with a code that is shown here; or a function that shows it."""
    paste: bool
    """Whether the person may paste the last URL into the terminal."""
    login_timeout: PositiveSeconds
    """How long a person may take to log in."""
    user: str
    """Keeps the logins of several people apart."""
    extra: Mapping[str, str]
    """More parameters of the authorization request, as some providers want them."""


class ClientCredentialsKeywords(TypedDict, total=False):
    """The options of `ClientCredentials`."""

    scopes: Sequence[str] | None
    """What to ask for; None for what the server asks for."""
    issuer: str | None
    """The only authorization server to use, as it writes itself; None for the one the server names."""
    resource_parameter: bool
    """Whether tokens are asked for one resource (RFC 8707); False only for a server known to refuse the parameter."""
    assume_pkce: bool
    """Whether an authorization server that does not say so is taken to support PKCE with S256."""
    any_tenant: bool
    """Whether metadata of all tenants, with `{tenantid}` in its issuer, is taken for an issuer with `common` there."""
    dpop: bool
    """Whether tokens are bound to a key (RFC 9449) also where the server does not ask for that."""
    allow_foreign_metadata: bool
    """Whether a server may name its metadata at another origin than its own."""
    allow_private: Sequence[str]
    """Networks of one's own that may be asked, as in ['10.0.0.0/8']."""
    client_secret: str | None
    """What proves it; or a key does."""
    key: str | bytes | None
    """A private key in PEM, with which we sign who we are."""
    algorithm: str
    """What the key signs with."""


class WorkloadKeywords(TypedDict, total=False):
    """The options of `WorkloadIdentity`."""

    scopes: Sequence[str] | None
    """What to ask for; None for what the server asks for."""
    issuer: str | None
    """The only authorization server to use, as it writes itself; None for the one the server names."""
    resource_parameter: bool
    """Whether tokens are asked for one resource (RFC 8707); False only for a server known to refuse the parameter."""
    assume_pkce: bool
    """Whether an authorization server that does not say so is taken to support PKCE with S256."""
    any_tenant: bool
    """Whether metadata of all tenants, with `{tenantid}` in its issuer, is taken for an issuer with `common` there."""
    dpop: bool
    """Whether tokens are bound to a key (RFC 9449) also where the server does not ask for that."""
    allow_foreign_metadata: bool
    """Whether a server may name its metadata at another origin than its own."""
    allow_private: Sequence[str]
    """Networks of one's own that may be asked, as in ['10.0.0.0/8']."""
    token: str | Callable[[], object] | None
    """The token of the platform, or a function that returns it."""
    token_file: FilePath | None
    """The file it is in; read each time one is needed."""
    token_variable: str | None
    """The variable of the environment it is in."""


class EnterpriseKeywords(TypedDict, total=False):
    """The options of `EnterpriseManaged`."""

    scopes: Sequence[str] | None
    """What to ask for; None for what the server asks for."""
    issuer: str | None
    """The only authorization server to use, as it writes itself; None for the one the server names."""
    resource_parameter: bool
    """Whether tokens are asked for one resource (RFC 8707); False only for a server known to refuse the parameter."""
    assume_pkce: bool
    """Whether an authorization server that does not say so is taken to support PKCE with S256."""
    any_tenant: bool
    """Whether metadata of all tenants, with `{tenantid}` in its issuer, is taken for an issuer with `common` there."""
    dpop: bool
    """Whether tokens are bound to a key (RFC 9449) also where the server does not ask for that."""
    allow_foreign_metadata: bool
    """Whether a server may name its metadata at another origin than its own."""
    allow_private: Sequence[str]
    """Networks of one's own that may be asked, as in ['10.0.0.0/8']."""
    client_secret: str | None
    """What proves it to the authorization server of the server."""
    idp_client_secret: str | None
    """What proves it to the identity provider, where the client is not public."""
