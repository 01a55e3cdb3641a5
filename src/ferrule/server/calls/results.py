"""What a handler returned, as the result its method has."""

from __future__ import annotations

import base64
import copy
import functools
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from ferrule.errors import FerruleError
from ferrule.schema.content import CONTENT_TYPES, ContentBlock, ResourceContents, TextContent
from ferrule.schema.model import Role, quickly
from ferrule.schema.prompts import GetPromptResult, PromptMessage
from ferrule.schema.resources import PlainContents, ReadResourceResult
from ferrule.schema.tools import CallToolResult, PlainResult
from ferrule.schema.wrapped import RESULT_MARK
from ferrule.server.functions.types.extra_types import encode_hook

logger = logging.getLogger("ferrule.results")

_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=encode_hook).encode
_pack = msgspec.msgpack.Encoder(enc_hook=encode_hook).encode

_find_null = re.compile(rb"null").search
_find_nan = re.compile(rb"NaN").search
_find_infinity = re.compile(rb"Infinity").search
"""As patterns: they are found faster than by `in`."""
_skip = msgspec.json.Decoder(Raw).decode

_PACKED_NONFINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How MessagePack begins a NaN or an infinity; no text in UTF-8 looks so, other bytes may."""

Wrap = Callable[[Any], CallToolResult]

_text: Callable[[str], TextContent] = functools.partial(quickly, TextContent)
_result: Callable[..., CallToolResult] = functools.partial(quickly, CallToolResult)
_resource: Callable[..., ResourceContents] = functools.partial(quickly, ResourceContents)
_new_text: Callable[[], ResourceContents] = ResourceContents(uri="", text="").__copy__  # type: ignore[attr-defined]
_new_read: Callable[[], ReadResourceResult] = ReadResourceResult(contents=[]).__copy__  # type: ignore[attr-defined]
"""A copy takes half the time of what is made by names."""

NONFINITE = "the result contains NaN or infinity, which JSON has no form for"

BIG = 2**62
LONG = 256 * 1024
"""Characters of a text from which on it is not written ahead, but twice where all results are written."""


class UnwritableResult(FerruleError):
    """A handler returned something that JSON cannot say."""


class Oversized(UnwritableResult):
    """A result is larger than it may be."""

    def __init__(self, size: int, limit: int, *, at_least: bool = False) -> None:
        more = "at least " if at_least else ""
        super().__init__(f"the result has {more}{size:,} bytes and may have at most {limit:,}: ask for less")


class ToolResult:
    """A whole result of a tool: content for the model, data for programs, and what is said about both.

    `content` is anything a tool may return; without it, the text is the data as JSON.
    """

    __slots__ = ("content", "is_error", "meta", "structured")

    def __init__(
        self,
        content: object = None,
        structured: object = None,
        *,
        meta: Mapping[str, object] | None = None,
        is_error: bool = False,
        structured_content: object = None,
    ) -> None:
        self.content = content
        if structured_content is None:
            self.structured = structured
        else:
            self.structured = structured_content
        self.meta = meta
        self.is_error = is_error

    def made(self, wraps: bool) -> CallToolResult:
        """Make the result that is sent; `wraps` where the tool's data is not an object by itself."""
        data: Any = None
        meta = dict(self.meta) if self.meta else {}
        if self.structured is not None:
            data = Raw(json_of(self.structured))
            if wraps and not _is_wrapped(self.structured):
                data = {"result": data}
            if wraps and self.content is not None:
                meta |= RESULT_MARK
        content = self.structured if self.content is None else self.content
        return CallToolResult(
            content=[] if content is None else blocks(content),
            structured_content=data,
            is_error=self.is_error,
            meta=meta or None,
        )


def _is_wrapped(value: object) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"result"}


def json_of(value: object) -> bytes:
    """Write a value as JSON, refusing what JSON has no form for."""
    try:
        written = _encode(value)
    except RecursionError:
        raise UnwritableResult("the result is nested too deeply or contains itself") from None
    except (TypeError, ValueError, OverflowError, NotImplementedError) as reason:
        raise UnwritableResult(f"the result cannot be written as JSON: {reason}") from None
    if _find_null(written) and _may_have_nonfinite(value) and has_nonfinite(value):
        raise UnwritableResult(NONFINITE)
    if not _is_json(written):
        raise UnwritableResult(NONFINITE)
    return written


