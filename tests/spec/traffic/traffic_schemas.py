"""A judge by the official JSON schemas, closed: an object that names its members may have no others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from traffic_record import EXTENSION, R4, R5, Said

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "spec" / "schemas"

NAMED_ERRORS = {
    (R4, -32042): "URLElicitationRequiredError",
    (R5, -32020): "HeaderMismatchError",
    (R5, -32021): "MissingRequiredClientCapabilityError",
    (R5, -32022): "UnsupportedProtocolVersionError",
}
OPEN_MEMBERS = frozenset({"_meta", "inputSchema", "outputSchema"})
"""What its writer may fill with more: metadata and the schemas of tools."""
OPEN_DEFINITIONS = frozenset({"MetaObject", "RequestMetaObject", "ResultMetaObject", "NotificationMetaObject"})
OPEN_DEFINITIONS |= {"SubscriptionsListenResultMetaObject", "Error", "Request", "Notification"}
ENVELOPES = {"request": "JSONRPCRequest", "notification": "JSONRPCNotification"}


def available(revision: str) -> bool:
    """Return whether the official schema of a revision is here."""
    return path(revision).is_file()


def path(revision: str) -> Path:
    """Say where the schema of a revision lies."""
    return FOLDER / f"{revision}.json"


@cache
def document(revision: str) -> dict[str, Any]:
    """Read the schema of a revision."""
    return json.loads(path(revision).read_text(encoding="utf-8"))


def definitions(revision: str) -> dict[str, Any]:
    """Return the definitions of a revision, under whichever name they stand."""
    schema = document(revision)
    return schema.get("$defs") or schema["definitions"]


class SchemaJudge:
    """Judges the messages of one revision by its schema."""

    def __init__(self, revision: str) -> None:
        """Close the schema and find out which definition each method has."""
        self.revision = revision
        self.framed = revision >= R4
        schema = document(revision)
        self._place = "$defs" if "$defs" in schema else "definitions"
        self._closed = {**schema, self._place: closed_definitions(schema[self._place])}
        self._names = dict(method_names(schema[self._place]))
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    def complaints(self, said: Said) -> list[str]:
        """Say what is wrong with a message; nothing when all is well."""
        return [f"{said}: {complaint}" for complaint in self._complaints(said)]

    def array_complaints(self, sender: str, messages: list[Any]) -> list[str]:
        """Say what is wrong with an array of messages."""
        name = "JSONRPCBatchRequest" if any("method" in message for message in messages) else "JSONRPCBatchResponse"
        if name not in definitions(self.revision):
            return [f"{sender}: an array in {self.revision}"]
        named = [{**m, "id": 0} if m.get("id", 0) is None else m for m in messages]  # trap T-3, as for single errors
        return list(self._by(name, named))

    def _complaints(self, said: Said) -> Iterator[str]:
        if said.kind == "error":
            yield from self._error(said)
        elif said.kind == "result":
            yield from self._result(said)
        else:
            yield from self._asked_or_told(said)

    def _asked_or_told(self, said: Said) -> Iterator[str]:
        message = said.message
        yield from self._by(ENVELOPES[said.kind], message)
        if message["method"] == EXTENSION:
            return
        name = self._names.get(message["method"])
        allowed = self._members_of(f"{said.sender.capitalize()}{said.kind.capitalize()}")
        if name is None or name not in allowed:
            yield f"no {said.kind} of a {said.sender} in {self.revision}"
            return
        yield from self._by(name, message if self.framed else unframed(message))

    def _result(self, said: Said) -> Iterator[str]:
        envelope = "JSONRPCResultResponse" if self.framed else "JSONRPCResponse"
        yield from self._by(envelope, said.message)
        result = said.message["result"]
        name = self._result_name(said.answers or "")
        if result.get("resultType") == "input_required":
            name = "InputRequiredResult"
        yield from self._by(name, result)

    def _result_name(self, method: str) -> str:
        if method == EXTENSION:
            return "CallToolResult"
        name = self._names.get(method, "").replace("Request", "Result")
        return name if name in definitions(self.revision) else "EmptyResult"

    def _error(self, said: Said) -> Iterator[str]:
        message = said.message
        if message.get("id", 0) is None and (said.early or not self.framed):
            message = {**message, "id": 0}  # trap T-3: the schema knows no null, but what else could be said
        code = message["error"].get("code")
        name = NAMED_ERRORS.get((self.revision, code), "JSONRPCErrorResponse" if self.framed else "JSONRPCError")
        yield from self._by(name, message)
        if unknown := message["error"].keys() - {"code", "message", "data"}:
            yield f"$.error: unknown members {sorted(unknown)}"

    def _members_of(self, union: str) -> set[str]:
        """Return the definitions a union such as ClientRequest names; a union of one is that one."""
        definition = definitions(self.revision).get(union, {})
        parts = definition.get("anyOf", [definition])
        named = {part["$ref"].rpartition("/")[2] for part in parts if "$ref" in part}
        method = definition.get("properties", {}).get("method", {}).get("const")
        return named | ({self._names[method]} if method else set())

    def _by(self, name: str, data: Any) -> Iterator[str]:
        for error in self._validator(name).iter_errors(data):
            place = "".join(f"/{part}" for part in error.instance_path)
            yield f"{name} {place}: {error.message[:300]}"

    def _validator(self, name: str) -> jsonschema_rs.Validator:
        if name not in self._validators:
            schema = {**self._closed, "$ref": f"#/{self._place}/{name}"}
            kind = jsonschema_rs.Draft202012Validator if self._place == "$defs" else jsonschema_rs.Draft7Validator
            self._validators[name] = kind(schema, validate_formats=True)
        return self._validators[name]


def method_names(defined: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each method with the definition that has it; of two, the one that is no union of one."""
    for name, definition in defined.items():
        method = definition.get("properties", {}).get("method", {}).get("const")
        if method and name.endswith(("Request", "Notification")) and not name.startswith(("Client", "Server")):
            yield method, name


def unframed(message: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the definitions of the older revisions leave out: the frame, and the metadata of requests."""
    body = {"method": message["method"]}
    if "params" in message:
        body["params"] = {name: value for name, value in message["params"].items() if name != "_meta"}
    return body


def closed_definitions(defined: Mapping[str, Any]) -> dict[str, Any]:
    """Close every definition but those that are meant to be open, and mend what trap T-1 tells of."""
    closed = {
        name: definition if name in OPEN_DEFINITIONS or "allOf" in definition else close(definition)
        for name, definition in defined.items()
    }
    closed["Result"] = defined["Result"]
    closed["EmptyResult"] = {**defined["Result"], "additionalProperties": False}
    if "ElicitResult" in closed:
        closed["ElicitResult"] = with_fractions(closed["ElicitResult"])
    return closed


def close(schema: Any) -> Any:
    """Forbid members that are not named, wherever some are named and none of others is said."""
    if isinstance(schema, list):
        return [close(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "allOf" in schema:
        return schema
    closed = {key: close_members(part) if key == "properties" else close(part) for key, part in schema.items()}
    if "properties" in schema and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
    return closed


def close_members(properties: dict[str, Any]) -> dict[str, Any]:
    """Close the members of an object but those that are meant to be open."""
    return {name: part if name in OPEN_MEMBERS else close(part) for name, part in properties.items()}


def with_fractions(schema: Any) -> Any:
    """Let a number be a fraction where the generated schema says integer (trap T-1)."""
    if isinstance(schema, list):
        return [with_fractions(part) for part in schema]
    if isinstance(schema, dict):
        return {key: with_fractions(part) for key, part in schema.items()}
    return "number" if schema == "integer" else schema
