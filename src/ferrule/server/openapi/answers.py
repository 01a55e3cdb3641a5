"""The answer of a web API, as the result of a tool or the contents of a resource."""

from __future__ import annotations

import base64
import codecs
import http
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ferrule.errors import Busy, Forbidden, Internal, InvalidParams, Refusal, ResourceNotFound, ToolError
from ferrule.schema.content import AudioContent, EmbeddedResource, ImageContent, ResourceContents, TextContent
from ferrule.schema.tools import CallToolResult
from ferrule.server.openapi.operations import Operation


class ApiFailed(ToolError):
    """The API refused, with a status, or did not answer, without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def refusal_of(failure: ToolError, uri: str) -> Refusal:
    """Return the error for whoever reads a resource, in the words of the error for a model."""
    message = failure.message
    if not isinstance(failure, ApiFailed):
        return InvalidParams(message, None)
    data = None
    if failure.status is not None:
        data = {"status": failure.status}
    match failure.status:
        case 404 | 410:
            return ResourceNotFound(uri, message)
        case 400 | 414 | 422:
            # Without the URI: a URI in the data of this error would say that there is nothing at it.
            return InvalidParams(message, data)
        case 401 | 403:
            return Forbidden(message, data)
        case 429 | 503:
            return Busy(message)
        case _:
            return Internal(message, data)


SHOWN = 2000
"""How many characters of a refusal are shown to the model."""


class Response(Protocol):
    """An HTTP answer, as `httpx` and its likes give it."""

    @property
    def status_code(self) -> int:
        """The status."""

    @property
    def headers(self) -> Any:
        """The headers, by any spelling of their names."""

    @property
    def content(self) -> bytes:
        """The whole body."""


class WholeResponse(Struct, frozen=True):
    """An answer that was read part by part."""

    status_code: int
    headers: Any
    content: bytes


async def read_bounded(response: Any, most: int) -> WholeResponse:
    """Read a streamed answer of `httpx`, unpacked, up to a bit more than so many bytes: it may be endless."""
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > most:
            break
    return WholeResponse(response.status_code, response.headers, bytes(content))


def result_of(operation: Operation, response: Response) -> CallToolResult:
    """Return a good answer as the result of a tool; raises ToolError when it cannot be read."""
    content = response.content
    kind = media_type(response)
    if not content:
        return CallToolResult(content=[])
    if _is_json(kind):
        return _structured(operation, content)
    if kind.startswith("image/"):
        return CallToolResult(content=[ImageContent(data=base64.b64encode(content).decode(), mime_type=kind)])
    if kind.startswith("audio/"):
        return CallToolResult(content=[AudioContent(data=base64.b64encode(content).decode(), mime_type=kind)])
    text = as_text(content, kind)
    if text is not None:
        return CallToolResult(content=[TextContent(text)])
    blob = base64.b64encode(content).decode()
    contents = ResourceContents(uri=f"data:{kind or 'application/octet-stream'}", blob=blob, mime_type=kind or None)
    return CallToolResult(content=[EmbeddedResource(resource=contents)])


def refuse_failure(operation: Operation, response: Response) -> None:
    """Raise ApiFailed for an answer that is a failure, in words for the model."""
    status = response.status_code
    if status < 400:
        return
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    message = f"{operation.place} answered {status} {phrase}".rstrip()
    said = _beginning(response.content)
    if said:
        message += f": {said[:SHOWN]}"
        if len(said) > SHOWN or len(response.content) > 4 * SHOWN:
            message += "…"
    raise ApiFailed(message, status)


def _beginning(content: bytes) -> str:
    """Return a bit more text than is shown of a refusal; the cut may go through a character."""
    if len(content) <= 4 * SHOWN:
        return as_text(content, "text/plain") or ""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(content[: 4 * SHOWN])
    except UnicodeDecodeError:
        return content[: 4 * SHOWN].decode("latin-1")


def media_type(response: Response) -> str:
    """Return the media type of an answer, without its parameters."""
    return str(response.headers.get("content-type") or "").partition(";")[0].strip().lower()


def as_text(content: bytes, kind: str) -> str | None:
    """Return a body as text, None when it is not text."""
    readable = not kind or kind.startswith("text/") or kind in ("application/xml", "application/yaml")
    if not readable and not _is_json(kind) and not kind.endswith("+xml"):
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        if kind.startswith("text/"):
            return content.decode("latin-1")
        return None


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _structured(operation: Operation, content: bytes) -> CallToolResult:
    try:
        value = msgspec.json.decode(content)
    except (ValueError, RecursionError) as reason:
        raise ToolError(f"{operation.place} answered with something that is not JSON: {reason}") from None
    if isinstance(value, str):
        text = value
    else:
        text = content.decode(errors="replace")
    structured: Any = None
    if operation.wraps:
        structured = {"result": value}
    elif operation.output_schema is not None or isinstance(value, dict):
        structured = value
    return CallToolResult(content=[TextContent(text)], structured_content=structured)
