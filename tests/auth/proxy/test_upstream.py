"""The provider behind the proxy: what it is asked, what it may answer, and what becomes of a login when it fails."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, urlsafe_b64encode
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from msgspec import structs
from proxy_desk import CLIENT, Clock, Visitor, a_desk, back, error_of

from ferrule.auth.address import AddressRules
from ferrule.auth.fetch import Fetcher
from ferrule.auth.proxy.profiles import PROFILES, Profile, profile_of
from ferrule.auth.proxy.upstream import Upstream, UpstreamDown, UpstreamRefused, UpstreamTokens, challenge_of
from ferrule.errors import SetupError
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.routes.web import WebRequest, WebResponse


class Provider:
    """A provider that answers what a test says, and writes down all that it was sent."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.heard: list[tuple[str, str, dict[str, str], str]] = []
        routes = [CustomRoute(f"/{name}", ["GET", "POST"], self.answer, auth=False) for name in ("token", "user")]
        self.site = Site(routes)

    async def answer(self, request: WebRequest) -> WebResponse:
        body = (await request.body()).decode()
        self.heard.append((request.path, request.query, dict(request.headers), body))
        said = self.answers.pop(0)
        return said if isinstance(said, WebResponse) else WebResponse(said)

    def profile(self, **changes: Any) -> Profile:
        base = Profile(
            "Provider",
            f"{self.site.origin}/authorize?via=1",
            f"{self.site.origin}/token",
            identity="document",
            identity_url=f"{self.site.origin}/user",
        )
        return structs.replace(base, **changes)

    def upstream(self, clock: Clock | None = None, **changes: Any) -> Upstream:
        fetcher = Fetcher(AddressRules(loopback=True), timeout=0.5)
        return Upstream(self.profile(**changes), CLIENT, "https://us.example/callback", fetcher, clock or Clock())


def id_token(**changes: Any) -> str:
    claims = {"iss": "https://p.example", "sub": "ada", "aud": CLIENT[0], "exp": 2e9, "nonce": "n", **changes}
    kept = {name: value for name, value in claims.items() if value is not None}
    return f"x.{urlsafe_b64encode(msgspec.json.encode(kept)).rstrip(b'=').decode()}.x"


# -- what it is asked


async def test_a_user_is_sent_there_with_our_own_request() -> None:
    provider = Provider()
    async with provider.site:
        upstream = provider.upstream(scopes=("openid",), without=("offline_access",), parameters={"prompt": "consent"})
        url = urlsplit(upstream.authorize_url(["notes", "offline_access"], "state", "verifier", "nonce"))
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert asked == {
        "via": "1",
        "response_type": "code",
        "client_id": CLIENT[0],
        "redirect_uri": "https://us.example/callback",
        "scope": "openid notes",
        "state": "state",
        "nonce": "nonce",
        "code_challenge": challenge_of("verifier"),
        "code_challenge_method": "S256",
        "prompt": "consent",
    }
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize("method", ["post", "basic"])
async def test_we_show_who_we_are_as_the_provider_wants_it(method: str) -> None:
    provider = Provider()
    async with provider.site:
        provider.answers = [{"access_token": "a"}]
        await provider.upstream(client_auth=method).exchange("code", "verifier")
        (_, _, headers, body) = provider.heard[0]
    fields = {name: values[0] for name, values in parse_qs(body).items()}
    assert (fields["grant_type"], fields["code"], fields["code_verifier"]) == ("authorization_code", "code", "verifier")
    assert headers["accept"] == "application/json"
    if method == "post":
        assert (fields["client_id"], fields["client_secret"]) == CLIENT
        assert "authorization" not in headers
    else:
        assert b64decode(headers["authorization"].partition(" ")[2]).decode() == ":".join(CLIENT)
        assert "client_secret" not in fields


