"""Types of pydantic: what they read, write and say of themselves is their own."""

import asyncio
import dataclasses
import datetime
from typing import Annotated, Any, Literal, Optional

import msgspec
import pydantic
import pytest

from ferrule import Server, ToolError
from ferrule.server.functions.binder import InvalidArguments, bind
from ferrule.server.functions.schemas import schema_of
from ferrule.testing import pair


class Inner(pydantic.BaseModel):
    day: datetime.date
    size: int = pydantic.Field(default=1, ge=1, alias="theSize")


class Outer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    inner: Inner
    names: list[str] = []
    next: Optional["Outer"] = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str


class Shown(pydantic.BaseModel):
    """Says more of itself than it reads."""

    width: int = pydantic.Field(validation_alias="w", serialization_alias="W")

    @pydantic.computed_field
    def area(self) -> int:
        return self.width**2


@pydantic.dataclasses.dataclass
class Point:
    x: int = pydantic.Field(ge=1, alias="eX")


@dataclasses.dataclass
class Plain:
    points: list[Point]


def refused(type_: Any, sent: Any) -> list[tuple[str, str]]:
    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = type_
    with pytest.raises(InvalidArguments) as caught:
        bind(handler).invoke(msgspec.json.encode({"value": sent}))
    assert "pydantic.dev" not in str(caught.value)
    return [(found.path, found.rule) for found in caught.value.violations]


@pytest.mark.parametrize(
    ("type_", "sent", "problems"),
    [
        (
            Outer,
            {"inner": {"day": "soon", "theSize": 0}, "names": ["a", 5], "more": 1},
            [
                ("/value/inner/day", "format"),
                ("/value/inner/theSize", "minimum"),
                ("/value/names/1", "type"),
                ("/value/more", "additionalProperties"),
            ],
        ),
        (Outer, {"inner": {}}, [("/value/inner", "required")]),
        (Outer, {"inner": {"day": None}}, [("/value/inner/day", "type")]),
        (Outer, {"inner": {"day": "2026-07-28"}, "next": {"inner": 5}}, [("/value/next/inner", "type")]),
        (Outer, "no model", [("/value", "type")]),
        (
            Cat | Dog,
            {"kind": "dog", "name": 5},
            [("/value/kind", "enum"), ("/value", "required"), ("/value/name", "type")],
        ),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], {"kind": "dog"}, [("/value", "required")]),
        (
            list[Inner],
            [{"day": "2026-07-28"}, {"theSize": 0}],
            [("/value/1", "required"), ("/value/1/theSize", "minimum")],
        ),
        (dict[str, Cat], {"a": {"kind": "cat", "lives": "many"}}, [("/value/a/lives", "type")]),
        (Point, {"eX": 0}, [("/value/eX", "minimum")]),
    ],
    ids=str,
)
def test_all_that_pydantic_refuses_is_listed_with_its_place(type_: Any, sent: Any, problems: list[Any]) -> None:
    assert sorted(refused(type_, sent)) == sorted(problems)


@pytest.mark.parametrize("type_", [Inner, Inner | None, Inner | int, Point], ids=str)
def test_a_model_that_was_sent_as_text_is_parsed(type_: Any) -> None:
    def handler(value: Any) -> Any:
        return value

    handler.__annotations__["value"] = type_
    text = '{"day":"2026-07-28","eX":3}'
    assert type(bind(handler).invoke(msgspec.json.encode({"value": text}))) in (Inner, Point)


def test_a_text_is_left_alone_where_a_model_is_only_one_of_the_choices() -> None:
    def handler(value: Inner | str) -> Any:
        return value

    assert bind(handler).invoke(b'{"value":"{\\"day\\":\\"2026-07-28\\"}"}') == '{"day":"2026-07-28"}'


def test_what_a_model_writes_is_described_as_it_is_written() -> None:
    """And not as it is read: aliases and computed fields differ."""
    app = Server("models")

    @app.tool
    async def one(shown: Shown) -> Shown:
        return shown

    @app.tool
    async def many(shown: Shown) -> list[Shown]:
        return [shown]

    async def use() -> None:
        async with pair(app) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert list(tools["one"].input_schema["properties"]["shown"]["properties"]) == ["w"]
            assert list(tools["one"].output_schema["properties"]) == ["W", "area"]
            assert (await client.call_tool("one", {"shown": {"w": 3}})).data == {"W": 3, "area": 9}
            assert (await client.call_tool("many", {"shown": {"w": 3}})).data == [{"W": 3, "area": 9}]

    asyncio.run(use())


def test_a_dataclass_of_pydantic_keeps_its_names_inside_other_classes() -> None:
    app = Server("dataclasses")

    @app.tool
    async def echo(plain: Plain) -> Plain:
        return plain

    async def use() -> None:
        async with pair(app) as client:
            sent = {"points": [{"eX": 1}]}
            assert (await client.call_tool("echo", {"plain": sent})).data == sent

    asyncio.run(use())


def test_a_model_beside_a_class_of_the_same_name_has_a_definition_of_its_own() -> None:
    @dataclasses.dataclass
    class Cat:
        fur: str

    schema = schema_of(dict[str, Cat | list[Annotated[Dog | globals()["Cat"], pydantic.Field(discriminator="kind")]]])
    assert sorted(schema["$defs"]) == ["Cat", "Cat_2", "Dog"]
    assert schema["$defs"]["Cat_2"]["properties"].keys() == {"kind", "lives"}


def test_a_model_that_is_not_fully_defined_is_refused_when_it_is_registered() -> None:
    app = Server("undefined")
    model: Any = pydantic.create_model("Later", x=("NotYet", ...))

    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = model
    with pytest.raises(Exception, match=r"handler\(\): parameter 'value' .*pydantic cannot read it.*not fully defined"):
        app.tool(handler)


class Guarded(pydantic.BaseModel):
    a: int = 1

    @pydantic.field_serializer("a")
    def write_a(self, a: int) -> int:
        raise ValueError("password=hunter2")


class Computed(pydantic.BaseModel):
    @pydantic.computed_field
    @property
    def b(self) -> int:
        raise TypeError("password=hunter2")


@pytest.mark.parametrize("kind", [Guarded, Computed])
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"x": value}], ids=["bare", "inside"])
async def test_what_a_users_serializer_raises_is_for_the_log_alone(era, kind, wrap, caplog):
    """As what a handler raises: it may hold anything."""
    app = Server("s")
    app.add_tool("plain", lambda: wrap(kind()))
    app.add_tool("task", lambda: wrap(kind()), task="optional")

    @app.tool
    def promised() -> kind | dict[str, kind]:
        return wrap(kind())

    async with pair(app, era) as client:
        for name in ("plain", "task", "promised"):
            caplog.clear()
            with pytest.raises(ToolError, match=f"a serializer of the type {kind.__name__} failed") as caught:
                await client.call_tool(name)
            assert "hunter2" not in str(caught.value)
            assert "hunter2" in caplog.text
