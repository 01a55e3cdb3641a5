"""Access tokens of the proxy: only ours, only for us, only in time."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from proxy_desk import KEYS, Clock

from ferrule.auth.proxy.access_tokens import MAX_REVOKED, PURPOSE, AccessTokens
from ferrule.auth.proxy.grants import Grant
from ferrule.auth.proxy.keys import Keys

ISSUER, AUDIENCE = "https://mcp.example.com", "https://mcp.example.com/mcp"
GRANT = Grant(id="g1", client="c1", subject="ada", name="Ada", scopes=("notes",))


def some_tokens(clock: Clock, keys: Any = KEYS, issuer: str = ISSUER, audience: str = AUDIENCE) -> AccessTokens:
    return AccessTokens(Keys(keys), issuer, audience, 600.0, clock)


def encoded(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decoded(part: str) -> Any:
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_a_token_says_who_it_is_for_ten_minutes() -> None:
    clock = Clock()
    tokens = some_tokens(clock)
    token = tokens.issue(GRANT, ("notes",))
    found = tokens.verify(token)
    assert found is not None
    assert found.key == f"{ISSUER}#ada"
    assert (found.client, found.scopes, found.expires) == ("c1", {"notes"}, clock.now + 600)
    clock.now += 599
    assert tokens.verify(token) is not None
    clock.now += 1
    assert tokens.verify(token) is None


def test_it_is_a_jwt_of_the_profile_for_access_tokens() -> None:
    """RFC 9068."""
    header, payload, _ = some_tokens(Clock()).issue(GRANT, ("notes",)).split(".")
    assert decoded(header)["typ"] == "at+jwt"
    assert {"iss", "exp", "aud", "sub", "client_id", "iat", "scope"} <= decoded(payload).keys()


def test_aut_02_no_token_chooses_its_algorithm_or_key() -> None:
    """alg none in any spelling, other algorithms, other key ids, keys in the header: the header is ours or nobody's."""
    tokens = some_tokens(Clock())
    header, payload, signature = tokens.issue(GRANT, ()).split(".")
    ours = decoded(header)
    key = Keys(KEYS).derived(PURPOSE)[0]
    for change in (
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "HS512"},
        {"alg": "RS256"},
        {"kid": "../../x"},
        {"jku": "https://evil.example/jwks"},
        {"jwk": {"kty": "oct", "k": "AAAA"}},
        {"crit": ["b64"], "b64": False},
        {"x": "y" * 1_000_000},
    ):
        forged = encoded({**ours, **change})
        signed = f"{forged}.{payload}"
        for end in ("", signature, encoded(hmac.digest(key, signed.encode(), "sha256"))):
            assert tokens.verify(f"{signed}.{end}") is None


def test_aut_02_what_is_changed_or_cut_is_no_token() -> None:
    tokens = some_tokens(Clock())
    token = tokens.issue(GRANT, ())
    header, payload, signature = token.split(".")
    claims = decoded(payload)
    for forged in (
        "",
        ".",
        "..",
        header,
        f"{header}.{payload}",
        f"{header}.{payload}.",
        f"{header}.{encoded({**claims, 'sub': 'root'})}.{signature}",
        f"{token}.{signature}",
        f"{token}=",
        f"{token} ",
        f"\u00e4{token}",
        f"{header}.{payload}.{signature[:-1]}",
        "x" * 1024 * 1024,
    ):
        assert tokens.verify(forged) is None
    assert tokens.verify(token) is not None


def test_aut_03_a_token_for_another_resource_or_of_another_issuer_is_none() -> None:
    clock = Clock()
    ours = some_tokens(clock)
    for issuer, audience in (
        (ISSUER, "https://mcp.example.com/mcp/"),
        (ISSUER, "https://mcp.example.com"),
        (ISSUER, "https://MCP.example.com/mcp"),
        (ISSUER, "https://mcp.example.com/mcp2"),
        ("https://other.example.com", AUDIENCE),
    ):
        assert ours.verify(some_tokens(clock, KEYS, issuer, audience).issue(GRANT, ())) is None


def test_tokens_of_an_old_secret_are_good_while_it_is_there() -> None:
    clock = Clock()
    token = some_tokens(clock, ["o" * 32]).issue(GRANT, ())
    assert some_tokens(clock, ["n" * 32, "o" * 32]).verify(token) is not None
    assert some_tokens(clock, ["n" * 32]).verify(token) is None


def test_the_tokens_of_a_grant_that_ended_are_refused_and_what_is_remembered_is_bounded() -> None:
    clock = Clock()
    tokens = some_tokens(clock)
    token = tokens.issue(GRANT, ())
    tokens.revoke("g1")
    assert tokens.verify(token) is None
    for number in range(2 * MAX_REVOKED):
        tokens.revoke(str(number))
    assert len(tokens._revoked) == MAX_REVOKED
    clock.now += 601
    tokens.revoke("last")
    assert list(tokens._revoked) == ["last"]


def test_a_check_costs_little() -> None:
    """Far less than a signature with a public key, so a token that is new costs as little as one that is known."""
    tokens = some_tokens(Clock())
    token = tokens.issue(GRANT, ("notes",))
    started = time.process_time()
    for _ in range(2000):
        assert tokens.verify(token)
    assert (time.process_time() - started) / 2000 < 100e-6


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_token_that_is_no_good_costs_less(size: int) -> None:
    tokens = some_tokens(Clock())
    started = time.process_time()
    for _ in range(200):
        assert tokens.verify("x" * size) is None
    assert (time.process_time() - started) / 200 < 100e-6
