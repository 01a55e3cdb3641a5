"""A person who logs in with the double of any provider, and providers as a proxy knows them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

import httpx
from msgspec import structs

from ferrule.auth.devserver.server import DevServer
from ferrule.auth.proxy.profiles import PROFILES, Profile

UPSTREAMS = {
    **PROFILES,
    "linear": Profile("Linear", "", "", identity="document", subject=("sub",), without=("offline_access",)),
}


def upstream(name: str) -> Callable[[DevServer], Profile]:
    """Return what makes the profile of a provider, with the addresses of its double."""

    def at(double: DevServer) -> Profile:
        profile = UPSTREAMS[name]
        user = double.url("tokeninfo" if profile.identity == "tokeninfo" else "user")
        where = {"authorize": double.url("authorize"), "token": double.url("token"), "identity_url": user}
        if profile.issuer:
            where["issuer"] = double.issuer
        return structs.replace(profile, **where)

    return at


class Person:
    """Opens the page, says yes wherever somebody asks, and is signed in at once."""

    def __init__(self) -> None:
        self.pages: list[httpx.URL] = []

    async def __call__(self, url: str) -> str:
        self.pages.append(httpx.URL(url))
        callback = self.pages[-1].params["redirect_uri"]
        async with httpx.AsyncClient(trust_env=False) as browser:
            answer = await browser.get(url)
            while not answer.headers.get("location", "").startswith(callback):
                if answer.is_redirect:
                    answer = await browser.get(answer.headers["location"])
                else:
                    answer = await self._consent(browser, answer)
        return answer.headers["location"]

    async def _consent(self, browser: httpx.AsyncClient, page: httpx.Response) -> httpx.Response:
        found = re.search(r'name="ticket" value="([^"]*)"', page.text)
        assert found, page.text
        return await browser.post(page.url.join("consent"), data={"ticket": found[1], "answer": "allow"})


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
