"""What becomes of a result that is larger than it may be: refused, cut, or kept for the caller to read."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.schema.content import AudioContent, ContentBlock, ImageContent, ResourceLink, TextContent
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.kept_results import LARGEST_KEPT
from ferrule.server.calls.results import Oversized, json_of
from ferrule.server.calls.streams import Budget, block_size, size_of
from ferrule.server.functions.binder import Binding
from ferrule.server.settings import ServerSettings
from ferrule.wire.codec import MAX_MESSAGE_SIZE

POLICIES = ("refuse", "truncate", "spill")

FIXED_SIZE = (int, float, bool, None, type(None))
"""Return types whose values are never large."""

Keep = Callable[[bytes, str], str]
"""Keeps bytes of a MIME type for the caller; returns their URI."""


class Sizes(Protocol):
    """What a tool's options say of its results."""

    @property
    def result_limit(self) -> int | None:
        """How many bytes a result may have."""

    @property
    def result_policy(self) -> str | None:
        """What becomes of a larger one."""

    @property
    def output_schema(self) -> Mapping[str, object] | None:
        """What a result was promised to look like, by hand."""


class SizePolicy(Struct, frozen=True):
    """How large a tool's results may be, and what is done with larger ones."""

    limit: int
    kind: str

    @property
    def keeps_promise(self) -> bool:
        """Whether every result still fits the tool's output schema."""
        return self.kind == "refuse"

    def apply(self, result: CallToolResult, keep: Keep) -> CallToolResult:
        """Return the result if it fits, else what stands for it."""
        size = size_of(result)
        if size <= self.limit:
            return result
        if self.kind == "truncate":
            return _cut(result, size, self.limit)
        if self.kind == "spill" and size <= LARGEST_KEPT:
            return _spilled(result, size, self.limit, keep)
        raise Oversized(size, self.limit)

    @property
    def budget(self) -> Budget:
        """How much a generator may yield before it is stopped."""
        if self.kind == "spill":
            return Budget(LARGEST_KEPT)
        return Budget(self.limit, ends=self.kind == "truncate")


def policy_of(settings: ServerSettings, options: Sizes, binding: Binding, name: str) -> SizePolicy | None:
    """Choose what holds for a tool: its own words first, then the server's; None where no limit is set."""
    if options.result_limit is None:
        limit = settings.result_limit
    else:
        limit = options.result_limit
    kind = options.result_policy or settings.result_policy
    if kind not in POLICIES:
        raise SetupError(f"the tool {name}: result_policy must be one of {', '.join(POLICIES)}, not {kind!r}")
    if limit is None:
        if options.result_policy:
            raise SetupError(f"the tool {name}: result_policy needs a result_limit, in bytes")
        return None
    if not isinstance(limit, int) or limit < 1:
        raise SetupError(f"the tool {name}: result_limit must be a number of at least 1, not {limit!r}")
    if kind == "spill" and settings.capabilities is not None and settings.capabilities.resources is None:
        raise SetupError(f'the tool {name}: result_policy="spill" needs the capability resources to read its links')
    if binding.returns in FIXED_SIZE:
        return None
    if options.output_schema is not None and kind != "refuse":
        if options.result_policy:
            raise SetupError(f"the tool {name}: what is cut or kept elsewhere does not fit an output_schema; take one")
        kind = "refuse"
    return SizePolicy(limit, kind)


WHOLE_MESSAGE = Budget(MAX_MESSAGE_SIZE)
"""How much a generator may yield where nothing is said."""


def _cut(result: CallToolResult, size: int, limit: int) -> CallToolResult:
    """Keep the beginning: whole blocks as long as they fit, and of the first text that does not, what fits."""
    kept: list[ContentBlock] = []
    room = limit
    for block in result.content:
        if block_size(block) <= room:
            kept.append(block)
            room -= block_size(block)
            continue
        if isinstance(block, TextContent) and room:
            beginning = block.text.encode(errors="surrogatepass")[:room].decode(errors="ignore")
            kept.append(structs.replace(block, text=beginning))
        break
    notice = (
        f"[Truncated: the result has {size:,} bytes, and the first {limit:,} are shown. Ask for less to see the rest.]"
    )
    return _standing_for(result, [*kept, TextContent(notice)], {"ferrule/truncated": {"size": size, "limit": limit}})


def _spilled(result: CallToolResult, size: int, limit: int, keep: Keep) -> CallToolResult:
    """Keep the whole for the caller, and answer with a link."""
    body, mime_type = _whole(result)
    uri = keep(body, mime_type)
    notice = (
        f"The result has {size:,} bytes, more than the {limit:,} that are sent at once. Read it for a while at {uri}"
    )
    link = ResourceLink(uri=uri, name="result", title="The whole result", mime_type=mime_type, size=len(body))
    return _standing_for(result, [TextContent(notice), link], {"ferrule/spilled": {"uri": uri, "size": len(body)}})


def _standing_for(result: CallToolResult, content: list[ContentBlock], told: dict[str, Any]) -> CallToolResult:
    return structs.replace(result, content=content, structured_content=None, meta={**(result.meta or {}), **told})


def _whole(result: CallToolResult) -> tuple[bytes, str]:
    """Write a result as one document: its data, its only block, or the list of its blocks."""
    if result.structured_content is not None and not _only_wraps_text(result):
        return json_of(result.structured_content), "application/json"
    if len(result.content) == 1:
        [block] = result.content
        if isinstance(block, TextContent):
            return block.text.encode(errors="replace"), "text/plain"
        if isinstance(block, ImageContent | AudioContent):
            return base64.b64decode(block.data), block.mime_type
    return json_of(result.content), "application/json"


def _only_wraps_text(result: CallToolResult) -> bool:
    value = result.structured_content
    return isinstance(value, dict) and value.keys() == {"result"} and isinstance(value["result"], str)
