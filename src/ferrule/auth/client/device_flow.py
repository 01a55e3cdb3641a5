"""The device authorization grant (RFC 8628): a person logs in on another device, and we ask until they have.

Rule: the authorization server says how often we may ask and for how long; both are bounded by us as well.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from ferrule.auth.client.browser import judge_login_url
from ferrule.auth.client.login_pause import LoginPause
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.registrar import Registrar
from ferrule.auth.client.registration import DEVICE_CODE
from ferrule.auth.client.session import Granted, Wanted
from ferrule.auth.client.token import ClientIdentity, ProofKey, TokenEndpoint, TokenRefused, TokenUnavailable
from ferrule.auth.fetch import Fetcher
from ferrule.errors import AuthorizationFailed

DEFAULT_INTERVAL = 5.0
SHORTEST_INTERVAL, LONGEST_INTERVAL = 1.0, 60.0
"""Bounds of the seconds between two questions, whatever the server says."""
SLOWER = 5.0
"""By how many seconds that grows where the server asks for it (RFC 8628 §3.5)."""
LONGEST_LIFE = 1800.0
LONGEST_CODE = 100
LONGEST_SECRET = 4096


class DeviceCode(Struct, frozen=True):
    """What a person needs to log in on another device."""

    code: str
    """What they enter there."""
    url: str
    """Where they enter it."""
    whole_url: str
    """The same with the code in it, for a picture or a click; empty where there is none."""
    expires: float
    """When it ends, in seconds since 1970."""


ShowCode = Callable[[DeviceCode], Awaitable[None] | None]
"""Shows a person where to log in and the code for it."""


class Begun(Struct, frozen=True):
    """A login that was begun; its text shows no secret."""

    shown: DeviceCode
    secret: str
    interval: float

    def __repr__(self) -> str:
        return "Begun(…)"


class DeviceGrant:
    """Gets tokens by a person's login on another device."""

    renews = True

    def __init__(self, fetcher: Fetcher, registrar: Registrar, show: ShowCode, timeout: float) -> None:
        self._rules = fetcher.rules
        self._registrar = registrar
        self._show = show
        self._timeout = timeout
        self._pause = LoginPause()
        self.preregistered = registrar.preregistered
        self.shows_secret = registrar.shows_secret

    def endpoint(self, server: ServerMetadata, client: ClientIdentity, proof_key: ProofKey | None) -> TokenEndpoint:
        """Return the token endpoint as our client uses it."""
        return self._registrar.endpoint(server, client, proof_key)

    async def obtain(self, wanted: Wanted) -> Granted:
        """Let a person log in. Return the token; raises AuthorizationFailed."""
        return await self._pause.attempt(lambda: self._obtain(wanted))

    async def _obtain(self, wanted: Wanted) -> Granted:
        server = wanted.found.server
        if not server.device_authorization_endpoint:
            raise AuthorizationFailed(f"{server.issuer} has no login on another device: log in with a browser")
        known = await self._registrar.known(server.issuer)
        client = await self._registrar.identity(server, "", wanted.scopes, known)
        endpoint = self.endpoint(server, client, wanted.proof_key)
        try:
            begun = await self._begin(endpoint, wanted)
        except TokenRefused as refusal:
            if refusal.error == "invalid_client":
                await self._registrar.forget(server.issuer)
            raise
        said = self._show(begun.shown)
        if inspect.isawaitable(said):
            await said
        return Granted(await self._ask(endpoint, begun, wanted), client)

    async def _begin(self, endpoint: TokenEndpoint, wanted: Wanted) -> Begun:
        fields = {}
        if wanted.scopes:
            fields["scope"] = " ".join(wanted.scopes)
        if wanted.resource:
            fields["resource"] = wanted.resource
        url = wanted.found.server.device_authorization_endpoint
        begun = read_begun(await endpoint.post(fields, url), wanted.found.issuer, self._timeout)
        judge_login_url(begun.shown.url, self._rules)
        if begun.shown.whole_url:
            judge_login_url(begun.shown.whole_url, self._rules)
        return begun

    async def _ask(self, endpoint: TokenEndpoint, begun: Begun, wanted: Wanted) -> Any:
        """Ask for the token until the person has decided or the code has ended."""
        fields = {"grant_type": DEVICE_CODE, "device_code": begun.secret}
        if wanted.resource:
            fields["resource"] = wanted.resource
        interval = begun.interval
        while time.time() + interval < begun.shown.expires:
            await asyncio.sleep(interval)
            try:
                return await endpoint.ask(fields, wanted.scopes)
            except TokenUnavailable:
                # RFC 8628 §3.5: whoever does not answer is asked less often.
                interval = min(LONGEST_INTERVAL, 2 * interval)
            except TokenRefused as refusal:
                if refusal.error == "slow_down":
                    interval = min(LONGEST_INTERVAL, interval + SLOWER)
                elif refusal.error == "expired_token":
                    break
                elif refusal.error != "authorization_pending":
                    raise
        raise AuthorizationFailed(f"nobody logged in at {wanted.found.issuer} before the code ended: try again")


def read_begun(document: Mapping[str, Any], issuer: str, timeout: float) -> Begun:
    """Read the answer to a device authorization request (RFC 8628 §3.2); raises AuthorizationFailed."""
    secret = document.get("device_code")
    code = document.get("user_code")
    url = document.get("verification_uri")
    whole = document.get("verification_uri_complete", "")
    if not _is_text(secret, LONGEST_SECRET) or not _is_text(code, LONGEST_CODE) or not _is_text(url, LONGEST_SECRET):
        raise AuthorizationFailed(f"{issuer} began a login without a code that could be shown")
    if not _is_text(whole, LONGEST_SECRET):
        whole = ""
    life = min(_seconds(document.get("expires_in"), LONGEST_LIFE), LONGEST_LIFE, timeout)
    interval = _seconds(document.get("interval"), DEFAULT_INTERVAL)
    shown = DeviceCode(str(code), str(url), str(whole), time.time() + life)
    return Begun(shown, str(secret), min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, interval)))


def _is_text(value: object, longest: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= longest and value.isascii() and value.isprintable()


def _seconds(value: object, default: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        return default
    return float(value)


def print_code(shown: DeviceCode) -> None:
    """Show a person the code on the terminal."""
    sys.stderr.write(f"Log in on any device: open {shown.url} and enter the code {shown.code}\n")
    sys.stderr.flush()
