"""What the claims of a token must be, and whom they name. Nothing here reads a clock or a network.

Rule 1: names are compared exactly: an issuer or an audience with another case, a slash more or a prefix is another.
Rule 2: a claim of a wrong type refuses the token; it is never read as if it were absent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ferrule.auth.jose import BadToken
from ferrule.auth.scopes import read_scopes
from ferrule.auth.server.settings import TokenSettings
from ferrule.auth.tenants import TENANT, issued_by, tenant_of
from ferrule.errors import SetupError
from ferrule.identity.principal import Principal

logger = logging.getLogger("ferrule.auth")

LONGEST_NAME = 1024
"""Characters of an issuer, a subject or a client."""
MOST_AUDIENCES = 64
BINDINGS = frozenset({"jkt", "x5t#S256"})
"""What a token may be bound to: a key (RFC 9449 §6.1), a certificate (RFC 8705 §3.1)."""
UNBOUND: Mapping[str, Any] = {}
TIMES = (int, float)
"""The types of a time; a bool is none."""
LATEST = 2**53
"""A time beyond it is no time."""
ONLY_IN_ID_TOKENS = frozenset({"nonce", "at_hash", "c_hash"})
SAYS_KIND = ONLY_IN_ID_TOKENS | {"typ", "token_use"}
"""What may say that a token is no access token."""
RIGHTS = frozenset({"scope", "scp", "permissions", "client_id"})
"""What an access token has and an ID token has not; Entra writes roles into both."""

SCOPE_CLAIMS = ("scope", "scp")
CLIENT_CLAIMS = ("client_id", "azp", "cid", "appid")
"""Where providers write the client: RFC 9068, OpenID Connect, Okta, Entra v1."""


class Profile(Struct, frozen=True):
    """How the tokens of a provider are read."""

    audience_claim: str = "aud"
    scope_claims: tuple[str, ...] = SCOPE_CLAIMS
    required: Mapping[str, str] = {}
    """Claims that must have exactly these values."""
    names_client: bool = False
    """Whether each access token names the client it was issued to, and an ID token does not."""
    several_tenants: bool = False
    """Whether one issuer may stand for all tenants, of which each token names one."""
    warning: str = ""
    """What whoever chooses it should know, logged once."""


STANDARD = Profile()

PROFILES: Mapping[str, Profile] = {
    "auth0": Profile(scope_claims=("scope", "permissions")),
    # An access token of Cognito has no audience, only the client it was issued to.
    "cognito": Profile(audience_claim="client_id", required={"token_use": "access"}),
    # An ID token for the application that is the API has the same audience, and may have the same roles.
    "entra": Profile(scope_claims=("scp", "roles"), names_client=True, several_tenants=True),
    "google": Profile(),
    "keycloak": Profile(required={"typ": "Bearer"}),
    "okta": Profile(scope_claims=("scp",)),
    "supabase": Profile(
        warning="every token of a Supabase project has the audience 'authenticated': any of its applications may call"
    ),
    "workos": Profile(),
}


class ClaimRules:
    """Judges the claims of tokens from one issuer."""

    def __init__(self, issuer: str, settings: TokenSettings) -> None:
        profile = STANDARD
        if settings.provider is not None:
            profile = PROFILES[settings.provider]
        self.issuer = issuer
        """The only `iss`; with `{tenantid}`, one for each tenant."""
        self._has_tenants = TENANT in issuer
        if profile.warning:
            logger.warning("%s", profile.warning)
        self._audiences = _audiences(settings)
        self._audience_claim = settings.audience_claim or profile.audience_claim
        self._scope_claims = profile.scope_claims
        if settings.scope_claims is not None:
            self._scope_claims = tuple(settings.scope_claims)
        self._required = {**profile.required, **(settings.require_claims or {})}
        self._names_client = profile.names_client
        self._tenants = settings.tenants
        self._leeway = settings.leeway
        if self._audience_claim != "aud" and settings.audience is None:
            raise SetupError(f"audience= must name what {self._audience_claim!r} may be: there is no other audience")

    def check(self, claims: Mapping[str, Any], now: float, resource: str) -> None:
        """Raise BadToken for claims that let nobody in; `resource` is the audience where no other was set.

        What most tokens say is found right here; whatever is not plain is left to the check of that claim.
        """
        get = claims.get
        if self._has_tenants:
            self._check_tenant(claims)
        elif get("iss") != self.issuer:
            raise BadToken("the token is of another issuer")
        expires = get("exp")
        # NumericDate may have a fraction; no issuer writes one for exp, and a text is never a time (RFC 7519 §2).
        if type(expires) is not int or not 0 < expires < LATEST:
            raise BadToken("the token does not say when it expires")
        if now >= expires + self._leeway:
            raise BadToken("the token has expired")
        latest = now + self._leeway
        begins = get("nbf")
        if begins is not None:
            _check_begin("nbf", begins, latest)
        issued = get("iat")
        if issued is not None and (type(issued) is not int or not 0 <= issued <= latest):
            _check_begin("iat", issued, latest)
        audience = get(self._audience_claim)
        if not audience or audience != resource or self._audiences:
            self._check_audience(claims, resource)
        if self._required:
            self._check_required(claims)
        subject = get("sub")
        if type(subject) is not str or not 0 < len(subject) <= LONGEST_NAME or not SAYS_KIND.isdisjoint(claims):
            _check_kind(claims)
        if self._names_client and not self.client(claims):
            raise BadToken("the token names no client, so it is not an access token")

    def _check_tenant(self, claims: Mapping[str, Any]) -> None:
        if tenant_of(claims, self._tenants) is None:
            raise BadToken("the token names no tenant that may call")
        if not issued_by(self.issuer, claims):
            raise BadToken("the token is of another issuer")

    def _check_required(self, claims: Mapping[str, Any]) -> None:
        for name, value in self._required.items():
            if claims.get(name) != value:
                raise BadToken(f"the claim {name} is not what it must be")

    def _check_audience(self, claims: Mapping[str, Any], resource: str) -> None:
        said = claims.get(self._audience_claim)
        accepted: Collection[str] = self._audiences or (resource,)
        if type(said) is str:
            is_ours = said != "" and said in accepted
        elif type(said) is list and 0 < len(said) <= MOST_AUDIENCES:
            is_ours = _any_of(said, accepted)
        else:
            raise BadToken("the token does not say for whom it is")
        if not is_ours:
            raise BadToken("the token is for another resource")

    def principal(self, claims: Mapping[str, Any], scopes: frozenset[str], method: str) -> Principal:
        """Return whom checked claims name, with the scopes they have."""
        confirmation = UNBOUND
        if "cnf" in claims:
            confirmation = _confirmation(claims["cnf"])
        audience = claims.get(self._audience_claim)
        if type(audience) is list and len(audience) > 1:
            # Whoever else takes it could show it here.
            logger.info("a token of %s is for %d others beside this server", claims.get("sub"), len(audience) - 1)
        expires = claims.get("exp")
        if expires is not None:
            expires += self._leeway
        client = claims.get("client_id")
        if type(client) is not str or not 0 < len(client) <= LONGEST_NAME:
            client = self.client(claims)
        return Principal(
            issuer=claims["iss"],
            subject=claims.get("sub", ""),
            client=client,
            scopes=scopes,
            expires=expires,
            claims=claims,
            method=method,
            confirmation=confirmation,
        )

    def scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """Return the scopes that claims hold."""
        found: frozenset[str] = frozenset()
        for name in self._scope_claims:
            if name in claims:
                found |= read_scopes(claims[name])
        return found

    def client(self, claims: Mapping[str, Any]) -> str:
        """Return the client that claims name; empty where they name none."""
        for name in CLIENT_CLAIMS:
            found = _name(claims, name)
            if found:
                return found
        return ""


def _audiences(settings: TokenSettings) -> tuple[str, ...]:
    given = settings.audience
    if given is None:
        return ()
    wanted: Sequence[str] = [given] if isinstance(given, str) else list(given)
    if not wanted or not all(wanted):
        raise SetupError("audience= must name at least one audience; there is no way to take tokens for anybody")
    return tuple(wanted)


def _any_of(said: Sequence[object], accepted: Collection[str]) -> bool:
    """Return whether one of the audiences a token names is ours; all must be names."""
    is_ours = False
    for each in said:
        if not isinstance(each, str):
            raise BadToken("the audience of the token is not a string")
        if each and each in accepted:
            is_ours = True
    return is_ours


def _check_begin(name: str, begins: Any, latest: float) -> None:
    """Refuse a token that is not valid yet, by the claim that says since when it is."""
    if type(begins) not in TIMES or not 0 <= begins < LATEST:
        raise BadToken(f"the claim {name} is not a time")
    if begins > latest:
        raise BadToken("the token is not valid yet")


def _confirmation(said: object) -> Mapping[str, Any]:
    """Return what a token is bound to, as its claim `cnf` says."""
    if not isinstance(said, dict):
        raise BadToken("the claim cnf is not an object")
    if said and BINDINGS.isdisjoint(said):
        raise BadToken("the token is bound to something this server cannot check")
    return said


def _check_kind(claims: Mapping[str, Any]) -> None:
    """Refuse what is a token for something else, though its signature and its audience are right."""
    if claims.get("typ") in ("ID", "Refresh") or claims.get("token_use") == "id":
        raise BadToken("the token is not an access token")
    if not ONLY_IN_ID_TOKENS.isdisjoint(claims) and RIGHTS.isdisjoint(claims):
        raise BadToken("the token is an ID token: it says who logged in, not what may be done")
    if not _name(claims, "sub") and not any(_name(claims, name) for name in CLIENT_CLAIMS):
        raise BadToken("the token names neither a subject nor a client")


def _name(claims: Mapping[str, Any], claim: str) -> str:
    found = claims.get(claim, "")
    if type(found) is not str or len(found) > LONGEST_NAME:
        raise BadToken(f"the claim {claim} is not a name")
    return found
