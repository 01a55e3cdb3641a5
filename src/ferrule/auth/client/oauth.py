"""What `Client(url, auth=…)` takes: OAuth by a person's login, or by grants without one; or a token one has already."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Unpack
from urllib.parse import urlsplit

from ferrule.auth.address import AddressRules, is_loopback_name
from ferrule.auth.client.code_flow import CodeFlowOptions, CodeGrant
from ferrule.auth.client.device_flow import DeviceGrant, print_code
from ferrule.auth.client.discovery import Discovery
from ferrule.auth.client.grants import (
    DirectGrant,
    Fields,
    OwnClient,
    assertion,
    assertion_reader,
    enterprise,
    own_rights,
)
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.registrar import ClientOptions, Registrar
from ferrule.auth.client.session import Grant, OAuthSession, SessionOptions
from ferrule.auth.client.settings import (
    ClientCredentialsOptions,
    EnterpriseOptions,
    OAuthOptions,
    TokenOptions,
    WorkloadOptions,
)
from ferrule.auth.client.store import MemoryStore, TokenStore, open_store
from ferrule.auth.client.token import ClientIdentity, TokenEndpoint
from ferrule.auth.fetch import Fetcher
from ferrule.auth.jose import load_private
from ferrule.errors import SetupError
from ferrule.settings.option import read
from ferrule.transports.contract import Authorization, Credentials, Refused
from ferrule.transports.http.client.url import place
from ferrule.transports.http.message import header_lines
from ferrule.transports.sockets.tls import TlsSettings

if TYPE_CHECKING:
    from ferrule.auth.client.keywords import (
        ClientCredentialsKeywords,
        EnterpriseKeywords,
        OAuthKeywords,
        WorkloadKeywords,
    )

MOST_SERVERS = 1000
"""How many servers one object keeps apart."""

MakeGrant = Callable[[Fetcher, TokenStore], Grant]


class WidenedTrust(TlsSettings, frozen=True):
    """Whom to trust with tokens: the authorities named for a server, and the system's for whoever issues its tokens.

    Our own certificate is for the server alone.
    """

    def context(self) -> ssl.SSLContext:
        """Make the context."""
        context = super().context()
        if self.ca is not None:
            context.load_default_certs()
        return context


class Sessions:
    """The sessions of one object of options, one for each server."""

    def __init__(
        self, options: TokenOptions, make_grant: MakeGrant, store: Callable[[], TokenStore], user: str
    ) -> None:
        self._options = options
        self._make_grant = make_grant
        self._open_store = store
        self._user = user
        self._store: TokenStore | None = None
        self._sessions: dict[str, OAuthSession] = {}

    def of(self, url: str, tls: TlsSettings) -> OAuthSession:
        """Return the session with a server."""
        found = self._sessions.get(url)
        if found is None:
            if len(self._sessions) >= MOST_SERVERS:
                raise SetupError(f"one auth= serves {MOST_SERVERS} servers at most")
            found = self._sessions[url] = self._new(url, tls)
        return found

    def _new(self, url: str, tls: TlsSettings) -> OAuthSession:
        if self._store is None:
            self._store = self._open_store()
        options = self._options
        fetcher = self.fetcher(url, tls)
        session = SessionOptions(
            scopes=tuple(options.scopes or ()),
            issuer=options.issuer,
            user=self._user,
            resource_parameter=options.resource_parameter,
            dpop=options.dpop,
        )
        grant = self._make_grant(fetcher, self._store)
        return OAuthSession(url, grant, self._store, session, lambda: self.discovery(url, fetcher))

    def fetcher(self, url: str, tls: TlsSettings) -> Fetcher:
        """Return what fetches documents for a server; this machine is asked only for one that is here too."""
        local = is_loopback_name(urlsplit(url).hostname or "")
        rules = AddressRules(loopback=local, private=self._options.allow_private)
        return Fetcher(rules, tls=WidenedTrust(tls.verify, tls.ca))

    def discovery(self, url: str, fetcher: Fetcher) -> Discovery:
        """Return what finds the authorization server of a server."""
        return Discovery(
            fetcher,
            url,
            issuer=self._options.issuer,
            foreign_metadata=self._options.allow_foreign_metadata,
            assume_pkce=self._options.assume_pkce,
            any_tenant=self._options.any_tenant,
        )


def server_url(url: str) -> str:
    """Return the URL of a server as tokens are asked for it: without query, and without a slash at its end."""
    return place(url).url.partition("?")[0].rstrip("/")


class OAuth:
    """A person logs in, with their browser or on another device, when the server asks for it; what they got is kept."""

    def __init__(self, **options: Unpack[OAuthKeywords]) -> None:
        self.options = read(OAuthOptions, options, "OAuth")
        self._key = None if self.options.key is None else load_private(self.options.key)
        self.sessions = Sessions(self.options, self._grant, self._store, self.options.user)

    def credentials(self, url: str, tls: TlsSettings) -> Credentials:
        """Return what we can show a server."""
        return self.sessions.of(server_url(url), tls)

    def session(self, url: str) -> OAuthSession:
        """Return the session with a server, for who wants to look at it."""
        return self.sessions.of(server_url(url), TlsSettings())

    def discovery(self, url: str) -> Discovery:
        """Return what finds the authorization server of a server, step by step."""
        at = server_url(url)
        return self.sessions.discovery(at, self.sessions.fetcher(at, TlsSettings()))

    def _store(self) -> TokenStore:
        return open_store(self.options.storage)

    def _grant(self, fetcher: Fetcher, store: TokenStore) -> Grant:
        options = self.options
        client = ClientOptions(
            id=options.client_id or "",
            secret=options.client_secret or "",
            key=self._key,
            algorithm=options.algorithm,
            metadata_url=options.client_metadata_url or "",
            name=options.client_name,
        )
        if options.device:
            show = options.device if callable(options.device) else print_code
            registrar = Registrar(fetcher, store, client, "device client")
            return DeviceGrant(fetcher, registrar, show, options.login_timeout)
        flow = CodeFlowOptions(
            callback_host=options.callback_host,
            callback_port=options.callback_port or 0,
            redirect_uri=options.redirect_uri or "",
            open_browser=options.open_browser,
            paste=options.paste,
            timeout=options.login_timeout,
            extra=options.extra,
        )
        return CodeGrant(fetcher, store, Registrar(fetcher, store, client), flow)


class Direct:
    """What the ways without a person have in common: nothing is kept, since another token can be had at any time."""

    def __init__(self, options: TokenOptions, client: OwnClient, fields: Callable[[Fetcher], Fields]) -> None:
        self._sessions = Sessions(
            options, lambda fetcher, _: DirectGrant(fetcher, client, fields(fetcher)), MemoryStore, ""
        )

    def credentials(self, url: str, tls: TlsSettings) -> Credentials:
        """Return what we can show a server."""
        return self._sessions.of(server_url(url), tls)


class ClientCredentials(Direct):
    """A program with rights of its own: `ClientCredentials("id", client_secret="…")`, or with `key=` in PEM."""

    def __init__(self, client_id: str, **options: Unpack[ClientCredentialsKeywords]) -> None:
        given = read(ClientCredentialsOptions, options, "ClientCredentials")
        if (given.client_secret is None) == (given.key is None):
            raise SetupError("ClientCredentials: give a client_secret or a key")
        key = None if given.key is None else load_private(given.key)
        client = OwnClient(client_id, given.client_secret or "", key, given.algorithm)
        super().__init__(given, client, lambda _: own_rights)


class WorkloadIdentity(Direct):
    """A program known by a token of the platform it runs on: `WorkloadIdentity("id", token_file="…")`."""

    def __init__(self, client_id: str, **options: Unpack[WorkloadKeywords]) -> None:
        given = read(WorkloadOptions, options, "WorkloadIdentity")
        sources = (given.token, given.token_file, given.token_variable)
        if sources.count(None) != len(sources) - 1:
            raise SetupError("WorkloadIdentity: give one of token, token_file and token_variable")
        reader = assertion_reader(*sources)
        super().__init__(given, OwnClient(client_id), lambda _: assertion(reader))


class EnterpriseManaged(Direct):
    """A person whose identity provider decides which servers they may use; nobody is asked here.

    `client_id` is who we are at the authorization server of a server, `idp_client_id` who we are at the provider;
    `id_token` is the person's, or a function that returns it.
    """

    def __init__(
        self,
        client_id: str,
        *,
        idp_token_endpoint: str,
        idp_client_id: str,
        id_token: str | Callable[[], object],
        **options: Unpack[EnterpriseKeywords],
    ) -> None:
        given = read(EnterpriseOptions, options, "EnterpriseManaged")
        reader = assertion_reader(id_token)

        def fields(fetcher: Fetcher) -> Fields:
            secret = given.idp_client_secret or ""
            method = "client_secret_basic" if secret else "none"
            provider = ServerMetadata(idp_token_endpoint, token_endpoint=idp_token_endpoint)
            there = ClientIdentity(idp_client_id, method, secret)
            return enterprise(TokenEndpoint(fetcher, provider, there), reader)

        super().__init__(given, OwnClient(client_id, given.client_secret or ""), fields)


class Bearer:
    """A token one has already, or a function that returns it: a plain one is called for each request, an async one at
    first and whenever the server refuses what it returned."""

    def __init__(self, token: str | Callable[[], str] | Callable[[], Awaitable[str]]) -> None:
        if not callable(token):
            _lines(token)
        self._token = token

    def credentials(self, url: str, tls: TlsSettings) -> Credentials:
        """Return what we can show a server."""
        return BearerToken(self._token)


class BearerToken:
    """The token of a `Bearer`, as one conversation uses it."""

    def __init__(self, token: str | Callable[[], str] | Callable[[], Awaitable[str]]) -> None:
        self._source = token
        self._awaited = inspect.iscoroutinefunction(token)
        self._lines = b""
        self._number = 0
        if isinstance(token, str):
            self._lines = _lines(token)

    def authorize(self, method: str, url: str) -> Authorization | None:
        """Return what a request says now; None where the token has to be awaited."""
        if callable(self._source) and not self._awaited:
            self._take(self._source())
        if not self._lines:
            return None
        return Authorization(self._lines, self._number)

    async def prepare(self) -> None:
        """Await the token."""
        assert callable(self._source)
        token = self._source()
        if inspect.isawaitable(token):
            token = await token
        self._take(token)

    async def refused(self, refusal: Refused) -> bool:
        """Look whether there is another token by now."""
        if callable(self._source) and refusal.token == self._number and refusal.status == 401:
            await self.prepare()
        return refusal.token != self._number

    def _take(self, token: object) -> None:
        lines = _lines(token)
        if lines != self._lines:
            self._lines = lines
            self._number += 1


def _lines(token: object) -> bytes:
    if not isinstance(token, str) or not token or any(not "!" <= each <= "~" for each in token):
        raise SetupError("Bearer: a token is a str of visible characters, without blanks")
    return header_lines({"authorization": f"Bearer {token}"})
