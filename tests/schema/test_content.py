"""Content blocks, written as other MCP programs write them."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from typing import Any

import msgspec
import pytest

from ferrule import Client, Server
from ferrule.schema.content import SamplingBlock, ToolResultContent, ToolUseContent
from ferrule.schema.model import quickly
from ferrule.types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    Icon,
    ImageContent,
    ReadResourceResult,
    ResourceContents,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
)

CONTENTS = ResourceContents(uri="note://1", text="hello")
BLOCKS: list[tuple[type, str, dict[str, Any]]] = [
    (TextContent, "text", {"text": "hello"}),
    (ImageContent, "image", {"data": "AA==", "mimeType": "image/png"}),
    (AudioContent, "audio", {"data": "AA==", "mimeType": "audio/wav"}),
    (EmbeddedResource, "resource", {"resource": CONTENTS}),
    (ResourceLink, "resource_link", {"uri": "note://1", "name": "one", "mimeType": "text/plain"}),
    (ToolUseContent, "tool_use", {"id": "1", "name": "add", "input": {}}),
    (ToolResultContent, "tool_result", {"toolUseId": "1", "content": []}),
]


@pytest.mark.parametrize(("cls", "kind", "members"), BLOCKS)
def test_every_block_has_its_type_and_takes_it(cls: type, kind: str, members: dict[str, Any]) -> None:
    block = cls(type=kind, **members)
    assert block == cls(**members)
    assert block.type == kind
    written = msgspec.json.encode(block)
    assert msgspec.json.decode(written)["type"] == kind
    read = msgspec.json.decode(written, type=ContentBlock | SamplingBlock)
    assert (type(read), read.type) == (cls, kind)


@pytest.mark.parametrize(("cls", "kind", "members"), BLOCKS)
def test_a_block_of_another_type_is_refused_by_name(cls: type, kind: str, members: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=rf"^{cls.__name__}: type is '{kind}', not 'video'$"):
        cls(type="video", **members)


def test_members_have_the_names_of_the_specification_beside_ours() -> None:
    image = ImageContent(data="AA==", mimeType="image/png")  # type: ignore[call-arg]
    assert image == ImageContent(data="AA==", mime_type="image/png")
    assert image.mime_type == image.mimeType == "image/png"  # type: ignore[attr-defined]
    assert ToolAnnotations(readOnlyHint=True).read_only_hint is True  # type: ignore[call-arg]
    assert Icon(src="a.png", mimeType="image/png").mimeType == "image/png"  # type: ignore[call-arg, attr-defined]
    tool = Tool(name="add", inputSchema={"type": "object"}, _meta={"a": 1})  # type: ignore[call-arg]
    assert (tool.inputSchema, tool.meta) == ({"type": "object"}, {"a": 1})  # type: ignore[attr-defined]
    result = CallToolResult(content=[], isError=True, structuredContent={"a": 1})  # type: ignore[call-arg]
    assert (result.is_error, result.structured_content) == (True, {"a": 1})


def test_what_is_given_twice_is_refused() -> None:
    with pytest.raises(TypeError, match="ImageContent: mime_type and mimeType are the same argument"):
        ImageContent(data="AA==", mime_type="image/png", mimeType="image/png")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "missing required argument 'text'"),
        ({"type": "text"}, "missing required argument 'text'"),
        ({"text": "a", "txt": "b"}, "unexpected keyword argument 'txt'"),
        ({"type": "text", "text": "a", "txt": "b"}, "unexpected keyword argument 'txt'"),
    ],
)
def test_an_error_names_the_class_and_what_it_takes(members: dict[str, Any], reason: str) -> None:
    with pytest.raises(TypeError, match=rf"^TextContent: {reason}; it takes text, annotations, meta$"):
        TextContent(**members)


def test_blocks_are_still_positional_and_copied_whole() -> None:
    block = TextContent("hello")
    assert block == quickly(TextContent, "hello") == pickle.loads(pickle.dumps(block)) == copy.deepcopy(block)


def test_a_client_program_chooses_by_type() -> None:
    """As every client program does that was written for another library."""
    app = Server("s")

    @app.tool
    def mixed() -> list[Any]:
        text = TextContent(type="text", text="hello")
        return [text, ImageContent(type="image", data="AA==", mimeType="image/png")]  # type: ignore[call-arg]

    async def scene() -> CallToolResult:
        async with Client(app) as client:
            return await client.call_tool("mixed")

    result = asyncio.run(scene())
    assert [block.type for block in result.content] == ["text", "image"]
    assert [block.text for block in result.content if block.type == "text"] == ["hello"]
    assert result.is_error is False


def test_a_result_is_dumped_under_the_names_of_the_specification() -> None:
    image = ImageContent(data="AA==", mime_type="image/png")
    result = CallToolResult(content=[image], structured_content={"a": msgspec.Raw(b"[1]")}, is_error=True)
    assert result.to_dict() == {
        "content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}],
        "structuredContent": {"a": [1]},
        "isError": True,
    }
    assert json.loads(result.to_json()) == result.to_dict()
    assert ToolAnnotations(read_only_hint=True).to_dict() == {"readOnlyHint": True}


def test_what_holds_no_text_has_none() -> None:
    blob = ReadResourceResult(contents=[ResourceContents(uri="a://b", blob="AA==")])
    assert (blob.text, blob.blob) == (None, b"\0")
    assert ReadResourceResult(contents=[ResourceContents(uri="a://b", text="")]).text == ""
    assert ReadResourceResult(contents=[CONTENTS, CONTENTS]).text == "hello\nhello"
