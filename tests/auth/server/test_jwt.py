"""Signed tokens: which are let in, and the table of attacks on them (AUT-02, AUT-03)."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from forgery import base64url, forge
from issuer_double import ISSUER, JWKS, KEYS, METADATA, NOW, RESOURCE, Clock, claims, judged, let_in, token, verifier

from ferrule.auth.challenge import read_challenges
from ferrule.auth.jose import Key, make_key
from ferrule.auth.server.jwt import JWT
from ferrule.errors import Refusal, SetupError

# -- what is let in


@pytest.mark.parametrize("how", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_signed_token_names_its_bearer(how: str) -> None:
    """AUTH-7."""
    signer = KEYS["RS256" if how == "PS256" else how]
    found = let_in(token(how=how, key=signer, scope="notes files"))
    assert (found.issuer, found.subject, found.client) == (ISSUER, "ada", "editor")
    assert found.scopes == {"notes", "files"}
    assert found.expires == NOW + 660
    assert found.method == "jwt"
    assert found.claims["aud"] == RESOURCE


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": [RESOURCE]},
        {"aud": ["https://evil.example", RESOURCE]},
        {"exp": int(NOW) - 59},
        {"nbf": int(NOW) + 59},
        {"iat": int(NOW) + 59},
        {"iat": NOW - 0.5},
        {"iat": None},
        {"sub": None},
        {"scope": None, "scp": ["notes"]},
    ],
    ids=repr,
)
def test_what_may_differ(changes: dict[str, Any]) -> None:
    assert let_in(token(**changes)).issuer == ISSUER


@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", None])
def test_the_types_a_token_may_have(kind: str | None) -> None:
    let_in(token({"typ": kind}))


def test_a_token_that_is_for_others_too_is_let_in_and_noted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ferrule.auth")
    let_in(token(aud=["https://other.example", RESOURCE]))
    assert "a token of ada is for 1 others beside this server" in caplog.text


def test_two_issuers_make_two_principals_of_one_subject() -> None:
    other = JWT("https://other.example", jwks=JWKS, resource=RESOURCE, clock=Clock())
    assert let_in(token()).key != let_in(token(iss="https://other.example"), other).key
    assert isinstance(judged(token(), other), Refusal)


def test_a_token_without_a_subject_is_its_clients() -> None:
    assert let_in(token(sub=None)).key == f"{ISSUER}##editor"


def test_a_token_without_a_key_id_needs_the_only_key_that_fits() -> None:
    let_in(token({"kid": None}))
    two = {"keys": [*JWKS["keys"], make_key("ES256").public()]}
    assert isinstance(judged(token({"kid": None}), verifier(jwks=two)), Refusal)


def test_a_scope_includes_others() -> None:
    by = verifier(implies={"admin": ["notes"]}, scopes=["notes"])
    assert let_in(token(scope="admin"), by).scopes == {"admin", "notes"}


def test_a_shared_secret_verifies_nothing_but_what_it_signed() -> None:
    secret = b"s" * 32
    by = JWT(ISSUER, secret=secret, resource=RESOURCE, clock=Clock())
    let_in(forge({"alg": "HS256"}, claims(), secret), by)
    assert isinstance(judged(token(), by), Refusal)
    assert isinstance(judged(forge({"alg": "HS256"}, claims(), b"t" * 32), by), Refusal)


def test_only_the_algorithms_that_are_named_are_taken() -> None:
    by = verifier(algorithms=["RS256"])
    let_in(token(how="RS256"), by)
    for how in ("ES256", "EdDSA", "PS256"):
        signer = KEYS["RS256" if how == "PS256" else how]
        assert isinstance(judged(token(how=how, key=signer), by), Refusal)


# -- the table of attacks


def published(key: Key) -> list[bytes]:
    """Return the forms in which a public key is known to everybody."""
    loaded = key.jose.public_key
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = loaded.public_bytes(serialization.Encoding.PEM, spki)
    der = loaded.public_bytes(serialization.Encoding.DER, spki)
    return [pem, pem.strip(), der, json.dumps(key.public()).encode(), json.dumps(JWKS).encode()]


def with_one_twice(name: str) -> str:
    text = json.dumps(claims())[:-1] + f', "{name}": "evil"}}'
    return forge({"alg": "ES256", "kid": KEYS["ES256"].id}, text.encode(), KEYS["ES256"])


def with_payload(raw: bytes) -> str:
    return forge({"alg": "ES256", "kid": KEYS["ES256"].id}, raw, KEYS["ES256"])


GOOD = token()
SIGNED, _, SIGNATURE = GOOD.rpartition(".")
FOREIGN = make_key("ES256")
HEAD = {"alg": "ES256", "kid": KEYS["ES256"].id}

ATTACKS: dict[str, str] = {
    **{f"alg {how}": forge({"alg": how, "kid": KEYS["RS256"].id}, claims()) for how in ("none", "None", "nOnE", "")},
    **{
        f"HS256 with the public {kind} key, form {at}": forge({"alg": "HS256", "kid": KEYS[kind].id}, claims(), form)
        for kind in ("RS256", "ES256")
        for at, form in enumerate(published(KEYS[kind]))
    },
    "RS256 said PS256": token({"alg": "PS256"}, how="RS256"),
    "ES256 said RS256": token({"alg": "RS256"}),
    "ES256 with the id of the RSA key": token({"kid": KEYS["RS256"].id}),
    "ES256 of (0, 0)": f"{SIGNED}.{base64url(bytes(64))}",
    "no signature": f"{SIGNED}.",
    "half a signature": f"{SIGNED}.{SIGNATURE[: len(SIGNATURE) // 2]}",
    "another key, known id": token({"kid": KEYS["ES256"].id}, key=FOREIGN),
    "another key, own id": token(key=FOREIGN),
    "ES384": token({"alg": "ES384"}),
    "kid path": token({"kid": "../../etc/passwd"}),
    "kid URL": token({"kid": "https://evil.example/keys"}),
    "kid SQL": token({"kid": "' OR 1=1 --"}),
    "kid long": token({"kid": "k" * 1500}),
    "kid number": token({"kid": 7}),
    "kid list": token({"kid": [KEYS["ES256"].id]}),
    "header over 2 KiB": token({"x": "y" * 3000}),
    "jku": token({"jku": "https://evil.example/keys"}, key=FOREIGN),
    "x5u": token({"x5u": "https://evil.example/cert"}, key=FOREIGN),
    "jwk": token({"jwk": FOREIGN.public(), "kid": None}, key=FOREIGN),
    "x5c": token({"x5c": ["MIIB"]}, key=FOREIGN),
    "crit": token({"crit": ["exp"]}),
    "b64": token({"b64": False, "crit": ["b64"]}),
    "b64 alone": token({"b64": False}),
    "zip": token({"zip": "DEF"}),
    "type of an ID token": token({"typ": "id+jwt"}),
    "type of a DPoP proof": token({"typ": "dpop+jwt"}),
    "type of a logout token": token({"typ": "logout+jwt"}),
    "nested": forge({**HEAD, "cty": "JWT"}, GOOD.encode(), KEYS["ES256"]),
    "JWE": base64url(b'{"alg":"dir","enc":"A128GCM"}') + "..aXY.eA.dA",
    "five parts": f"{GOOD}.a.b",
    "two parts": SIGNED,
    "one part": "opaque-thing-99",
    "trailing dot": f"{GOOD}.",
    "trailing padding": f"{GOOD}==",
    "header no JSON": forge(b"{", claims(), KEYS["ES256"]),
    "header a list": forge(b"[]", claims(), KEYS["ES256"]),
    "header twice alg": forge(b'{"alg":"none","alg":"ES256"}', claims(), KEYS["ES256"]),
    "iss twice": with_one_twice("iss"),
    "aud twice": with_one_twice("aud"),
    "deep": with_payload(b'{"a":' + b"[" * 1500 + b"]" * 1500 + b"}"),
    "trailing bytes": with_payload(json.dumps(claims()).encode() + b"x"),
    "claims a list": with_payload(b"[]"),
    "claims empty": with_payload(b"{}"),
    "claims no UTF-8": with_payload(b'{"iss": "\xff"}'),
    "expired": token(exp=int(NOW) - 60),
    "expired 61 s ago": token(exp=int(NOW) - 61),
    "nbf ahead": token(nbf=int(NOW) + 61),
    "iat ahead": token(iat=int(NOW) + 61),
    "no exp": token(exp=None),
    "exp text": token(exp=str(int(NOW) + 600)),
    "exp fraction": token(exp=NOW + 600.5),
    "exp 1e400": with_payload(json.dumps(claims(exp=7)).encode().replace(b'"exp": 7', b'"exp": 1e400')),
    "exp huge": token(exp=10**400),
    "exp negative": token(exp=-1),
    "exp true": token(exp=True),
    "exp NaN": with_payload(json.dumps(claims(exp=7)).encode().replace(b'"exp": 7', b'"exp": NaN')),
    "nbf text": token(nbf="now"),
    "iat true": token(iat=True),
    "ID token": token(scope=None, client_id=None, azp="editor", nonce="n", at_hash="h"),
    "ID token with roles": token(scope=None, client_id=None, roles=["notes"], nonce="n"),
    "ID token of Keycloak": token(typ="ID"),
    "refresh token of Keycloak": token(typ="Refresh"),
    "ID token of Cognito": token(token_use="id"),
    "nobody": token(sub=None, client_id=None),
    "sub number": token(sub=7),
    "sub long": token(sub="a" * 2000),
    "no iss": token(iss=None),
    "other iss": token(iss="https://evil.example"),
    "iss with slash": token(iss=ISSUER + "/"),
    "iss upper": token(iss=ISSUER.upper()),
    "iss list": token(iss=[ISSUER]),
    "no aud": token(aud=None),
    "aud empty": token(aud=[]),
    "aud number": token(aud=7),
    "aud mixed": token(aud=[RESOURCE, 7]),
    "aud of a client": token(aud="editor"),
    "aud many": token(aud=[RESOURCE] + ["x"] * 64),
    "cnf text": token(cnf="x"),
    "cnf unknown": token(cnf={"kid": "x"}),
    **{
        f"aud {variant}": token(aud=variant)
        for variant in (
            RESOURCE + "/",
            RESOURCE[:-1],
            RESOURCE + "x",
            "https://mcp.example.com",
            "https://mcp.example.com/",
            RESOURCE.upper(),
            "http://mcp.example.com/mcp",
            "https://mcp.example.com:443/mcp",
            "https://mcp.example.com/other",
            "*",
            "",
        )
    },
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_is_let_in(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUT-02, AUT-03, AUTH-8: 401, nothing fetched, none of it repeated, and quickly."""
    monkeypatch.setattr("asyncio.BaseEventLoop.create_connection", _never)
    by = verifier()
    judged("x", by)  # the library is loaded
    begun = time.perf_counter()
    refused = judged(ATTACKS[attack], by)
    took = time.perf_counter() - begun
    assert isinstance(refused, Refusal)
    assert refused.status in (400, 401)
    (challenge,) = read_challenges(refused.headers["WWW-Authenticate"])
    assert challenge.parameters["resource_metadata"] == METADATA
    assert challenge.error == ("invalid_token" if refused.status == 401 else "invalid_request")
    said = refused.message + refused.headers["WWW-Authenticate"]
    assert "evil" not in said
    assert ATTACKS[attack][:20] not in said
    assert took < 0.05
    assert len(by.cache) == 0


