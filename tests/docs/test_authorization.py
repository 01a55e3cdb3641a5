"""What the guide to authorization says for each provider works with the double of that provider."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import doc_pages
import pytest

sys.path.insert(0, str(doc_pages.PROJECT / "tests" / "auth"))

from provider_desk import Person, free_port, upstream

from ferrule import Client, Context, Http
from ferrule.auth.devserver.profile import API, PROFILES, Profile
from ferrule.auth.devserver.server import DevServer

PAGE = doc_pages.PROJECT / "docs" / "guides" / "authorization.md"
RESOURCE = "https://mcp.example.com/mcp"
HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
ISSUER = re.compile(r'OIDC\(\s*"([^"]+)"')
CLIENT = "auth = OAuth("

BY_TITLE = {profile.title: name for name, profile in PROFILES.items() if name != "plain"}


def sections() -> dict[str, list[str]]:
    """Return the Python blocks of each provider's section."""
    parts = HEADING.split(PAGE.read_text(encoding="utf-8").partition("## The development server")[0])
    found = {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        found[title] = [code for language, _, code in doc_pages.FENCE.findall(text) if language == "python"]
    return found


def test_every_double_has_a_section() -> None:
    assert sorted(sections()) == sorted(BY_TITLE)


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run a block; return what it defined."""
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def double(profile: Profile, name: str, url: str) -> DevServer:
    """Return the double of a provider that was told of our server, and of two clients."""
    server = DevServer(name, user="ada", audiences=[url])
    server.add_client("app", redirect_uris=["http://127.0.0.1/callback"])
    proxy = {"secret": "s3cret", "auth_method": "client_secret_post"}
    server.add_client("proxy", redirect_uris=[url.removesuffix("mcp") + "callback"], **proxy)
    assert server.profile is profile
    return server


@pytest.mark.parametrize("title", sections())
def test_the_example_of_a_provider_works_with_its_double(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_ID", "proxy")
    monkeypatch.setenv("CLIENT_SECRET", "s3cret")
    asyncio.run(asyncio.wait_for(used(title), 60))


async def used(title: str) -> None:
    """Serve what the page says, log in as it says, and call a tool."""
    name = BY_TITLE[title]
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    server_code, client_code = (*sections()[title], f"from ferrule import OAuth\n{CLIENT})")[:2]
    async with double(PROFILES[name], name, url) as issuer:
        server_code = server_code.replace(RESOURCE, url)
        for given in ISSUER.findall(server_code):
            path = given.partition("://")[2].partition("/")
            assert path[1] + path[2] == issuer.profile.issuer_path or given.count("/") == 2
            server_code = server_code.replace(given, issuer.issuer)
        server_code = re.sub(r"OAuthProxy\(\s*(\"\w+\"|linear)", "OAuthProxy(UPSTREAM", server_code)
        known = {"UPSTREAM": upstream(name)(issuer)} if "UPSTREAM" in server_code else {}
        app = run(server_code, **known)["app"]

        @app.tool
        async def whoami(ctx: Context) -> str:
            assert ctx.identity is not None
            return ctx.identity.subject

        person = Person()
        client_code = client_code.replace(RESOURCE, url).replace(CLIENT, f'{CLIENT}storage="memory", open_browser=p, ')
        auth = run(client_code, p=person)["auth"]
        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(Http(port=port), ready=ready.set))
        await ready.wait()
        try:
            async with Client(url, auth=auth) as client:
                assert (await client.call_tool("whoami")).text.endswith("ada")
            assert len(person.pages) == 1
        finally:
            await app.stop(0.0)
            await serving


def test_the_page_names_the_api_of_the_entra_double() -> None:
    assert API in Path(PAGE).read_text(encoding="utf-8")
