"""One operation: read, parsed, measured, validated, run; each step only after the one before has found nothing."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from graphql import (
    DocumentNode,
    ExecutionResult,
    GraphQLError,
    NoSchemaIntrospectionCustomRule,
    OperationType,
    execute,
    get_operation_ast,
    parse,
    specified_rules,
    subscribe,
    validate,
)
from graphql.validation import MaxIntrospectionDepthRule
from msgspec import Struct

from ferrule.budgets.account import Account
from ferrule.budgets.bounds import MAX_MESSAGE_WEIGHT
from ferrule.budgets.collector import decode_long
from ferrule.budgets.weight import LIGHT, bounded_depth, weight
from ferrule.transports.graphql.errors import (
    BAD_REQUEST,
    PARSE_FAILED,
    TOO_COMPLEX,
    TOO_LARGE,
    VALIDATION_FAILED,
    formatted,
)
from ferrule.transports.graphql.measure import check_document
from ferrule.transports.graphql.requests import Requests
from ferrule.transports.graphql.schema import SCHEMA
from ferrule.transports.graphql.settings import GraphqlSettings

BATCHED = "Batches are not taken: send one operation a request"
BUSY = "Unavailable: too many operations run"
MAX_ERRORS = 10
"""How many errors of a document or of its variables are reported."""
RULES = (*specified_rules, MaxIntrospectionDepthRule)
WITHOUT_INTROSPECTION = (*RULES, NoSchemaIntrospectionCustomRule)

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Payload(Struct, rename="camel"):
    """An operation as it is sent."""

    query: str
    variables: dict[str, Any] | None = None
    operation_name: str | None = None


_read = bounded_depth(msgspec.json.Decoder(Payload).decode)
_read_variables = bounded_depth(msgspec.json.Decoder(dict[str, Any] | None).decode)
_write = msgspec.json.Encoder().encode


class Refused(Exception):
    """An operation is not run, and why."""

    def __init__(self, errors: list[GraphQLError], code: str) -> None:
        super().__init__(errors[0].message)
        self.errors = formatted(errors, code)

    @classmethod
    def because(cls, message: str, code: str = BAD_REQUEST) -> Refused:
        """Return the refusal for one reason."""
        return cls([GraphQLError(message)], code)


class Operation(Struct, frozen=True):
    """An operation that may be run."""

    kind: OperationType
    document: DocumentNode
    variables: dict[str, Any] | None
    name: str | None

    async def run(self, requests: Requests) -> ExecutionResult:
        """Run a query or a mutation."""
        result = execute(
            SCHEMA,
            self.document,
            context_value=requests,
            variable_values=self.variables,
            operation_name=self.name,
            max_coercion_errors=MAX_ERRORS,
        )
        if inspect.isawaitable(result):
            return await result
        return result

    async def subscribe(self, requests: Requests) -> AsyncIterator[ExecutionResult] | ExecutionResult:
        """Begin a subscription: return its events, or the result that says why there are none."""
        result = subscribe(
            SCHEMA,
            self.document,
            context_value=requests,
            variable_values=self.variables,
            operation_name=self.name,
            max_coercion_errors=MAX_ERRORS,
        )
        if inspect.isawaitable(result):
            return await result
        return result


def read_body(body: bytes) -> Payload:
    """Read an operation from JSON; raises Refused."""
    if body[:64].lstrip().startswith(b"["):
        raise Refused.because(BATCHED)
    if weight(body) > MAX_MESSAGE_WEIGHT:
        raise Refused.because("The request holds too many values", TOO_COMPLEX)
    try:
        payload: Payload = decode_long(_read, body, len(body))
    except UNREADABLE as reason:
        raise Refused.because(f"The body is not a GraphQL request in JSON: {reason}") from None
    return payload


def read_query(fields: dict[str, str]) -> Payload:
    """Read an operation from the query of a URL; raises Refused."""
    if "query" not in fields:
        raise Refused.because("The URL has no ?query=")
    try:
        variables = _read_variables((fields.get("variables") or "null").encode())
    except UNREADABLE as reason:
        raise Refused.because(f"`variables` is not an object in JSON: {reason}") from None
    return Payload(fields["query"], variables, fields.get("operationName"))


def debit(account: Account, said: bytes) -> int | None:
    """Debit what an operation holds while it runs. Return what is to be credited then; None where there is no room."""
    amount = weight(said)
    if amount <= LIGHT:
        taken = account.take_little(amount)
    else:
        taken = account.take(amount)
    return amount if taken else None


def prepare(payload: Payload, settings: GraphqlSettings) -> Operation:
    """Return the operation of a payload, checked; raises Refused."""
    document = _parsed(payload.query, settings)
    try:
        check_document(document, settings)
    except GraphQLError as reason:
        raise Refused([reason], TOO_COMPLEX) from None
    rules = RULES if settings.introspection else WITHOUT_INTROSPECTION
    errors = validate(SCHEMA, document, rules, max_errors=MAX_ERRORS)
    if errors:
        raise Refused(errors, VALIDATION_FAILED)
    operation = get_operation_ast(document, payload.operation_name)
    if operation is None:
        raise Refused.because("operationName names none of the operations of the document, or is missing")
    return Operation(operation.operation, document, payload.variables, payload.operation_name)


def _parsed(text: str, settings: GraphqlSettings) -> DocumentNode:
    if len(text) > settings.max_document_length:
        limit = settings.max_document_length
        raise Refused.because(f"The document is too long: the limit is {limit} characters", TOO_COMPLEX)
    try:
        return parse(text, max_lexical_tokens=settings.max_tokens, max_comments=settings.max_tokens)
    except GraphQLError as reason:
        raise Refused([reason], PARSE_FAILED) from None


def answer_of(result: ExecutionResult) -> dict[str, Any]:
    """Return a result as it is sent."""
    answer: dict[str, Any] = {}
    if result.errors:
        answer["errors"] = formatted(result.errors, BAD_REQUEST)
    if result.data is not None or not result.errors or _began(result):
        answer["data"] = result.data
    return answer


def _began(result: ExecutionResult) -> bool:
    """Whether fields were run: an error of one has a path, an error of the request has none."""
    return any(error.path for error in result.errors or ())


def written(answer: dict[str, Any], max_size: int) -> bytes:
    """Write an answer; one over the limit becomes an error."""
    body = _write(answer)
    if len(body) > max_size:
        return _write({"errors": too_large(len(body), max_size)})
    return body


def too_large(size: int, limit: int) -> list[dict[str, Any]]:
    """Return the errors of an answer that is not sent."""
    return formatted([GraphQLError(f"The answer has {size} bytes; the limit is {limit}")], TOO_LARGE)
