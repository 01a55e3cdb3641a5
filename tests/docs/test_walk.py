"""The walks of docs/design are true: a real call runs the functions they draw, in that order."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ferrule import Client

HERE = Path(__file__).resolve().parent
DESIGN = HERE.parents[1] / "docs" / "design"
SERVER = HERE / "traced_server.py"
STEP = re.compile(r" *([A-Za-z_][\w.]*)")
CLIENT = "The client"
STDIO = "A tools/call over stdio"
SESSION = "A POST of the handshake era whose head was seen before"
HTTP2 = "The same over HTTP/2"
STATELESS = "A POST of the stateless era whose head was seen recently"


def steps(page: str, heading: str) -> list[str]:
    """Return the functions that a drawing says run, in order."""
    text = (DESIGN / page).read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2]
    drawing = section.partition("```\n")[2].partition("```")[0]
    found = []
    for line in drawing.splitlines():
        if line.startswith("?"):
            continue
        if step := STEP.match(line):
            found.append(step[1])
    return found


def first_missing(drawn: list[str], ran: list[str]) -> str | None:
    """Return the first drawn function that does not run after the one drawn before it."""
    at = 0
    for name in drawn:
        later = [place for place, each in enumerate(ran[at:], at) if each == name or each.startswith(f"{name}.<")]
        if not later:
            return name
        at = later[0] + 1
    return None


async def trace(client: Client, start: str) -> list[str]:
    """Return which functions ran for one warm call, from the one that reads its bytes until it reads again."""
    for _ in range(3):
        await client.call_tool("add", {"a": 1, "b": 2})
    await client.call_tool("begin", {})
    await client.call_tool("add", {"a": 1, "b": 2})
    ran: list[str] = (await client.call_tool("end", {})).data
    begun = ran.index(start)
    return ran[begun : ran.index(start, begun + 1)]


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    """Serve over HTTP in a process of its own; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), str(port), stderr=asyncio.subprocess.PIPE
    )
    try:
        assert server.stderr is not None
        await asyncio.wait_for(server.stderr.readline(), 60)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        await server.communicate()


async def traced_over_http(mode: str) -> list[str]:
    """Trace a call over HTTP at its server."""
    async with http_server() as url, Client(url, mode=mode) as client:
        return await trace(client, "Connection.data_received")


def test_a_call_over_stdio_walks_as_drawn() -> None:
    async def ran() -> list[str]:
        async with Client([sys.executable, str(SERVER)], mode="handshake") as client:
            return await trace(client, "PipeTransport._read")

    assert first_missing(steps("walk.md", STDIO), asyncio.run(ran())) is None


@pytest.mark.parametrize(("mode", "heading"), [("handshake", SESSION), ("stateless", STATELESS)])
def test_a_call_over_http_walks_as_drawn(mode: str, heading: str) -> None:
    assert first_missing(steps("walk-http.md", heading), asyncio.run(traced_over_http(mode))) is None


async def traced_over_http2() -> list[str]:
    """Trace a call over HTTP/2 at its server."""
    httpx = pytest.importorskip("httpx", reason="httpx is not installed: nobody to ask in HTTP/2")
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}

    async def call(client: Any, url: str, tool: str, **arguments: int) -> Any:
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
        headers["accept"] = "application/json, text/event-stream"
        return (await client.post(url, json=message, headers=headers)).json()["result"]["structuredContent"]

    async with http_server() as url, httpx.AsyncClient(http1=False, http2=True) as client:
        for _ in range(3):
            await call(client, url, "add", a=1, b=2)
        await call(client, url, "begin")
        await call(client, url, "add", a=1, b=2)
        ran: list[str] = (await call(client, url, "end"))["result"]
        return ran


def test_a_call_over_http_2_walks_as_drawn() -> None:
    assert first_missing(steps("walk-http.md", HTTP2), asyncio.run(traced_over_http2())) is None


async def traced_client() -> list[str]:
    """Return which functions of Ferrule run here for one warm call over HTTP, in order."""
    ran: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("ferrule."):
            ran.append(frame.f_code.co_qualname)

    async with http_server() as url, Client(url, mode="handshake") as client:
        for _ in range(3):
            await client.call_tool("add", {"a": 1, "b": 2})
        sys.setprofile(note)
        try:
            await client.call_tool("add", {"a": 1, "b": 2})
        finally:
            sys.setprofile(None)
    return ran


def test_a_call_of_a_client_walks_as_drawn() -> None:
    assert first_missing(steps("walk-http.md", CLIENT), asyncio.run(traced_client())) is None


def test_a_walk_in_another_order_is_noticed() -> None:
    drawn = steps("walk.md", STDIO)
    assert len(drawn) > 15
    assert first_missing(drawn, drawn) is None
    assert first_missing([drawn[1], drawn[0], *drawn[2:]], drawn) == drawn[0]
    assert first_missing(["Link.vanished"], drawn) == "Link.vanished"
