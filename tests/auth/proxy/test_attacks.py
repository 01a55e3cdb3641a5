"""What is tried against a proxy: each attack by its id, over real sockets."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from proxy_desk import LOOPBACK, WEB, Visitor, a_desk, back, error_of, pkce, ticket_of

from ferrule.auth.proxy.pages import POLICY
from ferrule.stores.memory import MemoryStore
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.routes.web import WebRequest, WebResponse

# -- redirect URIs


@pytest.mark.parametrize(
    "uri",
    [
        "https://app.example.com/callback/",
        "https://app.example.com/callback?next=https://evil.example",
        "https://app.example.com/callback#x",
        "https://app.example.com:8443/callback",
        "https://app.example.com@evil.example/callback",
        "https://APP.example.com/callback",
        "https://app.example.com/a/../callback",
        "https://evil.example/callback",
        "http://127.0.0.1:1@evil.example/callback",
        "http://localhost:33418/callback",
        "http://[::1]:33418/callback",
        "http://127.0.0.1:33418/other",
        "http://[::ffff:127.0.0.1]:33418/callback",
        "javascript:alert(1)",
        "",
        None,
    ],
)
async def test_aut_09_a_browser_is_sent_only_where_the_client_has_registered(uri: str | None) -> None:
    """SEC-4: what is wrong gets a page of ours, and no Location at all."""
    async with a_desk() as desk, Visitor(desk) as visitor:
        await visitor.register(redirect_uris=[WEB, LOOPBACK])
        answer = await visitor.authorize(redirect_uri=uri)
        assert answer.status_code == 400
        assert "location" not in answer.headers
        assert "redirect_uri is not one that this client has registered" in answer.text
        assert desk.double.count("authorize") == 0


async def test_aut_09_any_port_of_this_machine_is_taken() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        await visitor.register()
        visitor.redirect = "http://127.0.0.1:50123/callback"
        answer = await visitor.come_back()
        assert answer.headers["location"].startswith("http://127.0.0.1:50123/callback?code=")
        # The code is good for the very address that was asked for.
        code = back(answer)["code"]
        assert error_of(await visitor.redeem(code, redirect_uri=LOOPBACK)) == (400, "invalid_grant")


async def test_aut_09_a_request_that_nobody_allowed_sends_nobody_to_a_site() -> None:
    """ERRA-9, RFC 9700 §4.11.2: anybody can register a client, and must not make us an open redirector."""
    async with a_desk() as desk, Visitor(desk, "https://evil.example/?a=b") as visitor:
        answer = await visitor.authorize(scope="unknown", state='"><script>')
        assert answer.status_code == 400
        assert "location" not in answer.headers
        assert "refresh" not in answer.headers
        assert 'href="https://evil.example/?a=b&amp;error=invalid_scope' in answer.text
        assert "<script" not in answer.text


# -- confused deputy


async def test_aut_10_a_login_of_another_browser_is_refused_and_stays_good_for_its_own() -> None:
    """SEC-5: the attacker consents in a browser of their own and sends the victim on (CVE-2026-27124)."""
    async with a_desk() as desk, Visitor(desk, WEB) as attacker, Visitor(desk) as victim:
        sent = await attacker.consent(await attacker.authorize())
        stolen = await attacker.at_provider(sent)
        assert (await victim.http.get(stolen)).status_code == 403
        await victim.authorize()  # now the victim has a cookie of its own
        answer = await victim.http.get(stolen)
        assert answer.status_code == 403
        assert "location" not in answer.headers
        assert desk.double.count("token") == 0
        assert "code" in back(await attacker.http.get(stolen))


async def test_aut_10_each_client_needs_consent_of_its_own() -> None:
    """SEC-1, AUTH-14: the user has allowed one client here and everything at the provider; another asks anew."""
    async with a_desk() as desk, Visitor(desk, WEB) as visitor:
        await visitor.login()
        await visitor.register(client_name="Notebook", redirect_uris=["https://evil.example/callback"])
        visitor.redirect = "https://evil.example/callback"
        before = desk.double.count("authorize")
        page = await visitor.authorize()
        assert page.status_code == 200
        assert "evil.example" in page.text
        assert desk.double.count("authorize") == before


async def test_aut_10_a_state_is_used_once_and_within_ten_minutes() -> None:
    """SEC-5"""
    async with a_desk() as desk, Visitor(desk) as visitor:
        there = await visitor.at_provider(await visitor.consent(await visitor.authorize()))
        assert "code" in back(await visitor.http.get(there))
        assert (await visitor.http.get(there)).status_code == 403
        there = await visitor.at_provider(await visitor.consent(await visitor.authorize()))
        desk.clock.now += 601
        assert (await visitor.http.get(there)).status_code == 403
        for state in ("", "state=", "state=guess", "state=a&state=b"):
            answer = await visitor.http.get(f"{desk.base}/callback?code=x&{state}")
            assert answer.status_code in (400, 403)
            assert "location" not in answer.headers


async def test_aut_10_no_state_exists_before_consent() -> None:
    """SEC-5: what the page shows leads nowhere by itself."""
    async with a_desk() as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        answer = await visitor.http.get(f"{desk.base}/callback", params={"code": "x", "state": ticket_of(page)})
        assert answer.status_code == 403
        assert desk.double.count("token") == 0


async def test_aut_10_a_state_of_two_who_come_at_once_is_used_by_one() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        there = await visitor.at_provider(await visitor.consent(await visitor.authorize()))
        answers = await asyncio.gather(*(visitor.http.get(there) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [303, 403, 403, 403, 403]


@pytest.mark.parametrize("between", ["; ", ", "])
async def test_a_cookie_is_found_among_others(between: str) -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        ours = page.headers["set-cookie"].partition(";")[0]
        visitor.http.cookies.clear()
        cookies = between.join(["a=1", ours, "b=2"])
        assert (await visitor.consent(page, cookie=cookies)).status_code == 303
        twice = between.join([ours, ours])
        assert (await visitor.consent(page, cookie=twice)).status_code == 403


@pytest.mark.parametrize("cookie", ["", "x", "x.y", "a.b; ferrule-browser=c.d"])
async def test_aut_10_a_cookie_that_we_did_not_make_is_none(cookie: str) -> None:
    """SEC-3"""
    async with a_desk() as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        visitor.http.cookies.clear()
        headers = {"cookie": f"ferrule-browser={cookie}"}
        assert (await visitor.consent(page, **headers)).status_code == 403
        # Nor can anybody choose the name of a browser: it is given a new one.
        given = await visitor.http.get(page.request.url, headers=headers)
        assert given.headers["set-cookie"].startswith("ferrule-browser=")
        assert (await visitor.consent(given, **headers)).status_code == 403


async def test_a_provider_of_another_name_is_not_believed() -> None:
    """RFC 9207: mix-up."""
    async with a_desk("google") as desk, Visitor(desk) as visitor:
        there = await visitor.at_provider(await visitor.consent(await visitor.authorize()))
        answer = back(await visitor.http.get(f"{there}&iss=https://evil.example"))
        assert answer["error"] == "server_error"
        assert desk.double.count("token") == 0


# -- the consent page


async def test_aut_11_the_page_cannot_be_framed_runs_nothing_and_is_not_kept() -> None:
    """SEC-2"""
    async with a_desk() as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        assert page.headers["content-security-policy"] == POLICY
        assert "frame-ancestors 'none'" in POLICY
        assert "default-src 'none'" in POLICY
        assert "script" not in POLICY
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert "<script" not in page.text
        assert "Notebook" in page.text
        assert "127.0.0.1 (this computer)" in page.text
        assert "<li>notes</li>" in page.text


async def test_sec_3_the_cookie_is_for_this_host_alone_and_for_no_script() -> None:
    """SEC-3: over TLS it has the prefix `__Host-` and is `Secure`; without TLS there is only this machine."""
    async with a_desk() as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        cookie = page.headers["set-cookie"]
        assert re.fullmatch(r"ferrule-browser=[\w.-]+; Path=/; HttpOnly; SameSite=Lax; Max-Age=\d+", cookie)
        assert "set-cookie" not in (await visitor.authorize()).headers
    async with a_desk(issuer="https://mcp.example.com") as desk, Visitor(desk) as visitor:
        cookie = (await visitor.authorize()).headers["set-cookie"]
        assert cookie.startswith("__Host-ferrule-browser=")
        assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
        assert "Domain" not in cookie


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;"


async def test_aut_11_what_a_client_says_of_itself_is_text() -> None:
    async with a_desk(resource_name=HOSTILE) as desk, Visitor(desk) as visitor:
        await visitor.register(client_name=HOSTILE, redirect_uris=["https://app.example.com/?a='b"])
        visitor.redirect = "https://app.example.com/?a='b"
        page = await visitor.authorize(state=HOSTILE, scope=f"notes {HOSTILE}")
        assert page.status_code == 200
        assert "&lt;script&gt;" in page.text
        assert "<script" not in page.text
        assert "<img" not in page.text
        assert "a='b" not in page.text


@pytest.mark.parametrize("name", ["", " \n ", "\u202egnidliub\u0000\u001b[31m", None, 7, ["x"], "x" * 100_0])
async def test_aut_11_a_name_is_printable_and_short(name: Any) -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        said = (await visitor.register(client_name=name))["client_name"]
        assert 0 < len(said) <= 64
        assert said.isprintable()
        assert (await visitor.authorize()).status_code == 200


async def test_aut_11_consent_needs_the_ticket_of_this_browser() -> None:
    """CSRF: a page elsewhere can make a browser post a form, but knows no ticket of that browser."""
    async with a_desk() as desk, Visitor(desk) as victim, Visitor(desk) as attacker:
        await victim.authorize()
        foreign = ticket_of(await attacker.authorize())
        for ticket in ("", "x", foreign):
            fields = {"ticket": ticket, "answer": "allow"}
            answer = await victim.http.post(f"{desk.base}/consent", data=fields)
            assert answer.status_code == 403
        page = await victim.authorize()
        for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            assert (await victim.consent(page, **headers)).status_code == 403
        assert (await victim.http.get(f"{desk.base}/consent")).status_code == 405
        assert (await victim.consent(page, origin=desk.base)).status_code == 303
        desk.clock.now += 601
        assert (await victim.consent(page)).status_code == 403


async def test_aut_11_a_scope_of_10_kb_is_taken() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        scope = "notes " + " ".join(f"s{number}" for number in range(1900))
        assert len(scope) > 10_000
        # A URL of this length is refused by the engine, as by most; a form is as good (RFC 6749 §3.1).
        assert (await visitor.authorize(scope=scope)).status_code == 414
        query = (await visitor.authorize()).request.url.params.merge({"scope": scope})
        page = await visitor.http.post(f"{desk.base}/authorize", data=dict(query))
        assert page.status_code == 200
        assert len(page.content) < 10_000
        assert "<li>notes</li>" in page.text


# -- registrations and documents


async def test_aut_12_ten_thousand_registrations_from_an_address_are_limited() -> None:
    """10,000 of them: 10 are answered, and one more every six seconds."""
    async with a_desk() as desk:
        document = b'{"redirect_uris": ["http://127.0.0.1/cb"]}'
        request = (
            b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(document)
        ) + document
        reader, writer = await asyncio.open_connection("127.0.0.1", int(desk.base.rpartition(":")[2]))
        answered: dict[bytes, int] = {}
        for _ in range(100):
            writer.write(request * 100)
            for _ in range(100):
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                assert length
                await reader.readexactly(int(length[1]))
                answered[head[9:12]] = answered.get(head[9:12], 0) + 1
        assert answered == {b"201": 10, b"429": 9990}
        desk.clock.now += 6
        writer.write(request)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (b"", "invalid_client_metadata"),
        (b"[]", "invalid_client_metadata"),
        (b"[" * 10_000, "invalid_client_metadata"),
        (b"{}", "invalid_redirect_uri"),
        (b'{"redirect_uris": []}', "invalid_redirect_uri"),
        (b'{"redirect_uris": "https://a/"}', "invalid_redirect_uri"),
        (b'{"redirect_uris": [7]}', "invalid_redirect_uri"),
        (b'{"redirect_uris": ["http://evil.example/cb"]}', "invalid_redirect_uri"),
        (b'{"redirect_uris": ["javascript:alert(1)"]}', "invalid_redirect_uri"),
        (b'{"redirect_uris": ["https://a/b#c"]}', "invalid_redirect_uri"),
        (b'{"redirect_uris": [%s]}' % b",".join([b'"https://a/b"'] * 11), "invalid_redirect_uri"),
        (
            b'{"redirect_uris": ["https://a/%s", "https://a/%s"]}' % (b"x" * 1100, b"x" * 1100),
            "invalid_client_metadata",
        ),
        (b'{"redirect_uris": ["https://a/"], "token_endpoint_auth_method": "tls"}', "invalid_client_metadata"),
        (b'{"redirect_uris": ["https://a/"], "grant_types": ["implicit"]}', "invalid_client_metadata"),
    ],
)
async def test_aut_12_a_registration_that_makes_no_sense_is_refused(document: bytes, error: str) -> None:
    async with a_desk() as desk, httpx.AsyncClient(trust_env=False) as http:
        assert error_of(await http.post(f"{desk.base}/register", content=document)) == (400, error)


async def test_aut_12_metadata_of_1_mib_is_refused() -> None:
    async with a_desk() as desk, httpx.AsyncClient(trust_env=False) as http:
        document = b'{"redirect_uris": ["https://a/"], "client_name": "%s"}' % (b"x" * 1024 * 1024)
        assert error_of(await http.post(f"{desk.base}/register", content=document)) == (413, "invalid_client_metadata")


class Publisher:
    """A site with the documents of clients, some of them bad."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        self.changes: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        names = ("app", "other", "big", "moved", "text", "array", "missing", "late")
        self.site = Site([CustomRoute(f"/{name}.json", ["GET"], self.answer, auth=False) for name in names])

    async def answer(self, request: WebRequest) -> WebResponse:
        self.hits.append(request.path)
        name = request.path[1:-5]
        url = f"{self.site.origin}/{name}.json"
        document = {"client_id": url, "client_name": "Published", "redirect_uris": [WEB], **self.changes}
        if name == "other":
            document["client_id"] = f"{self.site.origin}/app.json"
        if name == "big":
            document["client_name"] = "x" * 70_000
        if name == "moved":
            return WebResponse(None, 302, {"Location": "/app.json"})
        if name == "text":
            return WebResponse("<html>")
        if name == "array":
            return WebResponse([document])
        if name == "missing":
            return WebResponse(document, 404)
        if name == "late":
            await asyncio.sleep(30)
        return WebResponse(document, 200, self.headers)


