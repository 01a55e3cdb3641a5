"""What a tool gave, as its result."""

import math
from dataclasses import dataclass
from typing import TypedDict

import pytest

from ferrule import Server, ToolError, ToolResult
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.content import ResourceLink, TextContent
from ferrule.testing import pair


@dataclass
class Point:
    x: int


@dataclass
class Line:
    length: int


class Place(TypedDict):
    x: int


async def given(era, value, returns=None, **options):
    """Return the result of a tool that returns a value, with a return type of one's choice."""
    app = Server("results")

    def give():
        return value

    if returns is not None:
        give.__annotations__["return"] = returns
    app.add_tool("give", give, inline=True, **options)
    async with pair(app, era) as client:
        return await client.call_tool("give", raise_on_error=False)


async def test_a_whole_result_has_all_its_parts(era):
    link = ResourceLink(uri="x://y", name="y")
    result = await given(era, ToolResult(["a", link], {"n": 1}, meta={"example.org/k": [1]}))
    assert result.content == [TextContent("a"), link]
    assert result.structured_content == {"n": 1}
    assert result.meta["example.org/k"] == [1]
    assert not result.is_error


async def test_without_content_the_text_is_the_data(era):
    assert (await given(era, ToolResult(structured={"n": 1}))).text == '{"n":1}'
    assert (await given(era, ToolResult(structured_content=Point(1)))).data == {"x": 1}
    assert (await given(era, ToolResult())).content == []


async def test_a_whole_result_may_tell_of_a_failure(era):
    result = await given(era, ToolResult("out of paper", {"left": 0}, is_error=True))
    assert result.is_error
    assert (result.text, result.structured_content) == ("out of paper", {"left": 0})


async def test_a_whole_result_keeps_the_promise_of_an_output_schema(era):
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    assert (await given(era, ToolResult("one", {"x": 1}), output_schema=schema)).data == {"x": 1}
    for broken in (ToolResult("none"), ToolResult("one", {"x": "1"}), ToolResult("one", [1])):
        result = await given(era, broken, output_schema=schema)
        assert result.is_error
        assert "give" in result.text
    assert "there is no structured content" in (await given(era, ToolResult("none"), output_schema=schema)).text
    assert (await given(era, ToolResult("no", is_error=True), output_schema=schema)).text == "no"


async def test_data_that_is_no_object_is_wrapped_like_that_of_a_plain_return(era):
    assert (await given(era, ToolResult("two", [1, 2]), list[int])).structured_content == {"result": [1, 2]}
    assert (await given(era, ToolResult("two", {"result": [1, 2]}), list[int])).structured_content == {"result": [1, 2]}
    assert (await given(era, ToolResult("two", ["x"]), list[int])).is_error


@pytest.mark.parametrize("version", REVISIONS)
async def test_an_array_as_output_schema_is_an_object_where_it_must_be(wire, version):
    """TOOL-5, spec:TOOL-10"""
    app = Server("arrays")
    schema = {"type": "array", "items": {"type": "integer"}}
    app.add_tool("give", lambda: [1, 2], output_schema=schema, inline=True)
    async with wire(app, version=version) as peer:
        [tool] = (await peer.request("tools/list"))["result"]["tools"]
        result = (await peer.call("give"))["result"]
    assert result["content"][0]["text"] == "[1,2]"
    if version < "2025-06":
        assert not {"outputSchema", "structuredContent"} & (tool.keys() | result.keys())
    else:
        assert tool["outputSchema"]["properties"] == {"result": schema}
        assert result["structuredContent"] == {"result": [1, 2]}


async def test_an_array_as_output_schema_stands_as_it_is_in_the_stateless_era(wire):
    """TOOL-5, spec:TOOL-10"""
    app = Server("arrays")
    app.add_tool("give", lambda: [1, 2], output_schema={"type": "array"}, inline=True)
    async with wire(app, "stateless") as peer:
        assert (await peer.request("tools/list"))["result"]["tools"][0]["outputSchema"] == {"type": "array"}
        assert (await peer.call("give"))["result"]["structuredContent"] == [1, 2]


async def test_a_client_reads_the_same_data_in_both_eras(era):
    app = Server("arrays")
    app.add_tool("give", lambda: [1, 2], output_schema={"type": "array"}, inline=True)
    async with pair(app, era) as client:
        await client.list_tools()
        assert (await client.call_tool("give")).data == [1, 2]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("returns", [str, list[str], None])
async def test_text_that_is_none_fails_its_call_and_says_so(era, returns, inline):
    """A file name that is not UTF-8 is such a text in Python."""
    app = Server("files")

    def give():
        return ["caf\udce9"] if returns == list[str] else "caf\udce9"

    if returns is not None:
        give.__annotations__["return"] = returns
    app.add_tool(give, inline=inline)
    async with pair(app, era) as client:
        with pytest.raises(ToolError, match=r"The tool give failed: .*utf-8' codec can't encode character"):
            await client.call_tool("give")


async def test_a_whole_result_that_cannot_be_written_fails_its_call_only(era):
    app = Server("unwritable")
    app.add_tool("give", lambda: ToolResult("x", {"n": float("nan")}), inline=True)
    async with pair(app, era) as client:
        with pytest.raises(ToolError, match="NaN or infinity"):
            await client.call_tool("give")


async def test_a_list_of_the_declared_class_is_data_as_it_stands(era):
    result = await given(era, [Point(1), Point(2)], list[Point])
    assert result.data == [{"x": 1}, {"x": 2}]
    assert result.text == '[{"x":1},{"x":2}]'
    assert (await given(era, [], list[Point])).data == []
    assert (await given(era, [Point(1), None], list[Point | None])).data == [{"x": 1}, None]
    assert (await given(era, {"a": Point(1)}, dict[str, Point])).data == {"a": {"x": 1}}
    assert (await given(era, [{"x": 1}], list[Point])).data == [{"x": 1}]


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        ([Point(1), Line(1)], list[Point]),
        ([Point(1), None], list[Point]),
        ([Point(1), {"x": "one"}], list[Point]),
        ([Point(1), 2], list[Point | None]),
        ({"a": Point(1), "b": Line(2)}, dict[str, Point]),
        ([1, 2, "3"], list[int]),
        ([1, True], list[int]),
        ([1.0, math.nan], list[float]),
        ([{"x": 1}, {"x": "1"}], list[Place]),
        ([{"x": 1}, {}], list[Place]),
        ([{}, []], list[dict]),
    ],
    ids=repr,
)
async def test_a_list_with_one_item_that_does_not_fit_is_refused(era, value, returns):
    result = await given(era, value, returns)
    assert result.is_error
    assert result.structured_content is None


async def test_content_among_data_is_content_whatever_the_type_says(era):
    result = await given(era, [{"n": 1}, TextContent("two")], list)
    assert result.content == [TextContent('{"n":1}'), TextContent("two")]
