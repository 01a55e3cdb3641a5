"""The options of schema as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from ferrule.schema.sampling import ModelPreferences, ToolChoice
from ferrule.schema.tools import Tool


class SamplingKeywords(TypedDict, total=False):
    """What else a client's model can be told."""

    model_preferences: ModelPreferences | Mapping[str, object] | None
    system_prompt: str | None
    include_context: Literal["none", "thisServer", "allServers"] | None
    temperature: float | None
    stop_sequences: Sequence[str] | None
    metadata: Mapping[str, object] | None
    tools: Sequence[Tool | Mapping[str, object]] | None
    tool_choice: ToolChoice | Mapping[str, object] | None
