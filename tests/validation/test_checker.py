"""Validation: schemas from outside are checked and bounded, and a failure says everything that is wrong."""

import copy
import re
import time
from typing import Any

import msgspec
import pytest

from ferrule.budgets.bounds import MAX_VIOLATIONS
from ferrule.errors import FerruleError, SetupError
from ferrule.validation.checker import (
    LONGEST_KEPT,
    Checker,
    count_values,
    depth_of,
    foreign_checker,
    given_schema,
    own_schema,
)
from ferrule.validation.violations import (
    MAX_LISTED,
    InvalidArguments,
    InvalidOutput,
    Unfit,
    Violation,
    excerpt,
    pointer,
    refusals,
    refused_by_type,
)

DRAFTS = {
    "https://json-schema.org/draft/2020-12/schema": {"prefixItems": [{"type": "integer"}]},
    "https://json-schema.org/draft/2019-09/schema": {"items": [{"type": "integer"}]},
    "http://json-schema.org/draft-07/schema#": {"items": [{"type": "integer"}]},
    "http://json-schema.org/draft-06/schema#": {"items": [{"type": "integer"}]},
    "http://json-schema.org/draft-04/schema#": {"items": [{"type": "integer"}]},
}


def checker(schema: dict[str, Any]) -> Checker:
    return given_schema({"type": "object", **schema}, "f(): schema")[1]


def found(schema: dict[str, Any], value: Any) -> list[Violation]:
    return checker(schema).violations(value, len(msgspec.json.encode(value)))


def test_a_schema_is_kept_as_it_was_given_and_apart_from_it() -> None:
    """SCH-2: the schema is used as written, unknown keywords and all."""
    schema = {"x-mine": {"$ref": 1}, "type": "object", "properties": {"b": {"format": "odd"}, "a": {}}, "title": "T"}
    before = copy.deepcopy(schema)
    kept, _ = given_schema(schema, "here")
    assert msgspec.json.encode(kept) == msgspec.json.encode(before)
    schema["properties"].clear()  # type: ignore[attr-defined]
    assert kept == before


@pytest.mark.parametrize("dialect", DRAFTS)
def test_each_dialect_is_checked_by_its_own_rules(dialect: str) -> None:
    """SCH-1, SCH-2, SPEC-25, seed:TOOL-12: the dialect named by `$schema` does the validating."""
    checks = checker({"$schema": dialect, "properties": {"pair": DRAFTS[dialect]}})
    assert checks.accepts({"pair": [1, "x"]})
    assert not checks.accepts({"pair": ["x"]})


def test_without_a_dialect_the_schema_is_2020_12() -> None:
    """SCH-1, SPEC-25: 2020-12 is the default, so its keywords count and older forms are invalid."""
    assert not checker({"properties": {"a": {"prefixItems": [{"type": "integer"}]}}}).accepts({"a": ["x"]})
    with pytest.raises(SetupError, match="not a valid schema of its dialect"):
        checker({"properties": {"a": {"items": [{"type": "integer"}]}}})


def test_draft_4_has_its_own_exclusive_minimum() -> None:
    """seed:TOOL-12: the boolean form is valid in draft 4 and in no later draft."""
    rules = {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}
    draft_4 = checker({"$schema": "http://json-schema.org/draft-04/schema#", **rules})
    assert not draft_4.accepts({"a": 1})
    with pytest.raises(SetupError, match="not a valid schema"):
        checker(rules)


@pytest.mark.parametrize("dialect", ["http://json-schema.org/draft-03/schema#", "https://example.com/mine", "", 7])
def test_a_dialect_we_lack_is_a_clear_error(dialect: Any) -> None:
    """SCH-1, SPEC-25: unsupported dialects are refused by name."""
    with pytest.raises(SetupError, match=rf"f\(\): schema: the dialect '{re.escape(str(dialect).rstrip('#'))}'"):
        checker({"$schema": dialect})


@pytest.mark.parametrize(
    "rules",
    [
        {"properties": {"a": {"type": "text"}}},
        {"properties": {"a": {"minimum": "1"}}},
        {"required": "a"},
        {"properties": {"a": {"pattern": "(a"}}},
        {"default": object()},
    ],
    ids=["type", "minimum", "required", "pattern", "no JSON"],
)
def test_a_schema_that_breaks_its_dialect_is_refused(rules: dict[str, Any]) -> None:
    """SCH-2: schemas must be valid under their dialect."""
    with pytest.raises(SetupError, match=r"f\(\): schema: not a valid schema"):
        checker(rules)


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"type": ["object"]}, {"$ref": "#/$defs/a"}], ids=str)
def test_the_root_must_be_an_object(schema: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match='"type": "object"'):
        given_schema(schema, "here")


