"""What a result of a tool shows of itself."""

from __future__ import annotations

from ferrule.schema.content import TextContent
from ferrule.schema.tools import CallToolResult


def test_a_result_without_structure_is_its_text() -> None:
    assert CallToolResult(content=[TextContent("a"), TextContent("b")]).data == "a\nb"
    assert CallToolResult(content=[]).data is None
