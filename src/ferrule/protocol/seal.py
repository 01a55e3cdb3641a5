"""Request state handed to the peer and taken back: nobody can read it, change it, keep it too long or use it elsewhere.

Rule 1: no clock and no randomness; both come in as arguments.
Rule 2: what fails to open says the same sentence whatever the reason, and expiry is told only of an authentic token.
"""

from __future__ import annotations

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from ferrule.budgets.weight import bounded_depth
from ferrule.errors import FerruleError, InvalidParams, SetupError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION = 1
NONCE_SIZE = 12
MIN_KEY_SIZE = 32
MAX_TOKEN_SIZE = 64 * 1024

# A retry carries new ones of these, so a binding that covered them could never be met.
CHANGES_ON_RETRY = frozenset({"_meta", "inputResponses", "requestState"})

KEY_PURPOSE = b"ferrule request state 1"
CIPHER_KEY_SIZE = 32
KEY_ID_SIZE = 4
_read = bounded_depth(msgspec.json.decode)
HEADER = struct.Struct(f">B{KEY_ID_SIZE}sd")


class Tampered(InvalidParams):
    """The request state is not one of ours, or not for this request."""

    text = "Invalid params: the request state was not issued for this request"


class Expired(InvalidParams):
    """The request state is ours, but too old."""

    text = "Invalid params: the request state has expired"


class SealTooLarge(FerruleError):
    """There is more to seal than the peer should have to carry."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the sealed request state would be {size} bytes; the limit is {limit} bytes")
        self.size = size
        self.limit = limit


class Keyring:
    """The secrets that seal and open: the first seals, all open, so that keys can be changed without a gap."""

    def __init__(self, keys: Sequence[bytes | str]) -> None:
        if isinstance(keys, str | bytes) or not isinstance(keys, Sequence) or not keys:
            raise SetupError("sealing needs a list of at least one key")
        for place, key in enumerate(keys):
            if not isinstance(key, str | bytes | bytearray | memoryview):
                raise SetupError(f"sealing key {place} must be bytes or str, not {type(key).__name__}")
        self._secrets = [key.encode() if isinstance(key, str) else bytes(key) for key in keys]
        for place, secret in enumerate(self._secrets):
            if len(secret) < MIN_KEY_SIZE:
                raise SetupError(f"sealing key {place} is too short: {len(secret)} bytes, at least {MIN_KEY_SIZE}")

    @property
    def sealing(self) -> tuple[bytes, AESGCM]:
        """The id and the cipher of the key that seals."""
        return next(iter(self._ciphers.items()))

    def find(self, key_id: bytes) -> AESGCM | None:
        """Return the cipher of the key with this id."""
        return self._ciphers.get(key_id)

    @cached_property
    def _ciphers(self) -> dict[bytes, AESGCM]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        ciphers = {}
        for secret in self._secrets:
            key, key_id = _derive(secret)
            ciphers[key_id] = AESGCM(key)
        return ciphers


class Seal:
    """Turns a payload into a token that opens only unchanged, in time and for the request it was made for."""

    def __init__(self, keyring: Keyring, max_size: int = MAX_TOKEN_SIZE) -> None:
        self._keyring = keyring
        self.max_size = max_size

    def seal(self, payload: bytes, *, binding: bytes, expires: float, nonce: bytes) -> str:
        """Return the token for this payload; raises SealTooLarge."""
        if len(nonce) != NONCE_SIZE:
            raise SetupError(f"a nonce has {NONCE_SIZE} bytes, not {len(nonce)}")
        key_id, cipher = self._keyring.sealing
        header = HEADER.pack(VERSION, key_id, expires)
        token = _to_text(header + nonce + cipher.encrypt(nonce, payload, header + binding))
        if len(token) > self.max_size:
            raise SealTooLarge(len(token), self.max_size)
        return token

    def open(self, token: str, *, binding: bytes, now: float) -> bytes:
        """Return the payload back; raises Tampered or Expired."""
        from cryptography.exceptions import InvalidTag

        header, nonce, ciphertext = self._take_apart(token)
        cipher = self._cipher_of(header)
        _, _, expires = HEADER.unpack(header)
        try:
            payload = cipher.decrypt(nonce, ciphertext, header + binding)
        except (InvalidTag, ValueError):
            raise Tampered from None
        if not now < expires:
            raise Expired
        return payload

    def recognise(self, token: str) -> None:
        """Raise Tampered for what cannot be a token of ours, before work is spent on what it is bound to."""
        self._cipher_of(self._take_apart(token)[0])

    def _cipher_of(self, header: bytes) -> AESGCM:
        version, key_id, _ = HEADER.unpack(header)
        cipher = self._keyring.find(key_id)
        if version != VERSION or cipher is None:
            raise Tampered
        return cipher

    def _take_apart(self, token: str) -> tuple[bytes, bytes, bytes]:
        if len(token) > self.max_size:
            raise Tampered
        raw = _from_text(token)
        nonce_end = HEADER.size + NONCE_SIZE
        if len(raw) < nonce_end:
            raise Tampered
        return raw[: HEADER.size], raw[HEADER.size : nonce_end], raw[nonce_end:]


def request_binding(
    principal: str | None, method: str, params: Mapping[str, object] | bytes, server: str = ""
) -> bytes:
    """Return the digest of who asks which server what: the same for a retry, another for any other request.

    A server is named by its name alone, so that every process and every version of it opens what another has sealed.
    """
    try:
        plain = _read(params if isinstance(params, bytes) else msgspec.json.encode(params))
        if isinstance(plain, dict):
            plain = {name: value for name, value in plain.items() if name not in CHANGES_ON_RETRY}
        canonical = msgspec.json.encode([server, principal, method, plain], order="sorted")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidParams("Invalid params: they cannot be read") from None
    import hashlib

    return hashlib.sha256(canonical).digest()


def _derive(secret: bytes) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    size = CIPHER_KEY_SIZE + KEY_ID_SIZE
    derived = HKDF(algorithm=SHA256(), length=size, salt=None, info=KEY_PURPOSE).derive(secret)
    return derived[:CIPHER_KEY_SIZE], derived[CIPHER_KEY_SIZE:]


def _to_text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _from_text(token: str) -> bytes:
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        raise Tampered from None
    # Base64 has several spellings of the same bytes; only ours counts, so that no changed token ever opens.
    if _to_text(raw) != token:
        raise Tampered
    return raw