def test_a_schema_that_is_no_object_is_refused() -> None:
    with pytest.raises(SetupError, match="not bool"):
        given_schema(True, "here")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bomb",
    [
        {"properties": {"a": {"$ref": "http://127.0.0.1:9/s"}}},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"a": {"minLength": 2**63}}},
        {"properties": {"a": {"pattern": "((a{100}){100}){100}"}}},
        {"properties": {"a": {"pattern": "(?=a)b"}}},
    ],
    ids=str,
)
def test_frm_14_schema_bombs_are_refused_at_once(bomb: dict[str, Any]) -> None:
    """SCH-3, SCH-4: nothing is fetched, and nothing hangs."""
    started = time.perf_counter()
    with pytest.raises(SetupError):
        checker(bomb)
    assert time.perf_counter() - started < 10


def test_frm_14_a_schema_nested_ten_thousand_levels_is_refused() -> None:
    """SCH-4: depth is bounded."""
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"allOf": [deep]}
    with pytest.raises(SetupError, match="deeper than 128"):
        checker({"properties": {"a": deep}})


def test_frm_14_a_schema_that_would_check_one_value_billions_of_times_is_refused() -> None:
    """SCH-4: thirty definitions, each used twice by the one before."""
    definitions: dict[str, Any] = {"d30": {"type": "string"}}
    for step in range(30):
        rungs = [{"properties": {"c": {"$ref": f"#/$defs/d{step + 1}"}}} for _ in range(2)]
        definitions[f"d{step}"] = {"allOf": rungs}
    with pytest.raises(SetupError, match="more than 10000 times"):
        checker({"properties": {"c": {"$ref": "#/$defs/d0"}}, "$defs": definitions})


def test_frm_14_a_pattern_that_invites_backtracking_is_matched_in_no_time() -> None:
    """SCH-4: patterns run on a linear engine."""
    checks = checker({"properties": {"a": {"pattern": "(a+)+$"}}})
    started = time.process_time()
    assert not checks.accepts({"a": "a" * 50_000 + "!"})
    assert time.process_time() - started < 0.05