async def test_a_client_is_known_by_its_document() -> None:
    """AUTH-16: fetched once, kept for five minutes at least and a day at most."""
    publisher = Publisher()
    async with publisher.site, a_desk() as desk, Visitor(desk, WEB) as visitor:
        visitor.client_id = f"{publisher.site.origin}/app.json"
        page = await visitor.authorize()
        assert "Published" in page.text
        assert f"Described by {publisher.site.origin.removeprefix('http://')}" in page.text
        tokens = await visitor.login()
        assert await desk.said(tokens["access_token"]) == f"{desk.base}#ada"
        assert (await visitor.refresh(tokens["refresh_token"])).status_code == 200
        assert publisher.hits == ["/app.json"]
        publisher.headers = {"Cache-Control": "public, max-age=999999999"}
        desk.clock.now += 301
        await visitor.authorize()
        assert len(publisher.hits) == 2
        publisher.headers = {"Cache-Control": "no-store"}
        desk.clock.now += 86_399
        await visitor.authorize()
        assert len(publisher.hits) == 2
        desk.clock.now += 2
        await visitor.authorize()
        assert len(publisher.hits) == 3
        desk.clock.now += 299
        await visitor.authorize()
        assert len(publisher.hits) == 3


@pytest.mark.parametrize("name", ["other", "big", "moved", "text", "array", "missing"])
async def test_aut_12_a_document_that_is_not_right_is_no_client(name: str) -> None:
    publisher = Publisher()
    async with publisher.site, a_desk() as desk, Visitor(desk, WEB) as visitor:
        visitor.client_id = f"{publisher.site.origin}/{name}.json"
        for _ in range(3):
            answer = await visitor.authorize()
            assert answer.status_code == 400
            assert "location" not in answer.headers
        # A redirect is not followed, and what failed is not asked for again at once.
        assert publisher.hits == [f"/{name}.json"]


