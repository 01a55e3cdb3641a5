"""JSON Web Tokens and Keys: the only module that knows the library joserfc (extra `auth`).

Rule 1: an algorithm is always named by us. What a token says of itself only has to agree.
Rule 2: keys are public unless we made or loaded them to sign with.
Rule 3: joserfc reads keys and signs; `cryptography` verifies, with what was made of a key once (decision 056).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field

from ferrule.budgets.bounds import MAX_NESTING
from ferrule.budgets.weight import nests_too_deep
from ferrule.errors import FerruleError, SetupError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import HashAlgorithm
    from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

    JoseKey = RSAKey | ECKey | OKPKey | OctKey

ASYMMETRIC = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519", "RS384", "RS512", "PS384", "PS512", "ES384", "ES512")
"""The algorithms of signatures whose keys can be published."""
SYMMETRIC = ("HS256", "HS384", "HS512")
"""The algorithms of signatures whose keys are secrets that two share."""
SMALLEST_RSA = 2048
LARGEST_RSA = 8192
LARGEST_EXPONENT = 2**32
"""Of an RSA key: a longer one makes each verification as dear as its maker likes. Keys in use have 65537."""
KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP", "HS": "oct"}
"""Which kind of key an algorithm needs, by how its name begins."""
CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519", "Ed25519": "Ed25519"}

_P = 2**255 - 19
SMALL_ORDER = frozenset(
    {
        *(0, 1, _P - 1, _P, _P + 1),
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    }
)
"""The y of points of Ed25519 whose order divides 8, and other spellings of them."""
LONGEST_HEADER = 2736
"""Characters of a header of 2 KiB."""
_PADDING = ("", "", "==", "=")
"""Of base64, by the rest of a text's length; none has a rest of 1."""

Algorithm = Literal["RS256", "PS256", "ES256", "EdDSA", "Ed25519"]
SignatureCheck = Callable[[bytes, bytes], object]
"""Raises unless a signature, the first, is right for the bytes that were signed."""


class BadToken(FerruleError):
    """A token, a proof or a key is not what it must be. The text never holds any of it."""


class Key(Struct, frozen=True):
    """One key: to verify with, or to sign with where we have its private half."""

    jose: Any
    """The library's key."""
    id: str
    """Its `kid`; empty where it has none."""
    kind: str
    """`RSA`, `EC`, `OKP` or `oct`."""
    algorithm: str
    """The only algorithm it is for; empty where it does not say."""
    curve: str = ""
    digest: str = ""
    """What `thumbprint` returns, found out once."""
    checks: dict[str, SignatureCheck] = field(default_factory=dict)
    """By algorithm, what verifies signatures with it; made when the first one comes."""

    def fits(self, algorithm: str) -> bool:
        """Return whether signatures of an algorithm can be verified with it."""
        if KINDS.get(algorithm[:2]) != self.kind:
            return False
        if self.algorithm not in ("", algorithm) and {self.algorithm, algorithm} != {"EdDSA", "Ed25519"}:
            return False
        return CURVES.get(algorithm, self.curve) == self.curve

    def public(self) -> dict[str, Any]:
        """Return its public half as a JSON Web Key."""
        return dict(self.jose.as_dict(private=False))

    def private_pem(self) -> bytes:
        """Return it with its private half, to be kept."""
        pem: bytes = self.jose.as_pem(private=True)
        return pem

    def thumbprint(self) -> str:
        """Return its RFC 7638 thumbprint."""
        return self.digest


@cache
def _library() -> Any:
    try:
        import joserfc.errors
        import joserfc.jwk
        import joserfc.jws
    except ImportError:
        raise SetupError("authorization needs the extra 'auth': pip install 'ferrule[auth]'") from None
    # EdDSA is an older name of Ed25519, which half the world still writes.
    warnings.filterwarnings("ignore", message=".*EdDSA", category=joserfc.errors.SecurityWarning)
    return joserfc


def _key(jose: JoseKey) -> Key:
    document = jose.as_dict(private=False)
    kind = str(document.get("kty", ""))
    if kind == "RSA":
        _check_rsa(jose.public_key)
    if document.get("crv") == "Ed25519" and _is_small_order(str(document.get("x", ""))):
        raise BadToken("an Ed25519 key is one of the few whose signatures anybody can make")
    return Key(
        jose,
        str(document.get("kid", "")),
        kind,
        str(document.get("alg", "")),
        str(document.get("crv", "")),
        jose.thumbprint(),
    )


def _check_rsa(public: Any) -> None:
    """Raise BadToken for an RSA key that is too short to be safe, or too long to be verified with."""
    size: int = public.key_size
    if size < SMALLEST_RSA:
        raise BadToken(f"an RSA key has {size} bits: at least {SMALLEST_RSA} are needed")
    if size > LARGEST_RSA or public.public_numbers().e > LARGEST_EXPONENT:
        raise BadToken("an RSA key, or its exponent, is so long that verifying with it takes too long")


