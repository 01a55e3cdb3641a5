"""Tokens: issued, looked up, refreshed and revoked.

Rule 1: a refresh token is used up by a refresh (RFC 9700 §4.14.2). Shown again within the grace, it returns the same
successor, because an answer may be lost or several processes may refresh at once; shown later, all tokens of its login
are revoked.
Rule 2: tokens are kept by their hash.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from ferrule.auth.devserver.parameters import OAuthError
from ferrule.auth.devserver.profile import API, Issuer, Profile
from ferrule.auth.devserver.store import Store
from ferrule.auth.jose import Key, make_key, sign

MAX_TOKENS = 100_000
FOREVER = 10 * 365 * 86_400.0
OPENID = frozenset({"openid", "profile", "email", "address", "phone", "offline_access"})
"""Scopes that belong to sign-in itself (OpenID Connect Core §5.4, §11)."""


class Login(Struct, eq=False):
    """What a user, or a client itself, has granted; everything issued because of it ends with it."""

    client: str
    subject: str = ""
    """Empty where a client acts for itself."""
    scopes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    audience: tuple[str, ...] = ()
    nonce: str = ""
    signed_in: float = 0.0
    thumbprint: str = ""
    """Of the key its tokens are bound to (RFC 9449 §6)."""
    refreshes: bool = False
    revoked: bool = False


class Access(Struct, frozen=True, eq=False):
    """One access token that was issued."""

    login: Login
    scopes: tuple[str, ...]
    claims: Mapping[str, Any]


class Refresh(Struct, eq=False):
    """One refresh token."""

    login: Login
    token: str
    used_at: float = 0.0
    successor: Refresh | None = None


class Tokens:
    """The tokens of one server."""

    def __init__(
        self,
        issuer: Issuer,
        *,
        algorithm: str,
        access_lifetime: float,
        refresh_lifetime: float,
        grace: float,
    ) -> None:
        self._profile = issuer.profile
        self._issuer = issuer.name
        self._clock = issuer.clock
        self._algorithm = algorithm
        self.access_lifetime = access_lifetime
        self._refresh_lifetime = refresh_lifetime
        self._grace = grace
        self._key = make_key(algorithm)
        self._published = [self._key]
        self._access: Store[Access] = Store(issuer.clock, MAX_TOKENS)
        self._refresh: Store[Refresh] = Store(issuer.clock, MAX_TOKENS)

    # -- keys

    @property
    def keys(self) -> Sequence[Key]:
        """The keys that are published, the newest last."""
        return self._published

    def rotate_key(self, *, keep: bool = True) -> None:
        """Sign with a new key from now on; `keep` goes on publishing the old one."""
        self._key = make_key(self._algorithm)
        if not keep:
            self._published = []
        self._published = [*self._published, self._key]

    def sign(self, claims: Mapping[str, Any], kind: str) -> str:
        """Return claims signed with the newest key."""
        return sign({"typ": kind, "kid": self._key.id}, claims, self._key, self._algorithm)

    # -- access tokens

    def issue(
        self,
        login: Login,
        scopes: Collection[str],
        *,
        lifetime: float | None = None,
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a new access token; `claims` replace those it would have, and None leaves one out."""
        profile = self._profile
        if lifetime is None:
            lifetime = self.access_lifetime
        made = self._claims(login, tuple(scopes), lifetime)
        for name, value in (claims or {}).items():
            if value is None:
                made.pop(name, None)
            else:
                made[name] = value
        if profile.opaque or (profile.resource == "asked" and "aud" not in made):
            token = profile.opaque_prefix + secrets.token_urlsafe(32)
        else:
            token = self.sign(made, profile.jwt_type)
        kept = FOREVER
        if profile.expires:
            kept = max(lifetime, 0.0)
        self._access.put(_hash(token), Access(login, tuple(scopes), made), kept)
        return token

    def _claims(self, login: Login, scopes: tuple[str, ...], lifetime: float) -> dict[str, Any]:
        """Return the claims of an access token (RFC 9068 §2.2), as the provider writes them."""
        profile = self._profile
        now = int(self._clock())
        claims: dict[str, Any] = {"iss": self._issuer(), "sub": login.subject or login.client}
        claims.update(profile.claims)
        if len(login.audience) == 1 and "aud" not in claims:
            claims["aud"] = login.audience[0]
        elif login.audience:
            claims["aud"] = list(login.audience)
        claims[profile.client_claim] = login.client
        of_apis = [scope for scope in scopes if scope not in OPENID]
        if profile.scope_claim == "scp_list":
            claims["scp"] = list(scopes)
        elif profile.scope_claim == "scp":
            claims["scp"] = " ".join(map(_short, of_apis))
        else:
            claims["scope"] = " ".join(scopes)
        if profile.permissions:
            claims["permissions"] = of_apis
        if login.thumbprint:
            claims["cnf"] = {"jkt": login.thumbprint}
        claims["iat"] = now
        claims["nbf"] = now
        claims["exp"] = int(now + lifetime)
        claims["jti"] = secrets.token_urlsafe(12)
        return claims

    def id_token(self, login: Login, *, audience: str = "", lifetime: float | None = None) -> str:
        """Return an ID token (OpenID Connect Core §2)."""
        now = int(self._clock())
        if lifetime is None:
            lifetime = self.access_lifetime
        claims = {
            **self._profile.user_claims(login.subject),
            "iss": self._issuer(),
            "sub": login.subject,
            "aud": audience or login.client,
            "iat": now,
            "exp": int(now + lifetime),
            "auth_time": int(login.signed_in),
        }
        if login.nonce:
            claims["nonce"] = login.nonce
        return self.sign(claims, "JWT")

    def find_access(self, token: str) -> Access | None:
        """Return an access token that is good now."""
        found = self._access.get(_hash(token))
        if found is None or found.login.revoked:
            return None
        return found

    # -- refresh tokens

    def issue_refresh(self, login: Login) -> str:
        """Return a new refresh token."""
        return self._new_refresh(login).token

    def _new_refresh(self, login: Login) -> Refresh:
        made = Refresh(login, f"rt_{secrets.token_urlsafe(32)}")
        self._refresh.put(_hash(made.token), made, self._refresh_lifetime)
        return made

    def find_refresh(self, token: str) -> Refresh | None:
        """Return a refresh token, good or not."""
        return self._refresh.get(_hash(token))

    def refresh(self, found: Refresh) -> str:
        """Return the next refresh token, empty where the same stays valid; raise OAuthError for one used before."""
        now = self._clock()
        login = found.login
        if login.revoked:
            raise OAuthError("invalid_grant", "the refresh token was revoked")
        if self._profile.refresh == "keep":
            return ""
        if self._profile.refresh == "renew":
            return self._new_refresh(login).token
        if found.successor is None:
            found.successor = self._new_refresh(login)
            found.used_at = now
        elif now - found.used_at > self._grace:
            # RFC 9700 §4.14.2: somebody has a copy, and nobody can tell who.
            login.revoked = True
            raise OAuthError("invalid_grant", "the refresh token was used before: all tokens of this login are revoked")
        return found.successor.token

    def revoke(self, token: str, client: str) -> None:
        """Revoke a token of a client; an unknown one is revoked already (RFC 7009 §2.2)."""
        refresh = self.find_refresh(token)
        if refresh is not None and refresh.login.client == client:
            refresh.login.revoked = True
        access = self.find_access(token)
        if access is not None and access.login.client == client:
            self._access.take(_hash(token))


