"""The authorization endpoint: who asks, what for, who signs in, and the code they get (OAuth 2.1 §4.1).

Rule: a browser is sent only to a redirect URI that the client has registered. Everything wrong before that is known is
shown to the user, everything after it is told to the client.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct

from ferrule.auth.devserver.clients import CODE, Clients, RegisteredClient
from ferrule.auth.devserver.pages import ask_page, error_page
from ferrule.auth.devserver.parameters import OAuthError, Parameters
from ferrule.auth.devserver.profile import Issuer
from ferrule.auth.devserver.store import Store
from ferrule.auth.devserver.tokens import Login, audience_for
from ferrule.auth.redirect_uri import matches, with_parameters
from ferrule.transports.http.routes.web import WebRequest, WebResponse

SIGN_IN_TIME = 600.0
LONGEST_STATE = 4096
LONGEST_USER = 200
CHALLENGE_LENGTH = 43
"""Of a SHA-256 in base64url (RFC 7636 §4.2)."""


class Asked(Struct, frozen=True):
    """An authorization request that is right."""

    client: RegisteredClient
    redirect_uri: str
    state: str
    challenge: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    audience: tuple[str, ...]
    nonce: str
    refreshes: bool
    thumbprint: str


class Code(Struct, eq=False):
    """An authorization code."""

    asked: Asked
    login: Login
    used: bool = False


class Authorization:
    """The authorization endpoint of one server."""

    def __init__(self, issuer: Issuer, clients: Clients, *, code_lifetime: float) -> None:
        self._profile = issuer.profile
        self._clients = clients
        self._issuer = issuer.name
        self._clock = issuer.clock
        self._scopes = frozenset(issuer.scopes)
        self._audiences = issuer.audiences
        self._code_lifetime = code_lifetime
        self._waiting: Store[Asked] = Store(issuer.clock)
        self._codes: Store[Code] = Store(issuer.clock)
        self.user = ""
        """Who is signed in without being asked; empty where everybody is."""

    # -- the endpoint

    async def ask(self, request: WebRequest) -> WebResponse:
        """Answer GET: show the page, or the way back where nobody need be asked."""
        try:
            parameters = Parameters(request.query)
            client, redirect_uri = await self._client(parameters)
        except OAuthError as error:
            return self._shown(error)
        try:
            asked = self._read(parameters, client, redirect_uri)
            if self.user:
                return self._allow(asked, self.user)
            if parameters.get("prompt") == "none":
                raise OAuthError("login_required", "nobody is signed in")
        except OAuthError as error:
            return self._refuse(redirect_uri, parameters.get("state"), error)
        ticket = secrets.token_urlsafe(24)
        self._waiting.put(ticket, asked, SIGN_IN_TIME)
        return ask_page(self._profile.title, ticket, client.name or client.id, redirect_uri, asked.scopes)

    async def answer(self, request: WebRequest) -> WebResponse:
        """Answer POST: what the user has decided."""
        try:
            form = Parameters((await request.body()).decode("utf-8", "replace"))
        except OAuthError as error:
            return self._shown(error)
        asked = self._waiting.take(form.get("ticket"))
        if asked is None:
            return error_page(self._profile.title, "This sign-in is over. Go back to your application and try again.")
        user = form.get("user").strip()
        if form.get("decision") != "allow" or not user or len(user) > LONGEST_USER:
            return self._refuse(asked.redirect_uri, asked.state, OAuthError("access_denied", "the user said no"))
        return self._allow(asked, user)

    async def _client(self, parameters: Parameters) -> tuple[RegisteredClient, str]:
        """Return who asks and where to send the browser back to; raises OAuthError for what the user is shown."""
        client = await self._clients.find(parameters.require("client_id"))
        given = parameters.get("redirect_uri")
        if not given and len(client.redirect_uris) == 1:
            return client, client.redirect_uris[0]
        if not matches(client.redirect_uris, given, any_port=self._profile.any_loopback_port):
            raise OAuthError("invalid_request", "the redirect URI is not one this application has registered")
        return client, given

    def _read(self, parameters: Parameters, client: RegisteredClient, redirect_uri: str) -> Asked:
        profile = self._profile
        scopes = parameters.scopes()
        resources = parameters.checked_resources()
        if parameters.require("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code")
        if CODE not in client.grants:
            raise OAuthError("unauthorized_client", "this client did not register for authorization_code")
        challenge = parameters.get("code_challenge")
        if parameters.get("code_challenge_method") != "S256" or len(challenge) != CHALLENGE_LENGTH:
            raise OAuthError("invalid_request", "PKCE with code_challenge_method=S256 is needed (RFC 7636)")
        if len(parameters.get("state")) > LONGEST_STATE or len(parameters.get("nonce")) > LONGEST_STATE:
            raise OAuthError("invalid_request", f"state and nonce have at most {LONGEST_STATE} characters")
        if profile.refused_scopes & set(scopes) or (self._scopes and not set(scopes) <= self._scopes):
            raise OAuthError("invalid_scope", "there is no such scope")
        refreshes = profile.refresh != "none" and "refresh_token" in client.grants
        if profile.refresh_scope and profile.refresh_scope not in scopes:
            refreshes = False
        for name, value in profile.refresh_parameters.items():
            if parameters.get(name) != value:
                refreshes = False
        return Asked(
            client=client,
            redirect_uri=redirect_uri,
            state=parameters.get("state"),
            challenge=challenge,
            scopes=scopes,
            resources=resources,
            audience=audience_for(
                profile, self._audiences, resources=resources, asked=parameters.get("audience"), scopes=scopes
            ),
            nonce=parameters.get("nonce"),
            refreshes=refreshes,
            thumbprint=parameters.get("dpop_jkt"),
        )

    # -- the way back

    def _allow(self, asked: Asked, user: str) -> WebResponse:
        login = Login(
            client=asked.client.id,
            subject=user,
            scopes=asked.scopes,
            resources=asked.resources,
            audience=asked.audience,
            nonce=asked.nonce,
            signed_in=self._clock(),
            refreshes=asked.refreshes,
        )
        code = secrets.token_urlsafe(24)
        # One that was used is remembered for as long again, so that its second use is seen.
        self._codes.put(code, Code(asked, login), 2 * self._code_lifetime)
        return self._back(asked.redirect_uri, {"code": code}, asked.state)

    def _refuse(self, redirect_uri: str, state: str, error: OAuthError) -> WebResponse:
        said = {"error": error.error, "error_description": error.description}
        return self._back(redirect_uri, said, state)

    def _back(self, redirect_uri: str, fields: dict[str, str], state: str) -> WebResponse:
        if state:
            fields["state"] = state
        if self._profile.names_issuer:
            fields["iss"] = self._issuer()
        # RFC 9700 §4.12: after 303 a browser that posted a form sends nothing of it on.
        where = with_parameters(redirect_uri, fields)
        headers = {"Location": where, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        return WebResponse(status_code=303, headers=headers)

    def _shown(self, error: OAuthError) -> WebResponse:
        text = f"This application cannot sign you in: {error.description}."
        return error_page(self._profile.title, text, self._profile.error_page_status)

    # -- the code

    def redeem(self, code: str, client: RegisteredClient, redirect_uri: str, verifier: str, thumbprint: str) -> Login:
        """Return the login a code stands for, once; raises OAuthError."""
        found = self._codes.get(code)
        if found is None or found.asked.client.id != client.id:
            raise OAuthError("invalid_grant", "there is no such code, or it has expired")
        if found.used:
            # OAuth 2.1 §4.1.3: whoever came first may have stolen it.
            found.login.revoked = True
            raise OAuthError("invalid_grant", "the code was used before: all tokens of this login are revoked")
        found.used = True
        asked = found.asked
        if self._clock() - found.login.signed_in >= self._code_lifetime:
            raise OAuthError("invalid_grant", "there is no such code, or it has expired")
        if redirect_uri not in ("", asked.redirect_uri):
            raise OAuthError("invalid_grant", "the redirect URI is another than that of the authorization request")
        if not compare_digest(_challenge(verifier), asked.challenge.encode("utf-8", "replace")):
            raise OAuthError("invalid_grant", "the code_verifier is not the one of the code_challenge")
        if asked.thumbprint not in ("", thumbprint):
            raise OAuthError("invalid_grant", "the DPoP key is another than dpop_jkt named (RFC 9449 section 10)")
        return found.login


def _challenge(verifier: str) -> bytes:
    """Return the S256 challenge of a verifier (RFC 7636 §4.6)."""
    return urlsafe_b64encode(sha256(verifier.encode("utf-8", "replace")).digest()).rstrip(b"=")
