"""Content blocks: text, media, links and embedded resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import field

from ferrule.schema.model import Annotations, Icon, JsonObject, Model


class Block(Model, kw_only=False, tag_field="type"):
    """One piece of content; `type` is the specification's name for its kind."""


class TextContent(Block, tag="text"):
    """Text."""

    text: str
    annotations: Annotations | None = None
    meta: JsonObject | None = field(default=None, name="_meta")
    if TYPE_CHECKING:
        type: Literal["text"] = "text"


class ImageContent(Block, tag="image"):
    """An image, base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = field(default=None, name="_meta")
    if TYPE_CHECKING:
        type: Literal["image"] = "image"


class AudioContent(Block, tag="audio"):
    """Sound, base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = field(default=None, name="_meta")
    if TYPE_CHECKING:
        type: Literal["audio"] = "audio"


class ResourceContents(Model, kw_only=True):
    """What a resource holds: text or a base64 blob."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: JsonObject | None = field(default=None, name="_meta")


class EmbeddedResource(Block, tag="resource"):
    """A resource's contents inside a message."""

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: JsonObject | None = field(default=None, name="_meta")
    if TYPE_CHECKING:
        type: Literal["resource"] = "resource"


class ResourceLink(Block, tag="resource_link"):
    """A pointer to a resource the client may read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: JsonObject | None = field(default=None, name="_meta")
    if TYPE_CHECKING:
        type: Literal["resource_link"] = "resource_link"


class ToolUseContent(Block, tag="tool_use"):
    """A model's wish to use a tool (sampling only)."""

    id: str
    name: str
    input: JsonObject
    meta: JsonObject | None = field(default=None, name="_meta")
    if TYPE_CHECKING:
        type: Literal["tool_use"] = "tool_use"


ContentBlock = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink


class ToolResultContent(Block, tag="tool_result"):
    """What a tool a model wished to use has answered (sampling only)."""

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = None
    is_error: bool | None = None
    meta: JsonObject | None = field(default=None, name="_meta")
    if TYPE_CHECKING:
        type: Literal["tool_result"] = "tool_result"


SamplingBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent

CONTENT_TYPES = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)
