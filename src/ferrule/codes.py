"""The error numbers of MCP and of the systems before it, and what each is about."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Numbers with an agreed meaning; those from -32001 to -32010 belong to the `erlmcp` profile."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SERVER_ERROR = -32000
    RESOURCE_MISSING = -32001
    TOOL_MISSING = -32002
    PROMPT_MISSING = -32003
    CAPABILITY_OFF = -32004
    NOT_INITIALIZED = -32005
    SUBSCRIPTION_FAILED = -32006
    VALIDATION_FAILED = -32007
    TRANSPORT_FAILED = -32008
    TIMED_OUT = -32009
    RATE_LIMITED = -32010
    DESCRIPTION_TOO_LONG = -32011
    MESSAGE_TOO_LARGE = -32012
    HEADER_MISMATCH = -32020
    MISSING_CAPABILITY = -32021
    UNSUPPORTED_VERSION = -32022
    TOOL_FAILED = -32031
    TOOL_TIMED_OUT = -32032
    RESULT_TOO_LARGE = -32036
    TOOL_BUSY = -32038
    URL_ELICITATION_REQUIRED = -32042
    OFFER_REFUSED = -32062
    # The same number means one thing in MCP and another in the profile.
    RESOURCE_NOT_FOUND = -32002
    INVALID_URI = -32022


STANDARD = frozenset(
    code.value
    for code in (
        ErrorCode.PARSE_ERROR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.METHOD_NOT_FOUND,
        ErrorCode.INVALID_PARAMS,
        ErrorCode.INTERNAL_ERROR,
    )
)
"""The numbers of JSON-RPC 2.0."""

RESERVED = range(-32768, -31999)
"""What JSON-RPC 2.0 reserves."""


CATEGORIES = {
    "resource": range(-32030, -32000),
    "tool": range(-32040, -32030),
    "prompt": range(-32050, -32040),
    "authorization": range(-32060, -32050),
    "protocol": range(-32070, -32060),
    "pagination": range(-32080, -32070),
    "task": range(-32090, -32080),
    "notification": range(-32099, -32090),
}


def category_of(code: int) -> str:
    """Return what part of the protocol a number belongs to; `json-rpc` for the standard ones, else `application`."""
    if code in STANDARD:
        return "json-rpc"
    return next((name for name, codes in CATEGORIES.items() if code in codes), "application")
