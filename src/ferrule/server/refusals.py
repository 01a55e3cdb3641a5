"""Why a tool or the server will not do something: a number from 1001 to 1089 and what it means."""

from __future__ import annotations

from typing import Any

from ferrule.errors import SetupError, ToolError
from ferrule.schema.content import TextContent
from ferrule.schema.tools import CallToolResult

REFUSALS: dict[int, str] = {
    1001: "the content is against policy",
    1002: "the request is against safety guidelines",
    1003: "the rate limit is reached",
    1004: "there are not enough resources",
    1005: "permission is denied",
    1006: "the input is invalid",
    1007: "the operation is not supported",
    1008: "the service is unavailable for now",
    1009: "something this depends on has failed",
    1010: "the tool has a reason of its own",
    1011: "authentication failed",
    1012: "the authentication has expired",
    1013: "the credentials are invalid",
    1014: "authorization is denied",
    1015: "authentication is missing",
    1016: "the session is invalid",
    1021: "the parameters are invalid",
    1022: "the data does not fit its schema",
    1023: "the URI is invalid",
    1024: "the content type is not supported",
    1025: "a required header is missing or invalid",
    1026: "the session id is malformed",
    1027: "the protocol version is not supported",
    1028: "a required field is missing",
    1029: "a field has the wrong type",
    1036: "the path leads outside",
    1037: "the path is malformed",
    1038: "a symbolic link leads outside",
    1039: "the URI lies outside the allowed roots",
    1040: "the path is not canonical",
    1046: "the resource does not exist",
    1047: "the resource exists already",
    1048: "the tool does not exist",
    1049: "the tool exists already",
    1050: "the prompt does not exist",
    1051: "the prompt exists already",
    1052: "it exists already",
    1056: "the limit of requests is reached",
    1057: "the limit of requests a second is reached",
    1058: "the limit of requests a minute is reached",
    1059: "the quota is used up",
    1060: "too many connections are open",
    1066: "the protocol was not kept",
    1067: "the transport failed",
    1068: "the message is too large",
    1069: "it took too long",
    1070: "the encoding is not supported",
    1076: "the server is not initialized",
    1077: "the server is shutting down",
    1078: "the service is unavailable",
    1079: "the server failed",
    1080: "an outside service is unavailable",
    1081: "the queue is full",
    1082: "the queue holds too many bytes",
    1083: "the tenant's share of the queue is used up",
    1084: "a buffer has overflowed",
    1085: "the server is holding back load",
    1086: "the circuit breaker is open",
    1087: "the health check failed",
    1088: "the service is degraded",
    1089: "a resource is exhausted",
}
"""The five about queues stand at 1081 to 1085, since a tool's own reasons have the first ten numbers."""


class Refused(ToolError):
    """Raised by a tool that will not do what it was asked, for one of the known reasons."""

    def __init__(self, code: int, message: str = "", data: Any = None) -> None:
        if code not in REFUSALS:
            raise SetupError(f"{code} is not a refusal code: they are numbers from 1001 to 1089, listed in REFUSALS")
        self.code = code
        self.data = data
        text = f"Refused ({code}): {message or REFUSALS[code]}"
        told = {"code": code, "reason": REFUSALS[code], **({} if data is None else {"data": data})}
        super().__init__(
            text, result=CallToolResult(content=[TextContent(text)], is_error=True, meta={"ferrule/refusal": told})
        )
