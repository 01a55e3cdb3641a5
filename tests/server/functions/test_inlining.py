"""Schemas without references."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Optional

import jsonschema_rs
import pytest

from ferrule import Server
from ferrule.errors import SetupError
from ferrule.server.functions.schemas import inlined, schema_of
from ferrule.testing import pair


@dataclass
class Point:
    x: int


@dataclass
class Line:
    start: Point
    end: Point | None = None


@dataclass
class Node:
    at: Point
    kids: list["Node"] = field(default_factory=list)


@dataclass
class Hen:
    egg: Optional["Egg"] = None


@dataclass
class Egg:
    hen: Hen | None = None


def references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if "$ref" in part else []
        return own + [found for item in part.values() for found in references(item)]
    return [found for item in part for found in references(item)] if isinstance(part, list) else []


def test_every_definition_stands_where_it_is_used() -> None:
    schema = inlined(schema_of(dict[str, Line]))
    assert "$defs" not in schema
    assert references(schema) == []
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    line = schema["additionalProperties"]["properties"]
    assert line["start"] == point
    assert line["end"]["anyOf"] == [point, {"type": "null"}]


@pytest.mark.parametrize(
    ("type_", "kept"), [(list[Node], ["Node"]), (list[Hen], ["Hen"]), (list[Egg], ["Egg"])], ids=str
)
def test_only_what_is_a_part_of_itself_keeps_its_reference_and_its_name(type_: Any, kept: list[str]) -> None:
    whole = schema_of(type_)
    schema = inlined(whole)
    assert sorted(schema["$defs"]) == kept
    assert set(references(schema)) == {f"#/$defs/{name}" for name in kept}
    assert "$ref" not in schema["items"]
    for value in (
        [],
        [{"at": {"x": 1}, "kids": [{"at": {"x": 2}}]}],
        [{"egg": {"hen": {"egg": {}}}}],
        [{"egg": 5}],
        [5],
    ):
        given, made = (jsonschema_rs.Draft202012Validator(one).is_valid(value) for one in (whole, schema))
        assert given is made


def test_what_is_said_beside_a_reference_is_kept() -> None:
    schema = {"properties": {"p": {"$ref": "#/$defs/P", "description": "mine"}}, "$defs": {"P": {"type": "object"}}}
    assert inlined(schema) == {"properties": {"p": {"type": "object", "description": "mine"}}}
    assert schema["$defs"] == {"P": {"type": "object"}}


def test_a_schema_that_would_explode_is_refused_with_the_fix() -> None:
    steps = {
        f"S{n}": {"properties": {"a": {"$ref": f"#/$defs/S{n + 1}"}, "b": {"$ref": f"#/$defs/S{n + 1}"}}}
        for n in range(30)
    }
    with pytest.raises(SetupError, match="the tool has too many parts without references: leave inline_refs off"):
        inlined({"$ref": "#/$defs/S0", "$defs": {**steps, "S30": {}}}, "the tool")


def test_a_server_or_a_single_tool_is_told_to_publish_without_references() -> None:
    given = {"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "integer"}}}

    async def published(app: Server) -> dict[str, bool]:
        @app.tool
        async def by_server(line: Line) -> Line: ...

        @app.tool(inline_refs=True)
        async def always(line: Line) -> list[Line]: ...

        @app.tool(inline_refs=False)
        async def never(line: Line) -> list[Line]: ...

        @app.tool(schema=given)
        async def own(p: int) -> None: ...

        async with pair(app) as client:
            tools = await client.list_tools()
        refers = {tool.name: bool(references([tool.input_schema, tool.output_schema or {}])) for tool in tools}
        return {name: not found for name, found in refers.items()}

    plain = asyncio.run(published(Server("plain")))
    assert plain == {"by_server": False, "always": True, "never": False, "own": False}
    weak = asyncio.run(published(Server("weak", inline_refs=True)))
    assert weak == {"by_server": True, "always": True, "never": False, "own": False}
