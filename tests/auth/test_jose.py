"""Keys that must not be used, signatures that must fit, and JSON that must be read in one way only."""

from __future__ import annotations

import json
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from forgery import base64url

from ferrule.auth.jose import (
    ASYMMETRIC,
    BadToken,
    Key,
    der_signature,
    make_key,
    read_key,
    read_object,
    read_part,
    sign,
    verify,
)

ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
OTHER_ORDER_8 = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
MINUS_1 = b"\xec" + b"\xff" * 30 + b"\x7f"


@pytest.mark.parametrize(
    "point",
    [bytes(32), b"\1" + bytes(31), bytes(31) + b"\x80", MINUS_1, ORDER_8, OTHER_ORDER_8, ORDER_8[:-1] + b"\x85"],
    ids=bytes.hex,
)
def test_an_ed25519_key_of_small_order_is_refused(point: bytes) -> None:
    """AUT-02: anybody can make signatures that fit such a key."""
    with pytest.raises(BadToken, match="anybody can make"):
        read_key({"kty": "OKP", "crv": "Ed25519", "x": base64url(point)})


def test_a_short_rsa_key_is_refused() -> None:
    numbers = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    document = {"kty": "RSA", "n": base64url(numbers.n.to_bytes(128, "big")), "e": "AQAB"}
    with pytest.raises(BadToken, match="2048"):
        read_key(document)


@pytest.mark.parametrize(("bits", "exponent"), [(3072, 2**3000 + 1), (2048, 2**33 + 1), (9000, 65537)])
def test_an_rsa_key_that_is_dear_to_verify_with_is_refused(bits: int, exponent: int) -> None:
    """A DPoP proof brings its own key: a verification with an exponent of 3,000 bits takes 100 times as long."""
    document = {"kty": "RSA"}
    for name, number in {"n": 2**bits - 1, "e": exponent}.items():
        document[name] = base64url(number.to_bytes((number.bit_length() + 7) // 8, "big"))
    with pytest.raises(BadToken, match="too long"):
        read_key(document)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_private_key_is_not_read_as_a_published_one(algorithm: str) -> None:
    key = make_key(algorithm)
    assert read_key(key.public()).thumbprint() == key.thumbprint()
    with pytest.raises(BadToken, match="private"):
        read_key(key.jose.as_dict(private=True))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": 7},
        {"kty": "oct", "k": "czM"},
    ],
    ids=repr,
)
def test_what_is_no_key_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadToken):
        read_key(document)


@cache
def signer(kind: str) -> Key:
    return make_key(kind)


def key_for(algorithm: str) -> Key:
    """Return a key that an algorithm can be used with; those of RSA share one, for it takes long to make."""
    return signer("RS256" if algorithm[:2] in ("RS", "PS") else algorithm)


def other_bit(token: str, part: int) -> str:
    """Return a token with one bit of one part turned."""
    parts = token.split(".")
    first = parts[part][0]
    parts[part] = ("B" if first == "A" else "A") + parts[part][1:]
    return ".".join(parts)


@pytest.mark.parametrize("algorithm", ASYMMETRIC)
def test_a_signature_is_verified_by_its_own_key_and_algorithm_only(algorithm: str) -> None:
    """AUT-02: all that we take, through `cryptography` itself."""
    key = key_for(algorithm)
    published = read_key({**key.public(), "alg": algorithm})
    token = sign({"kid": "1"}, {"sub": "ada"}, key, algorithm)
    for _ in range(2):
        assert json.loads(verify(token, published, algorithm)) == {"sub": "ada"}
    short = token.rpartition(".")[0] + ".AAAA"
    for wrong in (other_bit(token, 1), other_bit(token, 2), short, token[:-2]):
        with pytest.raises(BadToken):
            verify(wrong, published, algorithm)
    for other in ASYMMETRIC:
        if {algorithm, other} != {"EdDSA", "Ed25519"} and other != algorithm:
            with pytest.raises(BadToken):
                verify(sign({"kid": "1"}, {}, key_for(other), other), published, other)


@pytest.mark.parametrize("size", [32, 48, 66])
def test_the_numbers_of_a_signature_are_written_in_der(size: int) -> None:
    """As the library writes them: zero, short numbers, a highest bit that is no sign, over 127 bytes in all."""
    numbers = [
        0,
        1,
        0x7F,
        0x80,
        0xFF,
        0x100,
        2 ** (8 * size - 9),
        2 ** (8 * size - 1) - 1,
        2 ** (8 * size - 1),
        2 ** (8 * size) - 1,
    ]
    for first in numbers:
        for second in numbers:
            written = der_signature(first.to_bytes(size, "big"), second.to_bytes(size, "big"))
            assert written == encode_dss_signature(first, second)


def test_a_key_that_is_not_for_verification_verifies_nothing() -> None:
    """RFC 7517 §4.3: what a key is for is said by its key set."""
    key = signer("ES256")
    token = sign({}, {}, key, "ES256")
    assert verify(token, read_key({**key.public(), "key_ops": ["verify"]}), "ES256") == b"{}"
    with pytest.raises(BadToken):
        verify(token, read_key({**key.public(), "key_ops": ["deriveKey"]}), "ES256")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2,"b":1.50}',
        b'{"a":1, "\\u0061":2}',
        b'{"a":{"b":[{"c":1,"c":2}]}}',
        b'{"a":NaN}',
        b'{"a":1}}',
        b'{"a":"\xff"}',
        b"[]",
        b"",
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_json_that_two_readers_could_read_differently_is_refused(raw: bytes) -> None:
    """AUT-03: a member that comes twice, however it is written and wherever it stands."""
    with pytest.raises(BadToken):
        read_object(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"b":[true,null,1.5,"\xc3\xa9"]}',
        b'{ "a" : 1 }',
        b'{"a":"\\u00e9\\/"}',
        b'{"a":1e3,"b":12345678901234567890123}',
    ],
    ids=repr,
)
def test_json_is_read_however_it_is_written(raw: bytes) -> None:
    assert read_object(raw) == json.loads(raw)


@pytest.mark.parametrize(
    "part", ["eyJhIjoiPz8_In0=", "eyJhIjoiPz8/In0", "eyJhIjoifn5+In0", "eyJhIjoxf", "eyJh!joxfQ", "é30"]
)
def test_a_part_that_is_not_base64url_is_refused(part: str) -> None:
    """RFC 7515 §2: without padding, without the characters of plain base64, of no impossible length."""
    assert read_part("eyJhIjoiPz8_In0") == {"a": "???"}
    with pytest.raises(BadToken, match="base64url"):
        read_part(part)