async def test_aut_04_nothing_of_the_client_reaches_the_provider() -> None:
    """A whole login, a refresh and a call: neither tokens, codes, states, ids nor verifiers of the client go there."""
    provider = Provider()
    clock = Clock()
    async with provider.site, a_desk("github", clock=clock) as desk, Visitor(desk) as visitor:
        real = desk.proxy.upstream
        # The user logs in at the double; what the proxy itself asks goes to a provider that writes it all down.
        real.profile = provider.profile(checked_by_use=True, authorize=real.profile.authorize)
        provider.answers = [{"access_token": "upstream-a"}, {"sub": "ada"}, {"sub": "ada"}]
        sent = await visitor.consent(await visitor.authorize())
        assert visitor.client_id not in sent.headers["location"]
        assert visitor.challenge not in sent.headers["location"]
        code = back(await visitor.http.get(await visitor.at_provider(sent)))["code"]
        tokens = (await visitor.redeem(code)).json()
        clock.now += 100
        renewed = (await visitor.refresh(tokens["refresh_token"])).json()
        assert await desk.said(renewed["access_token"], "upstream") == "upstream-a"
        assert [heard[0] for heard in provider.heard] == ["/token", "/user", "/user"]
        everything = str(provider.heard)
        secrets = [visitor.client_id, visitor.verifier, visitor.challenge, code, "s1"]
        secrets += [*tokens.values(), *renewed.values()]
        for secret in secrets:
            if secret not in ("Bearer", "notes", 600):
                assert f"{secret}'" not in everything
                assert f"={secret}&" not in everything
                assert f" {secret}" not in everything


# -- what it may answer


async def test_tokens_are_read_in_every_spelling() -> None:
    provider = Provider()
    clock = Clock()
    async with provider.site:
        upstream = provider.upstream(clock)
        provider.answers = [
            {"access_token": "a", "expires_in": 60, "scope": "x,y z", "refresh_token": "r"},
            {"access_token": "a", "expires_in": "60"},
            {"access_token": "a", "expires_in": "soon", "scope": 7},
            {"access_token": "a", "expires_in": 1e300},
            {"access_token": "a", "expires_in": -5},
        ]
        first = await upstream.exchange("c", "v")
        assert (first.scopes, first.refresh, first.expires) == (("x", "y", "z"), "r", clock.now + 60)
        assert (await upstream.exchange("c", "v")).expires == clock.now + 60
        for _ in range(3):
            assert (await upstream.exchange("c", "v")).expires is None


async def test_a_refresh_keeps_what_the_answer_leaves_out() -> None:
    """Google does not repeat the refresh token; Entra wants the scopes again."""
    provider = Provider()
    async with provider.site:
        before = UpstreamTokens(access="a", refresh="r", scopes=("x", "y"))
        provider.answers = [{"access_token": "b"}, {"access_token": "b", "refresh_token": "s", "scope": "x"}]
        after = await provider.upstream().refresh(before)
        assert (after.access, after.refresh, after.scopes) == ("b", "r", ("x", "y"))
        assert "scope=" not in provider.heard[0][3]
        after = await provider.upstream(repeats_scope=True).refresh(before)
        assert (after.refresh, after.scopes) == ("s", ("x",))
        assert "scope=x+y" in provider.heard[1][3]
        with pytest.raises(UpstreamRefused):
            await provider.upstream().refresh(UpstreamTokens(access="a"))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "a\r\nb"},
        {"access_token": "ä"},
        {"access_token": "a" * 20_000},
        {"access_token": "a", "refresh_token": ["r"]},
        {"error": "bad_verification_code"},
        {"ok": False, "access_token": "a"},
        WebResponse({"error": "invalid_grant"}, 400),
        WebResponse("<html>", 400),
    ],
)
async def test_an_answer_without_a_usable_token_is_a_refusal(answer: Any) -> None:
    provider = Provider()
    async with provider.site:
        provider.answers = [answer]
        with pytest.raises(UpstreamRefused):
            await provider.upstream().exchange("c", "v")


