"""DPoP proofs: one request, one key, one use (RFC 9449)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from forgery import forge

from ferrule.auth.dpop import (
    CLOCKS_DIFFER,
    BadProof,
    ClusterProofs,
    NonceNeeded,
    Nonces,
    Proof,
    ProofChecker,
    SeenProofs,
    make_proof,
    normal_url,
    token_hash,
)
from ferrule.auth.jose import BadToken, make_key
from ferrule.errors import StoreUnavailable

NOW = 1_800_000_000.0
URL = "https://mcp.example.com/mcp"
KEY = make_key()
TOKEN = "the.access.token"


def check(proof: str, *, checker: ProofChecker | None = None, **other: Any) -> str:
    said = {"method": "POST", "url": URL, "now": NOW, "token": TOKEN, **other}
    return (checker or ProofChecker()).check(proof, **said)


def forged(header: dict[str, Any] | None = None, *, key: Any = KEY, alg: str = "ES256", **claims: Any) -> str:
    """Make a proof with parts that differ from those of a right one; None leaves one out."""
    right: dict[str, Any] = {"jti": "1", "htm": "POST", "htu": URL, "iat": int(NOW), "ath": token_hash(TOKEN)}
    said = {name: value for name, value in {**right, **claims}.items() if value is not None}
    return forge({"typ": "dpop+jwt", "alg": alg, "jwk": key.public(), **(header or {})}, said, key, alg)


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256", "PS256"])
def test_a_proof_names_the_key_it_was_made_with(algorithm: str) -> None:
    key = make_key(algorithm)
    proof = make_proof(key, "POST", f"{URL}?a=b#c", now=NOW, token=TOKEN, algorithm=algorithm)
    assert check(proof) == key.thumbprint()


def test_a_proof_counts_once() -> None:
    """Attack: replay."""
    checker = ProofChecker()
    proof = make_proof(KEY, "POST", URL, now=NOW, token=TOKEN)
    check(proof, checker=checker)
    with pytest.raises(BadProof, match="used before"):
        check(proof, checker=checker, now=NOW + 59)
    check(make_proof(KEY, "POST", URL, now=NOW, token=TOKEN), checker=checker)


@pytest.mark.parametrize(
    "other",
    [{"method": "GET"}, {"url": URL + "/"}, {"url": "http://mcp.example.com/mcp"}, {"token": "another"}],
    ids=repr,
)
def test_a_proof_is_for_one_request(other: dict[str, str]) -> None:
    with pytest.raises(BadProof, match="is for another"):
        check(make_proof(KEY, "POST", URL, now=NOW, token=TOKEN), **other)


WITH_PRIVATE = KEY.jose.as_dict(private=True)


@pytest.mark.parametrize(
    "proof",
    [
        forged({"typ": "JWT"}),
        forged({"typ": "at+jwt"}),
        forged({"jwk": WITH_PRIVATE}),
        forged({"jwk": make_key().public()}),
        forged({"jwk": "x"}),
        forged({"jwk": {"kty": "oct", "k": "c2VjcmV0"}}),
        forged({"crit": ["b64"], "b64": False}),
        forged(iat=int(NOW) - 120),
        forged(iat=int(NOW) + 120),
        forged(iat="now"),
        forged(iat=None),
        forged(iat=True),
        forged(iat=10**400),
        forged(iat=-(10**400)),
        forged(ath="\ud800"),
        forged(jti="\ud800", htu="\ud800"),
        forged(jti=None),
        forged(jti="x" * 300),
        forged(htm="post"),
        forged(htu=None),
        forged(ath=None),
        forged(alg="ES384"),
        forged() + "x",
        forged() + ", " + forged(),
        forged().rpartition(".")[0] + ".",
        "x",
        "a.b.c",
        "é.b.c",
        "x" * 9000,
    ],
    ids=range(29),
)
def test_a_proof_that_is_not_right_is_refused(proof: str) -> None:
    with pytest.raises(BadToken) as refused:
        check(proof)
    assert proof not in str(refused.value)


def test_an_unsigned_proof_is_refused() -> None:
    with pytest.raises(BadProof):
        check(forge({"typ": "dpop+jwt", "alg": "none", "jwk": KEY.public()}, {}))


def test_a_nonce_is_asked_for_and_ends() -> None:
    nonces = Nonces()
    checker = ProofChecker(nonces=nonces)
    with pytest.raises(NonceNeeded):
        check(make_proof(KEY, "POST", URL, now=NOW, token=TOKEN), checker=checker)
    nonce = nonces.newest(NOW)
    proof = make_proof(KEY, "POST", URL, now=NOW - 300, token=TOKEN, nonce=nonce)
    assert check(proof, checker=checker) == KEY.thumbprint()  # the clock of the client does not matter
    with pytest.raises(BadProof, match="used before"):
        check(proof, checker=checker)
    late = make_proof(KEY, "POST", URL, now=NOW + 700, token=TOKEN, nonce=nonce)
    with pytest.raises(NonceNeeded):
        check(late, checker=checker, now=NOW + 700)
    assert not Nonces().is_valid(nonce, NOW)


def test_what_is_remembered_of_proofs_is_bounded_and_full_means_no() -> None:
    seen = SeenProofs(most=3)
    assert [seen.add(bytes([each]), NOW + 10, NOW) for each in range(5)] == [True, True, True, False, False]
    assert len(seen) == 3
    assert seen.add(b"later", NOW + 30, NOW + 11)
    assert not seen.add(b"later", NOW + 30, NOW + 12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://A.example:443/x", "https://a.example/x"),
        ("http://a.example:80", "http://a.example/"),
        ("https://a.example/%7euser/%2f", "https://a.example/~user/%2F"),
        ("https://a.example/x?y=z#w", "https://a.example/x"),
        ("https://[::1]:8443/x", "https://[::1]:8443/x"),
    ],
)
def test_urls_are_compared_in_one_form(one: str, other: str) -> None:
    assert normal_url(one) == normal_url(other)


def test_urls_that_lead_elsewhere_differ() -> None:
    forms = [
        "https://a.example/x",
        "https://a.example/X",
        "https://a.example:444/x",
        "https://b.example/x",
        "http://a.example/x",
    ]
    assert len({normal_url(each) for each in forms}) == len(forms)


# -- several processes


def test_processes_with_the_same_keys_take_each_others_nonces() -> None:
    first, second, stranger = Nonces(), Nonces(), Nonces()
    first.share([b"k" * 32])
    second.share(["k" * 32, b"older" * 8])
    nonce = first.newest(NOW)
    assert nonce == second.newest(NOW)
    assert second.is_valid(nonce, NOW + 300)
    assert not second.is_valid(nonce, NOW + 600)
    assert not stranger.is_valid(nonce, NOW)


def test_a_nonce_of_a_key_that_was_replaced_counts_while_the_key_is_known() -> None:
    before, after = Nonces(), Nonces()
    before.share([b"older" * 8])
    after.share([b"newer" * 8, b"older" * 8])
    assert after.is_valid(before.newest(NOW), NOW)
    assert after.newest(NOW) != before.newest(NOW)
    after.share([b"newer" * 8])
    assert not after.is_valid(before.newest(NOW), NOW)


class Noted:
    """What processes share; it can be away."""

    def __init__(self) -> None:
        self.keys: dict[str, float] = {}
        self.away = False

    async def add(self, key: str, ttl: float) -> bool:
        if self.away:
            raise StoreUnavailable("it is away")
        return self.keys.setdefault(key, ttl) is ttl


async def test_a_proof_is_noted_for_longer_than_it_counts_at_a_clock_that_is_behind() -> None:
    noted = Noted()
    proof = Proof("thumb", b"digest", NOW + 61)
    assert await ClusterProofs(noted).add(proof, NOW)
    assert not await ClusterProofs(noted).add(proof, NOW)
    assert list(noted.keys.values()) == [61 + CLOCKS_DIFFER]


async def test_while_the_others_cannot_be_asked_a_process_goes_by_itself_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noted = Noted()
    proofs = ClusterProofs(noted)
    noted.away = True
    with caplog.at_level(logging.WARNING, "ferrule.auth"):
        for number in range(5):
            assert await proofs.add(Proof("thumb", bytes([number]), NOW + 61), NOW)
        noted.away = False
        for _ in range(2):
            await proofs.add(Proof("thumb", b"x", NOW + 61), NOW)
    assert [record.getMessage()[:49] for record in caplog.records] == [
        "proofs of possession count once in each process, ",
        "proofs of possession count once over all processe",
    ]
