"""The resource a server is: its URL and its metadata, wherever it is mounted and by whichever endpoint one comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from issuer_double import RESOURCE, Clock, facts, verifier
from protected_desk import principal
from provider_desk import Person
from starlette.applications import Starlette
from starlette.routing import Mount

from ferrule import OIDC, Client, Context, Http, OAuth, Server, StaticTokens
from ferrule.auth.challenge import read_challenges
from ferrule.auth.devserver.server import DevServer
from ferrule.errors import Refusal


def notes(auth: Any) -> Server:
    app = Server("notes", auth=auth)

    @app.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.identity is not None
        return f"{ctx.identity.subject} for {ctx.identity.claims['aud']}"

    return app


def logging_in(person: Person) -> OAuth:
    return OAuth(storage="memory", open_browser=person)


@contextlib.asynccontextmanager
async def mounted(app: Server, root: str) -> AsyncIterator[str]:
    """Serve an app below a path of another application; yields the origin."""
    outer = Starlette(routes=[Mount(root, app.asgi())])
    config = uvicorn.Config(outer, port=0, log_config=None, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server._serve())
    while not server.started:
        await asyncio.sleep(0.005)
        assert not running.done(), running.result()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


# -- mounted in an application


@pytest.mark.parametrize(
    ("root", "path", "metadata"),
    [
        ("/api/v1", "/api/v1/mcp", "/api/v1/.well-known/oauth-protected-resource/mcp"),
        ("/mcp", "/mcp", "/mcp/.well-known/oauth-protected-resource"),
    ],
    ids=["below a path", "at its own path"],
)
@pytest.mark.parametrize("told", [False, True], ids=["derived", "told"])
async def test_a_mounted_server_is_found_below_its_mount(root: str, path: str, metadata: str, told: bool) -> None:
    """AUTH-2, AUTH-3: nobody needs to say more than where it is mounted; a client logs in and is let in."""
    async with DevServer(user="ada") as issuer:
        auth = OIDC(issuer.issuer)
        async with mounted(notes(auth), root) as origin:
            url = origin + path
            if told:
                auth.resource.settings = OIDC(issuer.issuer, resource=url).resource.settings
            async with httpx.AsyncClient(trust_env=False, follow_redirects=True) as plain:
                refused = await plain.post(url, json={})
                (challenge,) = read_challenges(refused.headers["www-authenticate"])
                assert challenge.parameters["resource_metadata"] == origin + metadata
                assert (await plain.get(origin + metadata)).json()["resource"] == url
            async with Client(url, auth=logging_in(Person())) as client:
                assert (await client.call_tool("whoami")).text == f"ada for {url}"


@pytest.mark.parametrize("root", ['/a"b', "/a b", "/é", "/a\r\nSet-Cookie: x=1"])
def test_a_mount_that_a_request_named_is_not_repeated_in_a_challenge(root: str) -> None:
    """Frameworks mount below parameters as well: `/{tenant}`."""
    by = StaticTokens({"t": principal("ada")}, clock=Clock())
    asked = facts(None, headers={"host": "127.0.0.1:8000"}, url=f"http://127.0.0.1:8000{root}/mcp", root=root)
    refused = by.verify(asked)
    assert isinstance(refused, Refusal)
    assert refused.status == 503
    assert not refused.headers


def test_what_is_remembered_of_mounts_is_bounded() -> None:
    by = StaticTokens({"t": principal("ada")}, clock=Clock())
    for number in range(1000):
        host = {"host": f"127.0.0.1:{number + 1}"}
        by.verify(facts(None, headers=host, url=f"http://127.0.0.1:{number + 1}/x/mcp", root="/x"))
    assert max(len(by.resource._loopback), len(by.resource._main), len(by.resource._mounted)) <= 64


# -- the old pair


async def test_the_old_endpoint_names_itself_as_the_resource() -> None:
    """AUTH-3: a client that was given `/sse` stops at metadata of `/mcp`."""
    async with DevServer(user="ada") as issuer:
        app = notes(OIDC(issuer.issuer))
        http = Http(port=0, sse=True)
        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(http, ready=ready.set))
        await ready.wait()
        origin = http.url.removesuffix("/mcp")
        try:
            async with httpx.AsyncClient(trust_env=False) as plain:
                for path, resource in (("/sse", "/sse"), ("/messages?session_id=x", "/sse"), ("/mcp", "/mcp")):
                    refused = await plain.get(origin + path)
                    (challenge,) = read_challenges(refused.headers["www-authenticate"])
                    where = challenge.parameters["resource_metadata"]
                    assert where == f"{origin}/.well-known/oauth-protected-resource{resource}"
                    assert (await plain.get(where)).json()["resource"] == origin + resource
                at_the_root = await plain.get(f"{origin}/.well-known/oauth-protected-resource")
                assert at_the_root.json()["resource"] == http.url
            for url in (f"sse+{origin}/sse", http.url):
                async with Client(url, auth=logging_in(Person())) as client:
                    expected = url.removeprefix("sse+")
                    assert (await client.call_tool("whoami")).text == f"ada for {expected}"
        finally:
            await app.stop(0.0)
            await serving


# -- behind a proxy


@pytest.mark.parametrize(
    ("resource", "seen", "shown"),
    [
        (RESOURCE, "http://10.0.0.7:8000/mcp", RESOURCE),
        ("https://mcp.example.com/notes/mcp", "http://10.0.0.7:8000/mcp", "https://mcp.example.com/notes/mcp"),
        ("https://mcp.example.com/notes/mcp", "http://10.0.0.7:8000/notes/mcp", "https://mcp.example.com/notes/mcp"),
        ("https://mcp.example.com/notes/mcp", "http://10.0.0.7:8000/mine?x=1", "https://mcp.example.com/notes/mine"),
        ("https://mcp.example.com", "http://10.0.0.7:8000/mcp", "https://mcp.example.com/mcp"),
    ],
)
def test_a_proof_names_the_url_that_the_client_asked_for(resource: str, seen: str, shown: str) -> None:
    """RFC 9449 §4.3: `htu` is what the client wrote, though a proxy has changed host, scheme and path since."""
    assert verifier(resource=resource).resource.url_of(facts(url=seen)) == shown
