"""HTTP/1.1 by hand, on one connection: what is sent, and the answers in their order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def call(identity: int, tool: str, era: str, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make a request that calls a tool, with more params where a retry has them."""
    params: dict[str, Any] = {"name": tool, "arguments": {}, **(more or {})}
    if era == "stateless":
        params["_meta"] = META
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}


class Answer:
    """One answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """What the tool said."""
        return str(self.json["result"]["content"][0]["text"])


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        self.reader, self.writer, self.path = reader, writer, path

    @classmethod
    async def reach(cls, url: str) -> Wire:
        """Connect to the server of a URL."""
        host, _, path = url.partition("://")[2].partition("/")
        name, _, port = host.partition(":")
        return cls(*await asyncio.open_connection(name, int(port)), f"/{path}")

    def send(self, message: Any = None, method: str = "POST", path: str = "", **headers: str) -> None:
        """Send a request; headers are given with underscores."""
        body = b"" if message is None else json.dumps(message).encode()
        given = {
            "Host": "127.0.0.1",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = [f"{method} {path or self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def read(self) -> Answer:
        """Read one answer with a length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in head[1:] if line]
        headers = {name.lower(): value for name, value in pairs}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(head[0].split()[1]), headers, body)

    async def ask(self, message: Any = None, **options: str) -> Answer:
        """Send a request and read its answer."""
        self.send(message, **options)
        return await self.read()

    def called(self, identity: int, tool: str, era: str, *, more: dict[str, Any] | None = None, **headers: str) -> None:
        """Call a tool in either era; a session is named by its header."""
        if era == "stateless":
            headers |= {"Mcp_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": tool}
        else:
            headers |= {"Mcp_Protocol_Version": "2025-11-25"}
        self.send(call(identity, tool, era, more), **headers)

    async def session(self, **headers: str) -> str:
        """Open a session."""
        opened = await self.ask(INITIALIZE, **headers)
        assert opened.status == 200, opened.body
        return opened.headers["mcp-session-id"]

    async def close(self) -> None:
        """Hang up."""
        self.writer.close()
        await self.writer.wait_closed()
