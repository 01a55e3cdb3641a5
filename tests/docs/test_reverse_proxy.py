"""What the guide to reverse proxies says works: a client logs in and calls through each configuration of it."""

from __future__ import annotations

import ast
import asyncio
import re
import ssl
import sys
from pathlib import Path
from typing import Any

import doc_pages
import httpx
import pytest
from reverse_proxy import proxied

sys.path.insert(0, str(doc_pages.PROJECT / "tests" / "auth"))
sys.path.insert(0, str(doc_pages.PROJECT / "tests" / "transports"))

from certificates import Authority
from provider_desk import Person, free_port

from ferrule import Client, Context, Http, OAuth
from ferrule.auth.devserver.server import DevServer

PAGE = doc_pages.PROJECT / "docs" / "guides" / "reverse-proxy.md"
PROXIES = ("nginx", "caddy")


def cases() -> list[Any]:
    """Return each configuration of the page with the server it stands before."""
    found = []
    server = ""
    for block in doc_pages.blocks(PAGE):
        if block.language == "python":
            server = block.code
        elif block.language in PROXIES:
            found.append(pytest.param(block.language, block.code, server, id=f"{block.language}-{len(found)}"))
    return found


def test_both_proxies_are_shown_at_the_root_and_below_a_path() -> None:
    assert [case.values[0] for case in cases()] == ["nginx", "caddy", "nginx", "caddy"]


def options_of(server: str) -> dict[str, Any]:
    """Return the options that a server is run with."""
    runs = [
        node for node in ast.walk(ast.parse(server)) if isinstance(node, ast.Call) and "app.run" in ast.unparse(node)
    ]
    return {each.arg: ast.literal_eval(each.value) for each in runs[0].keywords if each.arg}


@pytest.mark.parametrize(("kind", "proxy", "server"), cases())
def test_a_client_logs_in_and_calls_through_the_proxy(kind: str, proxy: str, server: str, tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(used(kind, proxy, server, tmp_path), 60))


async def used(kind: str, proxy: str, server: str, folder: Path) -> None:
    """Serve what the page says behind what it says; log in, and read a stream while it is written."""
    authority = Authority(folder)
    certificate, key = authority.sign("localhost")
    outside, inside = free_port(), free_port()
    async with DevServer(user="ada") as issuer:
        server = server.replace("https://mcp.example.com", f"https://localhost:{outside}").replace("8000", str(inside))
        server = server.replace("mcp.example.com", "localhost").replace("https://login.example.com", issuer.issuer)
        proxy = proxy.replace("8000", str(inside)).replace("listen 443", f"listen 127.0.0.1:{outside}")
        proxy = proxy.replace("/etc/ssl/mcp.pem", str(certificate)).replace("/etc/ssl/mcp.key", str(key))
        if kind == "caddy":
            proxy = proxy.replace("mcp.example.com {", f"https://localhost:{outside} {{\n    tls {certificate} {key}")
        proxy = proxy.replace("mcp.example.com", "localhost")
        names: dict[str, Any] = {"__name__": "page"}
        exec(compile(server, str(PAGE), "exec"), names)
        app = names["app"]
        heard = asyncio.Event()

        @app.tool
        async def whoami(ctx: Context) -> str:
            await ctx.report_progress(1, 2)
            await heard.wait()
            assert ctx.identity is not None
            return ctx.identity.subject

        async def hear(*_: object) -> None:
            heard.set()

        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(Http(**options_of(server)), ready=ready.set))
        await ready.wait()
        url = re.findall(r'resource="([^"]+)"', server)[0]
        try:
            async with proxied(kind, proxy, outside, str(certificate), str(key), folder):
                auth = OAuth(storage="memory", open_browser=Person())
                async with Client(url, auth=auth, http={"ca": authority.file}) as client:
                    assert (await client.call_tool("whoami", on_progress=hear)).text == "ada"
                await looked_at(url, authority.file)
        finally:
            await app.stop(0.0)
            await serving


async def looked_at(url: str, ca: Any) -> None:
    """See what a client finds that looks where the metadata should be, and what one is told that has a bad token."""
    trusted = ssl.create_default_context(cafile=str(ca))
    async with httpx.AsyncClient(trust_env=False, verify=trusted) as web:
        origin, path = re.fullmatch(r"(https://[^/]+)(.*)", url).groups()  # type: ignore[union-attr]
        metadata = await web.get(f"{origin}/.well-known/oauth-protected-resource{path}")
        assert metadata.json()["resource"] == url
        refused = await web.post(url, json={}, headers={"Authorization": "Bearer x.y.z"})
        assert refused.status_code == 401
        assert (
            f'resource_metadata="{origin}/.well-known/oauth-protected-resource{path}"'
            in refused.headers["www-authenticate"]
        )
