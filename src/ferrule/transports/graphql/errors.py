"""The errors of GraphQL answers: their codes, and what a caller is told of them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import Any

from graphql import GraphQLError

from ferrule.codes import ErrorCode
from ferrule.wire.messages import ErrorObject

logger = logging.getLogger("ferrule.http")

BAD_REQUEST = "BAD_REQUEST"
PARSE_FAILED = "GRAPHQL_PARSE_FAILED"
VALIDATION_FAILED = "GRAPHQL_VALIDATION_FAILED"
TOO_COMPLEX = "OPERATION_TOO_COMPLEX"
TOO_LARGE = "ANSWER_TOO_LARGE"
UNAVAILABLE = "UNAVAILABLE"
FORBIDDEN = "FORBIDDEN"
INTERNAL = ErrorCode.INTERNAL_ERROR.name


def failed(error: ErrorObject) -> GraphQLError:
    """Return the error of a field whose MCP request was refused; the server has masked its details already."""
    try:
        code = ErrorCode(error.code).name
    except ValueError:
        code = ErrorCode.SERVER_ERROR.name
    extensions: dict[str, Any] = {"code": code, "number": error.code}
    if error.data is not None:
        extensions["data"] = error.data
    return GraphQLError(error.message, extensions=extensions)


def too_much(limit: int) -> GraphQLError:
    """Return the error of a field whose answer takes more than is left for all fields of its operation."""
    message = f"The answers to the fields of this operation take more than {limit} bytes together"
    return GraphQLError(message, extensions={"code": TOO_LARGE})


def unexpected(error: Exception) -> list[dict[str, Any]]:
    """Return the errors of an operation that failed as a whole; what is no GraphQL error is logged and masked."""
    if isinstance(error, GraphQLError):
        return formatted([error], INTERNAL)
    return formatted([GraphQLError("Internal error", original_error=error)], INTERNAL)


def formatted(errors: Iterable[GraphQLError], code: str = VALIDATION_FAILED) -> list[dict[str, Any]]:
    """Return errors as an answer has them; one without a code of its own gets `code`."""
    found = []
    for error in errors:
        found.append(_formatted(error, code))
    return found


def _formatted(error: GraphQLError, code: str) -> dict[str, Any]:
    cause = _cause(error)
    answer: dict[str, Any] = dict(error.formatted)
    if cause is not None:
        reference = secrets.token_hex(4)
        logger.error("a GraphQL operation failed (reference %s)", reference, exc_info=cause)
        answer["message"] = f"Internal error (reference {reference})"
        answer["extensions"] = {"code": INTERNAL, "reference": reference}
    elif not answer.get("extensions"):
        answer["extensions"] = {"code": code}
    return answer


def _cause(error: GraphQLError) -> BaseException | None:
    """Return what went wrong inside, of which a caller is told nothing; None for an error that is meant to be read."""
    cause: BaseException | None = error
    while isinstance(cause, GraphQLError):
        cause = cause.original_error
    return cause