def _is_json(written: bytes) -> bool:
    """Return whether what was written can be read: a Decimal that is no number is written as it stands."""
    # One letter is found much faster than a word.
    has_nan = b"N" in written and _find_nan(written)
    if not has_nan and not (b"I" in written and _find_infinity(written)):
        return True
    try:
        _skip(written)
    except msgspec.DecodeError:
        return False
    return True


def _may_have_nonfinite(value: object) -> bool:
    """Return whether it is worth looking for NaN and infinity: a null in a large result is mostly just a null."""
    try:
        return _PACKED_NONFINITE.search(_pack(value)) is not None
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        return True


def has_nonfinite(value: object) -> bool:
    """Look for NaN and infinity, which the encoder writes as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(has_nonfinite, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(has_nonfinite, value))
    if isinstance(value, str | bytes | int | None):
        return False
    return has_nonfinite(msgspec.to_builtins(value, builtin_types=(float,), str_keys=True, enc_hook=encode_hook))


def failed(message: str) -> CallToolResult:
    """Make the result of a tool that failed."""
    return CallToolResult(content=[TextContent(message)], is_error=True)


def _text_block(value: str) -> TextContent:
    """Make a block of text, refusing what cannot be sent: half characters, as file names may hold them."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as reason:
            raise UnwritableResult(f"the result is text that UTF-8 cannot say: {reason}") from None
    return _text(str(value))


def unstructured(value: object) -> CallToolResult:
    """Wrap what a tool without an output schema returned."""
    if isinstance(value, str):
        return _result(content=[_text_block(value)])
    if isinstance(value, CallToolResult):
        return copy.copy(value)
    if value is None:
        return _result(content=[])
    return _result(content=blocks(value))


def blocks(value: Any) -> list[ContentBlock]:
    """Make content blocks of a value."""
    if isinstance(value, CONTENT_TYPES):
        return [value]
    if _holds_blocks(value):
        return [block for item in value for block in blocks(item)]
    if isinstance(value, str):
        return [_text_block(value)]
    return [_text(json_of(value).decode())]


def _holds_blocks(value: object) -> bool:
    """Return whether a value is a list of content, whatever its type promised."""
    if not isinstance(value, list | tuple):
        return False
    return any(issubclass(kind, CONTENT_TYPES) for kind in set(map(type, value)))


def wrapped_text(value: object) -> CallToolResult:
    """Wrap a value whose type says text."""
    if type(value) is str:
        return _result(content=[_text_block(value)], structured_content={"result": value})
    return wrapped(value)


def wrapped_number(value: object) -> CallToolResult:
    """Wrap a value whose type is int or bool."""
    if type(value) is int:
        return _result(content=[_text(str(value))], structured_content={"result": value})
    return wrapped(value)


def plain_text(value: str) -> CallToolResult | PlainResult:
    """Write the result of a tool that gave a text."""
    if len(value) > LONG:
        return wrapped_text(value)  # what is written ahead is held twice for a moment
    try:
        text = _encode(value)
    except ValueError:
        return wrapped_text(value)  # the general path raises the error
    return PlainResult(b'"content":[{"type":"text","text":%b}],"structuredContent":{"result":%b}' % (text, text), value)


def plain_number(value: int) -> CallToolResult | PlainResult:
    """Write the result of a tool that gave an integer."""
    if not -BIG <= value <= BIG:
        return wrapped_number(value)
    members = b'"content":[{"type":"text","text":"%d"}],"structuredContent":{"result":%d}' % (value, value)
    return PlainResult(members, value)


def whole(result: CallToolResult | PlainResult) -> CallToolResult:
    """Return a result as the struct that layers and tasks know, also one that was written ahead."""
    if isinstance(result, PlainResult):
        return result.whole()
    return result


def wrapped(value: object) -> CallToolResult:
    """Wrap a value that is not an object."""
    if isinstance(value, CallToolResult):
        return copy.copy(value)
    if not _holds_blocks(value):
        return wrapped_data(value)
    written = json_of(value)
    return _result(content=blocks(value), structured_content={"result": Raw(written)}, meta=dict(RESULT_MARK))


def wrapped_data(value: object) -> CallToolResult:
    """Wrap a value that is not an object, and no content either."""
    written = json_of(value)
    text = str(value) if isinstance(value, str) else written.decode()
    return _result(content=[_text(text)], structured_content={"result": Raw(written)})


