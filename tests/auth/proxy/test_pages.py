"""The consent page, as a real browser shows it over TLS; and its parts."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from certificates import write_certificate
from proxy_desk import CLIENT, KEYS, Desk, free_port, new_server, pkce, profile_at, serving

from ferrule.auth.devserver.clients import RegisteredClient
from ferrule.auth.devserver.server import DevServer
from ferrule.auth.proxy.clients import ProxyClient
from ferrule.auth.proxy.pages import MAX_SCOPES, consent_page, failure_page
from ferrule.auth.proxy.proxy import OAuthProxy
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.routes.web import WebRequest, WebResponse

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HTML = "text/html; charset=utf-8"
# A container has neither what the sandbox needs nor much shared memory.
SWITCHES = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"]


class Elsewhere:
    """A site with the client's way back, and a page that frames another."""

    def __init__(self) -> None:
        self.came: list[dict[str, str]] = []
        self.framed = ""
        routes = [
            CustomRoute("/callback", ["GET"], self.callback, auth=False),
            CustomRoute("/frame", ["GET"], self.frame, auth=False),
        ]
        self.site = Site(routes)

    async def callback(self, request: WebRequest) -> WebResponse:
        self.came.append(request.query_params)
        return WebResponse("<h1>You may close this page</h1>", media_type=HTML)

    async def frame(self, request: WebRequest) -> WebResponse:
        return WebResponse(f'<iframe id="frame" src="{self.framed}"></iframe>', media_type=HTML)


class Stage:
    """All that a browser meets."""

    def __init__(self, desk: Desk, elsewhere: Elsewhere, browser: Any) -> None:
        self.desk = desk
        self.elsewhere = elsewhere
        self.browser = browser
        self.redirect = f"{elsewhere.site.origin}/callback"

    async def address(self, name: str = "Notebook") -> str:
        """Register a client. Return where its user is sent to."""
        async with httpx.AsyncClient(verify=False, trust_env=False) as http:
            document = {"client_name": name, "redirect_uris": [self.redirect]}
            client = (await http.post(f"{self.desk.base}/register", json=document)).json()
        query = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": self.redirect,
            "code_challenge": pkce()[1],
            "code_challenge_method": "S256",
            "state": "s1",
            "scope": "notes repo",
        }
        return f"{self.desk.base}/authorize?{urlencode(query)}"


@contextlib.asynccontextmanager
async def a_stage(folder: Path) -> AsyncIterator[Stage]:
    playwright = pytest.importorskip("playwright.async_api", reason="needs playwright, which is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is on the path")
    certificate, key = write_certificate(folder)
    port = free_port()
    base = f"https://localhost:{port}"
    registered = RegisteredClient(
        id=CLIENT[0], secret=CLIENT[1], auth_method="client_secret_post", redirect_uris=[f"{base}/callback"]
    )
    elsewhere = Elsewhere()
    async with DevServer("github", clients=[registered]) as provider, elsewhere.site:
        proxy = OAuthProxy(
            profile_at(provider, "github"),
            CLIENT,
            resource=f"{base}/mcp",
            resource_name="Example Notes",
            scopes=["notes", "repo"],
            keys=KEYS,
        )
        async with (
            serving(new_server(proxy), port, certificate=certificate, private_key=key),
            playwright.async_playwright() as started,
        ):
            browser = await started.chromium.launch(executable_path=program, args=SWITCHES)
            try:
                yield Stage(Desk(provider, proxy, base, None, "github"), elsewhere, browser)  # type: ignore[arg-type]
            finally:
                await browser.close()


async def test_a_browser_goes_through_consent_and_login_and_back(tmp_path: Path) -> None:
    """SEC-2, SEC-3, SEC-5: over TLS, with the cookie that only this host can set."""
    async with a_stage(tmp_path) as stage:
        context = await stage.browser.new_context(ignore_https_errors=True)
        page = await context.new_page()
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        await page.goto(await stage.address())
        assert await page.title() == "Allow access to Example Notes?"
        shown = await page.inner_text("main")
        for text in ("Notebook", "127.0.0.1 (this computer)", "notes", "repo", "any program could use its name"):
            assert text in shown
        # The style is ours and is applied: the policy of the page lets nothing else in.
        assert await page.evaluate("getComputedStyle(document.querySelector('main')).borderRadius") == "14px"
        await page.screenshot(path=tmp_path / "light.png")
        (cookie,) = await context.cookies()
        assert cookie["name"] == "__Host-ferrule-browser"
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, True, "Lax", "/")
        # The provider knows the user: from our form the browser is sent on three times without a page between.
        stage.desk.double.authorization.user = "ada"
        await page.click("text=Continue with GitHub")
        await page.wait_for_url(f"{stage.redirect}?**")
        (came,) = stage.elsewhere.came
        assert came["state"] == "s1"
        assert came["iss"] == stage.desk.base
        assert "code" in came
        # The callback site has no icon, which a browser asks for in its own time.
        assert [text for text in refused if "404" not in text] == []


