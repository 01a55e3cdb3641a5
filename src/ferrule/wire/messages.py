"""The four kinds of message of JSON-RPC 2.0: §4, §4.1 and §5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from ferrule.budgets.bounds import MAX_ID_LENGTH

HEAD_SIZE = 1024
"""In how much of a frame that is not read its id is looked for."""
LONG_NUMBER = 10**MAX_ID_LENGTH

Id = int | str
"""A request's id; `1` and `"1"` are different ids. JSON-RPC 2.0 §4 allows null too, MCP does not."""


def is_long(identity: Id | UnsetType) -> bool:
    """Whether an id is over its bound."""
    if isinstance(identity, str):
        return len(identity) > MAX_ID_LENGTH
    return isinstance(identity, int) and abs(identity) >= LONG_NUMBER


class Request(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """Asks for an answer. `params` is still raw JSON when it came from a peer."""

    id: Id
    method: str
    params: Any = UNSET


class Notification(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A message that is never answered."""

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


class HttpError(ErrorObject, frozen=True, gc=True, dict=True, omit_defaults=True):
    """Why a request was refused, where the HTTP answer has a status and headers of its own.

    They are no fields: the message says nothing of them, and no other transport sends them.
    """

    @classmethod
    def of(cls, error: ErrorObject, status: int | None, headers: Mapping[str, str]) -> HttpError:
        """Return an error with the status and the headers of its HTTP answer."""
        made = cls(error.code, error.message, error.data)
        made.__dict__.update(_status=status, _headers=headers)
        return made

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer; None for the one that goes with the code."""
        status: int | None = self.__dict__["_status"]
        return status

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the HTTP answer."""
        headers: Mapping[str, str] = self.__dict__["_headers"]
        return headers


class Failure(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """Answers a request with an error. `id` is None or UNSET when the request's id could not be read."""

    id: Id | UnsetType | None
    error: ErrorObject


Message = Request | Notification | Success | Failure

EMPTY_PARAMS = Raw(b"{}")
