"""The provider behind the proxy: sends people there, exchanges codes, refreshes tokens, asks whose a token is.

Rule 1: only our own client id, secret and codes go there, and nothing of our clients (MCP AUTH-8).
Rule 2: what a provider answers never reaches a client or a log: only which kind of failure it is.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from ferrule.auth.address import AddressRefused
from ferrule.auth.fetch import Fetched, Fetcher, FetchFailed
from ferrule.auth.jose import BadToken, read_part
from ferrule.auth.proxy.clients import shown_name
from ferrule.auth.proxy.keys import encoded
from ferrule.auth.proxy.profiles import Profile
from ferrule.auth.redirect_uri import with_parameters
from ferrule.auth.tenants import issued_by
from ferrule.errors import FerruleError

LONGEST_TOKEN = 16 * 1024
LONGEST_SUBJECT = 255
MOST_SCOPES = 200
"""Of a token, that are kept."""
LEEWAY = 60.0
MOST_SECONDS = 10 * 365 * 86_400
CODE = re.compile(r"[a-z_]{1,40}")
NOT_THE_USER = frozenset(
    {
        *("invalid_client", "unauthorized_client", "incorrect_client_credentials", "invalid_client_id"),
        *("bad_client_secret", "server_error", "temporarily_unavailable", "slow_down", "ratelimited"),
    }
)
"""Errors that say nothing of the user's login: we are set up wrongly, or the provider is not well."""


class UpstreamRefused(FerruleError):
    """The provider does not accept a code or a token (any more)."""


class UpstreamDown(FerruleError):
    """The provider cannot be asked now."""


class UpstreamTokens(Struct, frozen=True, kw_only=True):
    """What the provider gave for one login. It is kept in the vault only."""

    access: str
    refresh: str = ""
    expires: float | None = None
    scopes: tuple[str, ...] = ()
    id_token: str = ""
    """Until the user is known."""
    checked: float = 0.0
    """When the provider last accepted it."""

    def __repr__(self) -> str:
        return "UpstreamTokens(…)"


class Person(Struct, frozen=True):
    """A user of the provider."""

    subject: str
    name: str


