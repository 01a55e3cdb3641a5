"""A web API that does not give what was asked for, as a tool tells it and as a resource does."""

from __future__ import annotations

from ferrule.errors import Busy, Forbidden, Internal, InvalidParams, Refusal, ResourceNotFound, ToolError


class ApiFailed(ToolError):
    """The API refused, with a status, or did not answer, without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def refusal_of(failure: ToolError, uri: str) -> Refusal:
    """Make of what a model would read the error a reader of a resource gets."""
    message, status = failure.message, failure.status if isinstance(failure, ApiFailed) else 400
    data = None if status is None else {"status": status}
    match status:
        case 404 | 410:
            return ResourceNotFound(uri, message)
        case 400 | 414 | 422:
            # Without the URI: a URI in the data of this error would say that there is nothing at it.
            return InvalidParams(message, data if isinstance(failure, ApiFailed) else None)
        case 401 | 403:
            return Forbidden(message, data)
        case 429 | 503:
            return Busy(message)
        case _:
            return Internal(message, data)
