"""JSON Schema from Python types."""

import datetime
import decimal
import enum
import pathlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import jsonschema_rs
import msgspec
import pytest

from ferrule.errors import SetupError
from ferrule.server.functions.schemas import schema_of, wrapped_schema
from ferrule.server.functions.types.extra_types import decode_hook, encode_hook

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    """A place."""

    x: int
    y: int = 0
    where: pathlib.Path = pathlib.Path("here")
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    value: int
    children: list["Tree"] = field(default_factory=list)


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Cat(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    name: str = msgspec.field(name="catName")


class Dog(msgspec.Struct, tag=True, array_like=True):
    name: str


class Box(msgspec.Struct, Generic[T]):
    inside: T


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (pathlib.PurePosixPath, {"type": "string", "format": "path"}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Literal[1, "a", None], {"enum": [1, "a", None]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (
            tuple[int, str],
            {
                "type": "array",
                "minItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "maxItems": 2,
                "items": False,
            },
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            dict[Literal["a", "b"], int],
            {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "propertyNames": {"type": "string", "enum": ["a", "b"]},
            },
        ),
        (
            Annotated[int, msgspec.Meta(ge=1, lt=9, multiple_of=2, title="T", description="D", examples=[2])],
            {
                "type": "integer",
                "minimum": 1,
                "exclusiveMaximum": 9,
                "multipleOf": 2,
                "title": "T",
                "description": "D",
                "examples": [2],
            },
        ),
        (
            Annotated[str, msgspec.Meta(min_length=1, max_length=3, pattern="^a")],
            {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"},
        ),
        (
            Annotated[list[int], msgspec.Meta(min_length=1, max_length=3)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        ),
    ],
    ids=str,
)
def test_a_type_is_described(type_: Any, schema: dict[str, Any]) -> None:
    assert schema_of(type_) == schema


def test_a_dataclass_stands_at_the_root_without_a_made_up_title() -> None:
    assert schema_of(Point) == {
        "type": "object",
        "description": "A place.",
        "properties": {
            "x": {"type": "integer"},
            "y": {"type": "integer", "default": 0},
            "where": {"type": "string", "format": "path", "default": "here"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["x"],
    }


def test_typed_dicts_named_tuples_and_structs_are_described() -> None:
    assert schema_of(Options)["required"] == ["deep"]
    assert schema_of(Pair) == {
        "type": "array",
        "minItems": 1,
        "prefixItems": [{"type": "integer"}, {"type": "string", "default": "x"}],
        "maxItems": 2,
        "items": False,
    }
    assert schema_of(Cat) == {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["Cat"]}, "catName": {"type": "string"}},
        "required": ["type", "catName"],
        "additionalProperties": False,
    }
    assert schema_of(Dog)["prefixItems"] == [{"type": "string", "enum": ["Dog"]}, {"type": "string"}]


def test_a_recursive_type_has_its_object_at_the_root_and_its_definition_beside_it() -> None:
    schema = schema_of(Tree)
    assert schema["type"] == "object"
    assert "$ref" not in schema
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["required"] == ["value"]
    checks = jsonschema_rs.Draft202012Validator(schema)
    assert checks.is_valid({"value": 1, "children": [{"value": 2}]})
    assert not checks.is_valid({"value": 1, "children": [{"value": "2"}]})


def test_a_definition_that_only_the_root_used_is_not_kept() -> None:
    assert "$defs" not in schema_of(Point)
    assert list(schema_of(list[Point])["$defs"]) == ["Point"]


def test_generics_and_classes_of_the_same_name_get_different_definitions() -> None:
    other: Any = msgspec.defstruct("Point", [("z", int)], module="elsewhere")
    schema = schema_of(tuple[Box[int], Box[str], Point, other])
    assert list(schema["$defs"]) == ["Box_int", "Box_str", "Point", "elsewhere_Point"]
    assert schema["$defs"]["Box_str"]["properties"] == {"inside": {"type": "string"}}


def test_a_description_beside_a_reference_is_kept_at_the_root() -> None:
    assert schema_of(Annotated[Point, msgspec.Meta(description="mine")])["description"] == "mine"


def test_every_call_gives_a_fresh_and_equal_schema() -> None:
    first = schema_of(Tree)
    again = msgspec.json.encode(schema_of(Tree))
    first["$defs"].clear()
    first["properties"].clear()
    assert msgspec.json.encode(schema_of(Tree)) == again


@pytest.mark.parametrize(
    "type_", [complex, object(), dict[str, complex], type], ids=["complex", "no type", "inside", "type"]
)
def test_a_type_without_a_json_form_is_refused(type_: Any) -> None:
    with pytest.raises(SetupError, match="has no JSON Schema"):
        schema_of(type_)


@pytest.mark.parametrize(
    ("type_", "wraps"),
    [
        (int, True),
        (str, True),
        (list[Point], True),
        (Pair, True),
        (Dog, True),
        (Point | None, True),
        (Colour, True),
        (Point, False),
        (Tree, False),
        (Options, False),
        (dict[str, int], False),
    ],
    ids=str,
)
def test_a_result_is_always_an_object(type_: Any, wraps: bool) -> None:
    schema, is_wrapped = wrapped_schema(type_)
    assert is_wrapped is wraps
    assert schema["type"] == "object"
    jsonschema_rs.meta.validate(schema)
    if wraps:
        assert schema["required"] == ["result"]


def test_pydantic_models_are_described_read_and_written() -> None:
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Inner", day=(datetime.date, ...))
    outer: Any = pydantic.create_model("Outer", inner=(inner, ...), n=(int, pydantic.Field(ge=1)))
    schema = schema_of(list[outer])
    assert schema["items"]["properties"]["n"]["minimum"] == 1
    assert schema["items"]["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    value = decode_hook(outer, {"inner": {"day": "2026-07-28"}, "n": 1})
    assert value.inner.day == datetime.date(2026, 7, 28)
    assert encode_hook(value) == {"inner": {"day": "2026-07-28"}, "n": 1}
    with pytest.raises(ValueError, match=r"^/inner/day: .*; /n: Input should be greater") as caught:
        decode_hook(outer, {"inner": {"day": "x"}, "n": 0})
    assert "http" not in str(caught.value)


def test_attrs_classes_are_described() -> None:
    attrs = pytest.importorskip("attrs")
    thing = attrs.make_class("Thing", {"x": attrs.field(type=int)})
    assert schema_of(thing)["properties"] == {"x": {"type": "integer"}}


def test_choices_are_listed_as_they_are_written():
    """Who is shown a form reads it from top to bottom; msgspec sorts them."""

    @dataclass
    class Order:
        size: Literal["small", "medium", "large"] = "small"
        extras: list[Literal["sugar", "milk"]] = field(default_factory=list)
        cups: Literal[3, 1, None] = None

    told = schema_of(Order)["properties"]
    assert told["size"]["enum"] == ["small", "medium", "large"]
    assert told["extras"]["items"]["enum"] == ["sugar", "milk"]
    assert told["cups"]["enum"] == [3, 1, None]
    assert schema_of(Literal["z", "a"] | None)["anyOf"][0]["enum"] == ["z", "a"]


def test_what_is_known_of_a_type_is_told_anew_each_time() -> None:
    """Equal unions may have their members in another order, and a description belongs to one parameter."""
    assert schema_of(int | list[str])["anyOf"][0] == {"type": "integer"}
    assert schema_of(list[str] | int)["anyOf"][0]["type"] == "array"
    schema_of(list[str] | int)["description"] = "changed by its owner"
    assert schema_of(list[str] | int).keys() == {"anyOf"}
