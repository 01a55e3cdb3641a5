"""A prefix of names and URIs: what a server's offers are called where those of several servers stand side by side."""

from __future__ import annotations

import re

from msgspec import Struct, structs

from ferrule.schema.content import ContentBlock, EmbeddedResource, ResourceContents, ResourceLink
from ferrule.schema.resources import Resource
from ferrule.schema.tools import Tool

URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*:(?://)?)(.*)", re.DOTALL)


class Prefix(Struct, frozen=True):
    """Writes names as `prefix_name` and URIs as `scheme://prefix/rest`, and back; empty, it changes nothing."""

    text: str

    def named(self, name: str) -> str:
        """Return a tool's or prompt's name with the prefix."""
        if self.text:
            return f"{self.text}_{name}"
        return name

    def own_name(self, name: str) -> str | None:
        """Return a name without the prefix; None for one that does not begin with it."""
        if not self.text:
            return name
        start = f"{self.text}_"
        if name.startswith(start):
            return name[len(start) :]
        return None

    def placed(self, uri: str) -> str:
        """Return a URI with the prefix."""
        found = URI.match(uri)
        if found and self.text:
            return f"{found[1]}{self.text}/{found[2]}"
        return uri

    def own_uri(self, uri: str) -> str | None:
        """Return a URI without the prefix; None for one that does not have it."""
        if not self.text:
            return uri
        found = URI.match(uri)
        start = f"{self.text}/"
        if found and found[2].startswith(start):
            return found[1] + found[2][len(start) :]
        return None

    def shown(self, tool: Tool, name: str) -> Tool:
        """Return a tool under another name; the page it names is written with the prefix."""
        ui = (tool.meta or {}).get("ui")
        if not isinstance(ui, dict) or not isinstance(ui.get("resourceUri"), str):
            return structs.replace(tool, name=name)
        placed = {**ui, "resourceUri": self.placed(ui["resourceUri"])}
        return structs.replace(tool, name=name, meta={**(tool.meta or {}), "ui": placed})

    def resource(self, resource: Resource) -> Resource:
        """Return a resource as it is listed with the prefix."""
        return structs.replace(resource, uri=self.placed(resource.uri))

    def contents(self, parts: list[ResourceContents]) -> list[ResourceContents]:
        """Return what was read, its URIs with the prefix."""
        placed = []
        for part in parts:
            placed.append(structs.replace(part, uri=self.placed(part.uri)))
        return placed

    def block(self, block: ContentBlock) -> ContentBlock:
        """Return a content block; the URI of a resource in it is written with the prefix."""
        if isinstance(block, ResourceLink):
            return structs.replace(block, uri=self.placed(block.uri))
        if isinstance(block, EmbeddedResource):
            resource = structs.replace(block.resource, uri=self.placed(block.resource.uri))
            return structs.replace(block, resource=resource)
        return block