@pytest.mark.parametrize(
    "answer",
    [
        WebResponse({"error": "server_error"}, 500),
        WebResponse("busy", 503),
        WebResponse("slow down", 429),
        WebResponse({"error": "invalid_client"}, 401),
        {"error": "incorrect_client_credentials"},
        WebResponse(None, 302, {"Location": "/user"}),
        WebResponse("x" * 70_000),
    ],
)
async def test_what_says_nothing_of_the_user_is_no_refusal(answer: Any) -> None:
    """A secret that is set up wrongly, or a provider that is not well, must not log anybody out."""
    provider = Provider()
    async with provider.site:
        provider.answers = [answer]
        with pytest.raises(UpstreamDown):
            await provider.upstream().exchange("c", "v")


async def test_a_provider_that_is_gone_or_slow_is_no_refusal() -> None:
    provider = Provider()
    async with provider.site:
        upstream = provider.upstream()

        async def late(request: WebRequest) -> WebResponse:
            await asyncio.sleep(30)
            return WebResponse(None)

        provider.site._routes[0].answer = late
        with pytest.raises(UpstreamDown, match="did not answer within"):
            await upstream.exchange("c", "v")
    with pytest.raises(UpstreamDown, match="cannot be reached"):
        await upstream.exchange("c", "v")


@pytest.mark.parametrize(
    ("claims", "fields"),
    [
        ({}, {}),
        ({"sub": ""}, {}),
        ({"sub": None}, {}),
        ({"sub": True}, {}),
        ({"sub": ["ada"]}, {}),
        ({"sub": "a" * 300}, {}),
        ({"sub": "a\u0000b"}, {}),
        ({"tid": "t"}, {"subject": ("tid", "oid")}),
        ({"sub": "ada", "aud": "another-app"}, {"audience": "aud"}),
        ({"sub": "ada"}, {"audience": "aud"}),
        (WebResponse({"message": "Bad credentials"}, 401), {}),
    ],
)
async def test_who_is_not_named_is_nobody(claims: Any, fields: dict[str, Any]) -> None:
    """AUT-01, AUT-03: no fallback identity; a token that Google gave to another application is refused."""
    provider = Provider()
    async with provider.site:
        provider.answers = [claims]
        with pytest.raises(UpstreamRefused):
            await provider.upstream(**fields).identify(UpstreamTokens(access="a"))


async def test_a_user_is_named_by_what_never_changes() -> None:
    provider = Provider()
    async with provider.site:
        provider.answers = [{"id": 583231, "login": "octocat\u202e"}, {"team_id": "T1", "user_id": "U1", "ok": True}]
        github = {"subject": ("id",), "name": "login"}
        person = await provider.upstream(**github).identify(UpstreamTokens(access="a"))
        assert (person.subject, person.name) == ("583231", "octocat")
        slack = {"subject": PROFILES["slack"].subject}
        assert (await provider.upstream(**slack).identify(UpstreamTokens(access="a"))).subject == "T1:U1"
        assert provider.heard[0][2]["authorization"] == "Bearer a"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.###.c",
        id_token(aud="another-app"),
        id_token(aud=[CLIENT[0], "another-app"]),
        id_token(iss="https://evil.example"),
        id_token(exp=1),
        id_token(exp=None),
        id_token(nonce="other"),
        id_token(nonce=None),
        id_token(sub=None),
    ],
)
async def test_an_id_token_that_is_not_for_this_login_names_nobody(token: str) -> None:
    provider = Provider()
    async with provider.site:
        upstream = provider.upstream(identity="id_token", issuer="https://p.example")
        good = await upstream.identify(UpstreamTokens(access="a", id_token=id_token()), "n")
        assert good.subject == "ada"
        with pytest.raises(UpstreamRefused):
            await upstream.identify(UpstreamTokens(access="a", id_token=token), "n")


