"""What the endpoints of an authorization server read and write: parameters, JSON documents, errors (RFC 6749)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from ferrule.auth.address import network_of
from ferrule.balancing.rate import Rate
from ferrule.balancing.token_bucket import TokenBucket
from ferrule.errors import FerruleError
from ferrule.transports.http.routes.web import WebRequest, WebResponse

NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
MAX_PARAMETERS = 50
LONGEST_QUERY = 16 * 1024
LONGEST_FORM = 64 * 1024
LONGEST_POST = 32 * 1024
FORM = "application/x-www-form-urlencoded"
MAX_ADDRESSES = 10_000
"""Addresses whose rates are remembered."""


class OAuthError(FerruleError):
    """A request is refused with one of the error codes of OAuth; the text goes to the client."""

    def __init__(self, error: str, why: str, *, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.error = error
        self.why = why
        self.status = status
        self.headers = headers or {}

    def document(self) -> dict[str, str]:
        """Return it as RFC 6749 §5.2 writes it."""
        return {"error": self.error, "error_description": self.why}


def read_parameters(text: str) -> dict[str, str]:
    """Return the parameters of a query or a form; raises OAuthError for one that comes twice (RFC 6749 §3.1)."""
    if len(text) > LONGEST_QUERY or text.count("&") >= MAX_PARAMETERS:
        raise OAuthError("invalid_request", "The request has too many parameters, or too long ones")
    found: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name in found:
            raise OAuthError("invalid_request", "A parameter is given twice")
        # A parameter without a value counts as left out (RFC 6749 §3.1).
        if value:
            found[name] = value
    return found


def form_text(body: bytes) -> str:
    """Return the form that a page of ours has sent, to be read as parameters; raises OAuthError."""
    if len(body) > LONGEST_FORM:
        raise OAuthError("invalid_request", "The form is too long", status=413)
    return body.decode("utf-8", "replace")


async def read_form(request: WebRequest) -> dict[str, str]:
    """Return the parameters that a client has posted; raises OAuthError for what is no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if kind != FORM or len(body) > LONGEST_POST:
        raise OAuthError("invalid_request", f"The request must be a form ({FORM}) of at most {LONGEST_POST} bytes")
    return read_parameters(body.decode("utf-8", "replace"))


def json_answer(
    document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> WebResponse:
    """Return a JSON answer that nobody keeps."""
    return WebResponse(document, status, {**NO_STORE, **(headers or {})}, "application/json")


def error_answer(error: OAuthError) -> WebResponse:
    """Return the JSON answer of an error."""
    return json_answer(error.document(), error.status, error.headers)


class AddressRate:
    """How often each address may ask. What is remembered is bounded: whoever was quiet longest is forgotten first."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: dict[str, TokenBucket] = {}

    def require(self, address: str, now: float) -> None:
        """Take one; raises OAuthError with status 429 where none is left."""
        place = network_of(address)
        bucket = self._buckets.pop(place, None) or self._rate.bucket()
        self._buckets[place] = bucket
        if len(self._buckets) > MAX_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        if not bucket.take(now):
            seconds = max(1, round(bucket.wait(now)))
            why = f"Too many requests from this address; try again in {seconds} s"
            raise OAuthError("temporarily_unavailable", why, status=429, headers={"Retry-After": str(seconds)})
