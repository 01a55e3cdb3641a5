"""Tokens with any header and any payload: signed by hand, so that nothing keeps us from writing wrong ones."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from ferrule.auth.jose import Key

MADE: list[str] = []
"""Every token that was written, for whoever looks whether one is in a log."""


def base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def forge(header: dict[str, Any] | bytes, claims: dict[str, Any] | bytes, key: Any = None, how: str = "") -> str:
    """Write a token: signed as `how` says with a Key, with the bytes of a secret, or not at all."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)]
    signed = ".".join(map(base64url, parts))
    MADE.append(f"{signed}.{base64url(signature(signed.encode(), key, how))}")
    return MADE[-1]


def signature(signed: bytes, key: Any, how: str) -> bytes:
    if key is None:
        return b""
    if isinstance(key, bytes):
        return hmac.digest(key, signed, hashlib.sha256)
    assert isinstance(key, Key)
    private = key.jose.private_key
    if how == "RS256":
        return bytes(private.sign(signed, padding.PKCS1v15(), hashes.SHA256()))
    if how == "PS256":
        return bytes(private.sign(signed, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256()))
    if how == "EdDSA":
        return bytes(private.sign(signed))
    r, s = decode_dss_signature(private.sign(signed, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")
