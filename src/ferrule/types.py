"""What handlers, clients and observers write by name, in one place; parts of MCP have the specification's names."""

from __future__ import annotations

from ferrule.schema.completion import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceReference,
)
from ferrule.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from ferrule.schema.elicitation import ElicitResult
from ferrule.schema.model import Annotations, Icon, Implementation
from ferrule.schema.prompts import GetPromptResult, Prompt, PromptArgument, PromptMessage
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.roots import ListRootsResult, Root
from ferrule.schema.sampling import CreateMessageResult, ModelHint, ModelPreferences, SamplingMessage
from ferrule.schema.tools import CallToolResult, Tool, ToolAnnotations
from ferrule.telemetry.observer import (
    ObservedChild,
    ObservedConnection,
    ObservedExchange,
    ObservedLink,
    ObservedNotification,
    ObservedRequest,
    Outcome,
)

ResourceTemplateReference = ResourceReference
TextResourceContents = ResourceContents
BlobResourceContents = ResourceContents

__all__ = [
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "CallToolResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "ContentBlock",
    "CreateMessageResult",
    "ElicitResult",
    "EmbeddedResource",
    "GetPromptResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "ObservedChild",
    "ObservedConnection",
    "ObservedExchange",
    "ObservedLink",
    "ObservedNotification",
    "ObservedRequest",
    "Outcome",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceReference",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "Root",
    "SamplingMessage",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
]
