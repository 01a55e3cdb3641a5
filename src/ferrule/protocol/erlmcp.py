"""The numbers that handshake clients get with `error_profile="erlmcp"`: one row for each refusal."""

from __future__ import annotations

from msgspec import Struct

from ferrule.codes import ErrorCode


class Numbers(Struct, frozen=True):
    """What stands in an error in this profile."""

    code: int
    """The error's own number."""
    refusal: int
    """The reason, from 1001 to 1089, as `refusal` in the error's data."""


ERLMCP: dict[str, Numbers] = {
    "ParseError": Numbers(ErrorCode.PARSE_ERROR.value, 1070),
    "InvalidRequest": Numbers(ErrorCode.INVALID_REQUEST.value, 1066),
    "MethodNotFound": Numbers(ErrorCode.METHOD_NOT_FOUND.value, 1007),
    "InvalidParams": Numbers(ErrorCode.INVALID_PARAMS.value, 1021),
    "Internal": Numbers(ErrorCode.INTERNAL_ERROR.value, 1079),
    "Busy": Numbers(ErrorCode.SERVER_ERROR.value, 1081),
    "RateLimited": Numbers(ErrorCode.RATE_LIMITED.value, 1003),
    "ResourceNotFound": Numbers(ErrorCode.RESOURCE_MISSING.value, 1046),
    "ToolNotFound": Numbers(ErrorCode.TOOL_MISSING.value, 1048),
    "PromptNotFound": Numbers(ErrorCode.PROMPT_MISSING.value, 1050),
    "CapabilityOff": Numbers(ErrorCode.CAPABILITY_OFF.value, 1007),
    "NotInitialized": Numbers(ErrorCode.NOT_INITIALIZED.value, 1076),
    "MessageTooLarge": Numbers(ErrorCode.MESSAGE_TOO_LARGE.value, 1068),
    "InvalidUri": Numbers(ErrorCode.INVALID_URI.value, 1023),
    "ToolFailed": Numbers(ErrorCode.TOOL_FAILED.value, 1079),
    "ToolTimedOut": Numbers(ErrorCode.TOOL_TIMED_OUT.value, 1069),
    "ResultTooLarge": Numbers(ErrorCode.RESULT_TOO_LARGE.value, 1068),
    "ToolBusy": Numbers(ErrorCode.TOOL_BUSY.value, 1081),
    "Forbidden": Numbers(ErrorCode.INVALID_REQUEST.value, 1014),
    "OfferRefused": Numbers(ErrorCode.OFFER_REFUSED.value, 1027),
}
"""By class of refusal. What is not here keeps the specification's number; the stateless era always does."""