async def test_aut_12_a_document_that_does_not_come_is_waited_for_5_s() -> None:
    publisher = Publisher()
    async with publisher.site, a_desk() as desk, Visitor(desk, WEB) as visitor:
        fetcher = desk.proxy._login._clients._documents._fetcher
        assert fetcher._timeout == 5.0
        fetcher._timeout = 0.1
        visitor.client_id = f"{publisher.site.origin}/late.json"
        answer = await visitor.authorize()
        assert answer.status_code == 400
        assert "could not be fetched" in answer.text


@pytest.mark.parametrize("change", [{"redirect_uris": []}, {"token_endpoint_auth_method": "client_secret_post"}])
async def test_a_document_must_say_what_a_client_needs(change: dict[str, Any]) -> None:
    publisher = Publisher()
    publisher.changes = change
    async with publisher.site, a_desk() as desk, Visitor(desk, WEB) as visitor:
        visitor.client_id = f"{publisher.site.origin}/app.json"
        assert (await visitor.authorize()).status_code == 400


async def test_aut_12_many_who_want_one_document_have_it_fetched_once() -> None:
    publisher = Publisher()
    async with publisher.site, a_desk() as desk, Visitor(desk, WEB) as visitor:
        visitor.client_id = f"{publisher.site.origin}/app.json"
        pages = await asyncio.gather(*(visitor.authorize() for _ in range(20)))
        assert {page.status_code for page in pages} == {200}
        assert publisher.hits == ["/app.json"]


