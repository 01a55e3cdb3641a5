"""A login: from the client's request over consent and the provider to a code for the client.

    /authorize  the request is checked, and the user asked      nothing is kept
    /consent    the user allows it                              a login is kept under its state, for 10 minutes
    /callback   the provider sends the user back                the login is used up; a grant and a code are made

Rule 1: whoever is sent back to a client, with an answer or an error, was sent by it: client and redirect URI are
checked first, and until then a failure is a page of ours.
Rule 2: a state is made after consent, used once, and only in the browser that consented (MCP SEC-5).
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ferrule.auth.proxy import pages
from ferrule.auth.proxy.browser import Browsers
from ferrule.auth.proxy.clients import Clients, ProxyClient
from ferrule.auth.proxy.codes import Codes
from ferrule.auth.proxy.grants import Grant, new_grant_id
from ferrule.auth.proxy.keys import Keys, digest, random_text
from ferrule.auth.proxy.parameters import AddressRate, OAuthError, form_text, read_parameters
from ferrule.auth.proxy.upstream import Person, Upstream, UpstreamDown, UpstreamRefused, UpstreamTokens
from ferrule.auth.proxy.vault import Vault
from ferrule.auth.redirect_uri import is_loopback_uri, with_parameters
from ferrule.stores.contracts import Store
from ferrule.transports.http.routes.web import WebRequest, WebResponse

logger = logging.getLogger("ferrule.auth")

LOGIN_SECONDS = 600.0
LONGEST_STATE = 2048
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
"""A SHA-256 in base64url."""
OTHER_BROWSER = "This login was not begun in this browser, or took longer than ten minutes."


class AuthorizationRequest(Struct, frozen=True, kw_only=True):
    """What a client asks for, checked."""

    client: str
    redirect: str
    challenge: str
    scopes: tuple[str, ...]
    state: str = ""


class Login(Struct, frozen=True, kw_only=True):
    """A login on its way to the provider and back."""

    request: AuthorizationRequest
    browser: str
    verifier: str
    """Of our own PKCE at the provider."""
    nonce: str


class LoginFlow:
    """The endpoints that people see."""

    def __init__(
        self,
        *,
        issuer: str,
        resource: str,
        server: str,
        scopes: Sequence[str],
        more_scopes: Sequence[str],
        keys: Keys,
        store: Store,
        clients: Clients,
        browsers: Browsers,
        upstream: Upstream,
        vault: Vault,
        codes: Codes,
        rate: AddressRate,
        sender: Callable[[WebRequest], str],
        allow: Callable[[Person], bool] | None,
        clock: Callable[[], float],
    ) -> None:
        self._issuer = issuer
        parts = urlsplit(issuer)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._resource = resource
        self._server = server
        self._scopes = tuple(scopes)
        """What a client is granted that names no scopes."""
        self._known_scopes = tuple(dict.fromkeys([*scopes, *more_scopes]))
        self._keys = keys
        self._store = store
        self._clients = clients
        self._browsers = browsers
        self._upstream = upstream
        self._vault = vault
        self._codes = codes
        self._rate = rate
        self._sender = sender
        """Returns the address a request came from."""
        self._allow = allow
        self._clock = clock

    # -- /authorize

    async def authorize(self, request: WebRequest) -> WebResponse:
        """Answer an authorization request: with the consent page, or at once where consent was given before."""
        try:
            asked = read_parameters(await _query_or_form(request))
            client = await self._clients.find(asked.get("client_id", ""), self._sender(request))
            redirect = asked.get("redirect_uri", "")
            client.check_redirect(redirect)
        except OAuthError as error:
            return pages.failure_page(error.why, error.status, error.headers)
        try:
            checked = self._check(asked, client)
        except OAuthError as error:
            return self._turn_away(redirect, asked.get("state", "")[:LONGEST_STATE], error)
        browser = self._browsers.identify(request)
        if browser and await self._is_allowed(browser, checked, asked):
            return await self._begin(request, browser, checked)
        return self._ask(client, checked, browser)

    def _check(self, asked: dict[str, str], client: ProxyClient) -> AuthorizationRequest:
        """Return what is asked for; raises OAuthError for what cannot be granted."""
        if asked.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code")
        challenge = asked.get("code_challenge", "")
        if asked.get("code_challenge_method") != "S256" or not CHALLENGE.fullmatch(challenge):
            raise OAuthError("invalid_request", "A code_challenge of the method S256 is required (PKCE)")
        if asked.get("resource", self._resource) != self._resource:
            raise OAuthError("invalid_target", "The resource is not the one that this server protects")
        if len(asked.get("state", "")) > LONGEST_STATE:
            raise OAuthError("invalid_request", f"The state is longer than {LONGEST_STATE} characters")
        return AuthorizationRequest(
            client=client.id,
            redirect=asked["redirect_uri"],
            challenge=challenge,
            scopes=self._granted(asked.get("scope", "")),
            state=asked.get("state", ""),
        )

    def _granted(self, scope: str) -> tuple[str, ...]:
        """Return which scopes are granted of those asked for; those we do not know are left out (RFC 6749 §3.3)."""
        wanted = set(scope.split())
        if not wanted:
            return self._scopes
        granted = []
        for each in self._known_scopes:
            if each in wanted:
                granted.append(each)
        if self._known_scopes and not granted:
            raise OAuthError("invalid_scope", "None of the scopes is known here")
        return tuple(granted)

    async def _is_allowed(self, browser: str, checked: AuthorizationRequest, asked: dict[str, str]) -> bool:
        """Return whether the page need not be shown again."""
        if "consent" in asked.get("prompt", ""):
            return False
        return await self._browsers.has_consented(browser, checked.client, checked.redirect, checked.scopes)

    def _ask(self, client: ProxyClient, checked: AuthorizationRequest, browser: str) -> WebResponse:
        headers = {}
        if not browser:
            browser, headers["Set-Cookie"] = self._browsers.introduce()
        ticket = self._keys.seal(_ticket_of(browser), msgspec.json.encode(checked), self._clock() + LOGIN_SECONDS)
        return pages.consent_page(
            client,
            checked.redirect,
            server=self._server,
            provider=self._upstream.profile.title,
            scopes=self._upstream.scopes_asked(checked.scopes),
            ticket=ticket,
            headers=headers,
        )

    # -- /consent

    async def consent(self, request: WebRequest) -> WebResponse:
        """Take a user's answer; the ticket in the form proves that it is to our page, in this browser (CSRF)."""
        if not self._is_our_page(request):
            return pages.failure_page("The answer does not come from the page that asked.", 403)
        browser = self._browsers.identify(request)
        try:
            form = read_parameters(form_text(await request.body()))
            checked = self._read_ticket(browser, form.get("ticket", ""))
            if checked is None:
                return pages.failure_page(OTHER_BROWSER, 403)
            if form.get("answer") != "allow":
                return self._send_back(
                    checked.redirect, checked.state, OAuthError("access_denied", "The user declined")
                )
            return await self._begin(request, browser, checked)
        except OAuthError as error:
            return pages.failure_page(error.why, error.status, error.headers)

    def _is_our_page(self, request: WebRequest) -> bool:
        """Return whether a form comes from a page of ours, as far as the browser says."""
        if request.headers.get("origin", self._origin) != self._origin:
            return False
        return request.headers.get("sec-fetch-site", "same-origin") == "same-origin"

    def _read_ticket(self, browser: str, ticket: str) -> AuthorizationRequest | None:
        if not browser:
            return None
        payload = self._keys.open(_ticket_of(browser), ticket, self._clock())
        if payload is None:
            return None
        return msgspec.json.decode(payload, type=AuthorizationRequest)

    async def _begin(self, request: WebRequest, browser: str, checked: AuthorizationRequest) -> WebResponse:
        """Send a user who has consented to the provider."""
        try:
            self._rate.require(self._sender(request), self._clock())
        except OAuthError as error:
            return pages.failure_page(error.why, error.status, error.headers)
        state = random_text()
        login = Login(request=checked, browser=browser, verifier=random_text(), nonce=random_text())
        await self._store.put(_key(state), msgspec.json.encode(login), LOGIN_SECONDS)
        return _redirect(self._upstream.authorize_url(checked.scopes, state, login.verifier, login.nonce))

    # -- /callback

    async def callback(self, request: WebRequest) -> WebResponse:
        """Take a user back from the provider, and send them on to the client."""
        try:
            came = read_parameters(request.query)
        except OAuthError as error:
            return pages.failure_page(error.why)
        login = await self._take_login(request, came.get("state", ""))
        if login is None:
            return pages.failure_page(OTHER_BROWSER, 403)
        asked = login.request
        try:
            self._check_answer(came)
            code = await self._finish(login, came["code"])
        except OAuthError as error:
            return self._send_back(asked.redirect, asked.state, error)
        return _redirect(with_parameters(asked.redirect, self._answer(asked.state, {"code": code})))

    async def _take_login(self, request: WebRequest, state: str) -> Login | None:
        """Return the login of a state, once, to the browser it belongs to."""
        browser = self._browsers.identify(request)
        raw = await self._store.get(_key(state))
        if raw is None or not browser:
            return None
        login = msgspec.json.decode(raw, type=Login)
        # Looked at before it is used up: whoever sends it from elsewhere does not end it for its owner.
        if not hmac.compare_digest(login.browser, browser) or await self._store.take(_key(state)) is None:
            return None
        return login

    def _check_answer(self, came: dict[str, str]) -> None:
        """Raise OAuthError for an answer of the provider without a code of this provider (RFC 9207)."""
        issuer = self._upstream.profile.issuer
        if issuer and came.get("iss", issuer) != issuer:
            raise OAuthError("server_error", "The answer came from another provider")
        if came.get("error") == "access_denied":
            raise OAuthError("access_denied", "The login was declined at the provider")
        if "error" in came or "code" not in came:
            raise OAuthError("server_error", "The provider did not complete the login")

    async def _finish(self, login: Login, code: str) -> str:
        """Exchange the provider's code for its tokens, put them into the vault, and return a code of our own."""
        try:
            tokens = await self._upstream.exchange(code, login.verifier)
            person = await self._upstream.identify(tokens, login.nonce)
        except UpstreamRefused as reason:
            logger.warning("a login failed: %s", reason)
            raise OAuthError("access_denied", "The provider did not confirm the login") from None
        except UpstreamDown as reason:
            logger.error("a login failed: %s", reason)
            raise OAuthError("temporarily_unavailable", "The provider cannot be asked now; try again") from None
        if self._allow is not None and not self._allow(person):
            raise OAuthError("access_denied", "This account may not use this server")
        asked = login.request
        # Any program can take an address of its machine, or a scheme: there the user is always asked (RFC 8252 §8.6).
        if asked.redirect.startswith("https://"):
            await self._browsers.remember_consent(login.browser, asked.client, asked.redirect, asked.scopes)
        return await self._grant(asked, person, tokens)

    async def _grant(self, asked: AuthorizationRequest, person: Person, tokens: UpstreamTokens) -> str:
        grant = Grant(
            id=new_grant_id(),
            client=client_key(asked.client),
            subject=person.subject,
            name=person.name,
            scopes=asked.scopes,
        )
        await self._vault.put(grant.id, tokens, Codes.LIFETIME)
        return await self._codes.issue(grant, asked.redirect, asked.challenge)

    # -- the way back

    def _turn_away(self, redirect: str, state: str, error: OAuthError) -> WebResponse:
        """Answer a request that nobody has consented to: only to this machine is the user sent without being asked.

        Anybody can register a client, so that we would be an open redirector (RFC 9700 §4.11.2).
        """
        answer = self._send_back(redirect, state, error)
        if is_loopback_uri(redirect):
            return answer
        return pages.failure_page(error.why, error.status, way_back=str(answer.headers["Location"]))

    def _send_back(self, redirect: str, state: str, error: OAuthError) -> WebResponse:
        return _redirect(with_parameters(redirect, self._answer(state, error.document())))

    def _answer(self, state: str, parameters: dict[str, str]) -> dict[str, str]:
        if state:
            parameters["state"] = state
        parameters["iss"] = self._issuer
        return parameters


def client_key(client_id: str) -> str:
    """Return what stands for a client in grants and tokens: its URL, or the digest of an id that is a page long."""
    if "://" in client_id[:10]:
        return client_id
    return digest(client_id)


def _ticket_of(browser: str) -> str:
    return f"consent {browser}"


def _key(state: str) -> str:
    return f"login:{digest(state)}"


async def _query_or_form(request: WebRequest) -> str:
    """Return the parameters of an authorization request: a form where they are too long for a URL (RFC 6749 §3.1)."""
    if request.method == "POST":
        return form_text(await request.body())
    return request.query


def _redirect(url: str) -> WebResponse:
    # 303: the form is not sent on (RFC 9700 §4.12).
    return WebResponse(None, 303, {"Location": url, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
