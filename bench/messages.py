"""What the load generators say: the operations of the benchmark in both protocol generations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

FIRST_ID = 100_000_000
"""Ids have nine digits from the first to the last, so a request never changes its length."""

LISTED_TOOLS = 1000
OWN_TOOLS = 3
"""Every server offers add, add_sync and echo; the rest of a long list are extra tools."""

STATIC_URI = "bench://static"
ECHO_TEXT = "x" * 100
SEARCH = {
    "query": "bearing",
    "limit": 20,
    "sort": "date",
    "filters": [
        {"field": "maker", "operator": "is", "value": "Lindqvist & Sons"},
        {"field": "width", "operator": "below", "value": 12.5},
        {"field": "label", "operator": "has", "value": "sealed"},
    ],
}
FOUND = "20 of bearing by date where maker is Lindqvist & Sons and width below 12.5 and label has sealed"
CLIENT = {"name": "ferrule-bench", "version": "1"}


class Era(StrEnum):
    """A protocol generation, by the revision spoken."""

    HANDSHAKE = "2025-11-25"
    STATELESS = "2026-07-28"


STATELESS_META = {
    "io.modelcontextprotocol/protocolVersion": Era.STATELESS,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True)
class Operation:
    """One kind of request, and how to tell that its result is right."""

    method: str
    params: dict
    accepts: Callable[[dict], bool]
    value: object = None
    """What a tool gives, where one is called."""

    def around_id(self, era: Era) -> tuple[bytes, bytes]:
        """Return the bytes of the request before and after its id, line end included."""
        before, after = request(self.method, self.params, era, "ID").split(b'"ID"')
        return before, after


def request(method: str, params: dict, era: Era, id: int | str) -> bytes:  # noqa: A002 - the wire's word
    """Write one request as a line."""
    if era is Era.STATELESS:
        params = {**params, "_meta": STATELESS_META}
    return _line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def opening(era: Era) -> bytes:
    """Return the request that a conversation starts with."""
    if era is Era.STATELESS:
        return request("server/discover", {}, era, 1)
    return request("initialize", {"protocolVersion": era, "capabilities": {}, "clientInfo": CLIENT}, era, 1)


def opened(era: Era) -> bytes:
    """Return what has to be said after the opening was answered."""
    if era is Era.STATELESS:
        return b""
    return _line({"jsonrpc": "2.0", "method": "notifications/initialized"})


def _line(message: dict) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _call(tool: str, arguments: dict, value: object) -> Operation:
    """Call a tool; the answer must hold the value both as text and as structured content."""

    def accepts(result: dict) -> bool:
        return (
            not result.get("isError")
            and result["content"][0]["text"] == str(value)
            and result["structuredContent"] == {"result": value}
        )

    return Operation("tools/call", {"name": tool, "arguments": arguments}, accepts, value)


def _whole_list(result: dict) -> bool:
    return len(result["tools"]) == LISTED_TOOLS and not result.get("nextCursor")


SUBSCRIBE = Operation("resources/subscribe", {"uri": STATIC_URI}, lambda result: True)
JOIN = _call("join", {}, "ok")
"""How a session asks to hear of updates: as the protocol has it, or by a tool where an SDK leaves that to its user."""

BUMP = _call("bump", {}, "ok")
"""Tells everyone who asked for it that the resource changed."""

OPERATIONS = {
    "call": _call("add", {"a": 2, "b": 40}, 42),
    "call_sync": _call("add_sync", {"a": 2, "b": 40}, 42),
    "search": _call("search", SEARCH, FOUND),
    "echo": _call("echo", {"text": ECHO_TEXT}, ECHO_TEXT),
    "list": Operation("tools/list", {}, _whole_list),
}
