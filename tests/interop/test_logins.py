"""Logins between implementations: their clients at our protected server, our client at theirs."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from install_peers import peers_folder, venv_python
from peer_programs import HERE, missing

from ferrule import OIDC, Client, Context, Http, OAuth, Server
from ferrule.auth.devserver.clients import RegisteredClient
from ferrule.auth.devserver.server import DevServer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "auth"))

# No log and no error of these runs may hold a token either.
from leaks import no_text_holds_a_secret, secrets_of_the_run  # noqa: F401 - the path above leads to them

pytestmark = pytest.mark.interop

PATIENCE = 60.0


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def browser(url: str) -> str:
    """Sign in at once, and return where the browser is sent."""
    async with httpx.AsyncClient(trust_env=False) as pages:
        return (await pages.get(url, follow_redirects=False)).headers["location"]


@asynccontextmanager
async def protected() -> AsyncIterator[str]:
    """Serve a tool that says who calls, to those who log in; gives its URL."""
    async with DevServer(user="ada") as issuer:
        port = free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        app = Server("protected", auth=OIDC(issuer.issuer, resource=url))

        @app.tool
        async def who(ctx: Context) -> str:
            """Say who calls."""
            return ctx.principal or "nobody"

        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(Http(port=port), ready=ready.set))
        await ready.wait()
        try:
            yield url
        finally:
            await app.stop()
            await serving


async def said_by(peer: str, role: str, *words: str) -> tuple[int, str, str]:
    """Run a program of a peer; return its exit code and what it wrote."""
    if why := missing(peer):
        pytest.skip(why)
    python = str(venv_python(peers_folder() / peer))
    process = await asyncio.create_subprocess_exec(
        python,
        str(HERE / "peers" / f"{peer}_{role}.py"),
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, complaints = await process.communicate()
    return process.returncode or 0, out.decode(), complaints.decode()


@pytest.mark.parametrize("peer", ["mcp2", "fastmcp"])
def test_their_client_logs_in_to_our_server(peer: str) -> None:
    """It discovers who issues tokens, registers, logs in with PKCE and calls."""

    async def work() -> None:
        async with protected() as url:
            code, out, complaints = await said_by(peer, "login", url)
            assert code == 0, complaints
            assert out.strip().endswith("#ada")

    asyncio.run(work())


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
def test_our_client_logs_in_to_our_server(mode: str) -> None:
    """The same as theirs, in both eras."""

    async def work() -> None:
        async with protected() as url:
            auth = OAuth(storage="memory", open_browser=browser)
            async with Client(url, auth=auth, mode=mode) as client:
                assert (await client.call_tool("who")).data.endswith("#ada")

    asyncio.run(work())


@asynccontextmanager
async def protected_by(peer: str) -> AsyncIterator[str]:
    """Serve a tool of theirs that says who calls, to those who log in; gives its URL."""
    if why := missing(peer):
        pytest.skip(why)
    secret = RegisteredClient(id="resource", secret="secret", auth_method="client_secret_basic")
    async with DevServer(user="ada", clients=[secret]) as issuer:
        port = free_port()
        checked_at = issuer.url("keys" if peer == "fastmcp" else "introspect")
        program = [str(HERE / "peers" / f"{peer}_protected.py"), str(port), issuer.issuer, checked_at]
        process = await asyncio.create_subprocess_exec(str(venv_python(peers_folder() / peer)), *program)
        try:
            async with asyncio.timeout(PATIENCE):
                while not await listens(port):
                    await asyncio.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            await process.wait()


async def listens(port: int) -> bool:
    """Whether somebody listens on a port."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.mark.parametrize("peer", ["mcp2", "fastmcp"])
def test_our_client_logs_in_to_their_server(peer: str) -> None:
    """It finds what they publish, and comes back with a token they take."""

    async def work() -> None:
        async with protected_by(peer) as url:
            auth = OAuth(storage="memory", open_browser=browser)
            async with Client(url, auth=auth) as client:
                assert (await client.call_tool("who")).data == "ada"

    asyncio.run(work())
