"""What a pattern costs, estimated from its text."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from ferrule.validation.checker import TOO_COSTLY, foreign_checker
from ferrule.validation.patterns import CLASS_WEIGHT, FAST, FLAGS_FACTOR, MAX_PATTERN_WEIGHT, PER_STEP, pattern_cost
from ferrule.validation.violations import TooCostly

UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


@pytest.mark.parametrize(
    ("pattern", "weight"),
    [
        ("", 1),
        ("^$", 1),
        ("abc", 3),
        ("[abc]", 1),
        (r"[\]a]x", 2),
        (r"\{a\}", 3),
        ("a{20}", 20),
        ("a{2,20}", 20),
        ("a{20,}", 20),
        ("a{0}", 1),
        ("a{2}{3}", 6),
        ("(ab){3}", 6),
        ("(?:ab|c){3}", 9),
        ("(?P<x>ab){3}c", 7),
        ("((a{9}){9}){9}", 729),
        ("(a{2}b{3}){4}", 20),
        (r"\p{L}", CLASS_WEIGHT),
        (r"\p{L}{200}", 200 * CLASS_WEIGHT),
        (r"[\p{L}\P{N}]", 2 * CLASS_WEIGHT - 1),
        ("(?i)ab", 2 * FLAGS_FACTOR),
        ("(?i:ab)c", 3 * FLAGS_FACTOR),
        (UUID, 36),
    ],
)
def test_counted_repetitions_are_written_out(pattern: str, weight: int) -> None:
    assert pattern_cost(pattern).weight == weight


@pytest.mark.parametrize(
    ("pattern", "per_byte"),
    [
        ("^[a-z]+$", FAST),
        (UUID, FAST),
        ("[ab]*a[ab]{100}c", PER_STEP * 103),
        ("^[ab]*a[ab]{100}c", PER_STEP * 103),
        ("^[ab]{1,1000}c", PER_STEP * 1001),
        ("a{30}", PER_STEP * 30),
    ],
)
def test_a_pattern_that_can_be_at_many_places_at_once_is_slow(pattern: str, per_byte: int) -> None:
    assert pattern_cost(pattern).per_byte == per_byte


def test_weighing_is_linear() -> None:
    """A pattern of the greatest length, of any shape, is weighed within a turn of the loop."""
    for shape in ("(", "[", "\\", "{1,", "a{9}", "(?", "(?<", "[\\", "\\p{", "(a", "|", "?", "[[:", "a{1}{1}"):
        begun = time.process_time()
        for _ in range(20):
            pattern_cost(shape * (4096 // len(shape)))
        assert (time.process_time() - begun) / 20 < 0.05


def schema(inner: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"v": inner}}


def cost_of(inner: Any, value: Any) -> tuple[float, float, str]:
    """Return the seconds it takes to compile and to check, and what is said."""
    begun = time.process_time()
    try:
        check = foreign_checker(schema(inner), "here")
    except TooCostly as reason:
        return time.process_time() - begun, 0.0, str(reason)
    compiled = time.process_time()
    whole = {"v": value}
    found = check.violations(whole, len(msgspec.json.encode(whole)))
    return compiled - begun, time.process_time() - compiled, found[0].message if found else ""


TEXT = "ab" * 50_000
ATTACKS: dict[str, tuple[Any, Any]] = {
    "17 kB of large classes": ({"allOf": [{"pattern": rf"\p{{L}}{{200}}{n}"} for n in range(600)]}, TEXT),
    "one more than all steps": ({"pattern": f"a{{{MAX_PATTERN_WEIGHT + 1}}}"}, TEXT),
    "a short pattern, a long text": ({"pattern": "[ab]*a[ab]{500}c"}, TEXT),
    "nested repetition": ({"pattern": "(.{1,9}){1,30}c"}, "é" * 50_000),
    "numbers that collide": ({"uniqueItems": True}, [10**20 + n for n in range(20_000)]),
    "pairs of dependents": (
        {"items": {"dependentRequired": {f"k{n}": ["a"] for n in range(2900)}}},
        [{}] * 50_000,
    ),
    "many alternatives": ({"items": {"anyOf": [{"type": "string"} for _ in range(2900)]}}, [1] * 50_000),
    "choices that are objects": ({"items": {"enum": [{"a": n} for n in range(2900)]}}, [{"a": -1}] * 50_000),
    "tiny fractions": ({"items": {"multipleOf": 1e-300}}, [1e300] * 50_000),
    "patterns for names": (
        {"patternProperties": {f"k{n}x": {} for n in range(400)}},
        {f"k{n}": 1 for n in range(50_000)},
    ),
}


@pytest.mark.parametrize(("inner", "value"), ATTACKS.values(), ids=ATTACKS.keys())
def test_a_hostile_schema_is_refused_before_work_is_spent_on_it(inner: Any, value: Any) -> None:
    """A peer's schema and value cost no more than a turn of the loop may, whatever they are."""
    compiling, checking, said = cost_of(inner, value)
    assert "steps" in said or said == TOO_COSTLY
    # Twice what is promised, and room for a machine that is shared.
    assert compiling < 1.0
    assert checking < 0.5


