"""Tools: what a model may call."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field

from ferrule.schema.content import ContentBlock, TextContent
from ferrule.schema.model import Icon, JsonObject, Model, Name, PagedResult, Params, Result, Value
from ferrule.schema.wrapped import unwrapped

EMPTY_OBJECT = Raw(b"{}")


class ToolAnnotations(Value, frozen=True, kw_only=True):
    """Hints on what a tool does; a client must not trust them."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Hints(Value, frozen=True, kw_only=True):
    """What a tool says it does, with the protocol's defaults where it says nothing; not to be trusted."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class Tool(Model, kw_only=True):
    """A tool as listed; schemas are kept exactly as written."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: JsonObject
    output_schema: JsonObject | None = None
    annotations: ToolAnnotations | None = None
    execution: JsonObject | None = None
    icons: list[Icon] | None = None
    meta: JsonObject | None = field(default=None, name="_meta")

    @property
    def display_name(self) -> str:
        """What to show a person: the title, else the title among the annotations, else the name."""
        return self.title or (self.annotations and self.annotations.title) or self.name

    @property
    def hints(self) -> Hints:
        """What the tool says it does; a client must not trust it unless it trusts the server."""
        given = self.annotations or ToolAnnotations()
        said = {
            "read_only": given.read_only_hint,
            "destructive": given.destructive_hint,
            "idempotent": given.idempotent_hint,
            "open_world": given.open_world_hint,
        }
        hints = {}
        for name, value in said.items():
            if value is not None:
                hints[name] = value
        return Hints(**hints)


class ListToolsResult(PagedResult, kw_only=True):
    """One page of tools."""

    tools: list[Tool]


class CallToolParams(Params, kw_only=True):
    """Which tool, with what; the arguments stay raw until the tool's own type reads them."""

    name: Name
    arguments: Raw = EMPTY_OBJECT
    input_responses: Raw | UnsetType = UNSET
    request_state: str | None = None
    task: Raw | UnsetType = UNSET


class ToolCall(Struct, gc=False):
    """The same as a client sends it, its `_meta` encoded already."""

    name: str
    arguments: Any
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CallToolResult(Result, kw_only=True):
    """What a tool answered."""

    content: list[ContentBlock]
    structured_content: Any = None
    is_error: bool | None = False

    @property
    def text(self) -> str:
        """All text of the result, its blocks joined by line ends."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def data(self) -> Any:
        """The structured result, without the wrapping of values that are not objects; else the text."""
        if self.structured_content is None:
            return self.text or None
        texts = []
        for block in self.content:
            if isinstance(block, TextContent):
                texts.append(block.text)
        return unwrapped(self.structured_content, texts, self.meta)


class PlainResult(Struct, gc=False):
    """What a tool answered that gave a plain value: written already, since most tools do just that."""

    members: bytes
    """What stands between the braces of the result."""
    value: int | str

    def whole(self) -> CallToolResult:
        """Return the result as the struct that layers and tasks know."""
        return CallToolResult(content=[TextContent(str(self.value))], structured_content={"result": self.value})
