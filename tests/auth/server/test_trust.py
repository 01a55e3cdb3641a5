"""What counts of a caller is its token; what a server opens by default is open to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from identity_desk import _listening
from identity_wire import INITIALIZE, Wire
from msgspec import Meta
from protected_desk import TOKENS, ask, asking, bearer, principal, protected, served, session_headers

from ferrule import Client, Context, Http, Server, Tcp, Unix
from ferrule.auth.server.certificates import ClientCertificates
from ferrule.auth.server.static_tokens import StaticTokens
from ferrule.errors import SetupError
from ferrule.testing import ERAS
from ferrule.transports.graphql.listener import Graphql
from ferrule.transports.websocket.listener import WebSocket

# -- what a client says of its user


@pytest.mark.parametrize("era", ERAS)
async def test_who_a_client_says_its_user_is_counts_for_nothing(era: str, tmp_path: Path) -> None:
    """ERRA-1, ELIC-13: neither in headers, nor in its own introduction, `_meta`, arguments or answers."""
    app, ran = protected(protection={})

    @app.tool
    async def book(ctx: Context, user: str = "") -> str:
        return f"{ctx.principal} chose {await ctx.ask('Who are you?', str)}"

    said = {"user": "bob", "user_id": "dev#bob", "principal": "dev#bob", "sub": "bob", "com.example/user": "bob"}
    headers = {f"X_{name}": "bob" for name in ("User", "Forwarded_User", "Forwarded_Email", "Auth_Request_User")}
    headers |= {"Remote_User": "bob", "Forwarded": "for=bob", "Cookie": "user=bob; session=bob"}
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        assert (await wire.ask(INITIALIZE, **headers)).status == 401
        if era == "handshake":
            client = {"name": "bob", "version": "1", **said}
            introduced = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client, "_meta": said}
            opened = await wire.ask({**INITIALIZE, "params": introduced}, **bearer("ada"), **headers)
            headers["Mcp_Session_Id"] = opened.headers["mcp-session-id"]
        body, own = asking("tools/call", {"name": "whoami", "arguments": {}}, era)
        body["params"]["_meta"] = {**body["params"].get("_meta", {}), **said}
        answer = await wire.ask(body, **{**own, **bearer("ada"), **headers})
        assert answer.text == "dev#ada editor"
        await wire.close()
        liar = Client(place.url, mode=era, headers=bearer("ada"), elicitation=lambda question: {"value": "dev#bob"})
        async with liar:
            assert (await liar.call_tool("book", {"user": "dev#bob"})).text == "dev#ada chose dev#bob"
    assert ran.names == ["whoami"]


async def test_a_header_that_names_what_its_sender_may_do_opens_nothing_else(tmp_path: Path) -> None:
    """ERRA-11, SPEC-23: headers must say what the body says, and that is judged by the scopes of the token."""
    app, ran = protected()

    @app.tool(scopes=["write"])
    async def pay(account: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Account"})]) -> str:
        ran.names.append("pay")
        return account

    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)

        async def pays(token: str, **changes: str) -> int:
            body, own = asking("tools/call", {"name": "pay", "arguments": {"account": "theirs"}}, "stateless")
            answer = await wire.ask(body, **{**own, "Mcp_Param_Account": "theirs", **bearer(token), **changes})
            return answer.status

        # It may not, whatever its headers say.
        assert await pays("ada") == 403
        for changes in ({"Mcp_Name": "whoami"}, {"Mcp_Method": "tools/list"}, {"Mcp_Param_Account": "mine"}):
            assert await pays("ada", **changes) == 400
            assert await pays("bob", **changes) == 400
        assert ran.names == []
        assert await pays("bob") == 200
        assert ran.names == ["pay"]
        await wire.close()


@pytest.mark.parametrize("era", ERAS)
async def test_access_is_judged_whatever_caches_are_told(era: str, tmp_path: Path) -> None:
    """CACHE-5: also right after somebody who may; and what not everybody may read is nobody else's to share."""
    app, ran = protected(cache_scope="public", cache_ttl=60.0, hiding=False)

    @app.resource("notes://open", ttl=60.0)
    async def everybodys() -> str:
        return "open"

    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        for token, status in (("bob", 200), ("ada", 403), ("bob", 200), ("ada", 403)):
            headers = await session_headers(wire, era, token)
            for uri in ("notes://secret", "notes://x/page"):
                answer = await ask(wire, "resources/read", {"uri": uri}, era, headers)
                assert answer.status == status
                if status == 200 and era == "stateless":
                    assert answer.json["result"]["cacheScope"] == "private"
            shared = await ask(wire, "resources/read", {"uri": "notes://open"}, era, headers)
            assert shared.json["result"].get("cacheScope", "public") == "public"
            assert (await ask(wire, "tools/list", {}, era, headers)).status == 200
        assert (await ask(wire, "resources/read", {"uri": "notes://open"}, era, {})).status == 401
        assert ran.names == ["secret", "page"] * 2
        await wire.close()
    # A list that differs from caller to caller cannot be shared at all.
    with pytest.raises(SetupError, match="lets caches give one caller's list to another"):
        protected(cache_scope="public")


# -- scopes


