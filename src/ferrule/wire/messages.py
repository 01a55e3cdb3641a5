"""The four kinds of JSON-RPC message."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

Id = int | str
"""A request's id; `1` and `"1"` are different ids."""


class Request(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """Asks for an answer. `params` is still raw JSON when it came from a peer."""

    id: Id
    method: str
    params: Any = UNSET


class Notification(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """Tells something; is never answered."""

    method: str
    params: Any = UNSET


class Success(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """Answers a request with a result."""

    id: Id
    result: Any


class ErrorObject(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a request was refused."""

    code: int
    message: str
    data: Any = None


class Failure(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """Answers a request with an error. `id` is None or UNSET when the request's id could not be read."""

    id: Id | UnsetType | None
    error: ErrorObject


Message = Request | Notification | Success | Failure

EMPTY_PARAMS = Raw(b"{}")
