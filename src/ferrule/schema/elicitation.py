"""Elicitation: a server asks the client's user, by form or by URL."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, UnsetType

from ferrule.schema.model import JsonObject, Params, Result

FormValue = str | int | float | bool | list[str] | None


class ElicitParams(Params, omit_defaults=True, kw_only=True):
    """What to ask; by form unless the mode says URL."""

    message: str
    mode: Literal["form", "url"] | None = None
    requested_schema: JsonObject | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: Raw | UnsetType = UNSET


class ElicitResult(Result, kw_only=True):
    """What the user did, and what they filled in when they accepted a form."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, FormValue] | None = None
