"""Finding out over HTTP which era a server speaks, row by row of the table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client
from ferrule.errors import (
    ConnectFailed,
    HttpFailed,
    InitializeFailed,
    InitializeTimedOut,
    OutcomeUnknown,
    VersionMismatch,
)
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.stateless import NEWEST as STATELESS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "transports" / "http" / "client"))

from scripted import Seen, Site


def client(site: Site, **options: Any) -> Client:
    """Return a client of the site that loses no time."""
    return Client(site.url, http={"retry_delay": 0.01, "jitter": 0.0}, **options)


def discovered(*versions: str) -> Any:
    return lambda seen: seen.result({"supportedVersions": list(versions), "capabilities": {}})


def unsupported(*versions: str) -> Any:
    data = {"supported": list(versions), "requested": "x"}
    return lambda seen: seen.error(-32022, "Unsupported protocol version", 400, data=data)


async def test_a_server_that_can_be_discovered_is_asked_statelessly() -> None:
    """VER-7, DISC-1."""
    async with Site("stateless") as site, client(site) as one:
        assert one.protocol_version == STATELESS.version
        assert site.got("initialize") == []


LEGACY = {
    "does not know the method": lambda seen: seen.error(-32601, "Method not found", 200),
    "does not know the method, by status": lambda seen: seen.error(-32601, "Method not found", 404),
    "misses a session": lambda seen: seen.json(
        {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Missing session ID"}}, 400
    ),
    "is not initialized": lambda seen: seen.json(
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Server not initialized"}}, 400
    ),
    "answers 400 and nothing": lambda seen: seen.status(400),
    "answers 404 and a page": lambda seen: seen.status(404, b"<html>", content_type="text/html"),
    "answers 405": lambda seen: seen.status(405),
    "answers 422": lambda seen: seen.status(422, b'{"detail":"x"}', content_type="application/json"),
    "names handshake versions only": discovered(HANDSHAKE.version),
    "refuses and names handshake versions only": unsupported(HANDSHAKE.version),
    "dislikes the params": lambda seen: seen.error(-32602, "Invalid params", 400),
}


@pytest.mark.parametrize("script", LEGACY.values(), ids=LEGACY)
async def test_a_server_that_answers_like_an_old_one_is_asked_for_the_handshake(script: Any) -> None:
    """COMPAT-3: the body is read first, and names no modern server."""
    async with Site("handshake") as site:
        site.on("server/discover", script)
        async with client(site) as one:
            assert one.protocol_version == HANDSHAKE.version
            assert (await one.call_tool("t")).text == "done"


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 501, 502, 503, 504])
async def test_statuses_that_tell_nothing_of_a_servers_age_are_errors(status: int) -> None:
    """COMPAT-4."""
    async with Site() as site:
        site.on("server/discover", lambda seen: seen.status(status))
        with pytest.raises(HttpFailed) as raised:
            await client(site).connect()
        assert raised.value.status == status
        assert site.got("initialize") == []


async def test_a_broken_server_is_no_old_one_even_if_it_says_why() -> None:
    async with Site() as site:
        site.on("server/discover", lambda seen: seen.error(-32603, "Internal error", 500))
        with pytest.raises(HttpFailed, match=r"HTTP 500.*Internal error"):
            await client(site).connect()
        assert site.got("initialize") == []


async def test_silence_is_an_error() -> None:
    """COMPAT-4."""
    async with Site() as site:
        site.on("server/discover", lambda seen: seen.gone())
        with pytest.raises(InitializeTimedOut, match=r"server/discover within 0.1 s"):
            await client(site, probe_timeout=0.1).connect()
        assert site.got("initialize") == []


async def test_a_cut_is_an_error() -> None:
    """COMPAT-4."""
    async with Site() as site:
        site.on("server/discover", lambda seen: seen.cut())
        with pytest.raises((InitializeFailed, ConnectFailed, OutcomeUnknown)):
            await client(site).connect()
        assert site.got("initialize") == []


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_errors_only_new_servers_have_are_no_reason_for_the_handshake(code: int) -> None:
    """COMPAT-3."""
    async with Site() as site:
        site.on("server/discover", lambda seen: seen.error(code, "no", 400))
        with pytest.raises(InitializeFailed, match="refuses how we ask"):
            await client(site).connect()
        assert site.got("initialize") == []


async def test_versions_that_have_nothing_in_common_are_an_error() -> None:
    async with Site() as site:
        site.on("server/discover", unsupported("2099-01-01"))
        with pytest.raises(VersionMismatch):
            await client(site).connect()
        assert site.got("initialize") == []


async def test_a_settled_era_is_never_left_again() -> None:
    """Later errors are errors of their calls."""
    async with Site() as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.status(400), lambda seen: seen.text("still"))
        with pytest.raises(HttpFailed):
            await one.call_tool("t")
        assert (await one.call_tool("t")).text == "still"
        assert site.got("initialize") == []


async def test_a_handshake_that_is_refused_by_status_names_it() -> None:
    async with Site("handshake") as site:
        site.on("initialize", lambda seen: seen.status(403))
        with pytest.raises(HttpFailed, match="initialize with HTTP 403"):
            await client(site, mode="handshake").connect()


async def test_the_probe_brings_its_headers() -> None:
    """HDR-1, HDR-2."""
    seen_headers: dict[str, str] = {}

    def note(seen: Seen) -> None:
        seen_headers.update(seen.headers)
        seen.status(400)

    async with Site("handshake") as site:
        site.on("server/discover", note)
        async with client(site):
            pass
        assert seen_headers["mcp-method"] == "server/discover"
        assert seen_headers["mcp-protocol-version"] == STATELESS.version
        assert "mcp-method" not in site.got("initialize")[0].headers
