"""A whole login through the proxy, with the double of each provider."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from proxy_desk import (
    CLIENT,
    KEYS,
    LOOPBACK,
    WEB,
    Clock,
    Desk,
    Visitor,
    a_desk,
    back,
    error_of,
    free_port,
    new_server,
    profile_at,
    serving,
)

from ferrule.auth.devserver.clients import RegisteredClient
from ferrule.auth.devserver.server import DevServer
from ferrule.auth.proxy.profiles import PROFILES
from ferrule.auth.proxy.proxy import OAuthProxy
from ferrule.errors import SetupError


@pytest.mark.parametrize("name", PROFILES)
async def test_a_client_logs_in_calls_refreshes_and_logs_out(name: str) -> None:
    """AUTH-13, AUTH-14: with each provider; GitHub, Google and the like register no clients."""
    async with a_desk(name) as desk, Visitor(desk) as visitor:
        tokens = await visitor.login()
        assert tokens["token_type"] == "Bearer"
        assert tokens["scope"] == desk.scope
        assert await desk.said(tokens["access_token"]) == f"{desk.base}#ada"
        desk.clock.now += 4000
        assert (await desk.call(tokens["access_token"])).status_code == 401
        renewed = (await visitor.refresh(tokens["refresh_token"])).json()
        assert await desk.said(renewed["access_token"]) == f"{desk.base}#ada"
        assert (await visitor.post("/revoke", {"token": renewed["refresh_token"]})).status_code == 200
        assert (await desk.call(renewed["access_token"])).status_code == 401
        assert error_of(await visitor.refresh(renewed["refresh_token"])) == (400, "invalid_grant")


@pytest.mark.parametrize("name", PROFILES)
async def test_aut_04_the_two_sides_never_see_the_tokens_of_the_other(name: str) -> None:
    """AUTH-8: the provider's token is had by asking for it, and differs from what the client holds."""
    async with a_desk(name) as desk, Visitor(desk) as visitor:
        tokens = await visitor.login()
        provided = await desk.said(tokens["access_token"], "upstream")
        assert desk.double.tokens.find_access(provided) is not None
        assert provided not in str(tokens)
        # Neither is taken by the other side.
        assert desk.double.tokens.find_access(tokens["access_token"]) is None
        assert (await desk.call(provided)).status_code == 401


async def test_the_metadata_leads_a_client_from_a_refusal_to_the_login() -> None:
    """AUTH-2, AUTH-3, AUTH-12, AUTH-15, AUTH-16."""
    async with a_desk() as desk, httpx.AsyncClient(trust_env=False) as http:
        refused = await http.post(desk.resource, json={})
        found = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
        assert found
        resource = (await http.get(found[1])).json()
        assert resource["resource"] == desk.resource
        assert resource["authorization_servers"] == [desk.base]
        answer = await http.get(f"{desk.base}/.well-known/oauth-authorization-server")
        server = answer.json()
        assert answer.headers["access-control-allow-origin"] == "*"
        assert server["issuer"] == desk.base
        assert server["code_challenge_methods_supported"] == ["S256"]
        assert server["authorization_response_iss_parameter_supported"] is True
        assert server["client_id_metadata_document_supported"] is True
        assert server["scopes_supported"] == ["notes"]
        endpoints = {name: url for name, url in server.items() if name.endswith("_endpoint")}
        assert len(endpoints) == 4
        for url in endpoints.values():
            assert (await http.options(url)).status_code == 204


