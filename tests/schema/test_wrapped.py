"""Structured content is unwrapped where it was wrapped, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from ferrule import Client, Image, Server, ToolResult
from ferrule.schema.wrapped import RESULT_MARK, SCHEMA_MARK, unwrapped
from ferrule.types import CallToolResult, Tool

PIXEL = b"\x89PNG\r\n\x1a\n..."


class Verdict(Struct):
    """An object that has the one key by itself."""

    result: str


class Nested(Struct):
    """The same, with an object under it."""

    result: Verdict


def server() -> Server:
    app = Server("s")

    @app.tool
    def number() -> int:
        return 3

    @app.tool
    def text() -> str:
        return "three"

    @app.tool
    def json_text() -> str:
        return '{"result": 1}'

    @app.tool
    def nothing() -> str | None:
        return None

    @app.tool
    def numbers() -> list[int]:
        return [1, 2]

    @app.tool
    def own() -> Verdict:
        return Verdict("good")

    @app.tool
    def own_in_own() -> Nested:
        return Nested(Verdict("good"))

    @app.tool
    def either(which: bool) -> Verdict | int:
        return Verdict("good") if which else 3

    @app.tool(output_schema={"type": "array"})
    def by_hand() -> Any:
        return [1]

    @app.tool(output_schema={"type": "integer"})
    def said_otherwise() -> ToolResult:
        return ToolResult("three, roughly", 3)

    @app.tool
    def own_said_otherwise() -> ToolResult:
        return ToolResult("all is well", {"result": "good"})

    return app


CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("number", {}, 3),
    ("text", {}, "three"),
    ("json_text", {}, '{"result": 1}'),
    ("nothing", {}, None),
    ("numbers", {}, [1, 2]),
    ("own", {}, {"result": "good"}),
    ("own_in_own", {}, {"result": {"result": "good"}}),
    ("either", {"which": True}, {"result": "good"}),
    ("either", {"which": False}, 3),
    ("by_hand", {}, [1]),
    ("said_otherwise", {}, 3),
    ("own_said_otherwise", {}, {"result": "good"}),
]


@pytest.mark.parametrize("listed", [False, True], ids=["unlisted", "listed"])
@pytest.mark.parametrize("mode", ["handshake", "stateless"])
def test_data_is_what_the_tool_returned(mode: Any, listed: bool) -> None:
    async def scene() -> list[Any]:
        async with Client(server(), mode=mode) as client:
            if listed:
                await client.list_tools()
            return [(await client.call_tool(name, arguments)).data for name, arguments, _ in CALLS]

    assert asyncio.run(scene()) == [data for _, _, data in CALLS]


def test_data_is_the_same_without_a_client() -> None:
    async def scene() -> list[Any]:
        app = server()
        return [(await app.call_tool(name, arguments)).data for name, arguments, _ in CALLS]

    assert asyncio.run(scene()) == [data for _, _, data in CALLS]


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
def test_others_are_told_in_the_words_of_fastmcp(mode: Any) -> None:
    async def scene() -> dict[str, Tool]:
        async with Client(server(), mode=mode) as client:
            return {tool.name: tool for tool in await client.list_tools()}

    tools = asyncio.run(scene())
    marked = {name for name, tool in tools.items() if (tool.output_schema or {}).get(SCHEMA_MARK) is True}
    wrapped = {"number", "text", "json_text", "nothing", "numbers", "either"}
    # What was given with another root is wrapped only where a revision has no such roots.
    assert marked == (wrapped | {"by_hand", "said_otherwise"} if mode == "handshake" else wrapped)


def test_a_result_whose_content_does_not_say_it_is_marked_itself() -> None:
    app = Server("s")

    @app.tool
    def pictures() -> list[Image]:
        return [Image(PIXEL)]

    @app.tool
    def rough() -> int:
        return ToolResult("roughly three", 3)  # type: ignore[return-value]

    async def scene() -> list[CallToolResult]:
        async with Client(app) as client:
            return [await client.call_tool(name) for name in ("rough", "pictures")]

    rough_one, picture = asyncio.run(scene())
    assert rough_one.meta is not None
    assert rough_one.meta["fastmcp"] == RESULT_MARK["fastmcp"]
    assert (rough_one.text, rough_one.data) == ("roughly three", 3)
    assert picture.content[0].type == "image"


@pytest.mark.parametrize(
    ("inner", "texts"),
    [
        ("a", ["a"]),
        ("a", ['"a"']),
        (3, ["3"]),
        (True, ["True"]),
        (True, ["true"]),
        (None, []),
        (None, ["null"]),
        ([], []),
        ([1, "b", {"c": 2}], ["1", "b", '{"c": 2}']),
        ([1, 2], ["[\n  1,\n  2\n]"]),
        ({"a": 1}, ['{ "a": 1 }']),
    ],
)
def test_what_other_libraries_wrap_is_known_by_its_text(inner: Any, texts: list[str]) -> None:
    """The official SDK marks nothing, and sends a list as one block for each element."""
    assert unwrapped({"result": inner}, texts, None) == inner
    assert unwrapped({"result": msgspec.Raw(msgspec.json.encode(inner))}, texts, None) == inner


@pytest.mark.parametrize("texts", [['{"result": "good"}'], ["all is well"], ["good", "well"], ["[1"]])
def test_what_the_text_does_not_repeat_stays_as_it_is(texts: list[str]) -> None:
    assert unwrapped({"result": "good"}, texts, None) == {"result": "good"}
    assert unwrapped({"result": "good"}, texts, {"fastmcp": {"wrap_result": True}}) == "good"
    assert unwrapped({"result": "good"}, texts, {"fastmcp": "odd"}) == {"result": "good"}