class Upstream:
    """One provider, and us as its client."""

    def __init__(
        self,
        profile: Profile,
        client: tuple[str, str],
        callback: str,
        fetcher: Fetcher,
        clock: Callable[[], float],
    ) -> None:
        self.profile = profile
        self._id, self._secret = client
        self._callback = callback
        self._fetcher = fetcher
        self._clock = clock

    def scopes_asked(self, scopes: Collection[str]) -> list[str]:
        """Return the scopes that the provider is asked for."""
        wanted = dict.fromkeys([*self.profile.scopes, *sorted(scopes)])
        return [scope for scope in wanted if scope not in self.profile.without]

    def authorize_url(self, scopes: Collection[str], state: str, verifier: str, nonce: str) -> str:
        """Return where a user is sent to log in."""
        asked = self.scopes_asked(scopes)
        parameters = {
            "response_type": "code",
            "client_id": self._id,
            "redirect_uri": self._callback,
            "scope": " ".join(asked),
            "state": state,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
            **self.profile.parameters,
        }
        if "openid" in asked:
            parameters["nonce"] = nonce
        return with_parameters(self.profile.authorize, parameters)

    async def exchange(self, code: str, verifier: str) -> UpstreamTokens:
        """Return the tokens for a code; raises UpstreamRefused or UpstreamDown."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback,
            "code_verifier": verifier,
        }
        return self._read_tokens(await self._ask_token_endpoint(fields), None)

    async def refresh(self, tokens: UpstreamTokens) -> UpstreamTokens:
        """Return new tokens for old ones; raises UpstreamRefused or UpstreamDown."""
        if not tokens.refresh:
            raise UpstreamRefused("the provider gave no refresh token")
        fields = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
        if self.profile.repeats_scope and tokens.scopes:
            fields["scope"] = " ".join(tokens.scopes)
        return self._read_tokens(await self._ask_token_endpoint(fields), tokens)

    async def _ask_token_endpoint(self, fields: dict[str, str]) -> dict[str, Any]:
        headers = {}
        if self.profile.client_auth == "basic":
            # RFC 6749 §2.3.1: both are form-encoded first.
            pair = f"{quote(self._id, safe='')}:{quote(self._secret, safe='')}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            fields = {**fields, "client_id": self._id, "client_secret": self._secret}
        try:
            return _accepted(await self._fetcher.post_form(self.profile.token, fields, headers))
        except (FetchFailed, AddressRefused) as reason:
            raise UpstreamDown(f"the token endpoint of {self.profile.title}: {reason}") from None

    def _read_tokens(self, document: Mapping[str, Any], before: UpstreamTokens | None) -> UpstreamTokens:
        access = document.get("access_token")
        # Google and others leave the refresh token out when the old one stays good.
        refresh = document.get("refresh_token", before.refresh if before else "")
        if not _is_token(access) or (refresh and not _is_token(refresh)):
            raise UpstreamRefused("the answer of the token endpoint has no token that can be used")
        assert isinstance(access, str)
        now = self._clock()
        expires = None
        seconds = document.get("expires_in")
        if isinstance(seconds, str) and seconds.isdecimal() and len(seconds) < 12:
            seconds = int(seconds)
        if isinstance(seconds, int | float) and 0 <= seconds <= MOST_SECONDS:
            expires = now + seconds
        scopes = before.scopes if before else ()
        if isinstance(document.get("scope"), str):
            # GitHub and Slack separate them with commas.
            scopes = tuple(document["scope"].replace(",", " ").split()[:MOST_SCOPES])
        id_token = document.get("id_token", "")
        return UpstreamTokens(
            access=access,
            refresh=refresh or "",
            expires=expires,
            scopes=scopes,
            id_token=id_token if _is_token(id_token) else "",
            checked=now,
        )

    # -- whose a token is

    async def identify(self, tokens: UpstreamTokens, nonce: str = "") -> Person:
        """Return whose tokens these are; raises UpstreamRefused or UpstreamDown."""
        if self.profile.identity == "id_token":
            claims = self._read_id_token(tokens.id_token, nonce)
        else:
            claims = await self._ask_identity(tokens.access)
        if self.profile.audience and claims.get(self.profile.audience) != self._id:
            raise UpstreamRefused("the token was given to another client")
        parts = []
        for name in self.profile.subject:
            value = claims.get(name)
            if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
                raise UpstreamRefused(f"the provider does not say whose the token is: {name} is missing")
            parts.append(str(value))
        subject = ":".join(parts)
        if len(subject) > LONGEST_SUBJECT or not subject.isprintable():
            raise UpstreamRefused("the provider names its user in a way that cannot be used")
        return Person(subject, shown_name(claims.get(self.profile.name, subject)))

    async def _ask_identity(self, token: str) -> dict[str, Any]:
        url = self.profile.identity_url
        try:
            if self.profile.identity == "tokeninfo":
                return _accepted(await self._fetcher.get(with_parameters(url, {"access_token": token})))
            return _accepted(await self._fetcher.get(url, {"authorization": f"Bearer {token}"}))
        except (FetchFailed, AddressRefused) as reason:
            raise UpstreamDown(f"{self.profile.title} was asked whose a token is: {reason}") from None

    def _read_id_token(self, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token that came from the token endpoint itself.

        TLS has proved who sent it, so its signature need not be verified (OpenID Connect Core §3.1.3.7, 6).
        """
        parts = token.split(".")
        if len(parts) != 3:
            raise UpstreamRefused("the provider sent no ID token")
        try:
            claims = read_part(parts[1])
        except BadToken:
            raise UpstreamRefused("the provider's ID token cannot be read") from None
        audience = claims.get("aud")
        expires = claims.get("exp")
        if audience not in (self._id, [self._id]):
            raise UpstreamRefused("the ID token was made for another client")
        if self.profile.issuer and not issued_by(self.profile.issuer, claims):
            raise UpstreamRefused("the ID token is of another issuer")
        if not isinstance(expires, int | float) or expires + LEEWAY < self._clock():
            raise UpstreamRefused("the ID token has expired")
        if nonce and claims.get("nonce") != nonce:
            raise UpstreamRefused("the ID token belongs to another login")
        return claims


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a verifier (RFC 7636 §4.2)."""
    return encoded(sha256(verifier.encode("ascii", "replace")).digest())


def _is_token(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return 0 < len(value) <= LONGEST_TOKEN and value.isascii() and value.isprintable()


def _accepted(answer: Fetched) -> dict[str, Any]:
    """Return what a provider says; raises UpstreamRefused for no, UpstreamDown for not now."""
    try:
        document = answer.document()
    except FetchFailed:
        document = {}
    code = document.get("error", "")
    shown = f"HTTP {answer.status}"
    if isinstance(code, str) and CODE.fullmatch(code):
        shown += f", {code}"
    if answer.status == 429 or answer.status >= 500 or code in NOT_THE_USER:
        raise UpstreamDown(f"the provider answered {shown}")
    # GitHub and Slack say no with status 200.
    if answer.status >= 400 or code or document.get("ok") is False:
        raise UpstreamRefused(f"the provider answered {shown}")
    return document
