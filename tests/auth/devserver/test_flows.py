"""The flows of the development server, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest
from oauth_caller import CALLBACK, RESOURCE, Caller, Clock, back, claims_of, error_of

from ferrule.auth.devserver.server import DevServer
from ferrule.auth.dpop import make_proof
from ferrule.auth.jose import Key, make_key, read_key, sign, verify

CONFIDENTIAL: dict[str, Any] = {"secret": "s3cret", "auth_method": "client_secret_basic"}
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type:"


def dev_server(**options: Any) -> DevServer:
    """Return a server with one public client, where `ada` is signed in at once."""
    server = DevServer(**{"user": "ada", **options})
    server.add_client("app", redirect_uris=[CALLBACK])
    return server


async def test_a_code_is_exchanged_for_a_token_of_the_resource() -> None:
    """AUTH-15."""
    clock = Clock()
    async with dev_server(clock=clock) as server, Caller(server) as caller:
        sent_back = back(await caller.authorize())
        assert sent_back["state"] == "s1"
        assert sent_back["iss"] == server.issuer
        answer = await caller.redeem(sent_back["code"])
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        given = answer.json()
        assert (given["token_type"], given["expires_in"], given["scope"]) == ("Bearer", 3600, "notes")
        keys = (await caller.get(server.url("keys"))).json()["keys"]
        verify(given["access_token"], read_key(keys[0]), "ES256")
        claims = claims_of(given["access_token"])
        assert claims["iss"] == server.issuer
        assert (claims["sub"], claims["aud"], claims["client_id"]) == ("ada", RESOURCE, "app")
        assert claims["exp"] == int(clock.now) + 3600


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"resource": "https://mcp.example.com/#x"}, "invalid_target"),
        ({"resource": "notes"}, "invalid_target"),
        ({"scope": 'a "b"'}, "invalid_scope"),
        ({"scope": "unknown"}, "invalid_scope"),
        ({"state": "x" * 5000}, "invalid_request"),
    ],
)
async def test_what_a_client_asks_wrongly_is_told_at_its_redirect_uri(changes: dict[str, Any], error: str) -> None:
    async with dev_server(scopes=["notes"]) as server, Caller(server) as caller:
        sent_back = back(await caller.authorize(**changes))
        assert sent_back["error"] == error
        assert sent_back["iss"] == server.issuer
        assert "code" not in sent_back


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "nobody"},
        {"client_id": None},
        {"redirect_uri": "https://evil.example.com/callback"},
        {"redirect_uri": "http://127.0.0.1:8765/callback/../x"},
        {"redirect_uri": "http://localhost:8765/callback"},
        {"redirect_uri": CALLBACK + "#x"},
    ],
)
async def test_a_browser_is_never_sent_to_an_unregistered_address(changes: dict[str, Any]) -> None:
    """AUT-09, AUTH-15."""
    async with dev_server() as server, Caller(server) as caller:
        answer = await caller.authorize(**changes)
        assert answer.status_code == 400
        assert "location" not in answer.headers
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def test_a_code_counts_once_and_its_second_use_revokes_what_it_gave() -> None:
    """AUT-08."""
    async with dev_server() as server, Caller(server) as caller:
        code = await caller.code()
        given = (await caller.redeem(code)).json()
        assert server.tokens.find_access(given["access_token"]) is not None
        assert error_of(await caller.redeem(code)) == (400, "invalid_grant")
        assert server.tokens.find_access(given["access_token"]) is None
        assert error_of(await caller.refresh(given["refresh_token"])) == (400, "invalid_grant")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "x" * 64}, (400, "invalid_grant")),
        ({"code_verifier": None}, (400, "invalid_grant")),
        ({"redirect_uri": "http://127.0.0.1:1/callback"}, (400, "invalid_grant")),
        ({"client_id": "other"}, (400, "invalid_grant")),
        ({"resource": "https://other.example.com/"}, (400, "invalid_target")),
        ({"grant_type": "password"}, (400, "unsupported_grant_type")),
        ({"grant_type": None}, (400, "invalid_request")),
        ({"client_secret": "x"}, (401, "invalid_client")),
    ],
)
async def test_a_code_is_worth_nothing_to_who_did_not_ask_for_it(
    changes: dict[str, Any], error: tuple[int, str]
) -> None:
    async with dev_server() as server, Caller(server) as caller:
        server.add_client("other", redirect_uris=[CALLBACK])
        assert error_of(await caller.redeem(await caller.code(), **changes)) == error


async def test_a_code_expires() -> None:
    clock = Clock()
    async with dev_server(clock=clock) as server, Caller(server) as caller:
        code = await caller.code()
        clock.now += 60
        assert error_of(await caller.redeem(code)) == (400, "invalid_grant")


async def test_a_parameter_that_stands_twice_is_refused() -> None:
    async with dev_server() as server, Caller(server) as caller:
        answer = await caller.authorize(state=["a", "b"])
        assert answer.status_code == 400
        assert "stands twice" in answer.text


# -- refresh


async def test_a_refresh_token_is_used_up_and_gives_the_same_successor_for_a_minute() -> None:
    """AUTH-15: refresh tokens rotate."""
    clock = Clock()
    async with dev_server(clock=clock) as server, Caller(server) as caller:
        first = (await caller.login())["refresh_token"]
        second = (await caller.refresh(first)).json()["refresh_token"]
        assert second != first
        clock.now += 60
        assert (await caller.refresh(first)).json()["refresh_token"] == second
        third = (await caller.refresh(second)).json()["refresh_token"]
        assert third not in (first, second)
        assert server.count("token", "refresh_token") == 3


async def test_a_used_refresh_token_shown_late_revokes_all_tokens_of_its_login() -> None:
    clock = Clock()
    async with dev_server(clock=clock) as server, Caller(server) as caller:
        first = (await caller.login())["refresh_token"]
        given = (await caller.refresh(first)).json()
        clock.now += 61
        assert error_of(await caller.refresh(first)) == (400, "invalid_grant")
        assert error_of(await caller.refresh(given["refresh_token"])) == (400, "invalid_grant")
        assert server.tokens.find_access(given["access_token"]) is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scope": "notes admin"}, "invalid_scope"),
        ({"resource": "https://other.example.com/mcp"}, "invalid_target"),
        ({"client_id": "other"}, "invalid_grant"),
        ({"refresh_token": "rt_unknown"}, "invalid_grant"),
    ],
)
async def test_a_refresh_gives_nothing_beyond_what_was_granted(changes: dict[str, Any], error: str) -> None:
    async with dev_server() as server, Caller(server) as caller:
        server.add_client("other", redirect_uris=[CALLBACK])
        token = (await caller.login())["refresh_token"]
        assert error_of(await caller.refresh(token, **changes)) == (400, error)


async def test_a_refresh_may_ask_for_less() -> None:
    async with dev_server() as server, Caller(server) as caller:
        token = (await caller.login(scope="notes admin"))["refresh_token"]
        given = (await caller.refresh(token, scope="notes", resource=RESOURCE)).json()
        assert claims_of(given["access_token"])["scope"] == "notes"


# -- clients


async def test_a_client_registers_itself_and_signs_in() -> None:
    """ACLI-15: RFC 7591."""
    async with dev_server() as server, Caller(server) as caller:
        document = {"client_name": "Notes", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
        grants = {"grant_types": ["authorization_code", "refresh_token"], "application_type": "native"}
        answer = await caller._http.post(server.url("register"), json={**document, **grants})
        assert answer.status_code == 201
        made = answer.json()
        assert made["application_type"] == "native"
        assert "client_secret" not in made
        caller.client_id = made["client_id"]
        assert "refresh_token" in await caller.login(redirect_uri=CALLBACK)


async def test_a_client_that_registers_for_codes_only_gets_no_refresh_token() -> None:
    async with dev_server() as server, Caller(server) as caller:
        answer = await caller._http.post(server.url("register"), json={"redirect_uris": [CALLBACK]})
        caller.client_id, caller.secret = answer.json()["client_id"], answer.json()["client_secret"]
        assert "refresh_token" not in await caller.login()


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (b"[]", "invalid_client_metadata"),
        (b"{", "invalid_client_metadata"),
        (b"{}", "invalid_redirect_uri"),
        (b'{"redirect_uris": "https://a.example/"}', "invalid_redirect_uri"),
        (b'{"redirect_uris": ["http://a.example/"]}', "invalid_redirect_uri"),
        (b'{"redirect_uris": ["javascript:alert(1)"]}', "invalid_redirect_uri"),
        (b'{"redirect_uris": ["https://a.example/"], "grant_types": ["password"]}', "invalid_client_metadata"),
        (b'{"redirect_uris": ["https://a.example/"], "token_endpoint_auth_method": "x"}', "invalid_client_metadata"),
        (
            b'{"redirect_uris": ["https://a.example/"], "token_endpoint_auth_method": "private_key_jwt"}',
            "invalid_client_metadata",
        ),
    ],
)
async def test_a_registration_that_is_wrong_is_refused(document: bytes, error: str) -> None:
    async with dev_server() as server, Caller(server) as caller:
        answer = await caller._http.post(server.url("register"), content=document)
        assert error_of(answer) == (400, error)


async def test_a_wrong_secret_is_refused_with_a_challenge() -> None:
    async with dev_server() as server, Caller(server, "job", "wrong") as caller:
        server.add_client("job", **CONFIDENTIAL)
        answer = await caller.post("token", {"grant_type": "client_credentials"})
        assert error_of(answer) == (401, "invalid_client")
        assert answer.headers["www-authenticate"].startswith("Basic")


@pytest.mark.parametrize("fields", [{}, {"client_secret": "s3cret"}])
@pytest.mark.parametrize("method", ["client_secret_basic", "private_key_jwt"])
async def test_a_client_authenticates_in_the_way_it_registered_for(method: Any, fields: dict[str, str]) -> None:
    """ACLI-18."""
    async with dev_server() as server, Caller(server, "job") as caller:
        secret = "s3cret" if method == "client_secret_basic" else ""
        server.add_client("job", auth_method=method, secret=secret, keys=[make_key()])
        answer = await caller.post("token", {"grant_type": "client_credentials", **fields})
        assert error_of(answer) == (401, "invalid_client")


async def test_a_client_gets_tokens_of_its_own_with_a_secret() -> None:
    """ACLI-20."""
    async with dev_server() as server, Caller(server, "job", "s3cret") as caller:
        server.add_client("job", **CONFIDENTIAL)
        answer = await caller.post(
            "token", {"grant_type": "client_credentials", "resource": RESOURCE, "scope": "notes"}
        )
        claims = claims_of(answer.json()["access_token"])
        assert (claims["sub"], claims["client_id"], claims["aud"]) == ("job", "job", RESOURCE)
        assert "refresh_token" not in answer.json()


async def test_a_public_client_gets_no_tokens_of_its_own() -> None:
    async with dev_server() as server, Caller(server) as caller:
        answer = await caller.post("token", {"grant_type": "client_credentials"})
        assert error_of(answer) == (400, "unauthorized_client")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"aud": "https://evil.example.com"}, 401),
        ({"iss": "other"}, 401),
        ({"sub": "other"}, 401),
        ({"exp": 1}, 401),
        ({"exp": 9_999_999_999}, 401),
        ({"exp": None}, 401),
        ({"nbf": 1_900_000_000}, 401),
    ],
)
async def test_a_client_gets_tokens_of_its_own_with_a_signed_assertion(changes: dict[str, Any], status: int) -> None:
    """ACLI-20: RFC 7523."""
    clock = Clock()
    key = make_key()
    async with dev_server(clock=clock) as server, Caller(server, "job") as caller:
        server.add_client("job", auth_method="private_key_jwt", keys=[read_key(key.public())])
        claims = {"iss": "job", "sub": "job", "aud": server.issuer, "exp": int(clock.now) + 60, "jti": "1", **changes}
        fields = {"grant_type": "client_credentials", "client_assertion_type": ASSERTION_TYPE}
        fields["client_assertion"] = sign({"kid": key.id}, claims, key)
        fields["client_id"] = "job"
        assert (await caller.post("token", fields)).status_code == status
        # The same assertion does not count twice.
        assert error_of(await caller.post("token", fields)) == (401, "invalid_client")


# -- assertions of others


async def test_a_login_elsewhere_becomes_a_token_here() -> None:
    """ACLI-20: token exchange for an identity assertion, then jwt-bearer (enterprise-managed authorization)."""
    async with dev_server() as idp, dev_server() as server, Caller(idp, "desk", "s3cret") as at_idp:
        server.trust(idp)
        idp.add_client("desk", **CONFIDENTIAL, elsewhere={server.issuer: "job"})
        server.add_client("job", **CONFIDENTIAL)
        exchange = {
            "grant_type": EXCHANGE,
            "requested_token_type": f"{TYPE}id-jag",
            "subject_token": idp.id_token("grace", client="desk"),
            "subject_token_type": f"{TYPE}id_token",
            "audience": server.issuer,
            "resource": RESOURCE,
        }
        answer = await at_idp.post("token", exchange)
        assert answer.json()["issued_token_type"] == f"{TYPE}id-jag"
        fields = {"grant_type": JWT_BEARER, "assertion": answer.json()["access_token"]}
        async with Caller(server, "job", "s3cret") as caller:
            claims = claims_of((await caller.post("token", fields)).json()["access_token"])
            assert (claims["sub"], claims["aud"], claims["client_id"]) == ("grace", RESOURCE, "job")
            assert error_of(await caller.post("token", fields)) == (400, "invalid_grant")
        # An ID token that was issued to another client is worth nothing.
        stolen = {**exchange, "subject_token": idp.id_token("grace", client="other")}
        assert error_of(await at_idp.post("token", stolen)) == (400, "invalid_request")
        async with Caller(server) as other:
            again = (await at_idp.post("token", exchange)).json()["access_token"]
            answer = await other.post("token", {"grant_type": JWT_BEARER, "assertion": again})
            assert error_of(answer) == (400, "invalid_grant")


async def test_an_assertion_of_somebody_unknown_is_worth_nothing() -> None:
    async with dev_server() as stranger, dev_server() as server, Caller(server) as caller:
        claims = {"iss": stranger.issuer, "sub": "mallory", "aud": server.issuer, "exp": 9_999_999_999}
        answer = await caller.post(
            "token", {"grant_type": JWT_BEARER, "assertion": stranger.tokens.sign(claims, "JWT")}
        )
        assert error_of(answer) == (400, "invalid_grant")
        assert error_of(await caller.post("token", {"grant_type": JWT_BEARER, "assertion": "x"})) == (
            400,
            "invalid_grant",
        )


async def test_an_access_token_is_exchanged_for_one_of_another_audience() -> None:
    """AUTH-8: RFC 8693."""
    async with dev_server() as server, Caller(server) as caller:
        first = (await caller.login())["access_token"]
        server.add_client("gateway", **CONFIDENTIAL)
        async with Caller(server, "gateway", "s3cret") as gateway:
            fields = {"grant_type": EXCHANGE, "subject_token": first, "subject_token_type": f"{TYPE}access_token"}
            answer = await gateway.post("token", {**fields, "resource": "https://upstream.example.com/mcp"})
            claims = claims_of(answer.json()["access_token"])
            assert (claims["sub"], claims["aud"]) == ("ada", "https://upstream.example.com/mcp")
            answer = await gateway.post("token", {**fields, "subject_token": "x"})
            assert error_of(answer) == (400, "invalid_request")
        assert error_of(await caller.post("token", fields)) == (400, "unauthorized_client")


# -- introspection and revocation


async def test_a_token_is_looked_up_and_revoked() -> None:
    """RFC 7662 and RFC 7009."""
    clock = Clock()
    async with dev_server(clock=clock) as server, Caller(server) as caller:
        server.add_client("api", **CONFIDENTIAL)
        async with Caller(server, "api", "s3cret") as api:
            given = await caller.login()
            found = (await api.post("introspect", {"token": given["access_token"]})).json()
            assert (found["active"], found["sub"], found["scope"]) == (True, "ada", "notes")
            assert (await api.post("introspect", {"token": "x"})).json() == {"active": False}
            assert error_of(await caller.post("introspect", {"token": "x"})) == (401, "invalid_client")
            # Only the client a token was issued to may revoke it.
            await api.post("revoke", {"token": given["refresh_token"]})
            assert (await api.post("introspect", {"token": given["access_token"]})).json()["active"]
            assert (await caller.post("revoke", {"token": given["refresh_token"]})).status_code == 200
            assert (await api.post("introspect", {"token": given["access_token"]})).json() == {"active": False}
            given = await caller.login()
            clock.now += 3600
            assert (await api.post("introspect", {"token": given["access_token"]})).json() == {"active": False}


# -- what it says of itself


async def test_the_metadata_says_what_it_can() -> None:
    """AUTH-15, AUTH-16: RFC 8414 and OpenID Connect Discovery."""
    async with dev_server(scopes=["notes"]) as server, Caller(server) as caller:
        for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
            said = (await caller.get(path)).json()
            assert said["issuer"] == server.issuer
            assert said["code_challenge_methods_supported"] == ["S256"]
            assert said["authorization_response_iss_parameter_supported"] is True
            assert said["client_id_metadata_document_supported"] is True
            assert said["scopes_supported"] == ["notes"]
            assert said["ferrule_dev"] is True


async def test_keys_are_rotated() -> None:
    async with dev_server() as server, Caller(server) as caller:
        old = server.access_token()
        server.tokens.rotate_key()
        keys = [read_key(each) for each in (await caller.get(server.url("keys"))).json()["keys"]]
        assert len(keys) == 2
        verify(old, keys[0], "ES256")
        verify(server.access_token(), keys[1], "ES256")
        server.tokens.rotate_key(keep=False)
        assert len((await caller.get(server.url("keys"))).json()["keys"]) == 1


async def test_an_endpoint_fails_as_often_as_it_is_told() -> None:
    async with dev_server() as server, Caller(server) as caller:
        token = (await caller.login())["refresh_token"]
        server.fail("token", 503, times=2)
        statuses = [(await caller.refresh(token)).status_code for _ in range(3)]
        assert statuses == [503, 503, 200]


async def test_a_page_of_another_origin_may_read_its_metadata_and_nothing_else() -> None:
    async with dev_server() as server, Caller(server) as caller:
        foreign = {"origin": "https://evil.example.com"}
        answer = await caller.get("/.well-known/openid-configuration", headers=foreign)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
        assert (await caller.get(server.url("user"), headers=foreign)).status_code == 403
        assert (await caller.post("token", {}, foreign)).status_code == 403


async def test_a_name_that_was_rebound_to_this_machine_is_refused() -> None:
    """AUT-18."""
    async with dev_server() as server, Caller(server) as caller:
        answer = await caller.get("/.well-known/openid-configuration", headers={"host": "evil.example.com"})
        assert answer.status_code == 403


# -- proofs of possession (RFC 9449)


async def test_a_token_is_bound_to_the_key_of_its_proof() -> None:
    key = make_key()
    clock = Clock()
    async with dev_server(clock=clock) as server, Caller(server) as caller:

        def proof(with_key: Key = key, method: str = "POST") -> dict[str, str]:
            return {"dpop": make_proof(with_key, method, server.url("token"), now=clock.now)}

        answer = await caller.redeem(await caller.code(), proof())
        given = answer.json()
        assert given["token_type"] == "DPoP"
        assert claims_of(given["access_token"])["cnf"] == {"jkt": key.thumbprint()}
        # The refresh token of a public client is bound too.
        token = given["refresh_token"]
        assert error_of(await caller.refresh(token)) == (400, "invalid_grant")
        assert error_of(await caller.refresh(token, proof(make_key()))) == (400, "invalid_grant")
        assert error_of(await caller.refresh(token, proof(method="GET"))) == (400, "invalid_dpop_proof")
        used = proof()
        assert (await caller.refresh(token, used)).status_code == 200
        assert error_of(await caller.refresh(token, used)) == (400, "invalid_dpop_proof")


async def test_a_proof_without_the_nonce_is_told_the_nonce() -> None:
    key = make_key()
    clock = Clock()
    async with dev_server(clock=clock, dpop="nonce") as server, Caller(server) as caller:
        code = await caller.code()
        answer = await caller.redeem(code, {"dpop": make_proof(key, "POST", server.url("token"), now=clock.now)})
        assert error_of(answer) == (400, "use_dpop_nonce")
        nonce = answer.headers["dpop-nonce"]
        proof = make_proof(key, "POST", server.url("token"), now=clock.now, nonce=nonce)
        answer = await caller.redeem(code, {"dpop": proof})
        assert answer.json()["token_type"] == "DPoP"
