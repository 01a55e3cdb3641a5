"""Rounds: a result that asks for input, and what comes back with the retry (stateless era)."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType

from ferrule.schema.model import Model, Result

COMPLETE = "complete"
INPUT_REQUIRED = "input_required"


class InputRequest(Model, kw_only=True):
    """One question a server asks inside a result."""

    method: str
    params: Raw | UnsetType = UNSET


class InputRequired(Result, kw_only=True):
    """The server needs to know something before it can answer."""

    input_requests: dict[str, InputRequest] | None = None
    request_state: str | None = None
