"""Plain HTTP requests in a session, by callers with tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from ferrule.errors import Refusal
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import RequestFacts, Verdict, Verifier

VERSION = "2025-11-25"
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "node", "arguments": {}}}


class Tokens(Verifier):
    """A verifier that knows callers by their token, which is their name."""

    def __init__(self, known: Mapping[str, Principal]) -> None:
        self._known = known

    def verify(self, facts: RequestFacts) -> Verdict:
        name = facts.headers.get("authorization", "").removeprefix("Bearer ")
        return self._known.get(name) or Refusal("who are you?", status=401)


async def send(
    url: str, method: str, token: str, session: str = "", body: object = None
) -> tuple[int, dict[str, str], bytes]:
    """Send a request on a connection of its own; return the status, the headers and what was read until the end."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    content = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{method} {place.path} HTTP/1.1",
        f"Host: {place.netloc}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(content)}",
        "Connection: close",
    ]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if session:
        lines += [f"Mcp-Session-Id: {session}", f"Mcp-Protocol-Version: {VERSION}"]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        rest = await reader.read()
    finally:
        writer.close()
    status, *fields = head.split("\r\n")
    headers = {}
    for field in fields:
        name, _, value = field.partition(":")
        headers[name.lower()] = value.strip()
    return int(status.split()[1]), headers, rest


async def initialize(url: str, token: str = "") -> str:
    """Open a session and return its id."""
    params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    status, headers, said = await send(url, "POST", token, body=body)
    assert status == 200, said
    session = headers["mcp-session-id"]
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await send(url, "POST", token, session, ready))[0] == 202
    return session


async def post(url: str, token: str, session: str) -> int:
    """Call a tool in a session and return the status."""
    return (await send(url, "POST", token, session, CALL))[0]


async def delete(url: str, token: str, session: str) -> int:
    """End a session and return the status."""
    return (await send(url, "DELETE", token, session))[0]
