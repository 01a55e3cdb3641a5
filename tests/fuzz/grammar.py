"""Good messages of every method in both eras, made from the types of `ferrule.schema`: a new method comes by itself."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import inspect

from ferrule.protocol.handshake import REVISIONS
from ferrule.schema import notices
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.model import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, VERSION_KEY

NEWEST = "2026-07-28"
HANDSHAKE_VERSIONS = tuple(REVISIONS)

DEPTH = 5
"""How deep optional members are filled in."""

META = {
    VERSION_KEY: NEWEST,
    CLIENT_INFO_KEY: {"name": "fuzz", "version": "1"},
    CLIENT_CAPABILITIES_KEY: {"elicitation": {}, "roots": {}},
    "progressToken": 7,
}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "add": {"a": 1, "b": 2},
    "echo": {"value": {"deep": [1, "é", None, True, 1.5e3]}},
    "say": {"text": "hello"},
    "count": {"numbers": [1, 2, 3]},
    "order": {"items": [{"name": "a", "amount": 2, "tags": ["x"]}], "note": None},
    "check": {"value": {"kind": "a", "text": "abc"}},
    "nobody": {},
}
"""The tools of the server that is tried (`fuzz_wires.new_server`), with arguments they take; the last is unknown."""

KNOWN: dict[str, Any] = {
    "uri": "note://7",
    "protocolVersion": "2025-11-25",
    "taskId": "6f1a",
    "requestId": 12345,
    "progressToken": 7,
    "cursor": "MQ",
    "nextCursor": "",
    "mimeType": "text/plain",
    "data": "aGVsbG8=",
    "blob": "aGVsbG8=",
    "arguments": {"name": "you"},
    "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "outputSchema": {"type": "object", "properties": {"result": {"type": "integer"}}},
    "requestedSchema": {"type": "object", "properties": {"seat": {"type": "string"}}},
    "task": {"ttl": 60000},
    "inputResponses": {"seat": {"action": "accept", "content": {"seat": "1A"}}},
    "supportedVersions": [NEWEST],
    "resultType": "complete",
}
"""What stands in a member of this name, whatever its type would allow."""

NAMES = {"prompts/get": "greet", "completion/complete": "greet"}


class Message(NamedTuple):
    """A good message, as a tree that can be spoilt."""

    name: str
    tree: Any
    method: str = ""
    requests: int = 0
    """How many answers it asks for at once."""

    @property
    def params(self) -> dict[str, Any]:
        """The params of a request; empty for anything else."""
        return self.tree.get("params", {}) if isinstance(self.tree, dict) else {}


described = functools.cache(inspect.type_info)
"""What msgspec says of a type. It evaluates annotations anew each time, and coverage keeps the code of every one."""


def sample(kind: Any, *, full: bool = True) -> Any:
    """Return a value of a type; with `full`, its optional members are there too."""
    return _value(described(kind), full, 0)


def _value(kind: Any, full: bool, depth: int) -> Any:
    match kind:
        case inspect.StructType():
            return _struct(kind, full, depth)
        case inspect.UnionType():
            return _value(_branch(kind), full, depth)
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.ListType() | inspect.SetType() | inspect.VarTupleType():
            return [_value(kind.item_type, full, depth + 1)] if depth < DEPTH else []
        case inspect.DictType():
            return {"key": _value(kind.value_type, full, depth + 1)} if depth < DEPTH else {}
        case inspect.StrType():
            return "text"
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 0.5
        case inspect.BoolType():
            return True
        case inspect.NoneType():
            return None
        case _:
            return {"any": 1}


def _branch(kind: inspect.UnionType) -> Any:
    plain = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    return plain[0]


def _struct(kind: inspect.StructType, full: bool, depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if kind.tag_field is not None:
        members[kind.tag_field] = kind.tag
    for field in kind.fields:
        name = field.encode_name
        if name == "_meta" or not (field.required or (full and depth < DEPTH)):
            continue
        members[name] = KNOWN[name] if name in KNOWN else _value(field.type, full, depth + 1)
    return members


def params(row: Method, *, full: bool) -> dict[str, Any]:
    """Return params of a method that this server can make sense of."""
    made: dict[str, Any] = sample(row.params, full=full)
    if "name" in made:
        made["name"] = NAMES.get(row.name, made["name"])
    if isinstance(made.get("ref"), dict):
        made["ref"]["name"] = "greet"
        made["argument"] = {"name": "name", "value": "y"}
    return made


def _variants(row: Method) -> Iterator[tuple[str, dict[str, Any]]]:
    if row.name == "tools/call":
        for tool, arguments in ARGUMENTS.items():
            yield f"{row.name} {tool}", {"name": tool, "arguments": arguments}
    yield f"{row.name} short", params(row, full=False)
    yield f"{row.name} full", params(row, full=True)


def _request(name: str, method: str, made: dict[str, Any], meta: dict[str, Any] | None) -> Message:
    if meta is not None:
        made = {**made, "_meta": meta}
    tree = {"jsonrpc": "2.0", "id": "call-1", "method": method, "params": made}
    row = METHODS.get(method)
    return Message(name, tree, method, 0 if row is not None and row.standing else 1)


def requests(*, stateless: bool, by_client: bool = False) -> Iterator[Message]:
    """Yield requests of every method, those of the other era included: they are refused, which must be cheap too."""
    meta = META if stateless else None
    for row in METHODS.values():
        if row.by_client is by_client or row.name == "ping":
            for name, made in _variants(row):
                yield _request(name, row.name, made, meta)
    yield _request("an unknown method", "nobody/knows", {"a": 1}, meta)
    if not stateless:
        yield _request("tools/call with _meta", "tools/call", {"name": "add", "arguments": {}}, {"progressToken": "t"})


NOTICE_TYPES: dict[str, Any] = {
    notices.CANCELLED: notices.CancelledParams,
    notices.PROGRESS: notices.ProgressParams,
    notices.LOG_MESSAGE: notices.LogMessageParams,
    notices.RESOURCE_UPDATED: notices.ResourceUpdatedParams,
    notices.ACKNOWLEDGED: notices.AcknowledgedParams,
}


def notifications() -> Iterator[Message]:
    """Yield every notification of the protocol, and one nobody knows."""
    for name in sorted({*notices.NOTICES, *notices.OLD_NAMES, "notifications/unheard-of"}):
        made = sample(NOTICE_TYPES.get(notices.OLD_NAMES.get(name, name), notices.Notice))
        yield Message(name, {"jsonrpc": "2.0", "method": name, "params": made})


def responses(number: int | str = 4) -> Iterator[Message]:
    """Yield a result of every method, and errors."""
    for row in METHODS.values():
        yield Message(f"result of {row.name}", success(row, number))
    error = {"code": -32603, "message": "text", "data": {"a": 1}}
    yield Message("an error", {"jsonrpc": "2.0", "id": number, "error": error})
    yield Message("an error without an id", {"jsonrpc": "2.0", "id": None, "error": error})


def success(row: Method, number: int | str, *, full: bool = True) -> dict[str, Any]:
    """Return a good answer to a method."""
    return {"jsonrpc": "2.0", "id": number, "result": sample(row.result, full=full)}


def batches() -> Iterator[Message]:
    """Yield arrays of messages."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    other = {"jsonrpc": "2.0", "id": "2", "method": "tools/list"}
    yield Message("a batch", [ping, other, {"jsonrpc": "2.0", "method": "notifications/initialized"}], "", 2)
    yield Message("a batch of answers", [next(responses()).tree, {"jsonrpc": "2.0", "id": 9, "result": {}}])


def to_server(*, stateless: bool) -> list[Message]:
    """Return what a client may send, and what it may not."""
    return [*requests(stateless=stateless), *notifications(), *responses(), *batches()]


def to_client() -> list[Message]:
    """Return what a server may send without being asked."""
    return [*requests(stateless=False, by_client=True), *notifications(), *responses(), *batches()]
