"""Finding out who issues tokens for a server: its metadata, then that of its authorization server (MCP authorization).

Rule 1: a document is used only if it is about whom it was asked of: a resource that is the server's URL or a beginning
of it, an issuer that is written exactly as the one that was looked for.
Rule 2: what is not there (4xx, a web page) leads to the next place; what fails (5xx, no answer) leads to an error: who
can make a document fail could otherwise choose where we look next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from msgspec import Struct, structs

from ferrule.auth.address import AddressRefused
from ferrule.auth.challenge import Challenge
from ferrule.auth.client.metadata import S256, ResourceMetadata, ServerMetadata, covers, read_metadata
from ferrule.auth.fetch import Fetcher, FetchFailed
from ferrule.auth.tenants import template_of
from ferrule.errors import AuthorizationFailed
from ferrule.protocol.handshake import REVISIONS
from ferrule.transports.http.mirror import VERSION_HEADER

RESOURCE = "/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
MAX_SERVERS = 16
"""How many authorization servers a resource may name."""


class Step(Struct, frozen=True):
    """One thing that was looked at, for whoever wants to know how it went."""

    what: str
    url: str
    found: str
    """What was found, in a few words; empty where it is what it should be."""
    ok: bool = True
    fix: str = ""


class Discovered(Struct, frozen=True):
    """Who issues tokens for a server, and for which name of it."""

    resource: str
    """What tokens are asked for, exactly as the resource writes it."""
    server: ServerMetadata
    scopes: tuple[str, ...] = ()
    """What the resource says it has."""
    needs_dpop: bool = False

    @property
    def issuer(self) -> str:
        """The authorization server."""
        return self.server.issuer


class Discovery:
    """Looks for the authorization server of one server."""

    def __init__(
        self,
        fetcher: Fetcher,
        url: str,
        *,
        issuer: str | None = None,
        foreign_metadata: bool = False,
        assume_pkce: bool = False,
        any_tenant: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self._fetcher = fetcher
        self._url = url
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path.rstrip("/")
        self._issuer = issuer
        self._foreign_metadata = foreign_metadata
        self._assume_pkce = assume_pkce
        self._any_tenant = any_tenant
        self.steps: list[Step] = []
        """What was looked at so far."""

    async def find(self, challenge: Challenge | None, known: Collection[str] = ()) -> Discovered:
        """Return who issues tokens; of several, one that is `known` is preferred. Raises AuthorizationFailed."""
        resource = await self.resource(challenge)
        if resource is None:
            return await self._without_resource()
        issuer = self._choose(resource, known)
        server = await self.server(issuer)
        return Discovered(
            resource.resource, server, tuple(resource.scopes_supported), resource.dpop_bound_access_tokens_required
        )

    # -- the resource

    async def resource(self, challenge: Challenge | None) -> ResourceMetadata | None:
        """Return what the server says of itself; None where it says nothing."""
        named = ""
        if challenge is not None:
            named = challenge.parameters.get("resource_metadata", "")
        if named:
            return await self._named_resource(named)
        places = [self._origin + RESOURCE]
        if self._path:
            places.insert(0, self._origin + RESOURCE + self._path)
        for url in places:
            document = await self._look("protected resource metadata", url)
            if document is not None:
                return self._judge_resource(document, url)
        return None

    async def _named_resource(self, url: str) -> ResourceMetadata:
        if not self._foreign_metadata and not covers(self._origin, url):
            fix = "serve it at the server's own origin, or set allow_foreign_metadata=True if you trust it"
            raise self._wrong("protected resource metadata", url, "the server names it at another origin", fix)
        document = await self._look("protected resource metadata", url)
        if document is None:
            fix = "the server names this URL in WWW-Authenticate: serve the document there"
            raise self._wrong("protected resource metadata", url, "there is no such document", fix)
        return self._judge_resource(document, url)

    def _judge_resource(self, document: Mapping[str, object], url: str) -> ResourceMetadata:
        read = read_metadata(ResourceMetadata, document, url)
        if not covers(read.resource, self._url):
            fix = f"its resource must be {self._url}, or a beginning of that"
            found = f"it is about another resource, {read.resource[:200]!r}"
            raise self._wrong("resource", url, found, fix)
        if not 0 < len(read.authorization_servers) <= MAX_SERVERS:
            fix = "name the issuer in authorization_servers"
            found = f"it names {len(read.authorization_servers)} authorization servers"
            raise self._wrong("authorization server", url, found, fix)
        self.steps.append(Step("resource", url, read.resource))
        return read

    def _choose(self, resource: ResourceMetadata, known: Collection[str]) -> str:
        servers = resource.authorization_servers
        if self._issuer is not None:
            if self._issuer not in servers:
                fix = f"it names {', '.join(servers)[:200]}: give issuer= as one of them"
                raise self._wrong("authorization server", self._url, f"it does not name {self._issuer}", fix)
            return self._issuer
        for issuer in servers:
            if issuer in known:
                return issuer
        return servers[0]

    # -- the authorization server

    async def server(self, issuer: str) -> ServerMetadata:
        """Return what an authorization server says of itself; raises AuthorizationFailed."""
        for url in metadata_urls(issuer):
            document = await self._look("authorization server metadata", url)
            if document is None:
                continue
            read = read_metadata(ServerMetadata, document, url)
            self._require_issuer(read, issuer, url)
            self._require_pkce(read, url)
            self.steps.append(Step("issuer", url, issuer))
            return structs.replace(read, issuer=issuer)
        fix = "serve its metadata (RFC 8414 or OpenID Connect Discovery)"
        raise self._wrong("authorization server metadata", issuer, "there is none at any of its places", fix)

    def _require_issuer(self, server: ServerMetadata, issuer: str, url: str) -> None:
        """RFC 8414 §3.3: who is described is exactly who was asked for."""
        if server.issuer == issuer:
            return
        fix = f"its issuer must be written exactly as {issuer!r}"
        if server.issuer == template_of(issuer):
            # Nobody else can be meant: it is at the same origin, and no issuer has braces in its name.
            if self._any_tenant:
                return
            fix = "name one tenant; or set any_tenant=True, to log in with the account of any"
        raise self._wrong("issuer", url, f"it is about another issuer, {server.issuer[:200]!r}", fix)

    def _require_pkce(self, server: ServerMetadata, url: str) -> None:
        """MCP authorization, "Authorization Code Protection": who does not say S256 is not gone on with."""
        if not server.authorization_endpoint or S256 in server.code_challenge_methods_supported:
            return
        if self._assume_pkce and not server.code_challenge_methods_supported:
            return
        fix = "let code_challenge_methods_supported list S256; or set assume_pkce=True if you know it does PKCE"
        raise self._wrong("PKCE", url, "it does not say that it supports PKCE with S256", fix)

    async def _without_resource(self) -> Discovered:
        """Go on without protected resource metadata: with the issuer we were told, or as it was before there was any.

        Then a server was its own authorization server: MCP 2025-03-26 basic/authorization, "Server Metadata Discovery".
        """
        if self._issuer is not None:
            return Discovered(self._url, await self.server(self._issuer))
        url = self._origin + OAUTH
        document = await self._look("authorization server metadata", url, {VERSION_HEADER: next(iter(REVISIONS))})
        if document is None:
            return Discovered(self._url, self._default_endpoints())
        read = read_metadata(ServerMetadata, document, url)
        # Nobody named an issuer to compare with: it may be at any path of the server's origin, and nowhere else.
        if not covers(self._origin, read.issuer):
            fix = f"its issuer must be at {self._origin}"
            raise self._wrong("issuer", url, f"it is about another issuer, {read.issuer[:200]!r}", fix)
        self._require_pkce(read, url)
        self.steps.append(Step("issuer", url, read.issuer))
        return Discovered(self._url, read)

    def _default_endpoints(self) -> ServerMetadata:
        """MCP 2025-03-26 basic/authorization, "Fallbacks for Servers without Metadata Discovery"."""
        self.steps.append(Step("usual endpoints", self._origin, "/authorize, /token and /register"))
        return ServerMetadata(
            self._origin,
            authorization_endpoint=f"{self._origin}/authorize",
            token_endpoint=f"{self._origin}/token",
            registration_endpoint=f"{self._origin}/register",
            code_challenge_methods_supported=[S256],
        )

    # -- documents

    async def _look(self, what: str, url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, object] | None:
        """Return the document at a URL; None where there is none."""
        try:
            fetched = await self._fetcher.get(url, headers)
        except AddressRefused as reason:
            fix = "addresses of one's own network are named by allow_private"
            raise self._wrong(what, url, str(reason), fix) from None
        except FetchFailed as reason:
            raise self._wrong(what, url, str(reason), "see that it runs, and can be reached from here") from None
        if fetched.status >= 500:
            fix = "see why it fails; no other place is tried"
            raise self._wrong(what, url, f"it answered HTTP {fetched.status}", fix)
        if fetched.status != 200:
            self.steps.append(Step(what, url, f"HTTP {fetched.status}: not here"))
            return None
        try:
            document = fetched.document()
        except FetchFailed:
            self.steps.append(Step(what, url, "no JSON object: not here"))
            return None
        self.steps.append(Step(what, url, "found"))
        return document

    def _wrong(self, what: str, url: str, found: str, fix: str) -> AuthorizationFailed:
        """Note what is wrong. Return the error to raise."""
        shown = url.partition("?")[0][:200]
        self.steps.append(Step(what, shown, found, ok=False, fix=fix))
        return AuthorizationFailed(f"{self._url} cannot be logged in to: {what}, {shown}: {found}; {fix}")


def metadata_urls(issuer: str) -> list[str]:
    """Return where the metadata of an issuer may be, in the order of MCP authorization."""
    parts = urlsplit(issuer)
    origin = f"{parts.scheme}://{parts.netloc}"
    path = parts.path.rstrip("/")
    if not path:
        return [origin + OAUTH, origin + OPENID]
    return [origin + OAUTH + path, origin + OPENID + path, origin + path + OPENID]