async def test_a_user_who_declines_is_sent_back_with_that(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        context = await stage.browser.new_context(
            ignore_https_errors=True, color_scheme="dark", viewport={"width": 360, "height": 720}
        )
        page = await context.new_page()
        await page.goto(await stage.address("<b>Ada</b> \u202e & Söhne " + "x" * 80))
        assert await page.locator("b").count() == 0
        assert "<b>Ada</b> & Söhne" in await page.inner_text("h1")
        # On a small screen nothing is cut off at the side.
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await page.screenshot(path=tmp_path / "dark.png", full_page=True)
        await page.click("text=Cancel")
        await page.wait_for_url(f"{stage.redirect}?**")
        assert stage.elsewhere.came[0]["error"] == "access_denied"
        assert stage.desk.double.count("authorize") == 0


async def test_aut_11_the_page_is_not_shown_in_a_frame(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        context = await stage.browser.new_context(ignore_https_errors=True)
        page = await context.new_page()
        stage.elsewhere.framed = await stage.address()
        told: list[str] = []
        page.on("console", lambda message: told.append(message.text))
        await page.goto(f"{stage.elsewhere.site.origin}/frame")
        inner = await (await page.query_selector("#frame")).content_frame()
        assert await inner.locator("form").count() == 0
        assert any("frame-ancestors" in text for text in told)


async def test_aut_10_a_callback_in_another_browser_goes_nowhere(tmp_path: Path) -> None:
    """CVE-2026-27124, with two real browsers."""
    async with a_stage(tmp_path) as stage:
        attacker = await (await stage.browser.new_context(ignore_https_errors=True)).new_page()
        victim = await (await stage.browser.new_context(ignore_https_errors=True)).new_page()
        await attacker.goto(await stage.address("Attacker"))
        await attacker.click("text=Continue with GitHub")
        await attacker.wait_for_selector("input[name=user]")
        await victim.goto(attacker.url)  # the provider's page, with the attacker's state
        await victim.fill("input[name=user]", "ada")
        await victim.click("text=Allow")
        await victim.wait_for_selector("text=not begun in this browser")
        assert victim.url.startswith(f"{stage.desk.base}/callback")
        assert stage.elsewhere.came == []
        assert stage.desk.double.count("token") == 0


# -- the parts


def client(**changes: Any) -> ProxyClient:
    return ProxyClient(**{"id": "c", "name": "Notebook", "redirects": ("https://a.example/cb",), **changes})


def shown(redirect: str = "https://a.example/cb", scopes: Any = ("notes",), **changes: Any) -> str:
    made = consent_page(
        client(**changes), redirect, server="Notes", provider="GitHub", scopes=scopes, ticket='t"<', headers={}
    )
    assert isinstance(made.content, str)
    return made.content


def test_where_a_client_comes_from_is_said() -> None:
    assert "nobody has checked it" in shown()
    assert "Described by claude.ai" in shown(origin="claude.ai")


def test_a_warning_is_for_this_machine_alone() -> None:
    assert "any program could use its name" in shown("http://localhost:1/cb")
    assert "any program could use its name" in shown("cursor://callback")
    assert "any program could use its name" not in shown()


def test_the_way_back_is_named_by_its_host() -> None:
    assert "<strong><bdi>a.example</bdi></strong>" in shown()
    assert "the application cursor:" in shown("cursor://callback")
    assert "localhost (this computer)" in shown("http://localhost:1/cb")


def test_every_attribute_and_text_is_escaped() -> None:
    text = shown("https://a.example/'\"<", scopes=["<i>"], name="<u>", origin="<s>")
    assert 'value="t&quot;&lt;"' in text
    for tag in ("<i>", "<u>", "<s>"):
        assert tag not in text
    assert re.findall(r"\son\w+=", text) == []


def test_a_long_list_is_cut_and_an_empty_one_said() -> None:
    assert f"and {7} more" in shown(scopes=[f"s{number}" for number in range(MAX_SCOPES + 7)])
    assert "who you are" in shown(scopes=[])


def test_a_failure_is_a_page_too() -> None:
    made = failure_page("<b>no</b>", 403)
    assert made.status_code == 403
    assert "&lt;b&gt;no&lt;/b&gt;" in str(made.content)
    assert "frame-ancestors 'none'" in made.headers["Content-Security-Policy"]