def _never(*_: object, **__: object) -> None:
    raise AssertionError("nothing may be fetched")


# -- setting up


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithms": ["none"]},
        {"algorithms": ["HS256"]},
        {"algorithms": []},
        {"algorithms": "RS256"},
        {"jwks": None},
        {"jwks": {"keys": []}},
        {"jwks": {}},
        {"jwks": {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}},
        {"secret": "s" * 32},
        {"audience": []},
        {"audience": ""},
        {"audience_claim": "client_id"},
        {"resource": "http://mcp.example.com/mcp"},
        {"resource": "mcp.example.com"},
        {"resource": "https://mcp.example.com/mcp?x=y"},
        {"resource": "https://user@mcp.example.com/mcp"},
        {"scopes": "notes"},
        {"scopes": ["offline_access"]},
        {"provider": "nobody"},
        {"certificate_header": "x-cert"},
        {"dpop": "never"},
        {"verify_aud": False},
    ],
    ids=repr,
)
def test_what_cannot_be_meant_is_refused_before_serving(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        verifier(**wrong)


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(SetupError, match="32 bytes"):
        JWT(ISSUER, secret="short", resource=RESOURCE)


# -- providers


ENTRA_ID_TOKEN: dict[str, Any] = {"aud": "guid", "scope": None, "client_id": None, "roles": ["notes"]}
"""As one is for the application that is the API itself; its nonce may be left out."""


@pytest.mark.parametrize(
    ("options", "changes", "scopes"),
    [
        ({"provider": "auth0"}, {"scope": "openid", "permissions": ["notes"]}, {"openid", "notes"}),
        ({"provider": "okta"}, {"scope": None, "scp": ["notes"]}, {"notes"}),
        ({"provider": "entra", "audience": "guid"}, {"aud": "guid", "scope": None, "scp": "a b"}, {"a", "b"}),
        ({"provider": "entra", "audience": "guid"}, {**ENTRA_ID_TOKEN, "azp": "app"}, {"notes"}),
        ({"provider": "cognito", "audience": ["editor"]}, {"aud": None, "token_use": "access"}, {"notes"}),
        ({"provider": "keycloak"}, {"typ": "Bearer"}, {"notes"}),
        ({"provider": "supabase", "audience": "authenticated"}, {"aud": "authenticated"}, {"notes"}),
        ({"provider": "workos"}, {}, {"notes"}),
        ({"scope_claims": ["rights"]}, {"rights": "a b"}, {"a", "b"}),
    ],
    ids=lambda value: repr(sorted(value)) if isinstance(value, set) else repr(value),
)
def test_tokens_of_a_provider_are_read_as_it_writes_them(
    options: dict[str, Any], changes: dict[str, Any], scopes: set[str]
) -> None:
    assert let_in(token(**changes), verifier(**options)).scopes == scopes


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"provider": "cognito", "audience": ["editor"]}, {"aud": None, "token_use": "id"}),
        ({"provider": "cognito", "audience": ["editor"]}, {"aud": None, "token_use": "access", "client_id": "other"}),
        ({"provider": "keycloak"}, {}),
        ({"provider": "supabase"}, {"aud": "authenticated"}),
        ({"provider": "entra", "audience": "guid"}, {"aud": RESOURCE}),
        ({"provider": "entra", "audience": "guid"}, {**ENTRA_ID_TOKEN, "nonce": "n"}),
        ({"provider": "entra", "audience": "guid"}, ENTRA_ID_TOKEN),
        ({"require_claims": {"org": "x"}}, {}),
    ],
    ids=repr,
)
def test_tokens_a_provider_did_not_mean_for_us_are_refused(options: dict[str, Any], changes: dict[str, Any]) -> None:
    assert isinstance(judged(token(**changes), verifier(**options)), Refusal)


TENANTS = "https://login.microsoftonline.com/{tenantid}/v2.0"


@pytest.mark.parametrize(
    ("tenant", "issuer", "is_let_in"),
    [
        ("one", "https://login.microsoftonline.com/one/v2.0", True),
        ("two", "https://login.microsoftonline.com/one/v2.0", False),
        ("three", "https://login.microsoftonline.com/three/v2.0", False),
        (None, "https://login.microsoftonline.com/one/v2.0", False),
        ("{tenantid}", TENANTS, False),
        ("one/../evil", "https://login.microsoftonline.com/one/../evil/v2.0", False),
    ],
)
def test_a_tenant_is_named_by_the_token_and_by_its_issuer_alike(
    tenant: str | None, issuer: str, is_let_in: bool
) -> None:
    by = JWT(TENANTS, jwks=JWKS, resource=RESOURCE, provider="entra", tenants=["one", "two"], clock=Clock())
    verdict = judged(token(iss=issuer, tid=tenant), by)
    assert isinstance(verdict, Refusal) is not is_let_in
