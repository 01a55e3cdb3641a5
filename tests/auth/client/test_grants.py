"""Grants without a person, against a real authorization server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from protected import protected

from ferrule import AuthorizationFailed, Client, ClientCredentials, EnterpriseManaged, SetupError, WorkloadIdentity
from ferrule.auth.devserver.server import DevServer
from ferrule.auth.jose import make_key, sign

GRANT = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
async def test_a_program_has_rights_of_its_own(mode: Any) -> None:
    """ACLI-18, ACLI-20: with a secret, which may have any characters."""
    async with protected() as place:
        secret = "s%:+ é&=cret"
        place.issuer.add_client("robot", secret=secret, auth_method="client_secret_basic", grants=[GRANT])
        auth = ClientCredentials(client_id="robot", client_secret=secret)
        async with Client(place.url, auth=auth, mode=mode) as client:
            assert "robot" in (await client.call_tool("whoami")).text
        assert place.issuer.count("token", GRANT) == 1
        assert place.issuer.count("register") == 0


async def test_a_program_signs_who_it_is() -> None:
    """ACLI-20: private_key_jwt, RFC 7523 §2.2."""
    async with protected() as place:
        key = make_key("ES256")
        place.issuer.add_client("robot", auth_method="private_key_jwt", keys=[key], grants=[GRANT])
        auth = ClientCredentials(client_id="robot", key=key.private_pem())
        async with Client(place.url, auth=auth) as client:
            assert "robot" in (await client.call_tool("whoami")).text


@pytest.mark.parametrize("named", [True, False])
async def test_who_shows_a_secret_to_whom_the_server_names_is_told(
    named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """ACLI-12: a server could name an authorization server of its own, and would get the secret by that."""
    async with protected() as place:
        place.issuer.add_client("robot", secret="s3cret-of-it", auth_method="client_secret_basic", grants=[GRANT])
        options = {"issuer": place.issuer.issuer} if named else {}
        auth = ClientCredentials(client_id="robot", client_secret="s3cret-of-it", **options)
        async with Client(place.url, auth=auth) as client:
            await client.call_tool("whoami")
    assert ("say whom you mean with issuer=" in caplog.text) != named
    assert "s3cret" not in caplog.text


async def test_a_refusal_is_told_without_the_secret() -> None:
    async with protected() as place:
        place.issuer.add_client("robot", secret="the right one", auth_method="client_secret_basic", grants=[GRANT])
        auth = ClientCredentials(client_id="robot", client_secret="the wrong one")
        with pytest.raises(AuthorizationFailed, match="invalid_client") as refused:
            async with Client(place.url, auth=auth):
                pass
        assert "wrong one" not in str(refused.value)


async def test_a_workload_is_known_by_its_platforms_token(tmp_path: Path) -> None:
    """RFC 7523 §2.1: the token is read anew for each grant."""
    async with protected() as place:
        key = make_key("ES256")
        place.issuer.trust_keys("https://platform.example", [key])
        place.issuer.add_client("job", auth_method="none", grants=[JWT_BEARER])
        now = int(time.time())
        claims = {
            "iss": "https://platform.example",
            "sub": "ada",
            "aud": place.issuer.issuer,
            "iat": now,
            "exp": now + 60,
            "jti": "1",
        }
        file = tmp_path / "token"
        file.write_text(sign({"typ": "JWT", "kid": key.id}, claims, key) + "\n")
        async with Client(place.url, auth=WorkloadIdentity(client_id="job", token_file=file)) as client:
            assert (await client.call_tool("whoami")).text.endswith("#ada")
        assert place.issuer.count("token", JWT_BEARER) == 1


async def test_after_a_refusal_neither_another_try_nor_another_grant() -> None:
    async with protected() as place:
        place.issuer.add_client("job", auth_method="none", grants=[JWT_BEARER])
        with pytest.raises(AuthorizationFailed, match="gives no token"):
            async with Client(place.url, auth=WorkloadIdentity(client_id="job", token="not a token")):
                pass
        assert [each.grant for each in place.issuer.seen if each.endpoint == "token"] == [JWT_BEARER]


async def test_an_enterprise_vouches_for_its_people() -> None:
    """ACLI-20: ID token, ID-JAG, access token."""
    async with DevServer(user="ada") as provider, protected() as place:
        place.issuer.trust(provider)
        exchange = "urn:ietf:params:oauth:grant-type:token-exchange"
        elsewhere = {place.issuer.issuer: "app"}
        provider.add_client("desk", auth_method="none", grants=[exchange], elsewhere=elsewhere)
        place.issuer.add_client("app", secret="a secret", auth_method="client_secret_basic", grants=[JWT_BEARER])
        auth = EnterpriseManaged(
            client_id="app",
            client_secret="a secret",
            idp_token_endpoint=provider.url("token"),
            idp_client_id="desk",
            id_token=lambda: provider.id_token(client="desk"),
        )
        async with Client(place.url, auth=auth) as client:
            assert (await client.call_tool("whoami")).text.endswith("#ada")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (ClientCredentials, {"client_id": "x"}, "client_secret or a key"),
        (ClientCredentials, {"client_id": "x", "client_secret": "y", "key": "z"}, "client_secret or a key"),
        (ClientCredentials, {"client_id": "x", "key": "no PEM"}, "private key in PEM"),
        (ClientCredentials, {"client_id": "x", "client_secret": 7}, "client_secret must be a str"),
        (WorkloadIdentity, {"client_id": "x"}, "one of token, token_file and token_variable"),
        (WorkloadIdentity, {"client_id": "x", "token": "a", "token_file": "b"}, "one of token"),
    ],
)
def test_options_that_cannot_be_are_refused(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(SetupError, match=words):
        kind(**options)
