"""The resource a server is: its URL, the metadata clients read (RFC 9728), and the challenges that lead them there.

Rule: nothing a request says is repeated in a challenge, save the `Host` of a loopback server without a URL of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ferrule.auth.address import is_loopback_name
from ferrule.auth.challenge import HEADER, Challenge, write_challenges
from ferrule.auth.dpop import ALGORITHMS
from ferrule.auth.scopes import ScopeHierarchy
from ferrule.auth.server.settings import ResourceSettings
from ferrule.errors import Forbidden, InvalidRequest, Refusal, SetupError, Unauthorized
from ferrule.identity.principal import require_scopes
from ferrule.identity.verifier import RequestFacts
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.web import WebRequest, WebResponse

WELL_KNOWN = "/.well-known/oauth-protected-resource"
MOST_CHALLENGES = 256
MOST_HOSTS = 64
"""Of a loopback server, how many names it goes by are remembered."""
PUBLIC = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "*",
    "Cache-Control": "public, max-age=3600",
}
"""Headers of what every web page may read."""


class ProtectedResource:
    """What a server says to clients that have no token, or not the right one."""

    def __init__(self, settings: ResourceSettings, issuers: Collection[str]) -> None:
        self.settings = settings
        self.scopes = require_scopes(settings.scopes, "scopes")
        """What every request needs."""
        self.hierarchy = ScopeHierarchy(settings.implies)
        self._servers = tuple(settings.authorization_servers) or tuple(issuers)
        self._path = "/mcp"
        """Where the endpoint is mounted."""
        self._challenges: dict[tuple[str, str, tuple[str, ...], bool], Mapping[str, str]] = {}
        """Those that were written: a flood of requests without tokens gets the same one again and again."""
        self._loopback: dict[tuple[str, str, str], str] = {}
        """By host, root and endpoint of a request, the URL of a server on loopback that has no other."""
        self._main: dict[str, str] = {}
        """By host, such a URL of the main endpoint."""
        self._mounted: dict[str, str] = {}
        """By URL, where the metadata is of a server that an application has mounted: below the mount."""
        if settings.resource is not None:
            require_resource(settings.resource)
            metadata_url(settings.resource)

    # -- which resource

    def of(self, facts: RequestFacts) -> str:
        """Return the URL of the resource a request is for; empty where nobody can tell."""
        if self.settings.resource is not None:
            found = self.settings.resource
        else:
            host = facts.headers.get("host", "")
            endpoint = facts.endpoint or self._path
            known = self._loopback.get((host, facts.root, endpoint))
            if known is not None:
                found = known
            else:
                found = self._derived(facts.url, host, facts.root, endpoint)
        if facts.root and found not in self._mounted:
            self._note_mount(found, facts.root)
        return found

    def _note_mount(self, resource: str, root: str) -> None:
        """Note where clients reach the metadata of a server that is mounted below a path of its origin."""
        parts = urlsplit(resource)
        if f"{parts.path}/".startswith(f"{root}/"):
            if len(self._mounted) >= MOST_HOSTS:
                self._mounted.clear()
            below = parts.path.removeprefix(root).rstrip("/")
            self._mounted[resource] = f"{parts.scheme}://{parts.netloc}{root}{WELL_KNOWN}{below}"

    def _derived(self, url: str, host: str, root: str, endpoint: str) -> str:
        """Return the URL of a loopback server by the name it was called; others must be told theirs."""
        try:
            named = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return ""
        if not is_loopback_name(named) or not _is_plain(host) or not _is_plain(root):
            return ""
        if len(self._loopback) >= MOST_HOSTS:
            self._loopback.clear()
            self._main.clear()
        scheme = "https" if url.startswith("https:") else "http"
        outside = f"{scheme}://{host}{root}"
        # Mounted at its own path, the mount itself is the endpoint: `api.mount("/mcp", app.asgi())`.
        main = outside
        if not root.endswith(self._path):
            main += self._path
        self._main[host] = main
        found = main
        if endpoint != self._path:
            found = outside + endpoint
        self._loopback[host, root, endpoint] = found
        return found

    def url_of(self, facts: RequestFacts) -> str:
        """Return the URL a client asked for, by the name the resource has for it: what a DPoP proof must name."""
        resource = self.settings.resource
        if resource is None:
            return facts.url
        parts = urlsplit(resource)
        path = urlsplit(facts.url).path
        outside = parts.path.removesuffix(self._path)
        if outside != parts.path and not path.startswith(f"{outside}/"):
            # A proxy before us has taken the beginning of the path away.
            path = outside + path
        return f"{parts.scheme}://{parts.netloc}{path}"

    # -- challenges

    def challenge(
        self, resource: str, error: str = "", scopes: Sequence[str] = (), *, dpop: bool = False
    ) -> Mapping[str, str]:
        """Return the header of an answer that asks for a token, or for a better one."""
        key = (resource, error, tuple(scopes), dpop)
        known = self._challenges.get(key)
        if known is None:
            known = self._written(resource, error, scopes, dpop=dpop)
            if len(self._challenges) >= MOST_CHALLENGES:
                self._challenges.clear()
            self._challenges[key] = known
        return known

    def _written(self, resource: str, error: str, scopes: Sequence[str], *, dpop: bool) -> Mapping[str, str]:
        parameters = {}
        if error:
            parameters["error"] = error
        wanted = scopes or self.scopes
        if wanted:
            parameters["scope"] = " ".join(wanted)
        where = self.settings.metadata_url or self._mounted.get(resource) or metadata_url(resource)
        if where:
            parameters["resource_metadata"] = where
        if dpop or self.settings.dpop == "required":
            challenge = Challenge("DPoP", {**parameters, "algs": " ".join(ALGORITHMS)})
        else:
            challenge = Challenge("Bearer", parameters)
        return {HEADER: write_challenges([challenge])}

    def missing(self, resource: str) -> Refusal:
        """Return the refusal of a request without a token (RFC 6750 §3.1: it names no error)."""
        return Unauthorized("Unauthorized: a token is needed", headers=self.challenge(resource))

    def invalid(self, resource: str, why: str, *, dpop: bool = False) -> Refusal:
        """Return the refusal of a token that is no good."""
        return Unauthorized(f"Unauthorized: {why}", headers=self.challenge(resource, "invalid_token", dpop=dpop))

    def malformed(self, resource: str, why: str) -> Refusal:
        """Return the refusal of a token that is shown in a way it may not be."""
        headers = self.challenge(resource, "invalid_request")
        return InvalidRequest(f"Bad request: {why}", status=400, headers=headers)

    def insufficient(self, resource: str, scopes: Sequence[str], *, dpop: bool = False) -> Refusal:
        """Return the refusal of a token that lets its bearer do less than this needs."""
        return Forbidden(
            f"Forbidden: this needs the scopes {' '.join(scopes)}",
            {"requiredScopes": list(scopes)},
            status=403,
            headers=self.challenge(resource, "insufficient_scope", scopes, dpop=dpop),
        )

    def by_headers(self, headers: Mapping[str, str]) -> str:
        """Return the resource a request was for, as far as its headers alone tell."""
        return self.settings.resource or self._main.get(headers.get("host", ""), "")

    # -- metadata

    def routes(self, path: str) -> list[CustomRoute]:
        """Return the routes that show the metadata: for the resource, and at the root for clients that look there."""
        self._path = path
        places = [WELL_KNOWN, WELL_KNOWN + path.rstrip("/")]
        if self.settings.resource is not None:
            places.append(WELL_KNOWN + urlsplit(self.settings.resource).path.rstrip("/"))
        routes = []
        for place in dict.fromkeys(places):
            routes.append(public_route(place, partial(self._show, place, path)))
        return routes

    async def _show(self, place: str, endpoint: str, request: WebRequest) -> WebResponse:
        resource = self.settings.resource
        if resource is None:
            root = urlsplit(request.url).path.removesuffix(place)
            resource = self._derived(request.url, request.headers.get("host", ""), root, endpoint)
        if not resource:
            return WebResponse("this server has not been told its URL: set resource=…\n", 404, PUBLIC)
        return WebResponse(self.document(resource), 200, PUBLIC)

    def document(self, resource: str) -> dict[str, Any]:
        """Return the metadata of the resource (RFC 9728 §2)."""
        said: dict[str, Any] = {"resource": resource}
        if self._servers:
            said["authorization_servers"] = list(self._servers)
        if self.scopes:
            said["scopes_supported"] = list(self.scopes)
        said["bearer_methods_supported"] = ["header"]
        if self.settings.resource_name:
            said["resource_name"] = self.settings.resource_name
        said["dpop_signing_alg_values_supported"] = list(ALGORITHMS)
        if self.settings.certificate_header is not None:
            said["tls_client_certificate_bound_access_tokens"] = True
        if self.settings.dpop == "required":
            said["dpop_bound_access_tokens_required"] = True
        return said


def public_route(path: str, answer: Any) -> CustomRoute:
    """Return a route that anybody may read, pages of any origin too."""

    async def respond(request: WebRequest) -> object:
        if request.method == "OPTIONS":
            return WebResponse(None, 204, PUBLIC)
        return await answer(request)

    return CustomRoute(path, ["GET", "OPTIONS"], respond, auth=False, any_origin=True)


def metadata_url(resource: str) -> str:
    """Return where the metadata of a resource is (RFC 9728 §3.1): before its path, after its origin."""
    if not resource:
        return ""
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"


def _is_plain(text: str) -> bool:
    """Return whether a part of a URL can be written into a challenge; a mount may have taken it from the request."""
    return text.isascii() and text.isprintable() and '"' not in text and " " not in text


def require_resource(resource: str) -> None:
    """Raise SetupError for what cannot be the URL of a server (RFC 8707 §2)."""
    try:
        parts = urlsplit(resource)
        port = parts.port
    except ValueError:
        raise SetupError("resource= cannot be read as a URL") from None
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        raise SetupError("resource= must be the URL clients use, such as https://mcp.example.com/mcp")
    if parts.fragment or parts.query or "@" in parts.netloc or any(not ("!" <= c <= "~") or c == '"' for c in resource):
        raise SetupError("resource= must be a plain URL, without query, fragment, user or blanks")
    if parts.scheme == "http" and not is_loopback_name(parts.hostname):
        raise SetupError("resource= must begin with https:// unless it is on this machine: tokens would be readable")
