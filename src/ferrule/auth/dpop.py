"""DPoP (RFC 9449): proofs that whoever sends a token has the key it was issued to.

Clients make a proof for every request; servers check it. Nothing here reads a clock: the time is given.

Rule 1: a proof is for one request: its method, its URL, its token; and it counts once.
Rule 2: what is remembered of proofs is bounded, and full means no: a proof that could be a replay is refused.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from ferrule.auth.jose import ASYMMETRIC, BadToken, Key, read_header, read_key, read_object, sign, verify
from ferrule.errors import StoreUnavailable
from ferrule.identity.verifier import UsedOnce

logger = logging.getLogger("ferrule.auth")

TYPE = "dpop+jwt"
ALGORITHMS = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256")
MAX_AGE = 60.0
"""How many seconds the time of a proof may differ from ours."""
LONGEST_PROOF = 8 * 1024
LONGEST_ID = 256
"""Characters of a proof's `jti`."""
MOST_SEEN = 100_000
NONCE_PERIOD = 300.0
"""For how many seconds a nonce is the newest; it counts for as long again."""
PORTS = {"https": 443, "http": 80}
TIMES = (int, float)
"""The types of a time; a bool is none."""
LATEST = 2**53
"""A time beyond it is no time."""

CLOCKS_DIFFER = 60.0
"""Seconds by which the clock of another process may be behind ours: for so much longer a proof may count there."""
PATIENCE = 1.0
"""Seconds that noting a proof may take."""
USED_BEFORE = "the DPoP proof was used before"
NONCE_PURPOSE = b"ferrule dpop nonce"

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class BadProof(BadToken):
    """A proof is not what it must be; the text never holds any of it."""


class NonceNeeded(BadProof):
    """The proof is right except for its nonce: the client gets one and tries again (RFC 9449 §9)."""


# -- clients


def make_proof(
    key: Key, method: str, url: str, *, now: float, token: str = "", nonce: str = "", algorithm: str = "ES256"
) -> str:
    """Return a proof for one request, and for the access token it is sent with, if any (RFC 9449 §4.2)."""
    claims: dict[str, Any] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": url.partition("#")[0].partition("?")[0],
        "iat": int(now),
    }
    if token:
        claims["ath"] = token_hash(token)
    if nonce:
        claims["nonce"] = nonce
    public = {}
    for name, value in key.public().items():
        if name in ("kty", "crv", "x", "y", "n", "e"):
            public[name] = value
    return sign({"typ": TYPE, "jwk": public}, claims, key, algorithm)


def token_hash(token: str) -> str:
    """Return what a proof says of its access token: `ath`."""
    return urlsafe_b64encode(sha256(token.encode("ascii", "replace")).digest()).rstrip(b"=").decode()


# -- servers


class Proof(Struct, frozen=True):
    """What is left of a proof that was found right."""

    thumbprint: str
    """That of the key that made it."""
    digest: bytes
    """What stands for its key and its `jti`."""
    until: float
    """When it is too old to count."""


class ProofLog(Protocol):
    """Remembers which proofs were used."""

    def add(self, proof: bytes, until: float, now: float) -> bool:
        """Note a proof until a time. Return False where it was noted before, or cannot be."""


class SeenProofs:
    """The proofs used at this process, each until it is too old to count anyway."""

    def __init__(self, most: int = MOST_SEEN) -> None:
        self._most = most
        self._until: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, proof: bytes, until: float, now: float) -> bool:
        """Note a proof until a time. Return False where it was noted before, or there is no room."""
        seen = self._until
        if proof in seen and seen[proof] > now:
            return False
        if len(seen) >= self._most:
            self._sweep(now)
        if len(seen) >= self._most:
            return False
        seen.pop(proof, None)
        seen[proof] = until
        return True

    def _sweep(self, now: float) -> None:
        """Forget what has ended; where that is little, only a few of the oldest are looked at each time."""
        ended = []
        for at, (proof, until) in enumerate(self._until.items()):
            if until <= now:
                ended.append(proof)
            elif at >= 64:
                break
        for proof in ended:
            del self._until[proof]


class Nonces:
    """Makes nonces that need no store: each is the keyed hash of when it was made."""

    def __init__(self, secret: bytes | None = None, period: float = NONCE_PERIOD) -> None:
        self._secrets = [secret or secrets.token_bytes(32)]
        self._period = period

    def share(self, keys: Sequence[bytes | str]) -> None:
        """Make nonces of keys that other processes have too: the first makes them, all take them."""
        shared = []
        for key in keys:
            raw = key.encode() if isinstance(key, str) else bytes(key)
            shared.append(hmac.digest(raw, NONCE_PURPOSE, "sha256"))
        self._secrets = shared or self._secrets

    def newest(self, now: float) -> str:
        """Return the nonce to send with answers now."""
        return self._of(int(now / self._period), self._secrets[0])

    def is_valid(self, nonce: str, now: float) -> bool:
        """Return whether a nonce is the newest or the one before."""
        period = int(now / self._period)
        given = nonce.encode("utf-8", "replace")
        found = False
        for secret in self._secrets:
            for made in (period, period - 1):
                if hmac.compare_digest(given, self._of(made, secret).encode()):
                    found = True
        return found

    @property
    def lifetime(self) -> float:
        """For how many seconds a nonce counts, at most."""
        return 2 * self._period

    def _of(self, period: int, secret: bytes) -> str:
        made = hmac.digest(secret, period.to_bytes(8, "big", signed=True), "sha256")
        return urlsafe_b64encode(made[:18]).decode()


