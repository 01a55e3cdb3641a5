"""Bounds, lengths, patterns and texts, in the words of msgspec, annotated_types and pydantic."""

import collections
import datetime
import decimal
import re
from typing import Annotated, Any

import annotated_types
import msgspec
import pydantic
import pytest
from typing_extensions import Doc

from ferrule.server.functions.schemas import schema_of
from ferrule.server.functions.types.constraints import description_of
from ferrule.server.functions.types.extra_types import convert
from ferrule.server.functions.types.readable import readable

Field, Meta = pydantic.Field, msgspec.Meta


def is_even(number: int) -> bool:
    return number % 2 == 0


@pytest.mark.parametrize(
    ("type_", "good", "bad", "rules"),
    [
        (Annotated[int, annotated_types.Ge(1)], 1, 0, {"minimum": 1}),
        (Annotated[int, annotated_types.Gt(1)], 2, 1, {"exclusiveMinimum": 1}),
        (Annotated[float, annotated_types.Le(1)], 1.0, 1.5, {"maximum": 1}),
        (Annotated[int, annotated_types.Lt(1)], 0, 1, {"exclusiveMaximum": 1}),
        (Annotated[int, annotated_types.Interval(ge=1, lt=3)], 2, 3, {"minimum": 1, "exclusiveMaximum": 3}),
        (Annotated[int, annotated_types.MultipleOf(3)], 6, 7, {"multipleOf": 3}),
        (Annotated[str, annotated_types.MinLen(2)], "ab", "a", {"minLength": 2}),
        (Annotated[list[int], annotated_types.Len(1, 2)], [1], [], {"minItems": 1, "maxItems": 2}),
        (Annotated[dict[str, int], annotated_types.MaxLen(1)], {"a": 1}, {"a": 1, "b": 2}, {"maxProperties": 1}),
        (Annotated[int, annotated_types.Predicate(is_even)], 2, 3, {}),
        (Annotated[int, Field(ge=1, le=3)], 3, 4, {"minimum": 1, "maximum": 3}),
        (Annotated[str, Field(pattern="^a", max_length=2)], "ab", "b", {"maxLength": 2, "pattern": "^a"}),
        (Annotated[str, Field(pattern=re.compile("^a"))], "a", "b", {"pattern": "^a"}),
        (Annotated[str, pydantic.StringConstraints(min_length=2)], "ab", "a", {"minLength": 2}),
        (pydantic.PositiveInt, 1, 0, {"exclusiveMinimum": 0}),
        (pydantic.conlist(int, min_length=1), [1], [], {"minItems": 1}),
        (Annotated[collections.deque[int], annotated_types.Len(1)], collections.deque([1]), [], {"minItems": 1}),
        (Annotated[int, Meta(ge=1), annotated_types.Le(2)], 2, 3, {"minimum": 1, "maximum": 2}),
    ],
    ids=str,
)
def test_a_rule_is_kept_and_published(type_: Any, good: Any, bad: Any, rules: dict[str, Any]) -> None:
    made = readable(type_)
    assert convert(list(good) if isinstance(good, collections.deque) else good, made) == good
    with pytest.raises(msgspec.ValidationError):
        convert(bad, made)
    assert rules.items() <= schema_of(type_).items()


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        (Annotated[decimal.Decimal, annotated_types.Gt(0)], "0.5", "-0.5"),
        (Annotated[datetime.date, annotated_types.Ge(datetime.date(2020, 1, 1))], "2020-01-01", "2019-12-31"),
        (Annotated[datetime.timedelta, annotated_types.Lt(datetime.timedelta(1))], "PT5S", "P2D"),
        (Annotated[decimal.Decimal, Field(max_digits=3)], "1.25", "1.255"),
    ],
    ids=str,
)
def test_rules_that_msgspec_does_not_have_are_kept_too(type_: Any, good: str, bad: str) -> None:
    convert(good, readable(type_))
    with pytest.raises(msgspec.ValidationError):
        convert(bad, readable(type_))


def test_the_number_of_a_decimal_is_bounded_in_the_schema() -> None:
    number, text = schema_of(Annotated[decimal.Decimal, annotated_types.Gt(decimal.Decimal("0.5"))])["anyOf"]
    assert number == {"type": "number", "exclusiveMinimum": 0.5}
    assert text == {"type": "string", "format": "decimal"}


def test_the_rules_of_a_union_hold_for_those_members_that_can_keep_them() -> None:
    type_ = Annotated[int | str | None, Field(ge=3)]
    assert [convert(value, readable(type_)) for value in (3, "a", None)] == [3, "a", None]
    with pytest.raises(msgspec.ValidationError):
        convert(2, readable(type_))
    assert schema_of(type_)["anyOf"] == [{"type": "integer", "minimum": 3}, {"type": "string"}, {"type": "null"}]


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (Annotated[str, annotated_types.Ge(1)], "Can only set `ge` on a number, a date or a time, not on str"),
        (Annotated[str | None, Field(multiple_of=2)], "Can only set `multiple_of` on a number, not on str"),
        (Annotated[int, annotated_types.MinLen(1)], "Can only set `min_length` on what has a length, not on int"),
        (Annotated[int, Field(pattern="a")], "Can only set `pattern` on a text, not on int"),
        (Annotated[str, Field(pattern="(")], "the pattern '\\(' is not a valid regular expression"),
    ],
    ids=str,
)
def test_a_rule_that_cannot_be_kept_is_refused(type_: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        readable(type_)


def test_what_only_pydantic_understands_is_left_to_it() -> None:
    stripped = Annotated[str, pydantic.StringConstraints(strip_whitespace=True)]
    assert convert(" a ", readable(stripped)) == "a"
    assert convert(3, readable(Annotated[int, pydantic.AfterValidator(lambda number: number + 1)])) == 4
    assert convert([" a "], readable(list[stripped])) == ["a"]


def test_texts_are_found_in_every_form() -> None:
    assert description_of(["plain"]) == "plain"
    assert description_of([Doc("documented")]) == "documented"
    assert description_of([Meta(description="meta")]) == "meta"
    assert description_of([Field(description="field")]) == "field"
    assert description_of([5, Meta(ge=1)]) is None


def test_titles_and_examples_are_published() -> None:
    type_ = Annotated[int, Field(title="T", description="D", examples=[1], json_schema_extra={"x-own": 1})]
    assert schema_of(type_) == {"type": "integer", "title": "T", "description": "D", "examples": [1], "x-own": 1}
