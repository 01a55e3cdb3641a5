"""Saying the same with an older vocabulary: what newer revisions added is left out or put in older words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import Raw, Struct, structs

from ferrule.errors import CapabilityNotSupported, InvalidRequest, Refusal
from ferrule.schema.content import (
    AudioContent,
    EmbeddedResource,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from ferrule.schema.model import (
    Annotations,
    ClientCapabilities,
    ElicitationCapability,
    EmptyResult,
    JsonObject,
    SamplingCapability,
)
from ferrule.schema.prompts import GetPromptResult, Prompt, PromptMessage
from ferrule.schema.resources import PlainContents
from ferrule.schema.sampling import CreateMessageResult
from ferrule.schema.tools import CallToolResult, PlainResult, Tool
from ferrule.schema.wrapped import RESULT_MARK, wrapping

S = TypeVar("S", bound=Struct)


class Trim(Protocol):
    """Returns a struct, or a copy of it in which something is left out."""

    def __call__(self, value: S, /) -> S: ...


def without(*fields: str) -> Trim:
    """Make a function that leaves members out, on a copy."""

    def trim(value: S, /) -> S:
        gone: dict[str, None] = {}
        for name in fields:
            if getattr(value, name, None) is not None:
                gone[name] = None
        if gone:
            return structs.replace(value, **gone)
        return value

    return trim


def each(member: str, trim: Callable[[Any], object]) -> Trim:
    """Make a function that trims every element of a list member."""

    def trim_all(value: S, /) -> S:
        trimmed = [trim(item) for item in getattr(value, member)]
        return structs.replace(value, **{member: trimmed})

    return trim_all


def empty(_: None) -> EmptyResult:
    """A method with nothing to return answers with an empty object."""
    return EmptyResult()


def object_rooted(tool: Tool) -> Tool:
    """Where an output schema must be an object at its root, another is put under `result`, or not shown."""
    schema = tool.output_schema
    if schema is None or schema.get("type") == "object":
        return tool
    return structs.replace(tool, output_schema=_under_result(schema))


def _under_result(schema: JsonObject) -> JsonObject | None:
    """Put a schema one level down; None where its values may be objects already, or where it points to its own root."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if not isinstance(kinds, list) or "object" in kinds or not _movable(schema):
        return None
    inner = {}
    at_root = {}
    for key, value in schema.items():
        if key in ("$defs", "$schema"):
            at_root[key] = value
        else:
            inner[key] = value
    return {**wrapping(inner), **at_root}


def _movable(part: object) -> bool:
    """Whether a part of a schema means the same one level down."""
    if isinstance(part, list):
        return all(map(_movable, part))
    if not isinstance(part, dict):
        return True
    target = part.get("$ref", "#/$defs/")
    if "$id" in part or (isinstance(target, str) and not target.startswith("#/$defs/")):
        return False
    return all(map(_movable, part.values()))


def written_ahead(result: PlainResult | PlainContents) -> Raw:
    return Raw(b"{%b}" % result.members)


def object_content(result: CallToolResult) -> CallToolResult:
    """Where structured content must be an object, another value is put under `result`."""
    value = result.structured_content
    if value is None or isinstance(value, dict):
        return result
    if isinstance(value, Raw) and bytes(value).lstrip()[:1] == b"{":
        return result
    meta = {**(result.meta or {}), **RESULT_MARK}
    return structs.replace(result, structured_content={"result": value}, meta=meta)


no_icons = without("icons")
no_meta = without("meta")
no_hints = without("ttl_ms", "cache_scope")


def undated(item: S) -> S:
    """Leave out when an item with annotations was last modified."""
    annotations: Annotations | None = item.annotations  # type: ignore[attr-defined]
    if annotations is None or annotations.last_modified is None:
        return item
    return structs.replace(item, annotations=structs.replace(annotations, last_modified=None))


def old_block(block: Any, *, audio: bool) -> Any:
    """Return the content with the types an older revision has."""
    if not audio and isinstance(block, AudioContent):
        contents = ResourceContents(uri=f"data:{block.mime_type}", mime_type=block.mime_type, blob=block.data)
        block = EmbeddedResource(contents, annotations=block.annotations)
    if isinstance(block, ResourceLink):
        return TextContent(f"{block.title or block.name}: {block.uri}")
    if isinstance(block, EmbeddedResource):
        block = structs.replace(block, resource=no_meta(block.resource))
    return no_meta(undated(block))