async def test_the_proxy_is_served_by_an_asgi_server_too() -> None:
    """The same pages and endpoints, wherever the server runs."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    registered = RegisteredClient(
        id=CLIENT[0], secret=CLIENT[1], auth_method="client_secret_post", redirect_uris=[f"{base}/callback"]
    )
    clock = Clock()
    async with DevServer("github", user="ada", clients=[registered], clock=clock) as provider:
        proxy = OAuthProxy(
            profile_at(provider, "github"), CLIENT, resource=f"{base}/mcp", scopes=["notes"], keys=KEYS, clock=clock
        )
        config = uvicorn.Config(new_server(proxy).asgi(), port=port, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        running = asyncio.ensure_future(server._serve())
        while not server.started:
            await asyncio.sleep(0.005)
            assert not running.done(), running.result()
        desk = Desk(provider, proxy, base, clock, "github")
        try:
            async with Visitor(desk) as visitor:
                tokens = await visitor.login()
                assert await desk.said(tokens["access_token"]) == f"{base}#ada"
                assert (await visitor.refresh(tokens["refresh_token"])).status_code == 200
                assert (await desk.call("nonsense")).status_code == 401
        finally:
            server.should_exit = True
            await running


async def test_a_page_of_another_origin_may_be_a_client() -> None:
    """The endpoints without cookies may be called by pages; those with a cookie may not be read by them."""
    origin = {"origin": "https://inspector.example.com"}
    async with a_desk() as desk, httpx.AsyncClient(trust_env=False) as http:
        document = {"client_name": "Inspector", "redirect_uris": ["https://inspector.example.com/cb"]}
        answer = await http.post(f"{desk.base}/register", json=document, headers=origin)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, "*")
        page = await http.get(f"{desk.base}/authorize", headers=origin)
        assert "access-control-allow-origin" not in page.headers


async def test_the_answer_names_the_issuer_also_with_an_error() -> None:
    """AUTH-15: RFC 9207."""
    async with a_desk() as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        declined = back(await visitor.consent(page, "deny"))
        assert declined["error"] == "access_denied"
        assert (declined["iss"], declined["state"]) == (desk.base, "s1")
        allowed = back(await visitor.come_back())
        assert (allowed["iss"], allowed["state"]) == (desk.base, "s1")
        assert "error" not in allowed


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
async def test_a_client_with_a_secret_must_show_it(method: str) -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        client = await visitor.register(token_endpoint_auth_method=method)
        secret = client["client_secret"]
        for wrong in ({}, {"client_secret": "guess"}):
            code = back(await visitor.come_back())["code"]
            assert error_of(await visitor.redeem(code, **wrong)) == (401, "invalid_client")
        code = back(await visitor.come_back())["code"]
        if method == "client_secret_post":
            answer = await visitor.redeem(code, client_secret=secret)
        else:
            answer = await visitor.redeem(code, auth=(visitor.client_id, secret))
        assert answer.status_code == 200


async def test_a_login_outlives_a_restart_at_every_step(tmp_path: Path) -> None:
    """Keys and store are files: the page, the state, the code and the tokens of one process are good in the next."""
    port = free_port()
    kept: dict[str, Any] = {
        "port": port,
        "keys": (),
        "key_file": tmp_path / "keys",
        "store": tmp_path / "store",
    }
    provider_port = {"port": free_port()}
    async with a_desk("github", provider_port, **kept) as desk:
        visitor = Visitor(desk)
        page = await visitor.authorize()
    async with a_desk("github", provider_port, **kept):
        sent = await visitor.consent(page)
    async with a_desk("github", provider_port, **kept) as desk:
        callback = await visitor.at_provider(sent)
        came = await visitor.http.get(callback)
        code = back(came)["code"]
        provider = desk.double.tokens
    async with a_desk("github", provider_port, **kept) as desk:
        desk.double.tokens = provider
        answer = await visitor.redeem(code)
        assert answer.status_code == 200, answer.text
        tokens = answer.json()
    async with a_desk("github", provider_port, **kept) as desk:
        desk.double.tokens = provider
        assert await desk.said(tokens["access_token"]) == f"{desk.base}#ada"
        assert (await desk.said(tokens["access_token"], "upstream")).startswith("gho_")
        renewed = await visitor.refresh(tokens["refresh_token"])
        assert renewed.status_code == 200, renewed.text
        assert error_of(await visitor.redeem(code)) == (400, "invalid_grant")
    await visitor.http.aclose()


async def test_several_workers_share_a_login_at_every_step(tmp_path: Path) -> None:
    """Two proxies for one resource, with the same keys and the same file: each takes what the other has begun."""
    shared: dict[str, Any] = {"store": tmp_path / "store", "workers": 2}
    async with a_desk("google", **shared) as desk, Visitor(desk) as visitor:
        options: dict[str, Any] = {"resource": desk.resource, "scopes": [desk.scope], "keys": KEYS, **shared}
        proxy = OAuthProxy(desk.proxy.profile, CLIENT, clock=desk.clock, **options)
        port = free_port()
        other = Desk(desk.double, proxy, f"http://127.0.0.1:{port}", desk.clock, "google")
        async with serving(new_server(proxy), port):
            page = await visitor.authorize()
            visitor.desk = other
            sent = await visitor.consent(page)
            there = await visitor.at_provider(sent)
            code = back(await visitor.http.get(there.replace(desk.base, other.base)))["code"]
            answer = await visitor.redeem(code, resource=desk.resource)
            assert answer.status_code == 200, answer.text
            tokens = answer.json()
            desk.clock.now += 3600
            # Both find the provider's token expired at once, and both get the same successor.
            async with Visitor(desk) as twin:
                twin.client_id = visitor.client_id
                token = tokens["refresh_token"]
                answers = await asyncio.gather(visitor.refresh(token), twin.refresh(token))
            renewed = [each.json() for each in answers]
            assert renewed[0]["refresh_token"] == renewed[1]["refresh_token"]
            for place in (desk, other):
                for each in renewed:
                    assert await place.said(each["access_token"]) == f"{desk.base}#ada"
                assert (await place.said(renewed[0]["access_token"], "upstream")).startswith("ya29.")


async def test_nothing_secret_is_in_the_store_or_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file alone gives nobody a token: the provider's are sealed, ours are not there at all."""
    caplog.set_level(logging.DEBUG)
    async with a_desk("google", store=tmp_path / "store") as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        sent = await visitor.consent(page)
        state = back(sent)["state"]
        code = back(await visitor.http.get(await visitor.at_provider(sent)))["code"]
        tokens = (await visitor.redeem(code)).json()
        provided = await desk.said(tokens["access_token"], "upstream")
        await visitor.refresh(tokens["refresh_token"])
        secrets = [tokens["access_token"], tokens["refresh_token"], provided, code, state, CLIENT[1], KEYS[0]]
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert len(raw) > 1000
        logged = str([record.getMessage() for record in caplog.records if record.name.startswith("ferrule")])
        for secret in secrets:
            assert secret.encode() not in raw
            assert secret not in logged
            assert secret not in repr(desk.proxy.__dict__)