async def test_aut_12_an_address_has_few_documents_fetched() -> None:
    publisher = Publisher()
    async with publisher.site, a_desk() as desk, Visitor(desk, WEB) as visitor:
        statuses = []
        for number in range(15):
            visitor.client_id = f"{publisher.site.origin}/{number}"
            statuses.append((await visitor.authorize()).status_code)
        assert statuses == [400] * 10 + [429] * 5


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/app.json",
        "https://10.0.0.1/app.json",
        "https://169.254.169.254/app.json",
        "https://[::ffff:10.0.0.1]/app.json",
        "https://2130706433/app.json",
        "http://example.com/app.json",
        "ftp://example.com/app.json",
        "file:///etc/passwd",
        "https://user@example.com/app.json",
        "https://example.com",
        "https://example.com/",
        "https://example.com/app.json?x=1",
        "https://example.com/app.json#x",
        "https://example.com/a/../app.json",
        "https://example.com/a/%2e%2e/app.json",
    ],
)
async def test_aut_12_a_url_that_may_not_be_asked_is_no_client(url: str) -> None:
    """AUT-06: the server is not on loopback here, so neither may a document be."""
    async with a_desk(resource="https://mcp.example.com/mcp", issuer=None) as desk, Visitor(desk, WEB) as visitor:
        visitor.client_id = url
        answer = await visitor.authorize()
        assert answer.status_code == 400
        assert "location" not in answer.headers


