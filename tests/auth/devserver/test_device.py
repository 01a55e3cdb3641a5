"""Logins on another device at the development server: its pages, and what it tells a client (RFC 8628)."""

from __future__ import annotations

from typing import Any

import pytest
from oauth_caller import RESOURCE, Caller, Clock, claims_of, error_of

from ferrule.auth.devserver.clients import DEVICE_CODE
from ferrule.auth.devserver.server import DevServer


async def begun(caller: Caller, **changes: Any) -> dict[str, Any]:
    """Begin a login."""
    answer = await caller.post("device", {"scope": "notes", "resource": RESOURCE, **changes})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def asked(caller: Caller, given: dict[str, Any]) -> Any:
    """Ask whether a login is done."""
    return await caller.post("token", {"grant_type": DEVICE_CODE, "device_code": given["device_code"]})


async def test_a_user_enters_the_code_and_the_client_gets_the_token_once() -> None:
    clock = Clock()
    async with DevServer(clock=clock) as server, Caller(server) as caller:
        server.add_client("app")
        given = await begun(caller)
        assert (given["interval"], given["expires_in"]) == (5.0, 600.0)
        page = await caller.get(given["verification_uri"])
        assert 'name="user_code"' in page.text
        page = await caller.get(given["verification_uri_complete"])
        assert f"<strong>{given['user_code']}</strong>" in page.text
        clock.now += 5
        assert error_of(await asked(caller, given)) == (400, "authorization_pending")
        assert error_of(await asked(caller, given)) == (400, "slow_down")
        form = {"user_code": given["user_code"], "user": "ada", "decision": "allow"}
        assert "You are signed in" in (await caller.post("device_page", form)).text
        assert "no such code" in (await caller.post("device_page", form)).text
        clock.now += 10
        answer = await asked(caller, given)
        assert answer.status_code == 200, answer.text
        claims = claims_of(answer.json()["access_token"])
        assert (claims["sub"], claims["aud"], claims["client_id"]) == ("ada", RESOURCE, "app")
        assert answer.json()["refresh_token"]
        clock.now += 10
        assert error_of(await asked(caller, given)) == (400, "invalid_grant")


async def test_what_a_client_is_told_where_nobody_signs_in() -> None:
    clock = Clock()
    async with DevServer(clock=clock, scopes=["notes"]) as server, Caller(server) as caller:
        server.add_client("app")
        server.add_client("other", grants=["authorization_code"], redirect_uris=["https://a.example/"])
        denied = await begun(caller)
        late = await begun(caller)
        await caller.post("device_page", {"user_code": denied["user_code"], "decision": "deny"})
        clock.now += 6
        assert error_of(await asked(caller, denied)) == (400, "access_denied")
        clock.now += 600
        assert error_of(await asked(caller, late)) == (400, "expired_token")
        assert "no such code" in (await caller.get(late["verification_uri_complete"])).text
        assert error_of(await caller.post("device", {"scope": "other"})) == (400, "invalid_scope")
        async with Caller(server, "other") as other:
            assert error_of(await other.post("device", {})) == (400, "unauthorized_client")
            stolen = await other.post("token", {"grant_type": DEVICE_CODE, "device_code": late["device_code"]})
            assert error_of(stolen) == (400, "unauthorized_client")


@pytest.mark.parametrize("profile", ["plain", "slack"])
async def test_only_servers_that_have_it_say_so(profile: str) -> None:
    async with DevServer(profile) as server, Caller(server) as caller:
        document = (await caller.get(server.profile.discovery_paths()[0])).json()
        assert ("device_authorization_endpoint" in document) == (profile == "plain")
