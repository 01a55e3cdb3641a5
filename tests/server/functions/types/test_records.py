"""Classes with fields, and how one is read whose fields msgspec cannot read."""

import datetime
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, NotRequired, Required, TypedDict

import annotated_types
import attrs
import msgspec
import pytest
import typing_extensions
from msgspec import NODEFAULT

from ferrule.server.functions.schemas import schema_of
from ferrule.server.functions.types.extra_types import convert
from ferrule.server.functions.types.readable import readable
from ferrule.server.functions.types.records import record_fields
from ferrule.validation.violations import refusals

Positive = Annotated[int, annotated_types.Gt(0)]


@dataclass
class Data:
    limit: ClassVar[int] = 5
    a: Positive
    b: datetime.date | str = "x"
    c: list[int] = field(default_factory=list)
    d: int = field(init=False, default=7)


class Struct(msgspec.Struct, tag="struct", rename="camel", forbid_unknown_fields=True):
    the_a: Positive
    the_b: int = 2


class Array(msgspec.Struct, array_like=True, tag=True):
    a: Positive


class Named(NamedTuple):
    a: Positive
    b: int = 2


class Typed(TypedDict, total=False):
    a: Required[Positive]
    b: int


class ReadOnly(typing_extensions.TypedDict):
    a: typing_extensions.ReadOnly[int]
    b: NotRequired[typing_extensions.ReadOnly[str]]


@attrs.define
class Attrs:
    _a: Positive
    b: int = attrs.field(default=2, alias="bee")
    c: list[int] = attrs.field(factory=list)


def test_the_fields_of_every_kind_of_class_are_known() -> None:
    def keys(type_: Any) -> dict[str, bool]:
        return {found.key: found.required for found in record_fields(type_) or ()}

    assert keys(Data) == {"a": True, "b": False, "c": False}
    assert keys(Struct) == {"theA": True, "theB": False}
    assert keys(Named) == {"a": True, "b": False}
    assert keys(Typed) == {"a": True, "b": False}
    assert keys(ReadOnly) == {"a": True, "b": False}
    assert keys(Attrs) == {"a": True, "bee": False, "c": False}
    assert record_fields(int) is None
    assert record_fields(list[int]) is None
    _, _, made = record_fields(Attrs) or ()
    assert (made.default, made.factory) == (NODEFAULT, list)


@pytest.mark.parametrize(
    ("type_", "sent", "got"),
    [
        (Data, {"a": 1}, Data(1)),
        (Data, {"a": 1, "b": "2026-07-28", "c": [1], "unknown": 1}, Data(1, datetime.date(2026, 7, 28), [1])),
        (Struct, {"type": "struct", "theA": 1}, Struct(1)),
        (Array, ["Array", 1], Array(1)),
        (Named, [1], Named(1)),
        (Named, [1, 3], Named(1, 3)),
        (Typed, {"a": 1}, {"a": 1}),
        (ReadOnly, {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (Attrs, {"a": 1, "bee": 3}, Attrs(1, 3)),
    ],
    ids=str,
)
def test_a_class_is_read_field_by_field(type_: Any, sent: Any, got: Any) -> None:
    assert convert(sent, readable(type_)) == got


@pytest.mark.parametrize(
    ("type_", "sent", "problems"),
    [
        (Data, {"a": 0, "c": ["x"]}, [("/a", "minimum"), ("/c/0", "type")]),
        (Data, {}, [("", "required")]),
        (Data, 5, [("", "type")]),
        (Struct, {"type": "struct", "theA": 0, "q": 1}, [("/theA", "minimum"), ("/q", "additionalProperties")]),
        (Struct, {"type": "other", "theA": 1}, [("", "value")]),
        (Array, ["Array", 0], [("/1", "minimum")]),
        (Array, {"a": 1}, [("", "type")]),
        (Named, [0, "x"], [("/0", "minimum"), ("/1", "type")]),
        (Named, [1, 2, 3], [("", "type")]),
        (Named, [], [("", "required")]),
        (Typed, {"b": "x"}, [("", "required"), ("/b", "type")]),
        (Attrs, {"_a": 1}, [("", "required")]),
    ],
    ids=str,
)
def test_everything_that_is_wrong_is_told_with_its_place(type_: Any, sent: Any, problems: list[Any]) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        convert(sent, readable(type_))
    found = refusals(caught.value, sent, [])
    assert sorted((one.path, one.rule) for one in found) == sorted(problems)


def test_a_mirrored_class_is_described_as_any_other() -> None:
    assert schema_of(Data) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "exclusiveMinimum": 0},
            "b": {"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}], "default": "x"},
            "c": {"type": "array", "items": {"type": "integer"}, "default": []},
        },
        "required": ["a"],
    }
    assert schema_of(Struct)["required"] == ["type", "theA"]
    assert schema_of(Struct)["additionalProperties"] is False
    assert schema_of(Array)["prefixItems"] == [
        {"type": "string", "enum": ["Array"]},
        {"type": "integer", "exclusiveMinimum": 0},
    ]
    assert schema_of(Named)["minItems"] == 1
    assert schema_of(Typed)["required"] == ["a"]
    assert list(schema_of(Attrs)["properties"]) == ["a", "bee", "c"]


def test_an_init_var_is_refused_with_its_name() -> None:
    @dataclass
    class Scaled:
        x: int
        scale: InitVar[int] = 2

    with pytest.raises(TypeError, match="the dataclass Scaled has the InitVar 'scale', which no value keeps"):
        readable(Scaled)


def test_the_texts_beside_the_types_of_fields_are_published() -> None:
    @dataclass
    class Told:
        a: Annotated[int, "the a"]
        b: Annotated[str, msgspec.Meta(description="the b")] = "x"

    properties = schema_of(Told)["properties"]
    assert (properties["a"]["description"], properties["b"]["description"]) == ("the a", "the b")