class ProofChecker:
    """Checks proofs (RFC 9449 §4.3)."""

    def __init__(
        self,
        *,
        algorithms: Sequence[str] = ALGORITHMS,
        max_age: float = MAX_AGE,
        seen: ProofLog | None = None,
        nonces: Nonces | None = None,
    ) -> None:
        for algorithm in algorithms:
            if algorithm not in ASYMMETRIC:
                raise BadProof(f"{algorithm} cannot sign proofs: its keys cannot be shown")
        self.algorithms = tuple(algorithms)
        self.nonces = nonces
        """Where they are asked for; then a proof is as fresh as its nonce."""
        self._max_age = max_age
        self._seen = SeenProofs() if seen is None else seen

    def check(self, proof: str, *, method: str, url: str, now: float, token: str = "") -> str:
        """Return the thumbprint of the key that made a proof for a request; raises BadProof.

        `url` is where the request went, as the client sees it; `token` is the access token that came with it.
        """
        return self.examine(proof, method=method, url=url, now=now, token=token).thumbprint

    def examine(self, proof: str, *, method: str, url: str, now: float, token: str = "") -> Proof:
        """Return what is to be known of a proof for a request, as `check` does; raises BadProof."""
        if len(proof) > LONGEST_PROOF or proof.count(".") != 2 or not proof.isascii():
            raise BadProof("the DPoP proof is not a signed JWT, or comes twice")
        header = read_header(proof)
        algorithm = header.get("alg")
        if header.get("typ") != TYPE or algorithm not in self.algorithms or "crit" in header:
            raise BadProof("the DPoP proof has a wrong type or algorithm")
        document = header.get("jwk")
        if not isinstance(document, dict):
            raise BadProof("the DPoP proof holds no key")
        key = read_key(document)
        claims = read_object(verify(proof, key, str(algorithm)))
        self._check_request(claims, method, url, token)
        until = self._check_time(claims, now)
        thumbprint = key.thumbprint()
        examined = Proof(thumbprint, _digest(thumbprint, _identity(claims)), until)
        if not self._seen.add(examined.digest, until, now):
            raise BadProof(USED_BEFORE)
        return examined

    def _check_request(self, claims: dict[str, Any], method: str, url: str, token: str) -> None:
        if claims.get("htm") != method:
            raise BadProof("the DPoP proof is for another method")
        target = claims.get("htu")
        if not isinstance(target, str) or normal_url(target) != normal_url(url):
            raise BadProof("the DPoP proof is for another URL")
        if token:
            said = claims.get("ath")
            right = token_hash(token).encode()
            if not isinstance(said, str) or not hmac.compare_digest(said.encode("utf-8", "replace"), right):
                raise BadProof("the DPoP proof is for another token")

    def _check_time(self, claims: dict[str, Any], now: float) -> float:
        """Return until when a proof counts."""
        made: Any = claims.get("iat")
        # A number beyond all times is none, and too large to reckon with.
        if type(made) not in TIMES or not 0 <= made < LATEST:
            raise BadProof("the DPoP proof does not say when it was made")
        nonce = claims.get("nonce")
        if self.nonces is None:
            if abs(now - made) > self._max_age:
                raise BadProof("the DPoP proof is too old, or a clock is wrong")
            return float(made) + self._max_age + 1.0
        if not isinstance(nonce, str) or not self.nonces.is_valid(nonce, now):
            raise NonceNeeded("the DPoP proof needs the server's nonce")
        # A nonce of ours tells when the proof was made better than the client's clock (RFC 9449 §11.1).
        return now + self.nonces.lifetime


class ClusterProofs:
    """The proofs that were used at any of several processes, each of which has looked into its own memory before.

    While the others cannot be asked, that is all there is: a proof counts once in each process then. That is logged
    when it begins and when it ends.
    """

    def __init__(self, seen: UsedOnce) -> None:
        self._seen = seen
        self._alone = False
        """Whether the others could not be asked the last time."""

    async def add(self, proof: Proof, now: float) -> bool:
        """Note a proof. Return False where another process did before; raises Busy where no more can be noted."""
        try:
            async with asyncio.timeout(PATIENCE):
                first = await self._seen.add(f"dpop:{proof.digest.hex()}", proof.until - now + CLOCKS_DIFFER)
        except (StoreUnavailable, TimeoutError) as reason:
            if not self._alone:
                self._alone = True
                logger.warning(
                    "proofs of possession count once in each process, until the store is back: %s",
                    reason or "no answer",
                )
            return True
        if self._alone:
            self._alone = False
            logger.warning("proofs of possession count once over all processes again")
        return first


def _identity(claims: dict[str, Any]) -> str:
    found = claims.get("jti")
    if not isinstance(found, str) or not 0 < len(found) <= LONGEST_ID:
        raise BadProof("the DPoP proof has no id")
    return found


def _digest(thumbprint: str, identity: str) -> bytes:
    return sha256(f"{thumbprint}\n{identity}".encode("utf-8", "surrogatepass")).digest()[:16]


def normal_url(url: str) -> str:
    """Return a URL without query and fragment, in the one form that compares (RFC 3986 §6.2.2 and §6.2.3)."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    scheme = parts.scheme.lower()
    # A WebSocket begins with a request of HTTP.
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    host = (parts.hostname or "").lower()
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != PORTS.get(scheme):
        host = f"{host}:{port}"
    path = _ESCAPE.sub(_unescaped, parts.path) or "/"
    return f"{scheme}://{host}{path}"


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    if character in _UNRESERVED:
        return character
    return escape[0].upper()