def _is_small_order(encoded: str) -> bool:
    """Return whether a public key is a point of small order, in any spelling (RFC 8032 §8.4, RFC 7748 §6.1)."""
    # The highest bit is the sign of x, which changes nothing of the order.
    y = int.from_bytes(_decoded(encoded), "little") & ((1 << 255) - 1)
    return y in SMALL_ORDER


def read_key(document: Mapping[str, Any]) -> Key:
    """Read one JSON Web Key; a private half in it is refused, and so is a key that is not for signatures."""
    library = _library()
    if "d" in document or "k" in document:
        raise BadToken("a published key holds what must stay private")
    if document.get("use", "sig") != "sig":
        raise BadToken("a key is not for signatures")
    try:
        jose = library.jwk.import_key(dict(document))
        return _key(jose)
    except BadToken:
        raise
    except Exception:
        # The library and what it stands on raise many kinds for what is no key.
        raise BadToken("a published key cannot be read") from None


def secret_key(secret: bytes) -> Key:
    """Return a secret as a key, for an issuer that shares one with us."""
    return _key(_library().jwk.OctKey.import_key(secret))


def load_private(pem: str | bytes) -> Key:
    """Load a key to sign with, from PEM."""
    library = _library()
    try:
        return _key(_import_pem(library, pem))
    except BadToken as reason:
        raise SetupError(f"the key cannot be used: {reason}") from None
    except Exception:
        raise SetupError("the key cannot be read: it must be an unencrypted private key in PEM") from None


def _import_pem(library: Any, pem: str | bytes) -> JoseKey:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    raw = pem.encode() if isinstance(pem, str) else pem
    loaded = load_pem_private_key(raw, None)
    if isinstance(loaded, rsa.RSAPrivateKey):
        made: JoseKey = library.jwk.RSAKey.import_key(raw)
    elif isinstance(loaded, ec.EllipticCurvePrivateKey):
        made = library.jwk.ECKey.import_key(raw)
    elif isinstance(loaded, ed25519.Ed25519PrivateKey):
        made = library.jwk.OKPKey.import_key(raw)
    else:
        raise BadToken("it is neither RSA, nor EC, nor Ed25519")
    return made


def make_key(algorithm: str = "ES256") -> Key:
    """Make a key to sign with; its `kid` is its thumbprint."""
    jwk = _library().jwk
    if algorithm[:2] in ("RS", "PS"):
        jose = jwk.RSAKey.generate_key(SMALLEST_RSA, auto_kid=True)
    elif algorithm[:2] == "Ed":
        jose = jwk.OKPKey.generate_key("Ed25519", auto_kid=True)
    else:
        jose = jwk.ECKey.generate_key(CURVES[algorithm], auto_kid=True)
    return _key(jose)


def sign(header: Mapping[str, Any], claims: Mapping[str, Any], key: Key, algorithm: str = "ES256") -> str:
    """Return claims as a signed token."""
    jws = _library().jws
    head = {**header, "alg": algorithm}
    token: str = jws.serialize_compact(head, msgspec.json.encode(claims), key.jose, registry=_registry(algorithm))
    return token


def verify(token: str, key: Key, algorithm: str) -> bytes:
    """Return the payload of a token whose signature is right; raises BadToken."""
    written, payload, _ = split_token(token)
    header = read_part(written)
    if header.get("alg") != algorithm or "crit" in header or "b64" in header:
        raise BadToken("the token is not signed as it must be")
    verify_signature(token, key, algorithm)
    return _decoded(payload)


def verify_signature(token: str, key: Key, algorithm: str) -> None:
    """Raise BadToken unless the signature of a token is right; whoever calls has looked at its header."""
    signed, _, signature = token.rpartition(".")
    check = key.checks.get(algorithm)
    try:
        if check is None:
            check = key.checks[algorithm] = _signature_check(key, algorithm)
        check(_decoded(signature), signed.encode("ascii"))
    except BadToken:
        raise
    except Exception:
        raise BadToken("the signature is not right") from None


def _signature_check(key: Key, algorithm: str) -> SignatureCheck:
    """Return what verifies signatures of one algorithm with a key; raises for a key that is for something else."""
    if not key.fits(algorithm):
        raise BadToken("the key is not for the algorithm")
    # Refuses a key whose `key_ops` do not let it verify.
    public = key.jose.get_op_key("verify")
    if key.kind == "RSA":
        return _rsa_check(public, algorithm)
    if key.kind == "EC":
        return _ecdsa_check(public, algorithm)
    if key.kind == "OKP":
        return _ed25519_check(public)
    model = _library().jws.JWSRegistry.algorithms[algorithm]

    def check(signature: bytes, signed: bytes) -> None:
        if not model.verify(signed, signature, key.jose):
            raise BadToken("the signature is not right")

    return check


