"""Our own client logs in at a server of ours behind the proxy, with the double of each provider, in both eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from proxy_desk import MORE, Desk, Visitor, a_desk, free_port

from ferrule import Client, OAuth
from ferrule.auth.proxy.profiles import PROFILES
from ferrule.testing import ERAS
from ferrule.transports.sockets.tls import TlsSettings


class Person:
    """Reads the consent page, allows what it asks, and is known to the provider."""

    def __init__(self, desk: Desk) -> None:
        self.visitor = Visitor(desk)
        self.pages: list[httpx.URL] = []

    async def __call__(self, url: str) -> str:
        """Open the page. Return where the browser is sent in the end."""
        self.pages.append(httpx.URL(url))
        page = await self.visitor.http.get(url)
        assert page.status_code == 200, page.text
        answer = await self.visitor.consent(page)
        came = await self.visitor.http.get(await self.visitor.at_provider(answer))
        back: str = came.headers["location"]
        return back


def a_client(desk: Desk, person: Person, store: Path, era: str, port: int) -> Client:
    # A client that registers itself does so again for another port, and a session belongs to one client.
    auth = OAuth(storage=store, open_browser=person, callback_port=port)
    session: Any = auth.credentials(desk.resource, TlsSettings())
    session._clock = desk.clock
    return Client(desk.resource, auth=auth, mode=era)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", PROFILES)
async def test_our_client_logs_in_refreshes_and_steps_up(name: str, era: str, tmp_path: Path) -> None:
    """AUTH-5, AUTH-12, AUTH-14: it registers itself, though the provider would not let it."""
    async with a_desk(name, more_scopes=[MORE]) as desk:
        person = Person(desk)
        port = free_port()
        async with person.visitor:
            async with a_client(desk, person, tmp_path / "tokens", era, port) as client:
                assert (await client.call_tool("whoami")).text == f"{desk.base}#ada"
                desk.clock.now += 700
                assert (await client.call_tool("whoami")).text == f"{desk.base}#ada"
                assert len(person.pages) == 1
                provided = (await client.call_tool("upstream")).text
                assert desk.double.tokens.find_access(provided) is not None
                assert (await client.call_tool("more")).text == "more"
                assert len(person.pages) == 2
                assert set(person.pages[1].params["scope"].split()) >= {desk.scope, MORE}
            # A program that starts anew is still logged in.
            async with a_client(desk, person, tmp_path / "tokens", era, port) as client:
                assert (await client.call_tool("more")).text == "more"
            assert len(person.pages) == 2
            assert desk.double.count("register") == 0