def test_frm_14_a_failure_deep_in_a_recursive_schema_is_told_in_bounded_time() -> None:
    """SCH-4: listing errors doubles with each level, so beyond a budget one summary is given."""
    branches = [{"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "maxProperties": n} for n in (8, 9)]
    checks = checker({"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"anyOf": branches}}})
    value: Any = 5
    for _ in range(40):
        value = {"c": value}
    started = time.process_time()
    (violation,) = checks.violations({"n": value}, 300)
    assert time.process_time() - started < 0.05
    assert (violation.path, violation.rule) == ("", "schema")
    shallow = checks.violations({"n": 5}, 7)
    assert [(violation.path, violation.rule) for violation in shallow] == [("/n", "anyOf")]


def test_a_very_long_wrong_value_costs_no_long_list() -> None:
    """SCH-4: the list of violations is bounded by the size of the value."""
    value = {"a": ["x"] * 200_000}
    started = time.perf_counter()
    assert [violation.rule for violation in found({"properties": {"a": {"items": {"type": "integer"}}}}, value)] == [
        "schema"
    ]
    assert time.perf_counter() - started < 10


def test_where_many_errors_are_possible_the_first_is_named_without_making_the_others() -> None:
    """The validator makes all errors before it hands out the first: 1,300 items in 4 KB took 6 ms."""
    item = {"type": "object", "required": ["a", "b"]}
    value = {"n": [{}] * 1300}
    checks = checker({"properties": {"n": {"items": item}}})
    checks.violations(value, 3900)
    before = time.process_time()
    violations = [checks.violations(value, 3900) for _ in range(20)][-1]
    assert time.process_time() - before < 0.05
    assert [(violation.path, violation.rule) for violation in violations] == [("/n/0", "required")]
    few = checks.violations({"n": [{}] * 10}, 40)
    assert len(few) == 20


def test_where_many_errors_are_possible_in_alternatives_none_is_named() -> None:
    """The one error of an `anyOf` holds the errors of every alternative."""
    schema = {"properties": {"n": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}}}
    assert [each.rule for each in found(schema, {"n": ["x"] * 500})] == ["schema"]
    assert {each.rule for each in found(schema, {"n": ["x"] * 10})} == {"type"}


@pytest.mark.parametrize(
    ("value", "counted"),
    [
        (1, (1, 0)),
        ([], (1, 0)),
        ({"a": {"b": 1}}, (3, 2)),
        ([[1, 2], {}], (5, 1)),
        ([1] * 9, (10, 0)),
        ([1] * 99, (11, 0)),
    ],
)
def test_values_are_counted_up_to_enough(value: Any, counted: tuple[int, int]) -> None:
    assert count_values(value, 10) == counted


def test_a_value_too_deep_to_list_its_errors_gets_a_verdict_and_a_summary() -> None:
    node = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}, {"type": "integer"}]}
    schema = {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    good, bad = [1], ["x"]
    for _ in range(900):
        good, bad = [good], [bad]  # type: ignore[list-item]
    assert checker(schema).accepts({"a": good})
    assert [violation.rule for violation in checker(schema).violations({"a": bad}, 9)] == ["schema"]


def test_every_violation_is_listed_with_path_value_rule_and_message() -> None:
    """ERRC-22, seed:TOOL-11, seed:TOOL-10: types, required fields, ranges and patterns."""
    schema = {
        "properties": {
            "query": {"type": "string", "pattern": "^[a-z]+$"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 9},
            "sort/by~x": {"enum": ["a"]},
            "ids": {"items": {"type": "integer"}},
        },
        "required": ["missing"],
        "additionalProperties": False,
    }
    value = {"query": "A1", "limit": -5, "sort/by~x": "b", "ids": [1, "2"], "extra": [0]}
    listed = {(violation.path, violation.rule): violation for violation in found(schema, value)}
    assert listed.keys() == {
        ("", "required"),
        ("/query", "pattern"),
        ("/limit", "minimum"),
        ("/sort~1by~0x", "enum"),
        ("/ids/1", "type"),
        ("/extra", "additionalProperties"),
    }
    assert listed["/limit", "minimum"].value == -5
    assert listed["/limit", "minimum"].message == "-5 is less than the minimum of 1"
    assert listed["/extra", "additionalProperties"].value == [0]
    assert '"missing"' in listed["", "required"].message
    assert listed["/sort~1by~0x", "enum"].parameter == "sort/by~x"


def test_a_failed_choice_says_why_each_alternative_failed() -> None:
    (violation,) = found({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}, {"a": "s"})
    assert violation.rule == "anyOf"
    assert 'not of type "integer"; "s" is not of type "null"' in violation.message


def test_long_values_are_shown_by_their_beginning() -> None:
    (violation,) = found({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 5000})
    assert violation.value == '"' + "x" * 199 + "…"
    assert len(violation.message) < 500
    assert excerpt({"a": 1}) == {"a": 1}


def test_the_text_of_an_error_has_a_line_for_each_violation() -> None:
    """ERRC-22: an error reads well."""
    violations = [Violation("/limit", -5, "minimum", "-5 is less than 1"), Violation("", {}, "required", "no q")]
    error = InvalidArguments(violations)
    assert isinstance(error, FerruleError)
    assert str(error) == "/limit: -5 is less than 1 [minimum]\n(root): no q [required]"
    assert str(InvalidOutput("add", violations)).startswith("add returned a value that does not fit")


def test_a_flood_of_violations_is_cut_and_counted() -> None:
    error = InvalidOutput("f", [Violation("/a", 1, "type", "bad")] * (MAX_LISTED + 5))
    assert (len(error.violations), error.omitted) == (MAX_LISTED, 5)
    assert str(error).endswith("and 5 more")
    refused = InvalidArguments([Violation("/a", 1, "type", "bad")] * (MAX_VIOLATIONS + 5))
    assert (len(refused.violations), refused.omitted) == (MAX_VIOLATIONS, 5)
    assert str(refused).endswith("and 5 more")


def test_an_own_schema_reads_formats_as_the_types_do() -> None:
    own = own_schema({"type": "object", "properties": {"at": {"format": "date-time"}, "id": {"format": "uuid"}}})
    assert own is not None
    assert own.accepts({"at": "2026-07-28T00:00:00", "id": "0" * 32})
    listed = own.listed({"at": "yesterday", "id": "x"}, 30)
    assert listed is not None
    assert [(violation.path, violation.rule) for violation in listed] == [("/at", "format"), ("/id", "format")]


def test_an_own_schema_with_patterns_only_python_knows_has_no_checker() -> None:
    assert own_schema({"type": "string", "pattern": "(?=a)b"}) is not None
    assert own_schema({"type": "string", "pattern": "(?P<x>a)(?P=x)(?(1)b|c)\\Z"}) is None


@pytest.mark.parametrize(
    ("message", "path", "value", "rule"),
    [
        ("Expected `int`, got `str` - at `$.items[1].n`", "/f/items/1/n", "x", "type"),
        ("Expected `int`, got `str` - at `$.map[...]`", "/f/map", {"k": "v"}, "type"),
        ("Expected `int`, got `str` - at `key` in `$.map`", "/f/map", {"k": "v"}, "type"),
        ("Object missing required field `n` - at `$.items[0]`", "/f/items/0", {"n": 1}, "required"),
        ("must be even - at `$.items[0].n`", "/f/items/0/n", 1, "value"),
        ("must be even", "/f", {"items": [{"n": 1}, {"n": "x"}], "map": {"k": "v"}}, "value"),
    ],
)
def test_a_refusal_by_type_is_placed_as_deep_as_its_message_tells(
    message: str, path: str, value: Any, rule: str
) -> None:
    arguments = {"items": [{"n": 1}, {"n": "x"}], "map": {"k": "v"}}
    violation = refused_by_type(msgspec.ValidationError(message), arguments, ["f"])
    assert (violation.path, violation.value, violation.rule) == (path, value, rule)
    assert violation.message == message.partition(" - at")[0]


def test_places_and_depths() -> None:
    assert pointer([]) == ""
    assert pointer(["a/b", 0, "~"]) == "/a~1b/0/~0"
    values: list[Any] = [1, {}, [[]], {"a": [1, {"b": 2}]}]
    assert [depth_of(value) for value in values] == [0, 1, 2, 3]


def test_what_a_type_lists_for_itself_is_placed_below_where_it_stands() -> None:
    class Part:
        """A class that msgspec leaves to the hook."""

    def hook(type_: type, value: Any) -> Any:
        raise Unfit([Violation("/x", 1, "minimum", "too small"), Violation("", 2, "required", "lacks")])

    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"parts": [{"x": 1}]}, dict[str, list[Part]], dec_hook=hook)
    assert [found.path for found in refusals(caught.value, {"parts": [{"x": 1}]}, ["p"])] == ["/p"]
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert([{"x": 1}], list[Part], dec_hook=hook)
    assert [found.path for found in refusals(caught.value, [{"x": 1}], ["p"])] == ["/p/0/x", "/p/0"]


