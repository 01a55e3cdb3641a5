"""What differs between providers: where they are asked, with which parameters, and how they say whose a token is.

A profile is data. A provider that is not here is described by a `Profile` of your own, or found by its issuer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct, structs

from ferrule.auth.address import is_loopback_name
from ferrule.auth.tenants import template_of
from ferrule.errors import SetupError

TENANT = "{tenant}"

Identity = Literal["document", "tokeninfo", "id_token"]
"""How a provider says whose a token is: a document it shows to the bearer, a page that tells about the token in its
query, or the ID token that comes with it."""


class Profile(Struct, frozen=True):
    """One provider."""

    title: str
    """As people know it; shown on the consent page."""
    authorize: str
    token: str
    identity: Identity = "id_token"
    identity_url: str = ""
    """The document, or the page that tells about a token."""
    subject: tuple[str, ...] = ("sub",)
    """The claims that name a user for ever, together."""
    name: str = "name"
    """The claim that names a user to people."""
    audience: str = ""
    """The claim that must be our client id, in what tells about a token."""
    issuer: str = ""
    """Its `iss`, exactly; empty where it has none."""
    scopes: tuple[str, ...] = ()
    """Scopes that are asked for whatever the client asks for."""
    without: tuple[str, ...] = ()
    """Scopes it does not know, which are left out."""
    parameters: Mapping[str, str] = {}
    """More parameters of the authorization request."""
    client_auth: Literal["post", "basic"] = "post"
    repeats_scope: bool = False
    """Whether a refresh must name the scopes again."""
    checked_by_use: bool = False
    """Whether a token that does not expire must be shown to the provider to see whether it is still good."""

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, as a double does."""
        return is_loopback_name(urlsplit(self.token).hostname or "")


PROFILES: Mapping[str, Profile] = {
    "github": Profile(
        "GitHub",
        "https://github.com/login/oauth/authorize",
        "https://github.com/login/oauth/access_token",
        identity="document",
        identity_url="https://api.github.com/user",
        subject=("id",),
        name="login",
        without=("offline_access", "openid"),
        checked_by_use=True,
    ),
    "google": Profile(
        "Google",
        "https://accounts.google.com/o/oauth2/v2/auth",
        "https://oauth2.googleapis.com/token",
        identity="tokeninfo",
        identity_url="https://oauth2.googleapis.com/tokeninfo",
        name="email",
        audience="aud",
        issuer="https://accounts.google.com",
        scopes=("openid",),
        without=("offline_access",),
        # Without both there is no refresh token, or only one for the first login.
        parameters={"access_type": "offline", "prompt": "consent"},
    ),
    "entra": Profile(
        "Microsoft",
        "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/authorize",
        "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token",
        # `sub` differs from application to application; `oid` within a tenant does not.
        subject=("tid", "oid"),
        name="preferred_username",
        issuer="https://login.microsoftonline.com/{tenant}/v2.0",
        scopes=("openid", "offline_access"),
        repeats_scope=True,
    ),
    "cognito": Profile(
        "Amazon Cognito",
        "https://{tenant}/oauth2/authorize",
        "https://{tenant}/oauth2/token",
        identity="document",
        identity_url="https://{tenant}/oauth2/userInfo",
        name="username",
        scopes=("openid",),
        without=("offline_access",),
        client_auth="basic",
    ),
    "slack": Profile(
        "Slack",
        "https://slack.com/oauth/v2_user/authorize",
        "https://slack.com/api/oauth.v2.user.access",
        identity="document",
        identity_url="https://slack.com/api/auth.test",
        subject=("team_id", "user_id"),
        name="user",
        without=("offline_access", "openid"),
        checked_by_use=True,
    ),
}


def profile_of(given: str | Profile, tenant: str = "") -> Profile:
    """Return a profile by its name, with the tenant in its addresses; raises SetupError where there is none."""
    if isinstance(given, Profile):
        profile = given
    else:
        found = PROFILES.get(given)
        if found is None:
            names = ", ".join(PROFILES)
            raise SetupError(f"OAuthProxy: upstream must be one of {names}, or a Profile, not {given!r}")
        profile = found
    if TENANT in profile.token and not _is_tenant(tenant):
        raise SetupError(f"OAuthProxy: {profile.title} needs tenant=, its tenant or domain, as in its addresses")
    filled = {}
    for field in ("authorize", "token", "identity_url", "issuer"):
        url = getattr(profile, field).replace(TENANT, tenant)
        if field == "issuer" and TENANT in profile.issuer:
            # With a tenant that stands for all, each ID token names its own.
            url = template_of(url)
        if url and not _is_secure(url):
            raise SetupError(f"OAuthProxy: the {field} of {profile.title} must be an https:// URL")
        filled[field] = url
    return structs.replace(profile, **filled)


def _is_tenant(tenant: str) -> bool:
    return bool(tenant) and tenant.isascii() and tenant.replace("-", "").replace(".", "").isalnum()


def _is_secure(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback_name(parts.hostname or ""))