async def test_an_id_token_of_any_tenant_names_its_own() -> None:
    """The tenant `common` stands for all; the issuer of an ID token is that of the tenant it names."""
    issuer = profile_of("entra", "common").issuer
    assert profile_of("entra", "contoso.example").issuer == "https://login.microsoftonline.com/contoso.example/v2.0"
    provider = Provider()
    async with provider.site:
        upstream = provider.upstream(identity="id_token", issuer=issuer)
        one = "https://login.microsoftonline.com/one/v2.0"
        good = UpstreamTokens(access="a", id_token=id_token(iss=one, tid="one"))
        assert (await upstream.identify(good, "n")).subject == "ada"
        for wrong in (id_token(iss=one, tid="two"), id_token(iss=one), id_token(iss=issuer, tid="{tenantid}")):
            with pytest.raises(UpstreamRefused):
                await upstream.identify(UpstreamTokens(access="a", id_token=wrong), "n")


# -- what becomes of a login


async def test_a_login_that_the_provider_ended_ends_here_too() -> None:
    """AUTH-13: at the next refresh, and when a handler asks for the provider's token."""
    async with a_desk("github") as desk, Visitor(desk) as visitor:
        tokens = await visitor.login()
        provided = await desk.said(tokens["access_token"], "upstream")
        found = desk.double.tokens.find_access(provided)
        assert found is not None
        found.login.revoked = True
        desk.clock.now += 61
        refused = await desk.call(tokens["access_token"], "upstream")
        assert refused.status_code == 401 or "log in again" in refused.text
        assert error_of(await visitor.refresh(tokens["refresh_token"])) == (400, "invalid_grant")
        assert (await desk.call(tokens["access_token"])).status_code == 401


@pytest.mark.parametrize("status", [500, 503])
async def test_a_provider_that_is_down_puts_a_refresh_off_and_ends_nothing(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with a_desk("google") as desk, Visitor(desk) as visitor:
        tokens = await visitor.login()
        desk.clock.now += 3600
        desk.double.fail("token", status)
        answer = await visitor.refresh(tokens["refresh_token"])
        assert error_of(answer) == (503, "temporarily_unavailable")
        assert answer.headers["retry-after"] == "2"
        assert "a refresh had to be put off" in caplog.text
        assert (await visitor.refresh(tokens["refresh_token"])).status_code == 200


async def test_a_provider_that_is_down_during_a_login_is_told_to_the_client() -> None:
    async with a_desk("google") as desk, Visitor(desk) as visitor:
        desk.double.fail("token", 500)
        assert back(await visitor.come_back())["error"] == "temporarily_unavailable"
        desk.double.fail("token", 400, body=b'{"error": "invalid_grant"}')
        assert back(await visitor.come_back())["error"] == "access_denied"
        desk.double.authorization.user = ""
        sent = await visitor.consent(await visitor.authorize())
        state = back(sent)["state"]
        came = await visitor.http.get(f"{desk.base}/callback", params={"error": "access_denied", "state": state})
        assert back(came)["error"] == "access_denied"


async def test_a_refresh_storm_asks_the_provider_once() -> None:
    """Fifty processes of a client refresh at once: one refresh there, one successor here."""
    async with a_desk("google") as desk, Visitor(desk) as visitor:
        tokens = await visitor.login()
        desk.clock.now += 3600
        answers = await asyncio.gather(*(visitor.refresh(tokens["refresh_token"]) for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["refresh_token"] for answer in answers}) == 1
        assert desk.double.count("token", "refresh_token") == 1


# -- profiles


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_whole_addresses(name: str) -> None:
    profile = profile_of(name, "tenant.example")
    for url in (profile.authorize, profile.token, profile.identity_url, profile.issuer):
        assert "{" not in url
        assert url == "" or url.startswith("https://")
    assert profile.identity == "id_token" or profile.identity_url


def test_a_profile_of_ones_own_must_be_reached_over_tls() -> None:
    own = Profile("Own", "https://a.example/a", "http://a.example/t")
    with pytest.raises(SetupError, match="token of Own must be an https:// URL"):
        profile_of(own)
    assert profile_of(structs.replace(own, token="http://127.0.0.1:1/t")).is_local
