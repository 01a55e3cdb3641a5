"""Which revision first had what: the version matrix for members that only newer revisions know.

`mcp-types` has one set of models for all revisions of the handshake era, that of the newest. This table says what the
older ones lack; `test_judges.py` compares it with the official schemas where they are present.
"""

from __future__ import annotations

from traffic_record import R2, R3, R4

CONTENTS = ("TextResourceContents", "BlobResourceContents")
LISTED = ("Tool", "Prompt", "Resource", "ResourceTemplate")
BLOCKS = ("TextContent", "ImageContent", "AudioContent", "EmbeddedResource")

MEMBER_SINCE: dict[tuple[str, str], str] = {
    **{(kind, "title"): R3 for kind in (*LISTED, "Implementation", "PromptArgument", "PromptReference")},
    **{(kind, "icons"): R4 for kind in (*LISTED, "Implementation", "ResourceLink")},
    **{(kind, "_meta"): R3 for kind in (*LISTED, *BLOCKS, *CONTENTS, "Root")},
    ("SamplingMessage", "_meta"): R4,
    ("Implementation", "description"): R4,
    ("Implementation", "websiteUrl"): R4,
    ("Tool", "annotations"): R2,
    ("Tool", "outputSchema"): R3,
    ("Tool", "execution"): R4,
    ("Annotations", "lastModified"): R3,
    ("CallToolResult", "structuredContent"): R3,
    ("CompleteRequestParams", "context"): R3,
    ("ProgressNotificationParams", "message"): R2,
    ("ServerCapabilities", "completions"): R2,
    ("ServerCapabilities", "tasks"): R4,
    ("ClientCapabilities", "elicitation"): R3,
    ("ClientCapabilities", "tasks"): R4,
    ("Sampling", "tools"): R4,
    ("Sampling", "context"): R4,
    ("Elicitation", "form"): R4,
    ("Elicitation", "url"): R4,
    ("CreateMessageRequestParams", "tools"): R4,
    ("CreateMessageRequestParams", "toolChoice"): R4,
    ("CreateMessageRequestParams", "task"): R4,
    ("CallToolRequestParams", "task"): R4,
    ("ElicitRequestFormParams", "mode"): R4,
    ("ElicitRequestFormParams", "task"): R4,
}

KIND_SINCE = {
    "AudioContent": R2,
    "ResourceLink": R3,
    "ToolUseContent": R4,
    "ToolResultContent": R4,
    "ElicitRequestURLParams": R4,
}

LISTS_OF_BLOCKS_SINCE = R4
"""The content of a sampling message or result was one block before."""

FORM_KEYWORDS = {
    "string": {"type", "title", "description", "minLength", "maxLength", "format", "enum", "enumNames"},
    "number": {"type", "title", "description", "minimum", "maximum"},
    "integer": {"type", "title", "description", "minimum", "maximum"},
    "boolean": {"type", "title", "description", "default"},
}
"""The rules a form's field may have in every revision that has forms."""

NEWER_FORM_KEYWORDS = {
    "string": {"default", "oneOf"},
    "number": {"default"},
    "integer": {"default"},
    "boolean": set[str](),
    "array": {"type", "title", "description", "items", "minItems", "maxItems", "default"},
}
"""What the revisions since 2025-11-25 add to them."""

RESERVED_META = "io.modelcontextprotocol/"


def lacks(revision: str, kind: str, member: str) -> bool:
    """Return whether a revision has no such member yet."""
    return revision < MEMBER_SINCE.get((kind, member), revision)


def form_keywords(revision: str, kind: str) -> set[str]:
    """Return the rules a field of a form may have."""
    newer = NEWER_FORM_KEYWORDS.get(kind, set()) if revision >= R4 else set()
    return FORM_KEYWORDS.get(kind, set()) | newer
