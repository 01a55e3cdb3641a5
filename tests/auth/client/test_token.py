"""Tokens as token endpoints give them, and how we prove who we are there."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ferrule import AuthorizationFailed, SetupError
from ferrule.auth.address import AddressRules
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.registration import application_type, is_current, register, require_metadata_url, secret_method
from ferrule.auth.client.token import (
    ClientIdentity,
    ProofKey,
    TokenEndpoint,
    TokenRefused,
    TokenUnavailable,
    read_token,
)
from ferrule.auth.fetch import Fetched
from ferrule.auth.jose import make_key, read_header, read_part

ISSUER = "https://as.example"
SERVER = ServerMetadata(ISSUER, token_endpoint=f"{ISSUER}/token", registration_endpoint=f"{ISSUER}/register")
GOOD = {"access_token": "abc", "token_type": "Bearer"}


class Post:
    """Stands for a fetcher: gives answers in order, and notes what was posted."""

    def __init__(self, *answers: tuple[int, Mapping[str, str], Any]) -> None:
        self.rules = AddressRules()
        self.answers = list(answers)
        self.posted: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    async def post_form(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Fetched:
        self.posted.append((url, dict(fields), dict(headers or {})))
        status, said, body = self.answers.pop(0)
        return Fetched(url, status, said, body if isinstance(body, bytes) else msgspec.json.encode(body))

    post_json = post_form


def endpoint(post: Post, client: ClientIdentity, **options: Any) -> TokenEndpoint:
    """Return an endpoint that answers as told."""
    return TokenEndpoint(post, SERVER, client, **options)  # type: ignore[arg-type]


# -- tokens


def test_a_token_is_read_with_its_end_and_its_scopes() -> None:
    before = time.time()
    token = read_token({**GOOD, "expires_in": 100, "refresh_token": "r", "scope": "a b"}, ("x",), ISSUER, bound=False)
    assert (token.access, token.refresh, token.scopes) == ("abc", "r", ("a", "b"))
    assert token.expires is not None
    assert 100 <= token.expires - before < 101
    assert not token.is_stale(before + 79)
    assert token.is_stale(before + 81)
    assert "abc" not in repr(token)


@pytest.mark.parametrize("life", [None, "x", -1, 0, True, [], float("inf"), "1e400"])
def test_a_nonsensical_end_is_none(life: object) -> None:
    token = read_token({**GOOD, "expires_in": life}, ("x",), ISSUER, bound=False)
    assert token.expires is None
    assert token.scopes == ("x",)


def test_a_token_that_is_said_to_live_for_ever_ends_in_ten_years() -> None:
    token = read_token({**GOOD, "expires_in": 1e18}, (), ISSUER, bound=False)
    assert token.expires is not None
    assert token.expires < time.time() + 11 * 365 * 86400


@pytest.mark.parametrize(
    "changes",
    [
        {"access_token": None},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "a b"},
        {"access_token": "a\r\nx: y"},
        {"access_token": "x" * 20_000},
        {"token_type": None},
        {"token_type": "mac"},
        {"token_type": "DPoP"},
    ],
)
def test_what_is_no_token_is_refused(changes: dict[str, Any]) -> None:
    """Neither can it end a header early, nor is a bound token sent as if it were not."""
    with pytest.raises(AuthorizationFailed):
        read_token({**GOOD, **changes}, (), ISSUER, bound=False)


def test_a_token_that_should_be_bound_and_is_not_is_refused() -> None:
    with pytest.raises(AuthorizationFailed, match="bound to our key"):
        read_token(GOOD, (), ISSUER, bound=True)


# -- who we are


async def test_a_secret_in_a_header_is_form_encoded_first() -> None:
    """ACLI-18, RFC 6749 §2.3.1"""
    post = Post((200, {}, GOOD))
    await endpoint(post, ClientIdentity("a:b", "client_secret_basic", "c%d e")).ask({"grant_type": "x"})
    [(_, fields, headers)] = post.posted
    assert b64decode(headers["authorization"].removeprefix("Basic ")) == b"a%3Ab:c%25d+e"
    assert fields == {"grant_type": "x"}


@pytest.mark.parametrize(
    ("client", "fields"),
    [
        (ClientIdentity("a", "client_secret_post", "s"), {"client_id": "a", "client_secret": "s"}),
        (ClientIdentity("a"), {"client_id": "a"}),
    ],
)
async def test_a_client_says_who_it_is_in_the_form(client: ClientIdentity, fields: dict[str, str]) -> None:
    """ACLI-18"""
    post = Post((200, {}, GOOD))
    await endpoint(post, client).ask({})
    assert post.posted[0][1:] == (fields, {})


async def test_a_signed_client_names_the_issuer_as_audience() -> None:
    """ACLI-20"""
    post = Post((200, {}, GOOD))
    key = make_key("ES256")
    await endpoint(post, ClientIdentity("a", "private_key_jwt"), signing_key=key).ask({})
    claims = read_part(post.posted[0][1]["client_assertion"].split(".")[1])
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("a", "a", ISSUER)
    assert claims["exp"] - claims["iat"] == 60


async def test_a_nonce_that_is_asked_for_is_given_once() -> None:
    """RFC 9449 §8: a new proof, with the nonce."""
    bound = {**GOOD, "token_type": "DPoP"}
    post = Post((400, {"dpop-nonce": "n1"}, {"error": "use_dpop_nonce"}), (200, {}, bound))
    await endpoint(post, ClientIdentity("a"), proof_key=ProofKey(make_key("ES256"))).ask({})
    proofs = [headers["dpop"] for _, _, headers in post.posted]
    claims = [read_part(proof.split(".")[1]) for proof in proofs]
    assert [each.get("nonce") for each in claims] == [None, "n1"]
    assert claims[0]["jti"] != claims[1]["jti"]
    assert "d" not in read_header(proofs[0])["jwk"]
    loop = Post(*[(400, {"dpop-nonce": "same"}, {"error": "use_dpop_nonce"})] * 9)
    with pytest.raises(TokenRefused):
        await endpoint(loop, ClientIdentity("a"), proof_key=ProofKey(make_key("ES256"))).ask({})
    assert len(loop.posted) == 2


# -- refusals


@pytest.mark.parametrize("status", [200, 400, 401])
async def test_a_refusal_is_told_without_anything_we_sent(status: int) -> None:
    said = {"error": "invalid_grant", "error_description": "the code SECRETCODE of client-secret-x is unknown"}
    post = Post((status, {}, said))
    client = ClientIdentity("a", "client_secret_post", "client-secret-x")
    with pytest.raises(TokenRefused) as refused:
        await endpoint(post, client).ask({"code": "SECRETCODE"})
    assert refused.value.error == "invalid_grant"
    assert "SECRETCODE" not in str(refused.value)
    assert "client-secret-x" not in str(refused.value)


async def test_control_characters_of_a_refusal_are_not_shown() -> None:
    post = Post((400, {}, {"error": "x\x1b[31m", "error_description": "y\n\n"}))
    with pytest.raises(TokenRefused) as refused:
        await endpoint(post, ClientIdentity("a")).ask({})
    assert str(refused.value) == f"{ISSUER} gives no token: HTTP 400"


@pytest.mark.parametrize(("status", "body"), [(500, {}), (503, b"x"), (429, {}), (200, b"<html>"), (200, b"[]")])
async def test_trouble_is_no_refusal(status: int, body: Any) -> None:
    with pytest.raises(TokenUnavailable):
        await endpoint(Post((status, {}, body)), ClientIdentity("a")).ask({})


# -- registration


async def test_we_register_as_what_we_are() -> None:
    """ACLI-15"""
    post = Post(
        (201, {}, {"client_id": "new", "client_secret": "s", "token_endpoint_auth_method": "client_secret_post"})
    )
    client = await register(post, SERVER, "Name", "http://127.0.0.1:1/callback", ["a"])  # type: ignore[arg-type]
    assert (client.id, client.method, client.secret) == ("new", "client_secret_post", "s")
    assert post.posted[0][1] == {
        "client_name": "Name",
        "redirect_uris": ["http://127.0.0.1:1/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "scope": "a",
    }
    assert is_current(client, "http://127.0.0.1:1/callback")
    assert not is_current(client, "http://127.0.0.1:2/callback")
    assert application_type("https://app.example/callback") == "web"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((400, {}, {"error": "invalid_redirect_uri"}), "redirect URI http://127.0.0.1:1/callback"),
        ((403, {}, {"error": "access_denied"}), r"access_denied; register a client there by hand"),
        ((201, {}, {}), "without a client id"),
        ((201, {}, {"client_id": "a\nb"}), "without a client id"),
        ((500, {}, b"<html>"), "registering at"),
    ],
)
async def test_a_registration_that_fails_says_what_to_do(answer: Any, words: str) -> None:
    """ACLI-15"""
    with pytest.raises(AuthorizationFailed, match=words):
        await register(Post(answer), SERVER, "Name", "http://127.0.0.1:1/callback", [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("supported", "secret", "method"),
    [
        ([], "s", "client_secret_basic"),
        (["client_secret_post", "client_secret_basic"], "s", "client_secret_basic"),
        (["client_secret_post"], "s", "client_secret_post"),
        (["none"], "s", "none"),
        (["client_secret_basic"], "", "none"),
    ],
)
def test_the_method_is_one_the_server_has(supported: list[str], secret: str, method: str) -> None:
    """ACLI-18"""
    server = ServerMetadata(ISSUER, token_endpoint_auth_methods_supported=supported)
    assert secret_method(server, secret) == method


@pytest.mark.parametrize("url", ["http://x.example/a", "https://x.example", "https://x.example/", "x", "https://x/a#b"])
def test_a_client_metadata_url_is_https_with_a_path(url: str) -> None:
    """ACLI-14"""
    with pytest.raises(SetupError, match="https URL with a path"):
        require_metadata_url(url)
