"""A small correct server of both eras, written without Ferrule, that tests spoil in one place."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

OLD_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
NEW_VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}, "logging": {}}
SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
TOOLS = [
    {
        "name": "sum",
        "inputSchema": {"type": "object"},
        "outputSchema": SCHEMA,
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "pick",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "drop", "inputSchema": {"type": "object"}},
]
RESOURCES = [{"uri": "note://one", "name": "one"}]
TEMPLATES = [{"uriTemplate": "note://{id}{?full,part*}", "name": "note"}]
PROMPTS = [{"name": "hello"}, {"name": "greet", "arguments": [{"name": "who", "required": True}]}]

Json = dict[str, Any]
Change = Callable[[Json, Json], Any]
"""Makes another answer of a request and its right answer."""


class Wrong(Exception):
    """An error to answer with."""

    def __init__(self, code: int, message: str = "no", **data: Any) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message}
        if data:
            self.error["data"] = data


class PlainServer:
    """Answers messages; `changes` spoil the answers of some methods, `"*"` of all."""

    def __init__(self, changes: dict[str, Change] | None = None) -> None:
        self.changes = changes or {}
        self.called: list[str] = []
        """The tools that were called."""
        self.noise: bytes = b""
        self.batches: set[str] = set()

    def read(self, line: bytes) -> list[bytes]:
        """Return the lines that answer a line."""
        try:
            message = json.loads(line)
        except ValueError:
            answer = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no JSON"}}
            return self.written({"method": "!garbage"}, answer)
        if isinstance(message, list):
            answers = [self.answer(each) for each in message if "id" in each]
            return self.written({"method": "!batch"}, answers)
        return self.written(message, self.answer(message))

    def written(self, message: Json, answer: Any) -> list[bytes]:
        for name in (message.get("method", ""), "*"):
            if name in self.changes:
                answer = self.changes[name](message, answer)
        if answer is None:
            return []
        if isinstance(answer, bytes):
            return [answer]
        if isinstance(answer, tuple):
            return [json.dumps(each).encode() for each in answer]
        return [json.dumps(answer).encode()]

    def answer(self, message: Json) -> Json | None:
        if "id" not in message:
            return None
        reply: Json = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            return {**reply, "result": self.result(message["method"], message.get("params", {}))}
        except Wrong as wrong:
            return {**reply, "error": wrong.error}

    def result(self, method: str, params: Json) -> Json:
        meta = params.get("_meta", {})
        version = meta.get(f"{META}protocolVersion")
        if version is None:
            if method == "initialize":
                return self.initialize(params)
            return self.shared(method, params, old=True)
        if version != NEW_VERSION:
            raise Wrong(-32022, supported=[NEW_VERSION], requested=version)
        if f"{META}clientCapabilities" not in meta:
            raise Wrong(-32602)
        facts = {"resultType": "complete", "_meta": {f"{META}serverInfo": {"name": "plain", "version": "1"}}}
        hints = {"ttlMs": 0, "cacheScope": "private"}
        if method == "server/discover":
            return {"supportedVersions": [NEW_VERSION], "capabilities": CAPABILITIES, **facts, **hints}
        return {**self.shared(method, params, old=False), **facts, **hints}

    def initialize(self, params: Json) -> Json:
        version = params["protocolVersion"]
        return {
            "protocolVersion": version if version in OLD_VERSIONS else OLD_VERSIONS[0],
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": "plain", "version": "1"},
        }

    def shared(self, method: str, params: Json, *, old: bool) -> Json:
        """What both eras have, and what only the old one has."""
        lists = {
            "tools/list": {"tools": TOOLS},
            "resources/list": {"resources": RESOURCES},
            "resources/templates/list": {"resourceTemplates": TEMPLATES},
            "prompts/list": {"prompts": PROMPTS},
        }
        if method in lists:
            if "cursor" in params:
                raise Wrong(-32602)
            return lists[method]
        if method == "tools/call":
            return self.call(params)
        if method == "resources/read":
            if params["uri"] != "note://one":
                raise Wrong(-32002 if old else -32602)
            return {"contents": [{"uri": "note://one", "text": "one"}]}
        if method == "prompts/get":
            if params["name"] != "hello":
                raise Wrong(-32602)
            return {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}
        if method == "completion/complete":
            if params["ref"].get("name") != "greet":
                raise Wrong(-32602)
            return {"completion": {"values": ["Ada"]}}
        if old and method in ("ping", "resources/subscribe", "resources/unsubscribe"):
            return {}
        if old and method == "logging/setLevel":
            if params["level"] != "warning":
                raise Wrong(-32602)
            return {}
        raise Wrong(-32601)

    def call(self, params: Json) -> Json:
        self.called.append(params["name"])
        if params["name"] == "sum":
            return {"content": [{"type": "text", "text": '{"sum": 3}'}], "structuredContent": {"sum": 3}}
        if params["name"] == "pick":
            return {"content": [{"type": "text", "text": "a is missing"}], "isError": True}
        raise Wrong(-32602)

    @contextlib.asynccontextmanager
    async def on_tcp(self) -> AsyncIterator[str]:
        """Serve on a port while the block runs; gives the address."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                while line := await reader.readline():
                    for answer in self.read(line):
                        writer.write(answer + b"\n")
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
        try:
            yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
