"""Prompts: messages a person can ask for by name."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType, field

from ferrule.schema.content import ContentBlock
from ferrule.schema.model import Icon, JsonObject, Model, Name, PagedResult, Params, Result, Role


class PromptArgument(Model, kw_only=True):
    """A value a prompt takes; always text."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Model, kw_only=True):
    """A prompt as listed."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: JsonObject | None = field(default=None, name="_meta")


class ListPromptsResult(PagedResult, kw_only=True):
    """One page of prompts."""

    prompts: list[Prompt]


class GetPromptParams(Params, kw_only=True):
    """Which prompt, with what."""

    name: Name
    arguments: dict[Name, str] | None = {}
    input_responses: Raw | UnsetType = UNSET
    request_state: str | None = None

    def __post_init__(self) -> None:
        if self.arguments is None:
            self.arguments = {}  # how some clients write that there are none


class PromptMessage(Model, kw_only=True):
    """One message of a prompt."""

    role: Role
    content: ContentBlock


class GetPromptResult(Result, kw_only=True):
    """A prompt, filled in."""

    description: str | None = None
    messages: list[PromptMessage]
