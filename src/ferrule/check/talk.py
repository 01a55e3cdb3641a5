"""A conversation with a server in one era, on one wire."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ferrule.check.answer import Answer, Json, answers, is_response
from ferrule.check.era import HANDSHAKE, VERSIONS, Era
from ferrule.check.http import HttpWire, is_any
from ferrule.check.wire import NO_HEADERS, NoAnswer, Wire

ME = {"name": "ferrule-check", "version": "1"}
META = "io.modelcontextprotocol/"
SESSION = "mcp-session-id"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which member of the params a header repeats, by method."""
MOST_KEPT = 2000
"""How many messages of a server are kept to be judged at the end."""
MOST_KEPT_BYTES = 64 * 1024 * 1024
"""How many bytes of them."""


class EraNotSpoken(Exception):
    """A server that does not speak an era; says how it answered."""


class Unauthorized(Exception):
    """A server that lets nobody in without a token."""

    def __init__(self, refusal: Answer) -> None:
        super().__init__(f"HTTP {refusal.status}")
        self.refusal = refusal


class Talk:
    """Sends requests as a client of an era does, and keeps what the server says."""

    def __init__(self, wire: Wire, era: Era, seconds: float) -> None:
        self.wire = wire
        self.era = era
        self.seconds = seconds
        self.version = VERSIONS[era]
        """The version that is spoken: the one the server agreed to."""
        self.opening: Json = {}
        """The result of `initialize` or `server/discover`."""
        self.session = ""
        self.seen: list[Json] = []
        """What the server sent, in order."""
        self.seen_bytes = 0
        self.asked: list[object] = []
        """The ids of our requests."""
        self.unreliable = False
        """Whether the server is silent or gone: the next rule needs a new conversation."""
        self._next = 0

    @property
    def capabilities(self) -> Json:
        """What the server declares."""
        found = self.opening.get("capabilities")
        if isinstance(found, dict):
            return found
        return {}

    # -- opening

    async def open(self, version: str | None = None) -> Answer:
        """Open the conversation; raise EraNotSpoken where the server does not speak the era."""
        if self.era == HANDSHAKE:
            return await self._initialize(version or self.version)
        answer = await self.request("server/discover")
        if answer.status == 401:
            raise Unauthorized(answer)
        result = answer.result
        supported = (result or {}).get("supportedVersions")
        if not isinstance(supported, list) or self.version not in supported:
            raise EraNotSpoken(f"server/discover was answered with {answer.told}")
        self.opening = result or {}
        return answer

    async def _initialize(self, version: str) -> Answer:
        answer = await self.initialize(version)
        if answer.status == 401:
            raise Unauthorized(answer)
        result = answer.result
        if result is None:
            raise EraNotSpoken(f"initialize was answered with {answer.told}")
        self.opening = result
        agreed = result.get("protocolVersion")
        if isinstance(agreed, str):
            self.version = agreed
        await self.notify("notifications/initialized")
        return answer

    async def initialize(self, version: str) -> Answer:
        """Send `initialize` and nothing else."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": ME}
        answer = await self.request("initialize", params)
        self.session = answer.headers.get(SESSION, "")
        return answer

    # -- sending

    def envelope(self, method: str, params: Mapping[str, Any] | None = None) -> tuple[Json, dict[str, str]]:
        """Return a request without its id, and the HTTP headers that go with it."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        headers: dict[str, str] = {}
        given = dict(params or {})
        if self.era == HANDSHAKE:
            if self.session:
                headers["MCP-Session-Id"] = self.session
            if self.opening:
                headers["MCP-Protocol-Version"] = self.version
        else:
            meta = {f"{META}protocolVersion": self.version, f"{META}clientCapabilities": {}, f"{META}clientInfo": ME}
            given["_meta"] = {**meta, **given.get("_meta", {})}
            headers["MCP-Protocol-Version"] = self.version
            headers["Mcp-Method"] = method
            if method in NAMED:
                headers["Mcp-Name"] = str(given.get(NAMED[method], ""))
        if given:
            message["params"] = given
        return message, headers

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        identity: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and return what came back; raise NoAnswer where nothing does."""
        message, usual = self.envelope(method, params)
        if headers is not None:
            usual = dict(headers)
        message["id"] = self.new_id() if identity is None else identity
        return await self.send(message, usual)

    async def send(self, message: Json, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
        """Send a request as it is."""
        self.asked.append(message["id"])
        return self._noted(await self._exchange(message, headers))

    async def _exchange(self, message: Json, headers: Mapping[str, str]) -> Answer:
        try:
            return await self.wire.exchange(msgspec.json.encode(message), answers(message["id"]), self.seconds, headers)
        except NoAnswer as reason:
            self.unreliable = True
            raise NoAnswer(f"{message['method']}: {reason}", gone=reason.gone) from None

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Send a notification."""
        message, headers = self.envelope(method, params)
        return self._noted(await self.wire.tell(msgspec.json.encode(message), self.seconds, headers))

    def new_id(self) -> int:
        """Return an id that was not used before."""
        self._next += 1
        return self._next

    def _noted(self, answer: Answer) -> Answer:
        self.seen_bytes += answer.received
        if self.seen_bytes > MOST_KEPT_BYTES:
            return answer
        for message in (*answer.others, answer.message):
            if message and len(self.seen) < MOST_KEPT:
                self.seen.append(message)
        return answer

    @property
    def responses(self) -> list[Json]:
        """The responses the server sent."""
        return [message for message in self.seen if is_response(message)]

    async def close(self, grace: float = 1.0) -> None:
        """Leave the server; a session over HTTP is ended."""
        if self.session and isinstance(self.wire, HttpWire) and not self.unreliable:
            headers = {"MCP-Session-Id": self.session, "MCP-Protocol-Version": self.version}
            with contextlib.suppress(NoAnswer):
                await self.wire.ask("DELETE", headers, b"", is_any, self.seconds)
        await self.wire.close(grace)
