"""A judge by the models of `mcp-types`: strict on types, and closed, so that a member nobody defined is refused.

The models ignore unknown members and let any optional one be null. So a message that validates is walked beside its
model: every member must be one the model names and the revision has, and none may be null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import traffic_matrix as matrix
from mcp_types import _v2025_11_25 as newest_handshake
from mcp_types import _v2026_07_28 as newest_stateless
from mcp_types import methods
from mcp_types.jsonrpc import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic import BaseModel, TypeAdapter, ValidationError
from traffic_record import EXTENSION, R4, R5, Said

ENVELOPES: Mapping[str, type[BaseModel]] = {
    "request": JSONRPCRequest,
    "notification": JSONRPCNotification,
    "result": JSONRPCResponse,
    "error": JSONRPCError,
}
SURFACES = {
    ("client", "request"): methods.CLIENT_REQUESTS,
    ("client", "notification"): methods.CLIENT_NOTIFICATIONS,
    ("client", "result"): methods.CLIENT_RESULTS,
    ("server", "request"): methods.SERVER_REQUESTS,
    ("server", "notification"): methods.SERVER_NOTIFICATIONS,
    ("server", "result"): methods.SERVER_RESULTS,
}
ERROR_MODELS: Mapping[tuple[str, int], type[BaseModel]] = {
    (R4, -32042): newest_handshake.URLElicitationRequiredError,
    (R5, -32020): newest_stateless.HeaderMismatchError,
    (R5, -32021): newest_stateless.MissingRequiredClientCapabilityError,
    (R5, -32022): newest_stateless.UnsupportedProtocolVersionError,
}

NULLABLE = {("LoggingMessageNotificationParams", "data"), ("CallToolResult", "structuredContent"), ("Error", "data")}
OPEN_MODELS = {"Meta", "MetaObject", "RequestMetaObject", "ResultMetaObject", "NotificationMetaObject"} | {
    *("SubscriptionsListenResultMeta", "InputSchema", "OutputSchema", "Data")
}
"""Objects in which peers may say more: metadata, schemas, error data."""


class TypesJudge:
    """Judges the messages of one revision, and remembers which members it has seen."""

    def __init__(self, revision: str) -> None:
        """Begin with nothing seen."""
        self.revision = revision
        self.seen: set[tuple[str, str]] = set()

    def complaints(self, said: Said) -> list[str]:
        """Say what is wrong with a message; nothing when all is well."""
        return [f"{said}: {complaint}" for complaint in self._complaints(said)]

    def _complaints(self, said: Said) -> Iterator[str]:
        yield from self._envelope(said)
        if said.kind == "error":
            yield from self._error(said)
        elif EXTENSION not in (said.answers, said.message.get("method")):
            yield from self._body(said)
        yield from self._metadata(said.message, "$")

    def _envelope(self, said: Said) -> Iterator[str]:
        model = ENVELOPES[said.kind]
        message = said.message
        if said.kind == "error":
            yield from self._error_id(said)
            message = {"id": None, **message}
        yield from invalid(model, message)
        yield from (f"$: unknown member {name!r}" for name in message.keys() - model.model_fields.keys())

    def _error_id(self, said: Said) -> Iterator[str]:
        """An error for an unreadable request has the id null before 2025-11-25, and none since."""
        nameless = said.message.get("id") is None
        null = nameless and "id" in said.message
        if nameless and null != (said.early or self.revision < R4):
            yield f"$.id: {'null' if null else 'missing'}"

    def _error(self, said: Said) -> Iterator[str]:
        error = said.message["error"]
        yield from (f"$.error: unknown member {name!r}" for name in error.keys() - {"code", "message", "data"})
        model = ERROR_MODELS.get((self.revision, error.get("code")))
        if model is not None:
            yield from self._by_model(model, said.message)

    def _body(self, said: Said) -> Iterator[str]:
        surface = SURFACES[said.sender, said.kind]
        method = said.answers if said.kind == "result" else said.message["method"]
        model = surface.get((method, self.revision))
        if model is None:
            yield f"the {said.sender} has no {said.kind} {method!r} in {self.revision}"
            return
        yield from self._by_model(model, said.message["result"] if said.kind == "result" else said.message)

    def _by_model(self, model: Any, data: Any) -> Iterator[str]:
        complaints = list(invalid(model, data))
        yield from complaints
        if not complaints:
            yield from self._walk(adapter(model).validate_python(data, by_name=False), data, "$")

    def _walk(self, value: Any, data: Any, path: str) -> Iterator[str]:
        """Compare what was said with what the model took from it."""
        if isinstance(value, BaseModel):
            yield from self._walk_model(value, data, path)
        elif isinstance(value, list) and isinstance(data, list):
            for at, (item, datum) in enumerate(zip(value, data, strict=True)):
                yield from self._walk(item, datum, f"{path}[{at}]")
        elif isinstance(value, dict) and isinstance(data, dict):
            for key, item in value.items():
                yield from self._walk(item, data.get(key), f"{path}.{key}")

    def _walk_model(self, value: BaseModel, data: dict[str, Any], path: str) -> Iterator[str]:
        kind = type(value).__name__
        names = {field.alias or name: name for name, field in type(value).model_fields.items()}
        if self.revision < matrix.KIND_SINCE.get(kind, self.revision):
            yield f"{path}: {self.revision} has no {kind}"
        for key, datum in data.items():
            here = f"{path}.{key}"
            if key not in names:
                if kind not in OPEN_MODELS:
                    yield f"{here}: {kind} has no such member"
                continue
            self.seen.add((kind, key))
            if matrix.lacks(self.revision, kind, key):
                yield f"{here}: {kind} has no such member in {self.revision}"
            if datum is None and (kind, key) not in NULLABLE:
                yield f"{here}: null"
            yield from self._walk(getattr(value, names[key]), datum, here)
        yield from self._special(kind, data, path)

    def _special(self, kind: str, data: dict[str, Any], path: str) -> Iterator[str]:
        """Rules of the matrix that no single member shows."""
        sampled = kind in ("SamplingMessage", "CreateMessageResult")
        if sampled and isinstance(data["content"], list) and self.revision < matrix.LISTS_OF_BLOCKS_SINCE:
            yield f"{path}.content: a list in {self.revision}"
        if kind == "RequestedSchema":
            yield from self._form(data, path)
        if kind == "ClientCapabilities" and self.revision == R5 and data.get("roots"):
            yield f"{path}.roots: {data['roots']} in {self.revision}"

    def _form(self, schema: dict[str, Any], path: str) -> Iterator[str]:
        for name, rules in schema["properties"].items():
            unknown = rules.keys() - matrix.form_keywords(self.revision, rules.get("type"))
            yield from (f"{path}.properties.{name}: {rule!r} in {self.revision}" for rule in sorted(unknown))

    def _metadata(self, data: Any, path: str) -> Iterator[str]:
        """Only the stateless era has metadata of the protocol's own, and its server is an Implementation."""
        if isinstance(data, list):
            for at, item in enumerate(data):
                yield from self._metadata(item, f"{path}[{at}]")
        elif isinstance(data, dict):
            for key, item in data.items():
                if key.startswith(matrix.RESERVED_META) and self.revision != R5:
                    yield f"{path}.{key}: in {self.revision}"
                if key == f"{matrix.RESERVED_META}serverInfo":
                    yield from self._by_model(newest_stateless.Implementation, item)
                yield from self._metadata(item, f"{path}.{key}")


@cache
def adapter(model: Any) -> TypeAdapter[Any]:
    """Return the validator of a model or a union of models."""
    return TypeAdapter(model)


def invalid(model: Any, data: Any) -> Iterator[str]:
    """Say what a model refuses: `True` is no number and `1` is no text here."""
    try:
        adapter(model).validate_python(data, by_name=False, strict=True)
    except ValidationError as error:
        for flaw in error.errors(include_url=False):
            yield f"${''.join(f'.{place}' for place in flaw['loc'])}: {flaw['msg']}"