# -- requests of clients


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": "ä" * 43}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"state": "s" * 2049}, "invalid_request"),
    ],
)
async def test_what_cannot_be_granted_is_told_to_the_client(change: dict[str, Any], error: str) -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        told = back(await visitor.authorize(**change))
        assert told["error"] == error
        assert told["iss"] == desk.base


@pytest.mark.parametrize("client_id", ["", "guess", "x" * 5000, None])
async def test_a_client_that_is_not_known_gets_a_page(client_id: str | None) -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        await visitor.register()
        answer = await visitor.authorize(client_id=client_id)
        assert answer.status_code in (400, 401)
        assert "location" not in answer.headers


async def test_a_client_id_cannot_be_changed() -> None:
    """It is sealed: whoever changes a letter of it has none."""
    async with a_desk() as desk, Visitor(desk) as visitor:
        await visitor.register()
        good = visitor.client_id
        for at in range(0, len(good), 17):
            letter = "A" if good[at] != "A" else "B"
            answer = await visitor.authorize(client_id=good[:at] + letter + good[at + 1 :])
            assert answer.status_code == 401


async def test_parameters_that_come_twice_are_refused() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        await visitor.register()
        query = urlencode({"client_id": visitor.client_id, "redirect_uri": LOOPBACK})
        answer = await visitor.http.get(f"{desk.base}/authorize?{query}&redirect_uri={WEB}")
        assert answer.status_code == 400
        assert "location" not in answer.headers


