"""The heads and bodies of HTTP answers, written once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec import UNSET

from ferrule.codes import ErrorCode
from ferrule.errors import SetupError
from ferrule.transports.http.message import Responder, header_lines
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Failure

logger = logging.getLogger("ferrule.http")

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "script-src 'self'",
}

JSON_HEAD = header_lines({"Content-Type": "application/json", "Cache-Control": "no-store", **ALWAYS})
STREAM_HEAD = header_lines(
    {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache, no-transform",
        "X-Accel-Buffering": "no",
        **ALWAYS,
    }
)
TEXT_HEAD = header_lines({"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store", **ALWAYS})
EMPTY_HEAD = header_lines({"Cache-Control": "no-store", **ALWAYS})

RETRY_AFTER = header_lines({"Retry-After": "1"})

STATELESS_STATUSES = {
    ErrorCode.PARSE_ERROR.value: 400,
    ErrorCode.INVALID_REQUEST.value: 400,
    ErrorCode.INVALID_PARAMS.value: 400,
    ErrorCode.METHOD_NOT_FOUND.value: 404,
    ErrorCode.HEADER_MISMATCH.value: 400,
    ErrorCode.MISSING_CAPABILITY.value: 400,
    ErrorCode.UNSUPPORTED_VERSION.value: 400,
}
"""The status of an error in the stateless era (MCP 2026-07-28 transports/streamable-http, Request Metadata); one from
inside a handler is an answer like any other."""

INVALID_REQUEST = ErrorCode.INVALID_REQUEST.value

TOO_MANY_STREAMS = "Unavailable: too many streams are open"


def own_head(status: int, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Return the status of an answer and the lines of its own headers; 500 and none where they cannot be sent."""
    try:
        lines = header_lines(headers)
    except SetupError:
        # Nothing that could end a header early reaches the wire (response splitting).
        logger.exception("an error has a header that cannot be sent")
        return 500, b""
    if status == 503 and b"retry-after:" not in lines:
        lines += RETRY_AFTER
    return status, lines


def stateless_status(failure: Failure) -> int:
    """Return the status that goes with an error of the stateless era; whoever shall come again later is told by 503."""
    error = failure.error
    if isinstance(error.data, dict) and "retryAfter" in error.data:
        return 503
    return STATELESS_STATUSES.get(error.code, 200)


def handshake_status(failure: Failure) -> int:
    """Return the status that goes with an error of the handshake era: it has to tell only where no id does."""
    if isinstance(failure.id, int | str):
        return 200
    return 400


def refuse(responder: Responder, status: int, why: str, head: bytes = b"", code: int = INVALID_REQUEST) -> None:
    """Refuse a request before anyone has read it: a status, and an error that belongs to no id."""
    body = encode(Failure(UNSET, ErrorObject(code, why)))
    responder.reply(status, JSON_HEAD + head, body)