@pytest.mark.parametrize(
    "schema",
    [{"propertyNames": {"pattern": "^a$"}}, {"required": [f"r{n}" for n in range(2000)]}],
    ids=["names", "required members"],
)
def test_violations_that_would_each_hold_the_whole_object_are_not_listed(schema: dict[str, Any]) -> None:
    """Each violation has a copy of its object: 1,700 of them in 23 kB took 1.5 s to make."""
    value = {f"k{n}": n for n in range(1700)}
    before = time.process_time()
    violations = found(schema, value)
    assert time.process_time() - before < 0.5
    assert [violation.message for violation in violations] == [
        "does not fit the schema; too large or deep to say where"
    ]


def test_names_of_a_small_object_are_judged_one_by_one() -> None:
    violations = found({"propertyNames": {"pattern": "^a$"}}, {"b": 1, "c": 2, "a": 3})
    assert len(violations) == 2


def test_a_small_schema_of_a_peer_is_compiled_once() -> None:
    form = {"type": "object", "properties": {"nights": {"type": "integer"}}}
    assert foreign_checker(form, "the form") is foreign_checker(copy.deepcopy(form), "the form")
    other = foreign_checker({"type": "object", "properties": {"nights": {"type": "string"}}}, "the form")
    assert other.accepts({"nights": "two"})
    assert not foreign_checker(form, "the form").accepts({"nights": "two"})


@pytest.mark.parametrize(
    "rules", [{"type": "string", "pattern": "^a+$"}, {"type": "string", "description": "x" * LONGEST_KEPT}]
)
def test_one_that_is_large_or_has_a_pattern_is_not_kept(rules: dict[str, Any]) -> None:
    form = {"type": "object", "properties": {"name": rules}}
    assert foreign_checker(form, "the form") is not foreign_checker(form, "the form")