def _rsa_check(public: RSAPublicKey, algorithm: str) -> SignatureCheck:
    from cryptography.hazmat.primitives.asymmetric import padding

    digest = _digest(algorithm)
    scheme: padding.AsymmetricPadding = padding.PKCS1v15()
    if algorithm[:2] == "PS":
        # RFC 7518 §3.5: the salt is as long as the hash.
        scheme = padding.PSS(padding.MGF1(digest), digest.digest_size)
    return lambda signature, signed: public.verify(signature, signed, scheme, digest)


def _ecdsa_check(public: EllipticCurvePublicKey, algorithm: str) -> SignatureCheck:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    scheme = ECDSA(_digest(algorithm))
    half = (public.key_size + 7) // 8

    def check(signature: bytes, signed: bytes) -> None:
        # RFC 7518 §3.4: two numbers of the same length, where OpenSSL wants them in DER.
        if len(signature) != 2 * half:
            raise BadToken("the signature is not right")
        public.verify(der_signature(signature[:half], signature[half:]), signed, scheme)

    return check


def der_signature(first: bytes, second: bytes) -> bytes:
    """Return the two numbers of a signature as DER writes them (RFC 3279 §2.2.3).

    Without leading zeros, save the one that keeps the highest bit of a number from being a sign.
    """
    first = first.lstrip(b"\0")
    if not first or first[0] >= 0x80:
        first = b"\0" + first
    second = second.lstrip(b"\0")
    if not second or second[0] >= 0x80:
        second = b"\0" + second
    size = 4 + len(first) + len(second)
    if size < 0x80:
        return b"\x30%c\x02%c%b\x02%c%b" % (size, len(first), first, len(second), second)
    return b"\x30\x81%c\x02%c%b\x02%c%b" % (size, len(first), first, len(second), second)


def _ed25519_check(public: Ed25519PublicKey) -> SignatureCheck:
    return public.verify


def _digest(algorithm: str) -> HashAlgorithm:
    """Return the hash an algorithm is named after."""
    from cryptography.hazmat.primitives import hashes

    if algorithm.endswith("384"):
        return hashes.SHA384()
    if algorithm.endswith("512"):
        return hashes.SHA512()
    return hashes.SHA256()


_registries: dict[str, Any] = {}


def _registry(algorithm: str) -> Any:
    found = _registries.get(algorithm)
    if found is None:
        found = _library().jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        # The key of a DPoP proof is in its header, and an RSA key is longer than the library expects.
        found.max_header_length = LONGEST_HEADER
        _registries[algorithm] = found
    return found


def read_header(token: str) -> dict[str, Any]:
    """Return the header of a token, which proves nothing; raises BadToken."""
    return read_part(token.partition(".")[0])


def split_token(token: str) -> list[str]:
    """Return header, payload and signature of a token as they are written, which prove nothing; raises BadToken."""
    parts = token.split(".", 3)
    if len(parts) != 3 or not all(parts) or len(parts[0]) > LONGEST_HEADER:
        raise BadToken("the token is not a signed JWT")
    return parts


def read_part(part: str) -> dict[str, Any]:
    """Return a JSON object that is written in base64url; duplicate members are refused."""
    return read_object(_decoded(part))


def _decoded(part: str) -> bytes:
    """Decode base64url without padding; the characters of plain base64 are refused (RFC 7515 §2)."""
    rest = len(part) % 4
    if rest == 1 or "+" in part or "/" in part or "=" in part:
        raise BadToken("a part of the token is not base64url")
    plain = part.replace("-", "+").replace("_", "/") + _PADDING[rest]
    try:
        # To msgspec a text is base64 where bytes are wanted: it is as strict as binascii, and twice as fast.
        return msgspec.convert(plain, bytes)
    except ValueError:
        raise BadToken("a part of the token is not base64url") from None


def read_object(raw: bytes) -> dict[str, Any]:
    """Return a JSON object whose members have different names; raises BadToken."""
    if len(raw) > MAX_NESTING and nests_too_deep(raw):
        raise BadToken("a part of the token is nested too deep")
    try:
        found = _decode_object(raw)
        # A comma stands before each member but the first. With no other comma, no object has a member twice.
        if raw.count(b",") == len(found) - 1:
            return found
        # Issuers write JSON as we do. What comes out as it came in lacks no member that came twice.
        if msgspec.json.encode(found) == raw:
            return found
    except (ValueError, msgspec.MsgspecError, RecursionError):
        # What is no JSON to both is refused below.
        pass
    return _read_slowly(raw)


def _read_slowly(raw: bytes) -> dict[str, Any]:
    try:
        found = _decoder.decode(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadToken("a part of the token is not a JSON object with members of different names") from None
    if not isinstance(found, dict):
        raise BadToken("a part of the token is not a JSON object")
    return found


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("two members have one name")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)
