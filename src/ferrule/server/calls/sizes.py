"""How many bytes a result has, as its limit counts them."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from ferrule.schema.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent, TextContent
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.results import json_of


def size_of(result: CallToolResult) -> int:
    """Tell how many bytes a result has: of its content or of its structured content, whichever is more."""
    return max(sum(block_size(block) for block in result.content), _data_size(result.structured_content))


def _data_size(value: Any) -> int:
    """Tell how long data is as JSON, without what only wraps it."""
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]
    if isinstance(value, str):
        return _bytes_in(value)
    return 0 if value is None else len(bytes(value) if isinstance(value, Raw) else json_of(value))


def block_size(block: ContentBlock) -> int:
    """Tell how many bytes a block adds to a result."""
    if isinstance(block, TextContent):
        return _bytes_in(block.text)
    if isinstance(block, ImageContent | AudioContent):
        return len(block.data)
    if isinstance(block, EmbeddedResource):
        return _bytes_in(block.resource.text or "") + len(block.resource.blob or "")
    return 0


def _bytes_in(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
