"""Resources and templates: what can be read."""

from __future__ import annotations

import base64

from msgspec import UNSET, Raw, Struct, UnsetType, field

from ferrule.schema.content import ResourceContents
from ferrule.schema.model import Annotations, CacheableResult, Icon, JsonObject, Model, PagedResult, Params, Uri


class Resource(Model, kw_only=True):
    """A resource as listed."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: JsonObject | None = field(default=None, name="_meta")


class ResourceTemplate(Model, kw_only=True):
    """A family of resources with a pattern for their URIs."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: JsonObject | None = field(default=None, name="_meta")


class ListResourcesResult(PagedResult, kw_only=True):
    """One page of resources."""

    resources: list[Resource]


class ListResourceTemplatesResult(PagedResult, kw_only=True):
    """One page of templates."""

    resource_templates: list[ResourceTemplate]


class ReadResourceParams(Params, kw_only=True):
    """Which resource to read."""

    uri: Uri
    input_responses: Raw | UnsetType = UNSET
    request_state: str | None = None


class ReadResourceResult(CacheableResult, kw_only=True):
    """What a resource holds."""

    contents: list[ResourceContents]

    @property
    def text(self) -> str | None:
        """All text of the contents, joined by line ends; None when nothing in them is text."""
        texts = []
        for part in self.contents:
            if part.text is not None:
                texts.append(part.text)
        if texts:
            return "\n".join(texts)
        return None

    @property
    def blob(self) -> bytes:
        """The first binary part, decoded; empty when there is none."""
        return next((base64.b64decode(part.blob) for part in self.contents if part.blob is not None), b"")


class PlainContents(Struct, gc=False):
    """What a resource holds that is one text: written already, since most are just that."""

    members: bytes
    """What stands between the braces of the result."""


class SubscribeParams(Params, kw_only=True):
    """Which resource to watch, or to watch no more (handshake era)."""

    uri: Uri