def structured(value: object) -> CallToolResult:
    """Wrap a value that is an object, written once for both forms."""
    if isinstance(value, CallToolResult):
        return copy.copy(value)
    written = json_of(value)
    return _result(content=[_text(written.decode())], structured_content=Raw(written))


def writer_for(wrap: Wrap) -> Callable[[Any], CallToolResult | PlainResult]:
    """Choose, once, how values of just the declared plain type are written, where they can be."""
    writers: dict[Wrap, Callable[[Any], CallToolResult | PlainResult]] = {
        wrapped_text: plain_text,
        wrapped_number: plain_number,
    }
    return writers.get(wrap, wrap)


def wrapper_for(
    returns: object,
    output_schema: Mapping[str, object] | None,
    wraps: bool,
    to_plain: Callable[[Any], Any] | None = None,
) -> Wrap:
    """Choose, once, how a tool's values are wrapped, and what they go through before that."""
    if output_schema is None:
        return unstructured
    if to_plain is not None:
        wrap = wrapped if wraps else structured
        return lambda value: wrap(to_plain(value))
    if not wraps:
        return structured
    if returns is str:
        return wrapped_text
    if returns is int:
        return wrapped_number
    return wrapped


def contents_of(value: object, uri: str, mime_type: str | None) -> ReadResourceResult:
    """Make the result of reading a resource."""
    if type(value) is str:
        part = _new_text()
        part.uri = uri
        part.mime_type = mime_type or "text/plain"
        part.text = value
        result = _new_read()
        result.contents = [part]
        return result
    if isinstance(value, ReadResourceResult):
        return copy.copy(value)
    if isinstance(value, list | tuple) and _holds_contents(value):
        parts = value
    else:
        parts = [value]
    return ReadResourceResult(contents=[_contents(part, uri, mime_type) for part in parts])


def contents_writer(uri: str, mime_type: str | None) -> Callable[[str], PlainContents | ReadResourceResult]:
    """Return what writes the result of reading a URI that holds a text."""
    kind = mime_type or "text/plain"
    head = b'"contents":[{"uri":%b,"mimeType":%b,"text":' % (_encode(uri), _encode(kind))

    def write(text: str) -> PlainContents | ReadResourceResult:
        if len(text) > LONG:
            return contents_of(text, uri, mime_type)  # what is written ahead is held twice for a moment
        try:
            return PlainContents(b"%b%b}]" % (head, _encode(text)))
        except ValueError:
            return contents_of(text, uri, mime_type)  # the general path raises the error

    return write


def _holds_contents(parts: Any) -> bool:
    return bool(parts) and all(isinstance(part, ResourceContents | str | bytes) for part in parts)


def _contents(part: object, uri: str, mime_type: str | None) -> ResourceContents:
    if isinstance(part, ResourceContents):
        return part
    if isinstance(part, str):
        return _resource(uri=uri, mime_type=mime_type or "text/plain", text=str(part))
    if isinstance(part, bytes | bytearray | memoryview):
        blob = base64.b64encode(part).decode("ascii")
        return _resource(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)
    return _resource(uri=uri, mime_type=mime_type or "application/json", text=json_of(part).decode())


def prompt_of(value: object, description: str | None) -> GetPromptResult:
    """Make the result of getting a prompt."""
    if isinstance(value, GetPromptResult):
        return copy.copy(value)
    parts = value if isinstance(value, list | tuple) else [value]
    return GetPromptResult(description=description, messages=[message for part in parts for message in _messages(part)])


def _messages(part: object) -> list[PromptMessage]:
    """Make messages of one part: of several blocks under one role, as many messages."""
    role = "user"
    content = part
    if isinstance(part, PromptMessage):
        role = part.role
        content = part.content
    elif isinstance(part, Mapping) and part.keys() >= {"role", "content"}:
        role = part["role"]
        content = part["content"]
    found: list[PromptMessage] = []
    for block in _prompt_blocks(content):
        found.append(PromptMessage(role=_role(role), content=block))
    return found


def _role(given: str) -> Role:
    if given == "assistant":
        return "assistant"
    if given != "user":
        logger.warning("a prompt message has the role %r, which MCP does not have: sent as 'user'", given)
    return "user"


def _prompt_blocks(content: object) -> list[ContentBlock]:
    if isinstance(content, Mapping) and "type" in content:
        block: ContentBlock = msgspec.convert(content, ContentBlock)
        return [block]
    if isinstance(content, list | tuple):
        return [block for item in content for block in _prompt_blocks(item)]
    return blocks(content)
