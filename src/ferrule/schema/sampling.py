"""Sampling: a server asks the client's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Raw, UnsetType, field

from ferrule.schema.content import SamplingBlock, TextContent
from ferrule.schema.model import JsonObject, Model, Params, Result, Role
from ferrule.schema.tools import Tool


class ModelHint(Model, kw_only=True):
    """A model's name, or a part of it."""

    name: str | None = None


class ModelPreferences(Model, kw_only=True):
    """What matters in choosing a model, each from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None

    def choose(self, models: Sequence[str]) -> str | None:
        """Return the first of these models a hint names, hints in order, each as a part of a name."""
        for hint in self.hints or ():
            wanted = (hint.name or "").lower()
            found = next((model for model in models if wanted and wanted in model.lower()), None)
            if found is not None:
                return found
        return None


class SamplingMessage(Model, kw_only=True):
    """One message of the conversation to continue."""

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    meta: JsonObject | None = field(default=None, name="_meta")


class ToolChoice(Model, kw_only=True):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(Params, omit_defaults=True, kw_only=True):
    """What to ask the model."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: JsonObject | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    task: Raw | UnsetType = UNSET


class CreateMessageResult(Result, kw_only=True):
    """What the model said."""

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """All text of the answer."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "\n".join(block.text for block in blocks if isinstance(block, TextContent))