@pytest.mark.parametrize("wildcard", ["*", "notes:*", "*:read", "https://api.example.com/*"])
def test_a_scope_is_no_wildcard(wildcard: str) -> None:
    """SEC-13: neither of a server, nor of a tool, nor of whoever is known by a certificate or included in another."""
    with pytest.raises(SetupError, match="is a wildcard: name what is needed"):
        StaticTokens(TOKENS, scopes=[wildcard])
    with pytest.raises(SetupError, match="is a wildcard"):
        StaticTokens(TOKENS, implies={"admin": [wildcard]})
    app = Server("notes")
    with pytest.raises(SetupError, match="is a wildcard"):
        app.tool(name="save", scopes=[wildcard])(lambda: "x")
    certificates = ClientCertificates({"carol": [wildcard]})
    with pytest.raises(SetupError, match="is a wildcard"):
        certificates.verify(_with_certificate("carol"))


def _with_certificate(name: str) -> Any:
    from issuer_double import facts

    from ferrule.identity.verifier import Certificate

    return facts(certificate=Certificate({"subject": ((("commonName", name),),)}))


async def test_who_asks_for_more_and_who_has_more_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SEC-13: the least is published and asked for first; each step above it is on record, without a token."""
    caplog.set_level(logging.INFO, "ferrule.auth")
    secret = "s3cret-token-of-ada"
    tokens = {"ada": principal("ada", "notes"), secret: principal("ada", "notes write")}
    app, ran = protected(auth=StaticTokens(tokens, scopes=["notes"]))
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        metadata = await wire.ask(method="GET", path="/.well-known/oauth-protected-resource/mcp")
        assert metadata.json["scopes_supported"] == ["notes"]
        assert (await ask(wire, "tools/call", {"name": "whoami", "arguments": {}}, "stateless", bearer("ada"))).text
        assert [record.getMessage() for record in caplog.records if record.name == "ferrule.auth"] == []
        save = {"name": "save", "arguments": {}}
        assert (await ask(wire, "tools/call", save, "stateless", bearer("ada"))).status == 403
        for _ in range(3):
            assert (await ask(wire, "tools/call", save, "stateless", bearer(secret))).status == 200
        await wire.close()
    assert [record.getMessage() for record in caplog.records if record.name == "ferrule.auth"] == [
        "dev#ada is asked for more scopes (tools/call): write",
        "dev#ada has more scopes than all need, with the client editor: write",
    ]
    assert ran.names == ["whoami", "save", "save", "save"]


# -- what is open by default


@pytest.mark.parametrize("kind", [Http, WebSocket, Graphql, Tcp])
async def test_a_listener_is_for_this_machine_and_for_no_page(kind: Any) -> None:
    """SUP-06, SEC-10: with no options at all; limits are on, and no origin but its own is let in."""
    app = Server("open", version="1")

    @app.tool
    async def fail() -> str:
        raise RuntimeError("a secret of the server")

    listener = kind(port=0)
    async with _listening(app, listener):
        host, port = listener.address
        assert host == "127.0.0.1"
        if kind is Tcp:
            return
        path = "/graphql" if kind is Graphql else "/mcp/ws" if kind is WebSocket else "/mcp"
        for changes in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            wire = await Wire.reach(f"http://127.0.0.1:{port}{path}")
            refused = await wire.ask(INITIALIZE, **changes)
            assert refused.status in (403, 421), (refused.status, refused.body)
            assert "access-control-allow-origin" not in refused.headers
            await wire.close()
        if kind is Http:
            wire = await Wire.reach(f"http://127.0.0.1:{port}{path}")
            body, own = asking("tools/call", {"name": "fail", "arguments": {}}, "stateless")
            assert b"a secret of the server" not in (await wire.ask(body, **own)).body
            huge = {"Content_Length": str(1 << 40)}
            assert (await wire.ask(None, **huge)).status == 413
            await wire.close()


async def test_other_users_of_this_machine_cannot_open_the_socket(tmp_path: Path) -> None:
    """SEC-10: a Unix socket is its owner's alone."""
    app = Server("open", version="1")
    path = tmp_path / "s"
    serving = asyncio.ensure_future(app.serve(Unix(path)))
    while not path.exists():
        await asyncio.sleep(0.005)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await app.stop()
    await serving


async def test_a_server_that_is_told_nothing_speaks_to_its_parent_alone() -> None:
    """SEC-10: `app.run()` is stdio."""
    code = "from ferrule import Server\nServer('local').run()\n"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert b'"id":1' in await child.stdout.readline()
    assert not await asyncio.to_thread(_listens, child.pid)
    child.stdin.close()
    await child.wait()


def _listens(pid: int) -> bool:
    """Return whether a process has a socket that listens; only where the system shows that."""
    sockets = set()
    with contextlib.suppress(FileNotFoundError):
        for number in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(str(number.readlink()))
    listening = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":
                    listening.add(f"socket:[{words[9]}]")
    return bool(sockets & listening)


async def test_a_token_guards_a_local_server_from_other_programs(tmp_path: Path) -> None:
    """SEC-10, SPEC-23: HTTP on this machine with a token: 401 with a challenge to whoever has none."""
    app, ran = protected(protection={})
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        body, own = asking("tools/call", {"name": "whoami", "arguments": {}}, "stateless")
        refused = await wire.ask(body, **own)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer ")
        assert (await wire.ask(body, **own, **bearer("ada"))).status == 200
        await wire.close()
    assert ran.names == ["whoami"]
