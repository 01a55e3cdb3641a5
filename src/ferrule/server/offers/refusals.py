"""Why a tool or the server will not do something: a number from 1001 to 1089 and what it means."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ferrule.errors import SetupError, ToolError
from ferrule.schema.content import TextContent
from ferrule.schema.tools import CallToolResult

Severity = Literal["warn", "error", "critical"]


class Reason(Struct, frozen=True):
    """What one number means."""

    text: str
    hint: str
    """What whoever is refused can do about it."""
    status: int
    """The HTTP status that says the same."""
    severity: Severity = "warn"


FAMILIES = {
    "tool": range(1001, 1011),
    "authorization": range(1011, 1017),
    "validation": range(1021, 1030),
    "path": range(1036, 1041),
    "entity": range(1046, 1053),
    "rate": range(1056, 1061),
    "protocol": range(1066, 1071),
    "server": range(1076, 1081),
    "queue": range(1081, 1086),
    "health": range(1086, 1090),
}
"""What the numbers are about; the five about queues come late, since a tool's own reasons have the first ten."""

REASONS: dict[int, Reason] = {
    # tool
    1001: Reason("the content is against policy", "ask for something the policy allows", 403, "error"),
    1002: Reason("the request is against safety guidelines", "ask for something safe", 403, "error"),
    1003: Reason("the rate limit is reached", "wait, then ask less often", 429),
    1004: Reason("there are not enough resources", "ask for less, or later", 503, "error"),
    1005: Reason("permission is denied", "ask with an account that may do this", 403),
    1006: Reason("the input is invalid", "correct the input", 400),
    1007: Reason("the operation is not supported", "use another operation", 501),
    1008: Reason("the service is unavailable for now", "try again later", 503, "error"),
    1009: Reason("something this depends on has failed", "try again when it works", 503, "error"),
    1010: Reason("the tool has a reason of its own", "read the message", 403),
    # authorization
    1011: Reason("authentication failed", "authenticate again", 401, "error"),
    1012: Reason("the authentication has expired", "get a new token", 401),
    1013: Reason("the credentials are invalid", "check the credentials", 401),
    1014: Reason("authorization is denied", "ask for the permission", 403, "error"),
    1015: Reason("authentication is missing", "send credentials", 401),
    1016: Reason("the session is invalid", "open a new session", 401),
    # validation
    1021: Reason("the parameters are invalid", "correct the parameters", 400),
    1022: Reason("the data does not fit its schema", "make the data fit the schema", 400),
    1023: Reason("the URI is invalid", "correct the URI", 400),
    1024: Reason("the content type is not supported", "send a supported content type", 415),
    1025: Reason("a required header is missing or invalid", "send the header", 400),
    1026: Reason("the session id is malformed", "send the session id as it was given", 400),
    1027: Reason("the protocol version is not supported", "use a supported version", 400),
    1028: Reason("a required field is missing", "send the field", 400),
    1029: Reason("a field has the wrong type", "send the field with its type", 400),
    # path
    1036: Reason("the path leads outside", "stay inside the root", 400, "error"),
    1037: Reason("the path is malformed", "correct the path", 400),
    1038: Reason("a symbolic link leads outside", "use a path without the link", 400, "error"),
    1039: Reason("the URI lies outside the allowed roots", "use a URI inside the roots", 400, "error"),
    1040: Reason("the path is not canonical", "write the path without dots and doubled slashes", 400),
    # entity
    1046: Reason("the resource does not exist", "list the resources", 404),
    1047: Reason("the resource exists already", "use another URI", 409),
    1048: Reason("the tool does not exist", "list the tools", 404),
    1049: Reason("the tool exists already", "use another name", 409),
    1050: Reason("the prompt does not exist", "list the prompts", 404),
    1051: Reason("the prompt exists already", "use another name", 409),
    1052: Reason("it exists already", "use another name", 409),
    # rate
    1056: Reason("the limit of requests is reached", "ask less often", 429),
    1057: Reason("the limit of requests a second is reached", "wait a second", 429),
    1058: Reason("the limit of requests a minute is reached", "wait a minute", 429),
    1059: Reason("the quota is used up", "wait until the quota is renewed", 429),
    1060: Reason("too many connections are open", "close a connection first", 429),
    # protocol
    1066: Reason("the protocol was not kept", "keep to the protocol", 400),
    1067: Reason("the transport failed", "connect again", 503, "error"),
    1068: Reason("the message is too large", "send less at once", 413),
    1069: Reason("it took too long", "ask for less, or allow more time", 503),
    1070: Reason("the encoding is not supported", "send UTF-8", 415),
    # server
    1076: Reason("the server is not initialized", "initialize first", 503, "error"),
    1077: Reason("the server is shutting down", "connect to another server", 503, "error"),
    1078: Reason("the service is unavailable", "try again later", 503, "error"),
    1079: Reason("the server failed", "look into the server's log", 503, "critical"),
    1080: Reason("an outside service is unavailable", "try again when it works", 503, "error"),
    # queue
    1081: Reason("the queue is full", "wait, then try again", 429),
    1082: Reason("the queue holds too many bytes", "wait, then try again", 429),
    1083: Reason("the tenant's share of the queue is used up", "wait for your own requests", 429),
    1084: Reason("a buffer has overflowed", "read faster, or ask for less", 503, "error"),
    1085: Reason("the server is holding back load", "send more slowly", 503),
    # health
    1086: Reason("the circuit breaker is open", "try again when it closes", 503, "error"),
    1087: Reason("the health check failed", "look into the server's log", 503, "critical"),
    1088: Reason("the service is degraded", "expect slow or partial answers", 503, "error"),
    1089: Reason("a resource is exhausted", "free some of it", 503, "critical"),
}

REFUSALS: dict[int, str] = {code: reason.text for code, reason in REASONS.items()}


def family_of(code: int) -> str:
    """Return what a refusal's number is about."""
    return next((name for name, codes in FAMILIES.items() if code in codes), "unknown")


class Refused(ToolError):
    """Raised by a tool that will not do what it was asked, for one of the known reasons."""

    def __init__(self, code: int, message: str = "", data: object = None) -> None:
        if code not in REASONS:
            raise SetupError(f"{code} is not a refusal code: they are numbers from 1001 to 1089, listed in REASONS")
        self.code = code
        self.data = data
        reason = REASONS[code]
        text = f"Refused ({code}): {message or reason.text}"
        told: dict[str, Any] = {
            "code": code,
            "reason": reason.text,
            "category": family_of(code),
            "severity": reason.severity,
            "hint": reason.hint,
        }
        if data is not None:
            told["data"] = data
        super().__init__(
            text, result=CallToolResult(content=[TextContent(text)], is_error=True, meta={"ferrule/refusal": told})
        )

    @property
    def numbered_data(self) -> Any:
        """The data of an error that says the same: with the number, wherever an object can hold it."""
        if not (self.data is None or isinstance(self.data, dict)):
            return self.data
        return {**(self.data or {}), "refusal": self.code}
