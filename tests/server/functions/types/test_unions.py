"""Choices between types and between values."""

import datetime
import enum
import uuid
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NewType

import msgspec
import pytest

from ferrule.server.functions.schemas import schema_of
from ferrule.server.functions.types.extra_types import convert
from ferrule.server.functions.types.readable import readable


class Colour(enum.Enum):
    RED = "red"


class Size(enum.Enum):
    BIG = "big"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"
    HALF = 0.5
    PAIR = (1, 2)
    NONE = None


@dataclass
class Short:
    x: int


@dataclass
class Long:
    x: int
    y: int = 0


@dataclass
class Other:
    z: int


@pytest.mark.parametrize(
    ("type_", "sent", "got"),
    [
        (datetime.date | str, "2026-07-28", datetime.date(2026, 7, 28)),
        (str | datetime.date, "2026-07-28", "2026-07-28"),
        (datetime.date | datetime.datetime, "2026-07-28T00:00:00", datetime.datetime(2026, 7, 28)),
        (Colour | Size, "big", Size.BIG),
        (Colour | str, "blue", "blue"),
        (uuid.UUID | PurePosixPath | int | None, 5, 5),
        (uuid.UUID | PurePosixPath | int | None, "a/b", PurePosixPath("a/b")),
        (uuid.UUID | PurePosixPath | int | None, None, None),
        (int | float | PurePosixPath, 1, 1),
        (list[int] | list[str], ["a"], ["a"]),
        (list[int] | set[str], ["a"], {"a"}),
        (Short | Long, {"x": 1}, Short(1)),
        (Short | Long, {"x": 1, "y": 2}, Long(1, 2)),
        (Short | Other | int, {"z": 1}, Other(1)),
        (dict[str, int] | Short, {"x": 1}, Short(1)),
        (dict[str, int] | Short, {"q": 1}, {"q": 1}),
    ],
    ids=str,
)
def test_the_first_that_fits_is_taken_and_the_class_with_the_most_members(type_: Any, sent: Any, got: Any) -> None:
    value = convert(sent, readable(type_))
    assert value == got
    assert type(value) is type(got)


def test_what_fits_no_member_is_told_with_every_reason() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"fits none of the alternatives: .*`x`.*; .*`z`") as caught:
        convert({"q": 1}, readable(Short | Other))
    assert " - at " not in str(caught.value)


Word = Annotated[str, msgspec.Meta(max_length=2)]
Positive = Annotated[int, msgspec.Meta(ge=1, title="positive")]
Pair = NewType("Pair", tuple[int, str])


@dataclass
class Holder:
    a: Positive | tuple[int, str]


@pytest.mark.parametrize(
    ("type_", "sent", "got"),
    [
        (Positive | tuple[int, str], [0, "b"], (0, "b")),
        (Positive | tuple[int, str], 3, 3),
        (Pair | Positive | None, [0, "b"], (0, "b")),
        (list[Annotated[tuple[()], msgspec.Meta(title="none")] | Word], ["a", []], ["a", ()]),
        (Holder, {"a": [0, "b"]}, Holder((0, "b"))),
    ],
    ids=range(5),
)
def test_a_bounded_value_or_a_tuple_of_fixed_length_is_read(type_: Any, sent: Any, got: Any) -> None:
    """msgspec 0.22 takes the bound for the length: it ends the process, already where it is asked about the type."""
    assert convert(sent, readable(type_)) == got
    with pytest.raises(msgspec.ValidationError):
        convert(0 if type_ is not Holder else {"a": 0}, readable(type_))


def test_a_union_is_described_by_its_members() -> None:
    assert schema_of(datetime.date | str | None) == {
        "anyOf": [{"type": "string", "format": "date"}, {"type": "string"}, {"type": "null"}]
    }


@pytest.mark.parametrize("member", Mixed)
def test_an_enum_may_have_any_values(member: Mixed) -> None:
    written = list(member.value) if isinstance(member.value, tuple) else member.value
    assert convert(written, readable(Mixed)) is member


def test_a_choice_is_not_taken_for_another_of_an_equal_value() -> None:
    assert convert(True, readable(Literal[True, Colour.RED])) is True
    for wrong in (1, "blue", [1]):
        with pytest.raises(msgspec.ValidationError, match="Invalid choice"):
            convert(wrong, readable(Literal[True, Colour.RED]))
    assert schema_of(Literal[Colour.RED, "x"])["enum"] == ["red", "x"]
    assert schema_of(Mixed)["enum"] == [1, "two", 0.5, [1, 2], None]


def test_a_flag_is_any_sum_of_its_members() -> None:
    class Access(enum.Flag):
        READ = 1
        WRITE = 2

    assert schema_of(Access) == {"type": "integer", "minimum": 0, "maximum": 3}
    assert convert(3, readable(Access)) == Access.READ | Access.WRITE
