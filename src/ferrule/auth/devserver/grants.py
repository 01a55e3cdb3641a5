"""The token endpoint: what each kind of grant is worth (OAuth 2.1 §4, RFC 7523, RFC 8693, RFC 9449)."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ferrule.auth.devserver.assertions import Assertions
from ferrule.auth.devserver.authorize import Authorization
from ferrule.auth.devserver.clients import DEVICE_CODE, RegisteredClient
from ferrule.auth.devserver.device import DeviceAuthorization
from ferrule.auth.devserver.parameters import OAuthError, Parameters, within
from ferrule.auth.devserver.profile import Issuer
from ferrule.auth.devserver.tokens import Login, Tokens, audience_for
from ferrule.auth.jose import BadToken, Key, read_header, read_part

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
KINDS = "urn:ietf:params:oauth:token-type:"
"""How the name of a kind of token begins (RFC 8693 §3)."""
ID_JAG = f"{KINDS}id-jag"
ID_JAG_TYPE = "oauth-id-jag+jwt"
"""The `typ` of an identity assertion (draft-ietf-oauth-identity-assertion-authz-grant §3)."""
ID_JAG_LIFETIME = 300.0

Trusted = Mapping[str, Sequence[Key]]
"""Whose assertions are taken: the keys of each issuer."""


class Asking(Struct, frozen=True):
    """One request at the token endpoint, from a client we are sure of."""

    client: RegisteredClient
    parameters: Parameters
    thumbprint: str
    """Of the DPoP key; empty without a proof."""


class Grants:
    """The token endpoint of one server."""

    def __init__(
        self,
        issuer: Issuer,
        tokens: Tokens,
        authorization: Authorization,
        devices: DeviceAuthorization,
        *,
        trusted: Trusted,
    ) -> None:
        self._profile = issuer.profile
        self._tokens = tokens
        self._authorization = authorization
        self._devices = devices
        self._issuer = issuer.name
        self._audiences = issuer.audiences
        self._scopes = frozenset(issuer.scopes)
        self._trusted = trusted
        self._clock = issuer.clock
        self._assertions = Assertions(issuer.clock)
        self._kinds: dict[str, Callable[[Asking], Awaitable[dict[str, Any]]]] = {
            "authorization_code": self._code,
            DEVICE_CODE: self._device,
            "refresh_token": self._refresh,
            "client_credentials": self._client_credentials,
            JWT_BEARER: self._jwt_bearer,
            EXCHANGE: self._token_exchange,
        }

    async def answer(self, asking: Asking) -> dict[str, Any]:
        """Return the answer to a request; raises OAuthError."""
        kind = asking.parameters.require("grant_type")
        handle = self._kinds.get(kind)
        if handle is None:
            raise OAuthError("unsupported_grant_type", f"grant_type is one of {', '.join(self._kinds)}")
        if kind not in asking.client.grants:
            raise OAuthError("unauthorized_client", "this client did not register for this grant_type")
        return await handle(asking)

    async def _code(self, asking: Asking) -> dict[str, Any]:
        parameters = asking.parameters
        login = self._authorization.redeem(
            parameters.require("code"),
            asking.client,
            parameters.get("redirect_uri"),
            parameters.get("code_verifier"),
            asking.thumbprint,
        )
        return self._issued_to_user(asking, login)

    async def _device(self, asking: Asking) -> dict[str, Any]:
        login = self._devices.redeem(asking.parameters.require("device_code"), asking.client)
        return self._issued_to_user(asking, login)

    def _issued_to_user(self, asking: Asking, login: Login) -> dict[str, Any]:
        """Return the tokens of a user who has signed in."""
        self._check_resources(asking.parameters, login)
        login.thumbprint = asking.thumbprint
        answer = self._issued(login, login.scopes)
        if login.refreshes:
            answer["refresh_token"] = self._tokens.issue_refresh(login)
        if "openid" in login.scopes:
            answer["id_token"] = self._tokens.id_token(login)
        return answer

    async def _refresh(self, asking: Asking) -> dict[str, Any]:
        parameters = asking.parameters
        found = self._tokens.find_refresh(parameters.require("refresh_token"))
        if found is None or found.login.client != asking.client.id:
            raise OAuthError("invalid_grant", "there is no such refresh token, or it has expired")
        login = found.login
        if asking.client.auth_method != "none":
            # RFC 9449 §5: the credentials of a client bind its refresh tokens already.
            login.thumbprint = asking.thumbprint
        elif login.thumbprint != asking.thumbprint:
            raise OAuthError("invalid_grant", "the refresh token is bound to another DPoP key (RFC 9449 section 5)")
        scopes = parameters.scopes() or login.scopes
        if not within(scopes, login.scopes):
            raise OAuthError("invalid_scope", "more is asked for than was granted")
        self._check_resources(parameters, login)
        following = self._tokens.refresh(found)
        answer = self._issued(login, scopes)
        if following:
            answer["refresh_token"] = following
        return answer

    async def _client_credentials(self, asking: Asking) -> dict[str, Any]:
        if asking.client.auth_method == "none":
            raise OAuthError("unauthorized_client", "a client without credentials cannot act for itself")
        return self._issued_for(asking, subject="")

    async def _jwt_bearer(self, asking: Asking) -> dict[str, Any]:
        assertion = asking.parameters.require("assertion")
        claims = self._check_assertion(assertion)
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise OAuthError("invalid_grant", "the assertion names no subject")
        # draft-ietf-oauth-identity-assertion-authz-grant §4.4.1: it is of the client that shows it.
        named = claims.get("client_id", "")
        if read_header(assertion).get("typ") == ID_JAG_TYPE and named != asking.client.id:
            raise OAuthError("invalid_grant", "the assertion was issued to another client")
        return self._issued_for(asking, subject=subject, asserted=claims)

    def _check_assertion(self, assertion: str) -> dict[str, Any]:
        try:
            issuer = str(read_part(assertion.split(".")[1]).get("iss", ""))
            keys = self._trusted.get(issuer, ())
            return self._assertions.check(assertion, keys, issuer=issuer, audience=[self._issuer()])
        except IndexError:
            raise OAuthError("invalid_grant", "the assertion is not a JWT") from None
        except BadToken as reason:
            raise OAuthError("invalid_grant", str(reason)) from None

    async def _token_exchange(self, asking: Asking) -> dict[str, Any]:
        parameters = asking.parameters
        subject = self._subject(asking)
        wanted = parameters.get("requested_token_type") or f"{KINDS}access_token"
        if wanted == ID_JAG:
            return self._identity_assertion(asking, subject)
        if wanted not in (f"{KINDS}access_token", f"{KINDS}jwt"):
            raise OAuthError("invalid_request", "requested_token_type is an access token or an identity assertion")
        answer = self._issued_for(asking, subject=subject)
        answer["issued_token_type"] = f"{KINDS}access_token"
        return answer

    def _subject(self, asking: Asking) -> str:
        """Return whom the subject token names; it is one of ours, or of somebody we trust."""
        token = asking.parameters.require("subject_token")
        kind = asking.parameters.require("subject_token_type")
        if kind == f"{KINDS}access_token":
            if asking.client.auth_method == "none":
                raise OAuthError("unauthorized_client", "a client without credentials exchanges no access tokens")
            found = self._tokens.find_access(token)
            if found is None:
                raise OAuthError("invalid_request", "the subject token is not good")
            return found.login.subject or found.login.client
        if kind not in (f"{KINDS}id_token", f"{KINDS}jwt"):
            raise OAuthError("invalid_request", "subject_token_type is access_token, id_token or jwt")
        # An ID token is for the client that shows it, any other assertion is for us.
        audience = asking.client.id if kind == f"{KINDS}id_token" else self._issuer()
        try:
            issuer = str(read_part(token.split(".")[1]).get("iss", ""))
            keys = self._tokens.keys if issuer == self._issuer() else self._trusted.get(issuer, ())
            checked = self._assertions.check(token, keys, issuer=issuer, audience=[audience], once=False)
        except (BadToken, IndexError):
            raise OAuthError("invalid_request", "the subject token is not good") from None
        return str(checked.get("sub", ""))

    def _identity_assertion(self, asking: Asking, subject: str) -> dict[str, Any]:
        """Return an identity assertion for another authorization server (ID-JAG)."""
        parameters = asking.parameters
        now = int(self._clock())
        resources = parameters.checked_resources()
        audience = parameters.require("audience")
        claims: dict[str, Any] = {
            "iss": self._issuer(),
            "sub": subject,
            "aud": audience,
            "client_id": asking.client.elsewhere.get(audience, asking.client.id),
            "jti": secrets.token_urlsafe(12),
            "iat": now,
            "exp": int(now + ID_JAG_LIFETIME),
        }
        if resources:
            claims["resource"] = resources[0]
        if parameters.get("scope"):
            claims["scope"] = " ".join(parameters.scopes())
        return {
            "issued_token_type": ID_JAG,
            "access_token": self._tokens.sign(claims, ID_JAG_TYPE),
            "token_type": "N_A",
            "expires_in": int(ID_JAG_LIFETIME),
        }

    # -- answers

    def _issued_for(self, asking: Asking, *, subject: str, asserted: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return an access token without a refresh token: the client can ask again as it has asked now."""
        parameters = asking.parameters
        scopes = parameters.scopes()
        resources = parameters.checked_resources()
        said = (asserted or {}).get("resource")
        if not resources and isinstance(said, str):
            resources = (said,)
        if self._scopes and not set(scopes) <= self._scopes:
            raise OAuthError("invalid_scope", "there is no such scope")
        login = Login(
            client=asking.client.id,
            subject=subject,
            scopes=scopes,
            resources=resources,
            audience=audience_for(
                self._profile, self._audiences, resources=resources, asked=parameters.get("audience"), scopes=scopes
            ),
            signed_in=self._clock(),
            thumbprint=asking.thumbprint,
        )
        return self._issued(login, scopes)

    def _issued(self, login: Login, scopes: Sequence[str]) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "access_token": self._tokens.issue(login, scopes),
            "token_type": "DPoP" if login.thumbprint else "Bearer",
        }
        if self._profile.expires:
            answer["expires_in"] = int(self._tokens.access_lifetime)
        if scopes:
            answer["scope"] = self._profile.scope_separator.join(scopes)
        return answer

    def _check_resources(self, parameters: Parameters, login: Login) -> None:
        """Refuse a resource that was not asked for when the user signed in (RFC 8707 §2.2)."""
        if self._profile.resource in ("nothing", "configured", "asked"):
            return
        if not within(parameters.checked_resources(), login.resources):
            raise OAuthError("invalid_target", "the resource is another than that of the authorization request")
