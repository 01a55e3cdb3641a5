"""The numbers that handshake clients get with `error_profile="erlmcp"`: one row for each refusal."""

from __future__ import annotations

from msgspec import Struct


class Numbers(Struct, frozen=True):
    """What stands in an error in this profile."""

    code: int
    """The error's own number."""
    refusal: int
    """The reason, from 1001 to 1089, as `refusal` in the error's data."""


ERLMCP: dict[str, Numbers] = {
    "ParseError": Numbers(-32700, 1070),
    "InvalidRequest": Numbers(-32600, 1066),
    "MethodNotFound": Numbers(-32601, 1007),
    "InvalidParams": Numbers(-32602, 1021),
    "Internal": Numbers(-32603, 1079),
    "Busy": Numbers(-32000, 1081),
    "RateLimited": Numbers(-32010, 1003),
    "ResourceNotFound": Numbers(-32001, 1046),
    "ToolNotFound": Numbers(-32002, 1048),
    "PromptNotFound": Numbers(-32003, 1050),
    "CapabilityOff": Numbers(-32004, 1007),
    "NotInitialized": Numbers(-32005, 1076),
    "MessageTooLarge": Numbers(-32012, 1068),
    "InvalidUri": Numbers(-32022, 1023),
    "ToolFailed": Numbers(-32031, 1079),
    "ToolTimedOut": Numbers(-32032, 1069),
    "ResultTooLarge": Numbers(-32036, 1068),
    "ToolBusy": Numbers(-32038, 1081),
    "Forbidden": Numbers(-32600, 1014),
    "OfferRefused": Numbers(-32062, 1027),
}
"""By class of refusal. What is not here keeps the specification's number; the stateless era always does."""
