"""Probes of JSON Schemas from outside: of what one may ask for, and of what checking a value may cost."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jsonschema_rs
import msgspec
from table import no_bound, probe

from ferrule.errors import SetupError
from ferrule.validation import checker, graph, patterns
from ferrule.validation.checker import Checker, foreign_checker, given_schema
from ferrule.validation.violations import InvalidOutput, TooCostly, excerpt

MUCH = 10**9


def compiled(schema: dict[str, Any]) -> Checker:
    return given_schema({"type": "object", **schema}, "here", max_subschemas=MUCH)[1]


def compiles(schema: dict[str, Any]) -> bool:
    try:
        compiled(schema)
    except TooCostly:
        return False
    return True


def described(check: Checker, value: object) -> bool:
    """Return whether it is said where a value is wrong, and not only that it is."""
    return check.violations(value, len(msgspec.json.encode(value)))[0].rule != "schema"


@probe("ferrule.validation.graph.MAX_DEPTH")
async def levels(limit: int, size: int) -> bool:
    value: list[Any] = []
    for _ in range(size - 2):
        value = [value]
    return compiles({"default": value})


@probe("ferrule.validation.graph.MAX_SUBSCHEMAS", lowered=100)
async def subschemas(limit: int, size: int) -> bool:
    """The schema itself, `$defs`, and what is in there."""
    with mock.patch.object(graph, "MAX_SUBSCHEMAS", limit):
        try:
            given_schema({"type": "object", "$defs": {str(n): {} for n in range(size - 2)}}, "here")
        except TooCostly:
            return False
    return True


@probe("ferrule.validation.graph.MAX_VISITS", lowered=20)
async def visits(limit: int, size: int) -> bool:
    with mock.patch.object(graph, "MAX_VISITS", limit):
        return compiles({"allOf": [{} for _ in range(size - 1)]})


@probe("ferrule.validation.graph.MAX_MINIMUM")
async def minima(limit: int, size: int) -> bool:
    numbers: list[float] = [size]
    if float(size) == size:
        numbers.append(float(size))
    taken = set()
    for name in ("minLength", "minItems", "minProperties", "minContains"):
        for number in numbers:
            try:
                compiled({name: number})
                taken.add(True)
            except SetupError:
                taken.add(False)
    assert len(taken) == 1
    return taken.pop()


PATTERN = "^(a|b|c{20}){1,30}$"


def takes(size: int) -> bool:
    """Return whether the engine compiles the pattern in so many bytes."""
    engine = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=patterns.CACHE_SIZE)
    try:
        jsonschema_rs.Draft202012Validator({"pattern": PATTERN}, pattern_options=engine)
    except ValueError:
        return False
    return True


@probe("ferrule.validation.patterns.COMPILED_SIZE")
async def a_compiled_pattern(limit: int, size: int) -> bool:
    """What a pattern takes is found out first; the limit is as far from that as the size from the limit."""
    least, most = 0, patterns.COMPILED_SIZE
    while most - least > 1:
        middle = (least + most) // 2
        if takes(middle):
            most = middle
        else:
            least = middle
    with mock.patch.object(patterns, "COMPILED_SIZE", max(most + limit - size, 1)):
        try:
            compiled({"properties": {"a": {"pattern": PATTERN}}})
        except SetupError:
            return False
    return True


@probe("ferrule.validation.checker.CHECKING_BUDGET")
async def the_cost_of_a_check(limit: int, size: int) -> bool:
    """What a check is estimated to take is found out first; the budget is as far from that as the size from it."""
    schema = {"properties": {"a": {"items": {"pattern": "^[a-z]+$"}}}}
    value = {"a": ["abc"] * 1000}
    text = msgspec.json.encode(value)
    values = 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
    cost = compiled(schema)._cost(-1, values, 0, len(text))
    budget = max(cost + limit - size, 0)
    defaults = mock.patch.object(Checker.is_too_costly, "__defaults__", (budget,))
    with mock.patch.object(checker, "CHECKING_BUDGET", budget), defaults:
        return compiled(schema).accepts(value, len(text))


@probe("ferrule.validation.violations.MAX_LISTED", clamps=True)
async def violations(limit: int, size: int) -> bool:
    """A value that breaks so many rules."""
    try:
        rules = {"allOf": [{"type": "string"} for _ in range(size)]}
        _, check = given_schema({"type": "object", "properties": {"a": rules}}, "here")
    except TooCostly:
        return False
    return len(InvalidOutput("t", check.violations({"a": 1}, len('{"a":1}'))).violations) == size


@probe("ferrule.validation.violations.MAX_ERRORS", clamps=True)
async def violations_looked_for(limit: int, size: int) -> bool:
    """Of a value of more values only the first thing is said that is wrong."""
    value = {"a": [1] * (size - 2)}
    found = compiled({"properties": {"a": {"items": {"type": "string"}}}}).violations(value, 10 * size)
    return len(found) == size - 2


@probe("ferrule.validation.checker.LISTING_BUDGET", lowered=1000)
async def visits_of_a_listing(limit: int, size: int) -> bool:
    with mock.patch.object(checker, "LISTING_BUDGET", limit):
        return described(compiled({"additionalProperties": False}), {"a": "x" * (size - len('{"a":""}'))})


@probe("ferrule.validation.checker.COPIES_BUDGET", lowered=1000)
async def copies_of_a_listing(limit: int, size: int) -> bool:
    """One member is missing; the copy of its object holds a value for each six bytes."""
    with mock.patch.multiple(checker, COPIES_BUDGET=limit, LISTING_BUDGET=MUCH):
        return described(compiled({"required": ["b"]}), {"a": "x" * (6 * size - len('{"a":""}'))})


@probe("ferrule.validation.checker.LONGEST_KEPT", clamps=True)
async def a_kept_schema(limit: int, size: int) -> bool:
    schema = {"type": "object", "title": ""}
    schema["title"] = "x" * (min(size, 2 * limit) - len(msgspec.json.encode(schema)))
    return foreign_checker(schema, "here") is foreign_checker(schema, "here")


@probe("ferrule.validation.checker.MOST_KEPT", clamps=True)
async def kept_schemas(limit: int, size: int) -> bool:
    checker._kept_foreign_checker.cache_clear()
    first = foreign_checker({"type": "object", "title": "0"}, "here")
    for number in range(1, min(size, 2 * limit)):
        foreign_checker({"type": "object", "title": str(number)}, "here")
    return foreign_checker({"type": "object", "title": "0"}, "here") is first


@probe("ferrule.validation.violations.SHOWN_LENGTH", clamps=True)
async def a_value(limit: int, size: int) -> bool:
    value = "x" * (size - 2)
    shown = excerpt(value)
    assert len(str(shown)) <= limit + 1
    return shown == value


no_bound(
    "ferrule.validation.patterns.CLASS_WEIGHT",
    "a factor of the estimated steps of a pattern, of which `MAX_PATTERN_WEIGHT` has a probe",
)