async def test_where_there_is_no_room_a_login_is_put_off() -> None:
    """Whatever is begun, what is kept is bounded; those who are logged in go on."""
    store = MemoryStore(max_values=6)
    async with a_desk(store=store) as desk, Visitor(desk, WEB) as visitor:
        tokens = await visitor.login()
        page = await visitor.authorize(prompt="consent")
        answers = [await visitor.consent(page) for _ in range(6)]
        assert answers[-1].status_code == 503
        assert answers[-1].headers["retry-after"] == "10"
        assert "Too many people are logging in" in answers[-1].text
        assert await desk.said(tokens["access_token"]) == f"{desk.base}#ada"
        assert (await visitor.refresh(tokens["refresh_token"])).status_code == 200


async def test_an_address_begins_few_logins() -> None:
    async with a_desk(login_rate="3/min") as desk, Visitor(desk) as visitor:
        page = await visitor.authorize()
        assert [(await visitor.consent(page)).status_code for _ in range(5)] == [303, 303, 303, 429, 429]


@pytest.mark.parametrize("trusted", [True, False])
async def test_behind_a_reverse_proxy_people_are_counted_apart(trusted: bool) -> None:
    """AUT-12: one who registers and logs in again and again does not use up what all others have."""
    options: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"]} if trusted else {}
    async with a_desk(registration_rate="1/min", login_rate="1/min", **options) as desk:
        statuses = []
        for address in ("203.0.113.1", "203.0.113.2"):
            async with Visitor(desk) as visitor:
                visitor.http.headers["x-forwarded-for"] = f"198.51.100.9, {address}"
                answer = await visitor.http.post(f"{desk.base}/register", json={"redirect_uris": [visitor.redirect]})
                statuses.append(answer.status_code)
                visitor.client_id = answer.json().get("client_id", "none")
                page = await visitor.authorize()
                if page.status_code == 200:
                    statuses += [(await visitor.consent(page)).status_code for _ in range(2)]
        assert statuses == ([201, 303, 429] * 2 if trusted else [201, 303, 429, 429])


# -- codes and tokens


@pytest.mark.parametrize(
    "change",
    [
        {"code_verifier": pkce()[0]},
        {"code_verifier": None},
        {"code_verifier": "short"},
        {"redirect_uri": "https://evil.example/"},
        {"code": "guess"},
        {"code": None},
    ],
)
async def test_a_code_is_good_only_with_all_that_it_was_made_for(change: dict[str, Any]) -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        code = back(await visitor.come_back())["code"]
        answer = await visitor.redeem(**{"code": code, **change})
        assert error_of(answer) == (400, "invalid_grant")
        assert answer.headers["cache-control"] == "no-store"
        if change.get("code", code) == code:
            assert error_of(await visitor.redeem(code)) == (400, "invalid_grant")


