"""One node with two HTTP listeners: each answers sessions of the other, and keeps its verdicts on heads to itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from plain_http import VERSION

from ferrule import Http, Server

PARAMS = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}).encode()


def call(size: int) -> bytes:
    """Return a call of a tool with an argument of so many letters."""
    params = {"name": "echo", "arguments": {"text": "a" * size}}
    return json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).encode()


async def post(listener: Http, body: bytes, session: str = "", address: str = "127.0.0.1") -> tuple[int, str]:
    """Send a request on a connection of its own; return its status and the session it names."""
    assert listener.address is not None
    reader, writer = await asyncio.open_connection(*listener.address[:2], local_addr=(address, 0))
    lines = [
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
    ]
    if session:
        lines.append(f"Mcp-Session-Id: {session}")
    try:
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    finally:
        writer.close()
    headers = {}
    for field in fields:
        name, _, value = field.partition(": ")
        headers[name.lower()] = value
    return int(status.split()[1]), headers.get("mcp-session-id", "")


@asynccontextmanager
async def served(*listeners: Any) -> AsyncIterator[None]:
    """Serve on all of them with a store, as a node does."""
    app = Server("listeners", stores="memory:")

    @app.tool
    def echo(text: str) -> str:
        return text[:3]

    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(*listeners, ready=ready.set))
    await ready.wait()
    try:
        yield
    finally:
        await app.stop(0.1)
        await serving


async def test_what_one_listener_decides_about_a_head_is_not_kept_for_the_other() -> None:
    large, small = Http(port=0), Http(port=0, max_body_size=2000)
    async with served(large, small):
        (_, of_large), (_, of_small) = await post(large, INITIALIZE), await post(small, INITIALIZE)
        assert (await post(large, call(8000), of_large))[0] == 200
        assert (await post(large, call(8100), of_small))[0] == 413
        # The head is the same but for the id of the session.
        assert (await post(large, call(8100), of_large))[0] == 200


async def test_a_session_too_large_for_the_table_is_not_looked_for() -> None:
    """An introduction of 11 MB counts as more sessions than there may be, and its session is over at once."""
    listener = Http(port=0)
    async with served(listener):
        await post(listener, INITIALIZE)
        _, session = await post(listener, INITIALIZE + b" " * 11_000_000, address="127.0.0.2")
        began = time.process_time()
        assert (await post(listener, call(3), session))[0] == 404
        assert time.process_time() - began < 1.0
        assert len(listener.endpoint.sessions) == 1
