"""A token, and the endpoint that gives one for a grant (RFC 6749 §5, RFC 9449 §5).

Rule: nothing we sent is ever repeated in an error, whoever repeats it to us.
"""

from __future__ import annotations

import math
import secrets
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlsplit

from msgspec import Struct

from ferrule.auth.address import AddressRefused
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.dpop import make_proof
from ferrule.auth.fetch import Fetched, Fetcher, FetchFailed
from ferrule.auth.jose import Key, sign
from ferrule.errors import AuthorizationFailed, quoted

LONGEST_TOKEN = 16 * 1024
LONGEST_LIFE = 10 * 365 * 24 * 3600
EARLY = 60.0
"""How many seconds before its end a token is renewed, at most."""
LATE_PART = 0.2
"""The last part of a short life, in which it is renewed."""
ASSERTION_LIFE = 60
JWT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
DPOP = "DPoP"
BEARER = "Bearer"


class TokenRefused(AuthorizationFailed):
    """An authorization server refused to give a token; `error` is its word for why."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


class TokenUnavailable(AuthorizationFailed):
    """An authorization server could not be asked, or failed itself: another time it may work."""


class Token(Struct, frozen=True):
    """An access token and what renews it; its text shows neither."""

    access: str
    kind: str = BEARER
    expires: float | None = None
    """When it ends, in seconds of the epoch; None where nobody said."""
    renew: float | None = None
    """When it is time to get a newer one."""
    refresh: str = ""
    scopes: tuple[str, ...] = ()
    """What it is for, as far as we know."""

    def __repr__(self) -> str:
        return f"Token({self.kind}, scopes={self.scopes})"

    def is_stale(self, now: float) -> bool:
        """Return whether it is time to renew it."""
        return self.renew is not None and now >= self.renew

    def is_dead(self, now: float) -> bool:
        """Return whether no server would take it."""
        return self.expires is not None and now >= self.expires


class ClientIdentity(Struct, frozen=True):
    """Who we are at an authorization server; its text shows no secret."""

    id: str
    method: str = "none"
    """How we prove it at the token endpoint: `none`, `client_secret_basic`, `client_secret_post`, `private_key_jwt`."""
    secret: str = ""
    redirect_uri: str = ""
    """The only one it was registered with, where we registered it."""
    expires: float = 0.0
    """When the secret ends; 0 for never."""

    def __repr__(self) -> str:
        return f"ClientIdentity({self.method})"


class ProofKey:
    """The key our tokens are bound to, and the nonces servers want in proofs, by origin (RFC 9449 §8, §9)."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self._nonces: dict[str, str] = {}

    def proof(self, method: str, url: str, token: str = "") -> str:
        """Return a proof for one request."""
        nonce = self._nonces.get(_origin(url), "")
        return make_proof(self.key, method, url, now=time.time(), token=token, nonce=nonce)

    def learn(self, url: str, headers: Mapping[str, str]) -> bool:
        """Take the nonce an answer brings. Return whether it is a new one."""
        nonce = headers.get("dpop-nonce", "")
        origin = _origin(url)
        if not nonce or len(nonce) > LONGEST_TOKEN or nonce == self._nonces.get(origin):
            return False
        self._nonces[origin] = nonce
        return True


