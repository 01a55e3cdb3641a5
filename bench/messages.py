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
STATIC_TEXT = "The same text at every reading. " * 5
ECHO_TEXT = "x" * 100
SIZES = {"10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
"""How large a text is that is echoed, as it stands in the request, by what the case is called."""

ESCAPES = 'a "quoted" word,\ta tab, a \\ and\na line; Grüße, 5 €, 日本語, 🙂. '
"""Half of it is ASCII that needs no escape, the rest what JSON escapes and what UTF-8 writes in 2, 3 and 4 bytes."""

RECORDS = 1000
NOTICES = 100
WAIT_MS = 2
UNKNOWN_TOOL = "look_up_0x50"
"""Like the names of the extra tools, and none of them."""
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
    refused: bool = False
    """Whether the right answer is an error: the protocol's, or one of a tool."""

    def judges(self, message: dict) -> bool:
        """Return whether an answer is right."""
        if not self.refused:
            return "result" in message and self.accepts(message["result"])
        if "error" in message:
            return type(message["error"]["code"]) is int and bool(message["error"]["message"])
        return message["result"].get("isError") is True

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
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _call(tool: str, arguments: dict, value: object) -> Operation:
    """Call a tool; the answer must hold the value both as text and as structured content."""

    def accepts(result: dict) -> bool:
        return (
            not result.get("isError")
            and result["content"][0]["text"] == str(value)
            and result["structuredContent"] == {"result": value}
        )

    return Operation("tools/call", {"name": tool, "arguments": arguments}, accepts, value)


def echo_of(size: int, phrase: str = "x") -> Operation:
    """Echo a text that takes so many bytes in the request, made of a phrase again and again."""
    width = len(json.dumps(phrase, ensure_ascii=False).encode()) - 2
    text = phrase * (size // width)
    return _call("echo", {"text": text}, text)


def list_of(count: int) -> Operation:
    """List so many tools, all in one answer."""
    return Operation("tools/list", {}, lambda result: len(result["tools"]) == count and not result.get("nextCursor"))


def _records(tool: str, expected: list[dict]) -> Operation:
    """Ask for many records; each SDK has its own way to tell of them in text, so the structured content counts."""

    def accepts(result: dict) -> bool:
        return bool(result["content"]) and result["structuredContent"] == {"result": expected}

    return Operation("tools/call", {"name": tool, "arguments": {}}, accepts)


def _record(number: int) -> dict:
    tags = ["alpha", "beta", f"t{number}"]
    return {"number": number, "name": f"entry number {number}", "score": number * 1.5, "tags": tags}


def _static(result: dict) -> bool:
    (content,) = result["contents"]
    return content["uri"] == STATIC_URI and content["text"] == STATIC_TEXT


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
    "list": list_of(LISTED_TOOLS),
    "read": Operation("resources/read", {"uri": STATIC_URI}, _static),
    "wait": _call("wait", {"ms": WAIT_MS}, "ok"),
    "progress": _call("steps", {"count": NOTICES}, "ok"),
    "records": _records("records", [_record(number) for number in range(RECORDS)]),
    "records_null": _records("records_null", [{**_record(number), "note": None} for number in range(RECORDS)]),
    "unknown": Operation(
        "tools/call", {"name": UNKNOWN_TOOL, "arguments": {"query": "x"}}, lambda result: False, refused=True
    ),
}
