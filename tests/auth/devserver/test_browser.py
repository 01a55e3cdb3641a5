"""A real browser signs in on the page of the development server."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
from oauth_caller import Caller

from ferrule.auth.devserver.server import DevServer
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.routes.web import WebRequest, WebResponse

playwright = pytest.importorskip("playwright.async_api", reason="needs playwright, which is not installed")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")

pytestmark = pytest.mark.skipif(not BROWSER, reason="needs a browser, and there is no Chromium")

SWITCHES = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"]


class Application:
    """A site the browser is sent back to, which also tries to frame the page."""

    def __init__(self) -> None:
        self.came_back: list[dict[str, list[str]]] = []
        self.framed = ""
        self.site = Site(
            [
                CustomRoute("/callback", ["GET"], self._callback, auth=False),
                CustomRoute("/frame", ["GET"], self._frame, auth=False),
            ]
        )

    @property
    def redirect_uri(self) -> str:
        """Where the browser is sent back to."""
        return f"{self.site.origin}/callback"

    async def _callback(self, request: WebRequest) -> str:
        self.came_back.append(parse_qs(request.query))
        return "You are signed in."

    async def _frame(self, request: WebRequest) -> WebResponse:
        return WebResponse(f'<iframe src="{self.framed}"></iframe>', media_type="text/html")


@asynccontextmanager
async def page(**options: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """Open a page; what its console says is collected."""
    said: list[str] = []
    async with playwright.async_playwright() as started:
        browser = await started.chromium.launch(executable_path=BROWSER, args=SWITCHES)
        try:
            opened = await browser.new_page(**options)
            opened.on("console", lambda message: said.append(message.text))
            yield opened, said
        finally:
            await browser.close()


def authorize_url(caller: Caller, redirect_uri: str) -> str:
    """Return the URL of the page."""
    query = f"response_type=code&client_id=app&redirect_uri={redirect_uri}&state=s1&scope=notes+notes%3Awrite"
    return f"{caller.server.url('authorize')}?{query}&code_challenge={caller.challenge}&code_challenge_method=S256"


async def test_a_browser_signs_in_and_is_sent_back() -> None:
    """AUT-11: or says no; without a script, and with nothing the policy of the page had to stop."""
    application = Application()
    async with application.site, DevServer() as server, Caller(server) as caller:
        server.add_client("app", redirect_uris=[application.redirect_uri], name="Notes")
        async with page() as (opened, said):
            await opened.goto(authorize_url(caller, application.redirect_uri))
            assert "Notes" in await opened.inner_text("h1")
            await opened.fill("#user", "grace")
            await opened.click("text=Allow")
            await opened.wait_for_url("**/callback?**")
            assert await opened.inner_text("body") == "You are signed in."
            await opened.goto(authorize_url(caller, application.redirect_uri))
            await opened.click("text=Deny")
            await opened.wait_for_url("**/callback?error**")
        assert [text for text in said if "Content Security Policy" in text] == []
        came_back, refused = application.came_back
        assert refused["error"] == ["access_denied"]
        assert (came_back["state"], came_back["iss"]) == (["s1"], [server.issuer])
        given = (await caller.redeem(came_back["code"][0], redirect_uri=application.redirect_uri, resource=None)).json()
        found = server.tokens.find_access(given["access_token"])
        assert found is not None
        assert found.login.subject == "grace"


async def test_a_browser_does_not_show_the_page_in_a_frame() -> None:
    """AUT-11, SEC-2: clickjacking."""
    application = Application()
    async with application.site, DevServer() as server, Caller(server) as caller:
        server.add_client("app", redirect_uris=[application.redirect_uri])
        application.framed = authorize_url(caller, application.redirect_uri).replace("&", "&amp;")
        async with page() as (opened, said):
            await opened.goto(f"{application.site.origin}/frame")
            await opened.wait_for_timeout(300)
            frame = opened.frames[1]
            assert "Sign in to" not in await frame.content()
        assert "frame-ancestors" in " ".join(said) or "X-Frame-Options" in " ".join(said)