class TokenEndpoint:
    """The token endpoint of one authorization server, as one client uses it."""

    def __init__(
        self,
        fetcher: Fetcher,
        server: ServerMetadata,
        client: ClientIdentity,
        *,
        signing_key: Key | None = None,
        algorithm: str = "ES256",
        proof_key: ProofKey | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._server = server
        self._client = client
        self._signing_key = signing_key
        self._algorithm = algorithm
        self._proof_key = proof_key

    async def ask(self, fields: Mapping[str, str], wanted: tuple[str, ...] = ()) -> Token:
        """Return a token for a grant; raises AuthorizationFailed. `wanted` are its scopes where nobody says others."""
        document = await self.post(fields)
        return read_token(document, wanted, self._server.issuer, bound=self._proof_key is not None)

    async def post(self, fields: Mapping[str, str], url: str = "") -> dict[str, Any]:
        """Post a grant, or what another endpoint takes. Return the document of an answer that is no error."""
        url = url or self._server.token_endpoint
        if not url:
            raise AuthorizationFailed(f"{self._server.issuer} has no token endpoint")
        answer = await self._post(url, fields)
        if (
            self._proof_key is not None
            and self._proof_key.learn(url, answer.headers)
            and _error(answer) == ("use_dpop_nonce")
        ):
            answer = await self._post(url, fields)
        if answer.status >= 500 or answer.status == 429:
            raise TokenUnavailable(f"{self._server.issuer} answered the request for a token with HTTP {answer.status}")
        try:
            document = answer.document()
        except FetchFailed as reason:
            raise TokenUnavailable(f"the request for a token failed: {reason}") from None
        # Some tell of an error with the status 200.
        if answer.status != 200 or "error" in document:
            raise self._refused(document, answer.status, fields)
        return document

    async def revoke(self, token: str) -> bool:
        """Ask that a token be good for nothing any more (RFC 7009); False where nobody can be asked."""
        url = self._server.revocation_endpoint
        if not url or not token:
            return False
        answer = await self._post(url, {"token": token})
        return answer.status == 200

    async def _post(self, url: str, fields: Mapping[str, str]) -> Fetched:
        headers = {}
        said = dict(fields)
        said.update(self._proven())
        if self._client.method == "client_secret_basic":
            # RFC 6749 §2.3.1: both are form-encoded before they are joined.
            pair = f"{quote_plus(self._client.id)}:{quote_plus(self._client.secret)}"
            headers["authorization"] = "Basic " + b64encode(pair.encode()).decode()
        if self._proof_key is not None:
            headers["dpop"] = self._proof_key.proof("POST", url)
        try:
            return await self._fetcher.post_form(url, said, headers)
        except FetchFailed as reason:
            raise TokenUnavailable(f"the request for a token failed: {reason}") from None
        except AddressRefused as reason:
            raise AuthorizationFailed(f"{self._server.issuer} is not asked: {reason}") from None

    def _proven(self) -> dict[str, str]:
        """Return the fields that say who we are."""
        client = self._client
        if client.method == "client_secret_basic":
            return {}
        if client.method == "client_secret_post":
            return {"client_id": client.id, "client_secret": client.secret}
        if client.method == "private_key_jwt":
            if self._signing_key is None:
                raise AuthorizationFailed(
                    f"the login at {self._server.issuer} was made by a client with a key: give OAuth(key=…) to use it"
                )
            now = int(time.time())
            claims = {
                "iss": client.id,
                "sub": client.id,
                "aud": self._server.issuer,
                "jti": secrets.token_urlsafe(16),
                "iat": now,
                "exp": now + ASSERTION_LIFE,
            }
            assertion = sign({"typ": "JWT"}, claims, self._signing_key, self._algorithm)
            return {"client_id": client.id, "client_assertion_type": JWT_ASSERTION, "client_assertion": assertion}
        return {"client_id": client.id}

    def _refused(self, document: Mapping[str, Any], status: int, fields: Mapping[str, str]) -> TokenRefused:
        error = _word(document.get("error"))
        said = _word(document.get("error_description"))
        for secret in (*fields.values(), self._client.secret):
            if len(secret) > 7:
                said = said.replace(secret, "…")
        why = f" ({quoted(said)})" if said else ""
        return TokenRefused(f"{self._server.issuer} gives no token: {error or f'HTTP {status}'}{why}", error)


def _error(answer: Fetched) -> str:
    try:
        return _word(answer.document().get("error"))
    except FetchFailed:
        return ""


def _word(value: object) -> str:
    """Return what a server says as far as it may be shown."""
    if isinstance(value, str) and value.isprintable():
        return value[:500]
    return ""


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def read_token(document: Mapping[str, Any], wanted: tuple[str, ...], issuer: str, *, bound: bool) -> Token:
    """Read a token from an answer (RFC 6749 §5.1); raises AuthorizationFailed with what is wrong with it."""
    access = _secret(document.get("access_token"))
    if not access:
        raise AuthorizationFailed(f"{issuer} answered without a token that could be sent")
    kind = str(document.get("token_type", "")).lower()
    if kind != (DPOP if bound else BEARER).lower():
        asked = "bound to our key" if bound else "of the type Bearer"
        raise AuthorizationFailed(f"{issuer} gave a token that is not {asked}")
    scopes = wanted
    if isinstance(document.get("scope"), str):
        scopes = tuple(document["scope"].split())
    refresh = _secret(document.get("refresh_token"))
    life = _lifetime(document.get("expires_in"))
    if life is None:
        return Token(access, DPOP if bound else BEARER, refresh=refresh, scopes=scopes)
    now = time.time()
    renew = now + life - min(EARLY, life * LATE_PART)
    return Token(access, DPOP if bound else BEARER, now + life, renew, refresh, scopes)


def _secret(value: object) -> str:
    """Return a token that can stand in a header, or nothing."""
    if not isinstance(value, str) or len(value) > LONGEST_TOKEN or not all("!" <= c <= "~" for c in value):
        return ""
    return value


def _lifetime(value: object) -> float | None:
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(seconds) or seconds <= 0:
        return None
    return min(seconds, LONGEST_LIFE)