async def test_a_code_of_another_client_is_refused() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor, Visitor(desk) as thief:
        code = back(await visitor.come_back())["code"]
        await thief.register(client_name="Thief")
        thief.verifier = visitor.verifier
        assert error_of(await thief.redeem(code)) == (400, "invalid_grant")


async def test_a_code_that_comes_again_ends_what_it_has_given() -> None:
    """RFC 6749 §4.1.2."""
    async with a_desk() as desk, Visitor(desk) as visitor:
        code = back(await visitor.come_back())["code"]
        tokens = (await visitor.redeem(code)).json()
        assert error_of(await visitor.redeem(code)) == (400, "invalid_grant")
        assert (await desk.call(tokens["access_token"])).status_code == 401
        assert error_of(await visitor.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


async def test_a_code_is_good_for_a_minute() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        code = back(await visitor.come_back())["code"]
        desk.clock.now += 61
        assert error_of(await visitor.redeem(code)) == (400, "invalid_grant")


async def test_a_refresh_token_of_another_client_is_refused_and_stays_good() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor, Visitor(desk) as thief:
        tokens = await visitor.login()
        await thief.register(client_name="Thief")
        assert error_of(await thief.refresh(tokens["refresh_token"])) == (400, "invalid_grant")
        await thief.post("/revoke", {"token": tokens["refresh_token"]})
        await thief.post("/revoke", {"token": tokens["access_token"]})
        assert (await visitor.refresh(tokens["refresh_token"])).status_code == 200


async def test_a_refresh_token_that_comes_late_ends_the_login() -> None:
    """Within a minute it gets the successor it got; later it was stolen."""
    async with a_desk() as desk, Visitor(desk) as visitor:
        first = await visitor.login()
        second = (await visitor.refresh(first["refresh_token"])).json()
        desk.clock.now += 60
        again = (await visitor.refresh(first["refresh_token"])).json()
        assert again["refresh_token"] == second["refresh_token"]
        desk.clock.now += 1
        assert error_of(await visitor.refresh(first["refresh_token"])) == (400, "invalid_grant")
        assert error_of(await visitor.refresh(second["refresh_token"])) == (400, "invalid_grant")
        assert (await desk.call(again["access_token"])).status_code == 401
        assert (await desk.call(second["access_token"])).status_code == 401


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({}, 400, "unsupported_grant_type"),
        ({"grant_type": "refresh_token"}, 400, "invalid_grant"),
        ({"grant_type": "refresh_token", "refresh_token": "a.0.b"}, 400, "invalid_grant"),
        ({"grant_type": "refresh_token", "refresh_token": "a.b.c.d"}, 400, "invalid_grant"),
        ({"grant_type": "refresh_token", "resource": "https://other.example"}, 400, "invalid_target"),
        ({"client_id": "guess"}, 401, "invalid_client"),
        ({"client_id": None}, 400, "invalid_request"),
    ],
)
async def test_a_token_request_that_makes_no_sense_is_refused(fields: dict[str, Any], status: int, error: str) -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        await visitor.register()
        assert error_of(await visitor.post("/token", fields)) == (status, error)


async def test_a_token_request_is_a_form_of_modest_length() -> None:
    async with a_desk() as desk, Visitor(desk) as visitor:
        await visitor.register()
        url = f"{desk.base}/token"
        fields = {"grant_type": "refresh_token", "client_id": visitor.client_id}
        assert error_of(await visitor.http.post(url, json=fields)) == (400, "invalid_request")
        assert error_of(await visitor.http.post(url, data={**fields, "x": "y" * 40_000})) == (400, "invalid_request")
        twice = f"{urlencode(fields)}&client_id=x"
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert error_of(await visitor.http.post(url, content=twice, headers=form)) == (400, "invalid_request")
        for given in ("Basic ###", "Basic eA==", "Bearer x"):
            answer = await visitor.http.post(url, data=fields, headers={"authorization": given})
            assert error_of(answer) == (401, "invalid_client")
            assert answer.headers["www-authenticate"] == "Basic"