def _hash(token: str) -> str:
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def _short(scope: str) -> str:
    """Return a scope of Entra without the API it belongs to."""
    return scope.rpartition("/")[2]


def audience_for(
    profile: Profile, known: Sequence[str], *, resources: tuple[str, ...], asked: str, scopes: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the audience of a new token, as a provider decides it; raises OAuthError.

    `known` are the APIs it was told of, `asked` is the parameter `audience`.
    """
    if profile.resource == "audience":
        return resources or tuple(known[:1]) or profile.audience
    if profile.resource == "known":
        return tuple(each for each in resources if each in known) or profile.audience
    if profile.resource == "filter":
        if not resources:
            return tuple(known)
        return tuple(each for each in known if each in resources)
    if profile.resource == "asked":
        if not asked:
            return ()
        if asked not in known:
            raise OAuthError("invalid_target", "the audience is not one of an API we know")
        return (asked,)
    if profile.resource == "scopes":
        return _audience_by_scopes(profile, known, resources, scopes)
    if profile.resource == "configured":
        return tuple(known) or profile.audience
    return profile.audience


def _audience_by_scopes(
    profile: Profile, known: Sequence[str], resources: tuple[str, ...], scopes: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the audience as Entra does: the API whose scopes were asked for."""
    named = set()
    for scope in scopes:
        if scope not in OPENID:
            named.add(scope.rpartition("/")[0])
    if not named <= {f"api://{API}", *known}:
        raise OAuthError(
            "invalid_client", "AADSTS650053: a scope was asked for that doesn't exist on the resource of Graph"
        )
    if any(each not in named for each in resources):
        raise OAuthError(
            "invalid_target", "AADSTS9010010: the resource parameter doesn't match with the requested scopes"
        )
    if named:
        return (API,)
    return profile.audience
