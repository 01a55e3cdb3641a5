"""Which types msgspec reads by itself, and what stands for the others."""

import collections
import datetime
import enum
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, AnyStr, Generic, Literal, LiteralString, Never, NewType, Optional, TypedDict, TypeVar

import msgspec
import pytest
import typing_extensions

from ferrule.server.functions.schemas import schema_of
from ferrule.server.functions.types.extra_types import convert
from ferrule.server.functions.types.readable import mentions, readable
from ferrule.server.functions.types.stand_in import StandIn

T = TypeVar("T")
Bound = TypeVar("Bound", bound=int)
UserId = NewType("UserId", int)
Tree = typing_extensions.TypeAliasType("Tree", "dict[str, Tree] | int")
Ints = typing_extensions.TypeAliasType("Ints", list[int])
Both = typing_extensions.TypeAliasType("Both", tuple[T, T], type_params=(T,))


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Plain:
    x: int
    next: Optional["Plain"] = None


class PlainStruct(msgspec.Struct):
    x: Plain


class PlainDict(TypedDict):
    x: list[PlainStruct]


@dataclass
class Box(Generic[T]):
    inside: T


@dataclass
class Outside:
    """Needs a mirror only because of a class that is deep inside it, and that it is inside of."""

    middle: "Middle"


@dataclass
class Middle:
    inner: "list[Inner]"


@dataclass
class Inner:
    when: datetime.date | str
    back: Outside | None = None
    plain: Plain = field(default_factory=lambda: Plain(0))


@dataclass
class Kin(Box[list[T]], Generic[T]):
    own: T


def read(type_: Any, value: Any) -> Any:
    return convert(value, readable(type_))


@pytest.mark.parametrize(
    "type_",
    [
        int,
        str,
        list[int],
        dict[str, int | None],
        int | str | None,
        Literal["a", 1],
        Colour,
        Plain,
        PlainStruct,
        PlainDict,
        Box[int],
        list[Box[Plain]],
        UserId,
        pathlib.Path,
        Annotated[int, msgspec.Meta(ge=1)],
        Annotated[int, "a text"],
        Any,
    ],
    ids=str,
)
def test_what_msgspec_reads_is_left_to_it(type_: Any) -> None:
    assert readable(type_) is type_


@pytest.mark.parametrize(
    ("type_", "plain"),
    [
        (object, Any),
        (int | object, Any),
        (LiteralString, str),
        (Ints, list[int]),
        (Both[int], tuple[int, int]),
        (Iterable[int], list[int]),
        (list[Iterable[int]], list[list[int]]),
        (Bound, Bound),
    ],
    ids=str,
)
def test_what_has_another_name_for_msgspec_is_given_that(type_: Any, plain: Any) -> None:
    assert readable(type_) == plain


def test_a_class_is_mirrored_when_anything_inside_it_must_be() -> None:
    sent = {"middle": {"inner": [{"when": "2026-07-28", "back": {"middle": {"inner": []}}}]}}
    assert isinstance(readable(Outside), StandIn)
    assert read(Outside, sent) == Outside(Middle([Inner(datetime.date(2026, 7, 28), Outside(Middle([])))]))
    assert sorted(schema_of(Outside)["$defs"]) == ["Inner", "Middle", "Outside", "Plain"]


def test_the_arguments_of_generics_reach_the_fields_of_their_parents() -> None:
    assert read(Kin[datetime.date | str], {"inside": ["x"], "own": "2026-07-28"}) == Kin(
        ["x"], datetime.date(2026, 7, 28)
    )
    properties = schema_of(Kin[datetime.date | str])["properties"]
    assert properties["inside"]["items"] == properties["own"]


def test_an_alias_may_be_a_part_of_itself() -> None:
    assert read(Tree, {"a": {"b": 1}}) == {"a": {"b": 1}}
    with pytest.raises(msgspec.ValidationError):
        read(Tree, {"a": "x"})
    assert schema_of(list[Tree]) == {
        "type": "array",
        "items": {"$ref": "#/$defs/Tree"},
        "$defs": {
            "Tree": {
                "anyOf": [{"type": "object", "additionalProperties": {"$ref": "#/$defs/Tree"}}, {"type": "integer"}]
            }
        },
    }


def test_a_variable_with_constraints_is_one_of_them() -> None:
    assert read(AnyStr, "AQI=") == b"\1\2"
    assert read(AnyStr, "a text") == "a text"


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (Never, "no value is of the type Never"),
        (set[list[int]], "have no hash"),
        (frozenset[dict[str, int]], "have no hash"),
        (set[Plain], "have no hash"),
        (dict[tuple[int, int], str], "keys of a JSON object are text"),
        (dict[bool, str], "keys of a JSON object are text"),
        (enum.Enum("Nothing", []), "has no members"),
        (Literal[b"x"], "has no JSON form"),
        (list[set[list[int]]], "have no hash"),
    ],
    ids=str,
)
def test_a_type_that_can_never_be_read_is_refused_with_the_reason(type_: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        readable(type_)


def test_a_field_that_cannot_be_read_is_named_with_its_class() -> None:
    @dataclass
    class Wrong:
        good: int
        bad: set[list[int]]

    with pytest.raises(TypeError, match=r"the field 'bad' of .*Wrong: the items of set\[list\[int\]\]"):
        readable(list[Wrong])


def test_a_type_knows_which_classes_it_mentions() -> None:
    assert mentions(dict[str, list[Outside]], lambda class_: class_ is Inner)
    assert not mentions(dict[str, list[Outside]], lambda class_: class_ is collections.deque)


def test_no_library_of_types_is_imported_by_us() -> None:
    program = (
        "import sys, dataclasses, decimal\nfrom typing import Annotated\nfrom ferrule import Server\n"
        "app = Server('light')\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int | None\n    y: decimal.Decimal\n"
        "@app.tool\nasync def f(p: Point, q: Annotated[int, 'text'] = 1) -> list[Point]: ...\n"
        "print([name for name in ('pydantic', 'attr', 'annotated_types') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type X = …` is a syntax of Python 3.12")
def test_a_type_statement_is_an_alias() -> None:
    module: dict[str, Any] = {"__name__": __name__}
    exec("type Nest = int | list[Nest]\ntype Two[T] = tuple[T, T]", module)
    assert read(module["Nest"], [1, [2]]) == [1, [2]]
    assert read(module["Two"][int], [1, 2]) == (1, 2)