def test_what_unevaluated_keywords_run_again_is_counted() -> None:
    nested: Any = {"type": "object"}
    for _ in range(12):
        nested = {"unevaluatedProperties": {"type": "integer"}, "allOf": [nested]}
    with pytest.raises(TooCostly, match="checked more than"):
        foreign_checker(schema(nested), "here")


def test_a_dynamic_reference_may_lead_to_any_of_its_anchors() -> None:
    costly = {"$dynamicAnchor": "n", "anyOf": [{"type": "string"} for _ in range(2000)]}
    defs = {"cheap": {"$dynamicAnchor": "n", "type": "string"}, "costly": {"$id": "other", **costly}}
    inner = {"$defs": defs, "items": {"$dynamicRef": "#n"}}
    _, checking, said = cost_of({"$id": "root", **inner}, [1] * 10_000)
    assert said == TOO_COSTLY
    assert checking < 0.5


@pytest.mark.parametrize(
    ("inner", "value"),
    [
        ({"type": "array", "items": {"type": "integer"}}, list(range(300_000))),
        ({"type": "array", "items": {"type": "string", "pattern": UUID}}, ["0" * 36] * 0 + [UUID] * 0),
        ({"type": "string", "pattern": "^[A-Za-z0-9+/=]*$"}, "A" * 4_000_000),
        ({"type": "array", "uniqueItems": True}, [n + 0.1234567890123 for n in range(20_000)]),
        ({"type": "array", "uniqueItems": True}, list(range(100_000))),
    ],
    ids=["whole numbers", "nothing", "base64", "unique fractions", "unique numbers"],
)
def test_what_is_large_and_harmless_is_checked(inner: Any, value: Any) -> None:
    assert cost_of(inner, value)[2] == ""


def test_a_schema_of_a_peer_is_bounded_in_bytes_and_parts() -> None:
    with pytest.raises(TooCostly, match="longer than 262144 bytes"):
        foreign_checker({"type": "object", "description": "x" * 262_144}, "here")
    with pytest.raises(TooCostly, match="more than 3000 subschemas"):
        foreign_checker(schema({"anyOf": [{} for _ in range(3000)]}), "here")


def test_a_text_that_is_to_be_a_pattern_is_not_compiled() -> None:
    """Draft 7 has values that are patterns: a peer's own patterns have no bound."""
    inner = {"items": {"format": "regex"}}
    check = foreign_checker({"$schema": "http://json-schema.org/draft-07/schema#", **schema(inner)}, "here")
    value = {"v": ["(" * 100_000] * 20}
    begun = time.process_time()
    assert check.violations(value, 2_000_000) == []
    assert time.process_time() - begun < 0.5