async def test_who_may_log_in_can_be_decided() -> None:
    async with a_desk(allow=lambda person: person.subject != "ada") as desk, Visitor(desk) as visitor:
        assert back(await visitor.come_back())["error"] == "access_denied"
        desk.double.authorization.user = "grace"
        tokens = await visitor.login()
        assert await desk.said(tokens["access_token"]) == f"{desk.base}#grace"


async def test_a_client_is_granted_what_it_asks_for_among_what_there_is() -> None:
    async with a_desk(more_scopes=["admin"]) as desk, Visitor(desk) as visitor:
        assert (await visitor.login(scope=None))["scope"] == "notes"
        assert (await visitor.login(scope="admin unknown"))["scope"] == "admin"
        both = await visitor.login(scope="admin notes")
        assert both["scope"] == "notes admin"
        assert back(await visitor.authorize(scope="unknown"))["error"] == "invalid_scope"
        # A refresh may ask for less, and never for more.
        less = (await visitor.refresh(both["refresh_token"], scope="notes")).json()
        assert less["scope"] == "notes"
        assert error_of(await visitor.refresh(less["refresh_token"], scope="root")) == (400, "invalid_scope")
        # A token without the scope that every request needs is told so (AUT-05).
        only = await visitor.login(scope="admin")
        refused = await desk.call(only["access_token"])
        assert refused.status_code == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]


async def test_a_web_client_is_asked_about_once_in_a_browser() -> None:
    """SEC-1: consent is remembered for one client, one place and some scopes, in one browser."""
    async with a_desk(more_scopes=["admin"]) as desk, Visitor(desk, WEB) as visitor:
        await visitor.login()
        assert (await visitor.authorize()).status_code == 303
        assert (await visitor.authorize(scope="notes admin")).status_code == 200
        assert (await visitor.authorize(prompt="consent")).status_code == 200
        async with Visitor(desk, WEB) as other:
            other.client_id = visitor.client_id
            assert (await other.authorize()).status_code == 200
        visitor.client_id = ""  # another registration of the same name
        assert (await visitor.authorize()).status_code == 200


@pytest.mark.parametrize("redirect", [LOOPBACK, "cursor://callback"])
async def test_a_client_on_this_machine_is_asked_about_each_time(redirect: str) -> None:
    """RFC 8252 §8.6: any program may use its address, or its scheme."""
    async with a_desk(redirect_schemes=["cursor"]) as desk, Visitor(desk, redirect) as visitor:
        await visitor.login()
        page = await visitor.authorize()
        assert page.status_code == 200
        assert "any program could use its name" in page.text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"upstream": "myspace"}, "upstream must be one of github, google"),
        ({"upstream": "entra"}, "needs tenant="),
        ({"upstream": "entra", "tenant": "a/b"}, "needs tenant="),
        ({"client": ("id", "")}, r"client must be \(id, secret\)"),
        ({"resource": "http://mcp.example.com/mcp"}, "https://"),
        ({"resource": "https://mcp.example.com/mcp?x=1"}, "plain URL"),
        ({"issuer": "https://mcp.example.com/"}, "slash"),
        ({"keys": ["short"]}, "too short"),
        ({"keys": ["k" * 32], "key_file": "x"}, "not both"),
        ({"workers": 2}, "2 workers need secrets and a store"),
        ({"workers": 2, "keys": ["k" * 32]}, "2 workers need secrets and a store"),
        ({"workers": 2, "store": "x"}, "2 workers need secrets and a store"),
        ({"registration_rate": "often"}, "a rate is written like"),
        ({"scopes": ["offline_access"]}, "offline_access"),
        ({"scope": ["x"]}, "scope"),
    ],
)
def test_what_cannot_work_is_refused_at_once(wrong: dict[str, Any], says: str) -> None:
    options: dict[str, Any] = {"upstream": "github", "client": CLIENT, "resource": "https://mcp.example.com/mcp"}
    with pytest.raises(SetupError, match=says):
        OAuthProxy(**{**options, **wrong})


def test_several_workers_may_share_keys_and_a_store(tmp_path: Path) -> None:
    options: dict[str, Any] = {"resource": "https://mcp.example.com/mcp", "store": tmp_path / "store", "workers": 2}
    proxy = OAuthProxy("github", CLIENT, key_file=tmp_path / "keys", **options)
    assert proxy.metadata()["issuer"] == "https://mcp.example.com"


def test_a_proxy_without_keys_says_what_that_means(caplog: pytest.LogCaptureFixture) -> None:
    OAuthProxy("github", CLIENT, resource="https://mcp.example.com/mcp")
    assert "every login ends with this process" in caplog.text
