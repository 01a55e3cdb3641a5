"""Device authorization: a client shows a code, and its user signs in with it on another device (RFC 8628)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from msgspec import Struct

from ferrule.auth.devserver.clients import DEVICE_CODE, RegisteredClient
from ferrule.auth.devserver.pages import code_page, device_page, done_page, error_page
from ferrule.auth.devserver.parameters import OAuthError, Parameters
from ferrule.auth.devserver.profile import Profile
from ferrule.auth.devserver.store import Store
from ferrule.auth.devserver.tokens import Login, audience_for
from ferrule.transports.http.routes.web import WebRequest, WebResponse

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels, so that no code is a word (RFC 8628 §6.1)."""
HALF = 4
LONGEST_USER = 200
SLOWER = 5.0


class Pending(Struct, eq=False):
    """One login that a client waits for."""

    client: RegisteredClient
    login: Login
    until: float
    interval: float
    asked_at: float
    denied: bool = False


class DeviceAuthorization:
    """The device authorization endpoint of one server, and the page where codes are entered."""

    def __init__(
        self,
        profile: Profile,
        clock: Callable[[], float],
        *,
        scopes: Sequence[str],
        audiences: Sequence[str],
        interval: float,
        lifetime: float,
    ) -> None:
        self._profile = profile
        self._clock = clock
        self._scopes = frozenset(scopes)
        self._audiences = audiences
        self._interval = interval
        self._lifetime = lifetime
        self._by_code: Store[Pending] = Store(clock)
        self._by_secret: Store[Pending] = Store(clock)
        self.user = ""
        """Who is signed in without being asked; empty where everybody is."""

    def begin(self, client: RegisteredClient, parameters: Parameters, page: str) -> dict[str, object]:
        """Return the codes of a login that a client begins (RFC 8628 §3.2)."""
        if DEVICE_CODE not in client.grants:
            raise OAuthError("unauthorized_client", "this client did not register for logins on another device")
        scopes = parameters.scopes()
        resources = parameters.checked_resources()
        if self._profile.refused_scopes & set(scopes) or (self._scopes and not set(scopes) <= self._scopes):
            raise OAuthError("invalid_scope", "there is no such scope")
        refreshes = self._profile.refresh != "none" and "refresh_token" in client.grants
        if self._profile.refresh_scope and self._profile.refresh_scope not in scopes:
            refreshes = False
        login = Login(
            client=client.id,
            scopes=scopes,
            resources=resources,
            audience=audience_for(
                self._profile, self._audiences, resources=resources, asked=parameters.get("audience"), scopes=scopes
            ),
            refreshes=refreshes,
        )
        now = self._clock()
        pending = Pending(client, login, now + self._lifetime, self._interval, now)
        letters = "".join(secrets.choice(LETTERS) for _ in range(2 * HALF))
        code = f"{letters[:HALF]}-{letters[HALF:]}"
        secret = secrets.token_urlsafe(24)
        self._by_code.put(code, pending, self._lifetime)
        # What has ended is remembered for as long again, so that the client can be told.
        self._by_secret.put(secret, pending, 2 * self._lifetime)
        return {
            "device_code": secret,
            "user_code": code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={code}",
            "expires_in": self._lifetime,
            "interval": self._interval,
        }

    async def ask(self, request: WebRequest) -> WebResponse:
        """Answer GET: ask for the code, then who signs in."""
        provider = self._profile.title
        try:
            code = Parameters(request.query).get("user_code").strip().upper()
        except OAuthError as error:
            return error_page(provider, error.description)
        if not code:
            return code_page(provider)
        pending = self._by_code.get(code)
        if pending is None:
            return error_page(provider, "There is no such code, or it has ended.")
        if self.user:
            return self._allow(code, pending, self.user)
        return device_page(provider, code, pending.client.name or pending.client.id, pending.login.scopes)

    async def answer(self, request: WebRequest) -> WebResponse:
        """Answer POST: what the user has decided."""
        provider = self._profile.title
        try:
            form = Parameters((await request.body()).decode("utf-8", "replace"))
        except OAuthError as error:
            return error_page(provider, error.description)
        code = form.get("user_code")
        pending = self._by_code.get(code)
        if pending is None:
            return error_page(provider, "There is no such code, or it has ended.")
        user = form.get("user").strip()
        if form.get("decision") == "allow" and 0 < len(user) <= LONGEST_USER:
            return self._allow(code, pending, user)
        pending.denied = True
        self._by_code.take(code)
        return done_page(provider, "Nothing was allowed. You can close this page.")

    def _allow(self, code: str, pending: Pending, user: str) -> WebResponse:
        pending.login.subject = user
        pending.login.signed_in = self._clock()
        self._by_code.take(code)
        return done_page(self._profile.title, "You are signed in. Go back to your device.")

    def redeem(self, secret: str, client: RegisteredClient) -> Login:
        """Return the login a device code stands for, once; raises OAuthError (RFC 8628 §3.5)."""
        pending = self._by_secret.get(secret)
        if pending is None or pending.client.id != client.id:
            raise OAuthError("invalid_grant", "there is no such device code")
        now = self._clock()
        too_soon = now - pending.asked_at < pending.interval * 0.9
        pending.asked_at = now
        if now >= pending.until:
            raise OAuthError("expired_token", "the code has ended")
        if too_soon:
            pending.interval += SLOWER
            raise OAuthError("slow_down", "ask less often")
        if pending.denied:
            raise OAuthError("access_denied", "the user said no")
        if not pending.login.subject:
            raise OAuthError("authorization_pending", "the user has not decided yet")
        self._by_secret.take(secret)
        return pending.login
