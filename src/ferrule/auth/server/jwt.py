"""Tokens that say themselves who their bearer is, signed by an issuer (RFC 7519, RFC 9068)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from ferrule.auth.address import AddressRules, is_loopback_name
from ferrule.auth.fetch import Fetcher
from ferrule.auth.jose import (
    ASYMMETRIC,
    SYMMETRIC,
    BadToken,
    Key,
    read_part,
    secret_key,
    split_token,
    verify_signature,
)
from ferrule.auth.server.claims import ClaimRules
from ferrule.auth.server.keys import (
    FETCH_TIMEOUT,
    MAX_SIZE,
    FetchedKeys,
    FixedKeys,
    KeySet,
    KeysUnavailable,
    read_keys,
)
from ferrule.auth.server.settings import TokenSettings
from ferrule.auth.server.token_cache import KnownToken
from ferrule.auth.server.token_verifier import CannotCheck, TokenVerifier
from ferrule.errors import SetupError
from ferrule.settings.option import read

if TYPE_CHECKING:
    from ferrule.auth.server.keywords import TokenKeywords

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
TYPES = ("at+jwt", "application/at+jwt", "jwt", "")
"""What the header may call a token, in any case; RFC 9068 §2.1, and what providers wrote before it."""
LONGEST_KEY_ID = 256
MOST_HEADERS = 256
SHORTEST_SECRET = 32
"""Bytes of a secret that signs (RFC 7518 §3.2)."""


class Keys(Protocol):
    """Where keys come from."""

    def find(self, identity: str, algorithm: str) -> Key | None:
        """Return a key that is known; raises KeysUnavailable."""

    def may_look(self) -> bool:
        """Return whether `look` can bring keys that are not there now."""

    async def look(self) -> None:
        """Fetch keys; raises KeysUnavailable."""

    async def start(self) -> None:
        """Get ready."""

    async def close(self) -> None:
        """Release what `start` took."""


class SignedTokens(TokenVerifier):
    """Lets in who shows a signed token of one issuer."""

    def __init__(
        self,
        issuer: str,
        settings: TokenSettings,
        *,
        algorithms: Collection[str] = ALGORITHMS,
        issuers: Collection[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not issuer:
            raise SetupError("issuer= must name who signs the tokens, exactly as `iss` says it")
        shown = [issuer] if issuers is None else issuers
        super().__init__(settings, issuers=shown, clock=clock)
        self.rules = ClaimRules(issuer, settings)
        self._algorithms = frozenset(algorithms)
        self._headers: dict[str, tuple[str, str]] = {}
        """The algorithm and the key of headers that are taken, as they are written: an issuer repeats a few."""
        self.keys: Keys

    async def start(self) -> None:
        """Begin to fetch the keys, in the background."""
        await self.keys.start()

    async def close(self) -> None:
        """End what runs."""
        await super().close()
        await self.keys.close()

    def _dropped(self, left: frozenset[str]) -> None:
        """Forget the tokens whose keys the issuer has withdrawn."""
        self.cache.forget_where(lambda known: known.key not in left)

    def check(self, token: str, now: float, resource: str) -> Any:
        """Return what a token says; its signature is checked last, for that costs most."""
        header, payload, _ = split_token(token)
        algorithm, identity = self._headers.get(header) or self._read_header(header)
        claims = read_part(payload)
        self.rules.check(claims, now, resource)
        try:
            key = self.keys.find(identity, algorithm)
        except KeysUnavailable as reason:
            raise CannotCheck(str(reason)) from None
        if key is not None:
            verify_signature(token, key, algorithm)
            return self._known(key, claims, now)
        if not self.keys.may_look():
            raise BadToken("the token is signed with a key nobody knows")
        return self._check_later(token, algorithm, identity, claims)

    async def _check_later(self, token: str, algorithm: str, identity: str, claims: Mapping[str, Any]) -> KnownToken:
        try:
            await self.keys.look()
            key = self.keys.find(identity, algorithm)
        except KeysUnavailable as reason:
            raise CannotCheck(str(reason)) from None
        if key is None:
            raise BadToken("the token is signed with a key nobody knows")
        verify_signature(token, key, algorithm)
        return self._known(key, claims, self.clock())

    def _known(self, key: Key, claims: Mapping[str, Any], now: float) -> KnownToken:
        """Return what a token says whose signature is right."""
        scopes = self.rules.scopes(claims)
        if scopes:
            scopes = self.resource.hierarchy.expand(scopes)
        principal = self.rules.principal(claims, scopes, "jwt")
        until = now + self.keep_good
        expires = principal.expires
        if expires is not None and expires < until:
            until = expires
        return KnownToken(principal, until, key.digest)

    def _read_header(self, written: str) -> tuple[str, str]:
        found = self._check_header(read_part(written))
        if len(self._headers) >= MOST_HEADERS:
            self._headers.clear()
        self._headers[written] = found
        return found

    def _check_header(self, header: Mapping[str, Any]) -> tuple[str, str]:
        """Return the algorithm and the key a header names; raises BadToken. What else it names is not followed."""
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise BadToken("the token is signed with an algorithm that is not taken")
        if "crit" in header or "b64" in header or "zip" in header or "enc" in header:
            raise BadToken("the token uses an extension that is not taken")
        kind = header.get("typ", "")
        if not isinstance(kind, str) or kind.lower() not in TYPES:
            raise BadToken("the token is of another type")
        identity = header.get("kid", "")
        if not isinstance(identity, str) or len(identity) > LONGEST_KEY_ID:
            raise BadToken("the token names its key in a way that is not taken")
        return algorithm, identity


class JWT(SignedTokens):
    """Lets in who shows a token of an issuer whose keys are known: a URL, a key set, or a shared secret."""

    def __init__(
        self,
        issuer: str,
        *,
        jwks: str | Mapping[str, Any] | None = None,
        secret: str | bytes | None = None,
        algorithms: Collection[str] | None = None,
        clock: Callable[[], float] = time.time,
        **options: Unpack[TokenKeywords],
    ) -> None:
        settings = read(TokenSettings, options, "JWT")
        if (jwks is None) == (secret is None):
            raise SetupError("JWT: give jwks= (a URL or a key set), or secret=, and not both")
        chosen = require_algorithms(algorithms, symmetric=secret is not None)
        super().__init__(issuer, settings, algorithms=chosen, clock=clock)
        if secret is not None:
            self.keys = FixedKeys(KeySet([secret_key(_secret(secret))]))
        elif isinstance(jwks, str):
            self.keys = FetchedKeys(_at(jwks), fetcher_for(jwks, settings), on_dropped=self._dropped)
        else:
            assert jwks is not None
            self.keys = FixedKeys(_given(jwks))


def fetcher_for(url: str, settings: TokenSettings) -> Fetcher:
    """Return what fetches a URL that an option names, and what it leads to.

    Nothing is fetched from this machine unless the URL itself names it.
    """
    _, _, rest = url.partition("://")
    authority, _, _ = rest.partition("/")
    _, _, name = authority.rpartition("@")
    host, _, port = name.rpartition(":")
    if port.isdigit():
        name = host
    rules = AddressRules(loopback=is_loopback_name(name.strip("[]")), private=settings.allow_private)
    return Fetcher(rules, timeout=FETCH_TIMEOUT, max_size=MAX_SIZE)


def _at(url: str) -> Callable[[], Any]:
    async def locate() -> str:
        return url

    return locate


def _given(jwks: Mapping[str, Any]) -> KeySet:
    try:
        return read_keys(jwks)
    except BadToken as reason:
        raise SetupError(f"jwks: {reason}") from None


def _secret(secret: str | bytes) -> bytes:
    raw = secret.encode() if isinstance(secret, str) else secret
    if len(raw) < SHORTEST_SECRET:
        raise SetupError(f"secret= must have at least {SHORTEST_SECRET} bytes: a shorter one can be guessed")
    return raw


def require_algorithms(given: Collection[str] | None, *, symmetric: bool) -> Collection[str]:
    """Return the algorithms to take: of keys that are published, or of a secret, and never of both."""
    allowed = SYMMETRIC if symmetric else ASYMMETRIC
    if given is None:
        return SYMMETRIC[:1] if symmetric else ALGORITHMS
    wrong = [each for each in given if each not in allowed]
    if wrong or not given or isinstance(given, str):
        raise SetupError(f"algorithms= must be some of {', '.join(allowed)}, not {given!r}")
    return given