def old_result(*, audio: bool) -> Callable[[CallToolResult], CallToolResult]:
    def trim(result: CallToolResult) -> CallToolResult:
        content = [old_block(block, audio=audio) for block in result.content]
        return structs.replace(result, content=content, structured_content=None)

    return trim


def old_prompt(*, audio: bool) -> Callable[[GetPromptResult], GetPromptResult]:
    def trim(result: GetPromptResult) -> GetPromptResult:
        messages = []
        for message in result.messages:
            content = old_block(message.content, audio=audio)
            messages.append(PromptMessage(role=message.role, content=content))
        return structs.replace(result, messages=messages)

    return trim


def old_prompt_item(prompt: Prompt) -> Prompt:
    arguments = None
    if prompt.arguments is not None:
        arguments = []
        for argument in prompt.arguments:
            arguments.append(structs.replace(argument, title=None))
    return structs.replace(prompt, title=None, icons=None, meta=None, arguments=arguments)


def oldest_item(item: S) -> S:
    return undated(without("title", "icons", "meta")(item))


def old_client(*gone: str) -> Callable[[ClientCapabilities], ClientCapabilities]:
    """Sampling and elicitation had no kinds at first: there was text from a model, and there were forms."""

    def trim(declared: ClientCapabilities) -> ClientCapabilities:
        elicitation = declared.elicitation
        sampling = declared.sampling
        if sampling is not None:
            sampling = SamplingCapability()
        if elicitation is not None:
            forms = elicitation.form is not None or elicitation.url is None
            elicitation = ElicitationCapability() if forms else None
        declared = structs.replace(declared, sampling=sampling, elicitation=elicitation)
        return without("extensions", "tasks", *gone)(declared)

    return trim


def old_message(message: JsonObject, *, before_metadata: bool) -> JsonObject:
    """Leave out what sampling messages got later."""
    content = message["content"]
    if before_metadata and isinstance(content, dict):
        content = _lacking(content, "_meta")
        annotations = content.pop("annotations", None)
        if annotations:
            content["annotations"] = _lacking(annotations, "lastModified")
    return {"role": message["role"], "content": content}


def old_sampled(result: CreateMessageResult) -> CreateMessageResult:
    """Before lists of blocks a model's answer was one block: all its text, or the first block."""
    if not isinstance(result.content, list):
        return result
    texts = []
    for block in result.content:
        if isinstance(block, TextContent):
            texts.append(block.text)
    if len(texts) > 1:
        return structs.replace(result, content=TextContent("\n".join(texts)))
    return structs.replace(result, content=next(iter(result.content), TextContent("")))


def oldest_sampled(result: CreateMessageResult) -> CreateMessageResult:
    single = old_sampled(result)
    return structs.replace(single, content=old_block(single.content, audio=True))


def plain_form(params: JsonObject) -> JsonObject:
    """The first forms had single choices as `enum` with `enumNames`, defaults on booleans only, and no URLs."""
    if params.get("mode") == "url":
        raise CapabilityNotSupported("elicitation.url")
    schema = params["requestedSchema"]
    plain = _lacking(schema, "$schema")
    plain["properties"] = {}
    for name, rules in schema["properties"].items():
        plain["properties"][name] = plain_property(name, rules)
    return {"message": params["message"], "requestedSchema": plain}


def _lacking(members: JsonObject, name: str) -> JsonObject:
    """Return a copy of an object without a member."""
    copy = dict(members)
    copy.pop(name, None)
    return copy


def plain_property(name: str, rules: JsonObject) -> JsonObject:
    if rules.get("type") == "array":
        raise CapabilityNotSupported(
            "elicitation", f"the field {name!r}: this client's revision has no lists of choices"
        )
    plain = dict(rules)
    if rules.get("type") != "boolean":
        plain.pop("default", None)
    choices = plain.pop("oneOf", None)
    if choices is not None:
        plain["enum"] = []
        plain["enumNames"] = []
        for choice in choices:
            plain["enum"].append(choice["const"])
            plain["enumNames"].append(choice.get("title", choice["const"]))
    return plain


def single_content(message: JsonObject) -> JsonObject:
    """A sampling message held one block at first, not a list."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    if len(content) != 1:
        raise CapabilityNotSupported("sampling", "this client's revision takes one content block per message")
    return {**message, "content": content[0]}


def as_invalid_request(refusal: Refusal) -> InvalidRequest:
    """Put a refusal that a revision has no number for as an invalid request."""
    return InvalidRequest(refusal.message, refusal.data)
