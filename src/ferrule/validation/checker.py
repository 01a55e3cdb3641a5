"""Check JSON values against a JSON Schema, at a bounded cost, and say everything that is wrong with them."""

# Rule: only `is_valid` may meet any value. The validator lists errors in time exponential in the value's depth when a
# schema is recursive and branches, so a listing is made only when the graph of the schema shows that it is cheap.

from __future__ import annotations

import copy
import datetime
import decimal
import re
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from ferrule.errors import SetupError, quoted
from ferrule.validation.violations import MAX_ERRORS, MAX_LISTED, TooCostly, Violation, excerpt, pointer, short, unknown

if TYPE_CHECKING:
    import jsonschema_rs

    from ferrule.validation.graph import SchemaGraph

STEP = 20
"""Nanoseconds a visit of one subschema to one part of a value takes, in the dear cases."""

LISTING_BUDGET = 1 << 16

ANY_DEPTH = 1 << 30
"""More levels than any value has."""

COPIES_BUDGET = 250_000
"""Values that the violations of one value may hold, all together; each takes about half a microsecond to make."""
SHORTEST_MEMBER = 6
"""Bytes of a member of an object, as in `"a":1,`."""
CHECKING_BUDGET = 64_000_000
"""Nanoseconds one check of a value may take by our estimate: the validator holds the interpreter all the while."""

PER_PAIR = 500
"""Nanoseconds two whole numbers beyond 2^53 take to be compared in a list of unique items, where all of them meet."""
LONG_NUMBER = re.compile(rb"(?<![.\d])\d{16,}+(?!\.)")
DIGITS = 16

MOST_WALKED = 100_000
"""Values of one that are counted by level, to see whether it is as deep as its schema allows."""

MAX_FOREIGN_SIZE = 256 * 1024
"""Bytes of a schema that a peer sent."""

LONGEST_KEPT, MOST_KEPT = 2048, 64
"""Bytes of a peer's schema that is kept once it is compiled, and how many are."""

_DIALECTS = {
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-04/schema": "Draft4Validator",
}
_DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FORMATS: dict[str, object] = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}


TOO_COSTLY = "is too large to be checked against its schema"


class Checker:
    """A compiled JSON Schema: whether a value is valid, and why not."""

    def __init__(self, validator: jsonschema_rs.Validator, graph: SchemaGraph) -> None:
        self._validator = validator
        self._graph = graph
        steps = max(graph.steps, default=0)
        per_byte = max(graph.per_byte, default=0)
        self._light = CHECKING_BUDGET // max(STEP * steps + per_byte, 1)
        """Values of up to so many bytes can be checked whatever they are."""
        if graph.compares:
            self._light = min(self._light, LISTING_BUDGET // max(steps, 1))

    def accepts(self, value: object, size: int = 0) -> bool:
        """Return whether a value of `size` bytes is valid; one too deep or too large to be checked is not."""
        if size > self._light and self.is_too_costly(value):
            return False
        try:
            return self._validator.is_valid(value)
        except ValueError:
            return False

    def is_too_costly(self, value: object, budget: int = CHECKING_BUDGET) -> bool:
        """Return whether checking a value would take longer than so many nanoseconds."""
        text = msgspec.json.encode(value)
        values = 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
        pairs = 0
        if self._graph.compares:
            pairs = (sum(map(len, LONG_NUMBER.findall(text))) // DIGITS) ** 2
        if self._cost(-1, values, pairs, len(text)) <= budget:
            return False
        return values > MOST_WALKED or self._cost(depth_of(value), values, pairs, len(text)) > budget

    def _cost(self, depth: int, values: int, pairs: int, size: int) -> int:
        """Estimate the nanoseconds it takes to check a value; a depth of -1 is the worst."""
        steps = self._graph.steps
        per_byte = self._graph.per_byte
        visits = steps[min(depth, len(steps) - 1)] if steps else 0
        read = per_byte[min(depth, len(per_byte) - 1)] if per_byte else 0
        return visits * (STEP * values + PER_PAIR * pairs) + read * size

    def listed(self, value: object, size: int) -> list[Violation] | None:
        """List everything wrong with a value of `size` bytes, or nothing at all when that would cost too much."""
        if size > LISTING_BUDGET or (size > self._light // 4 and self.is_too_costly(value, CHECKING_BUDGET // 4)):
            return None
        if self._may_visit_often(ANY_DEPTH, size) and self._may_visit_often(depth_of(value), size):
            return None
        if self._copies(size) > COPIES_BUDGET:
            return None
        if self._may_find_many(value):
            return self._first(value)
        try:
            found: list[Violation] = []
            for error in self._validator.iter_errors(value):
                found += _violations(error)
                if len(found) > MAX_LISTED:
                    break
            return found
        except (ValueError, RecursionError):
            return None

    def _may_visit_often(self, depth: int, size: int) -> bool:
        """Return whether a listing of a value of `size` bytes, `depth` levels deep, would make too many visits."""
        return self._graph.most_visits(depth, LISTING_BUDGET) * size > LISTING_BUDGET

    def _may_find_many(self, value: object) -> bool:
        """Return whether a listing could find more than MAX_ERRORS."""
        values, objects = count_values(value, MAX_ERRORS)
        return values + objects * self._graph.most_demands > MAX_ERRORS

    def _first(self, value: object) -> list[Violation] | None:
        """Return the first thing that is wrong, or None when even that would cost too much."""
        if self._graph.alternatives:
            return None  # the one error holds the errors of every alternative
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _violations(error)
        except (ValueError, RecursionError):
            return None
        return []

    def _copies(self, size: int) -> int:
        """Estimate how many values the violations of a value of `size` bytes hold: each has a copy of its object."""
        members = size // SHORTEST_MEMBER
        violations = self._graph.demands
        if self._graph.names:
            violations += members
        return violations * members

    def violations(self, value: object, size: int) -> list[Violation]:
        """List everything wrong with a value, or say only that it is when a list would cost too much."""
        if size > self._light and self.is_too_costly(value):
            return [Violation("", excerpt(value), "schema", TOO_COSTLY)]
        if self.accepts(value):
            return []
        found = self.listed(value, size)
        if found is None:
            return [Violation("", excerpt(value), "schema", "does not fit the schema; too large or deep to say where")]
        return found


class LateSchema(dict[str, Any]):
    """A schema that is judged and compiled when it is first needed: for whoever offers thousands, few of them used."""


class LateChecker(Checker):
    """Compiles its schema when the first value comes; raises what is wrong with the schema then."""

    def __init__(self, schema: LateSchema, place: str, of_object: bool) -> None:
        self._late = (schema, place, of_object)
        self._made: Checker | None = None

    def accepts(self, value: object, size: int = 0) -> bool:
        """Return whether a value is valid."""
        return self._now().accepts(value, size)

    def violations(self, value: object, size: int) -> list[Violation]:
        """List everything wrong with a value, or say only that it is when a list would cost too much."""
        return self._now().violations(value, size)

    def listed(self, value: object, size: int) -> list[Violation] | None:
        """List everything wrong with a value, or nothing at all when that would cost too much."""
        return self._now().listed(value, size)

    def _now(self) -> Checker:
        if self._made is None:
            schema, place, of_object = self._late
            _, self._made = given_schema(dict(schema), place, of_object=of_object)
        return self._made


def foreign_checker(schema: Mapping[str, object], place: str) -> Checker:
    """Compile a schema that a peer sent; `TooCostly` when it is larger than a peer's may be.

    One as small as a form is kept for the next time; not with a pattern, which may take megabytes once compiled.
    """
    text = msgspec.json.encode(schema)
    if len(text) > MAX_FOREIGN_SIZE:
        raise TooCostly(f"{place}: longer than {MAX_FOREIGN_SIZE} bytes")
    if len(text) > LONGEST_KEPT or b"pattern" in text:
        return _new_foreign_checker(text, place)
    return _kept_foreign_checker(text, place)


def _new_foreign_checker(text: bytes, place: str) -> Checker:
    from ferrule.validation.graph import MAX_FOREIGN_SUBSCHEMAS

    return given_schema(msgspec.json.decode(text), place, max_subschemas=MAX_FOREIGN_SUBSCHEMAS)[1]


_kept_foreign_checker = lru_cache(maxsize=MOST_KEPT)(_new_foreign_checker)


def given_schema(
    schema: Mapping[str, object], place: str, *, of_object: bool = True, max_subschemas: int | None = None
) -> tuple[dict[str, object], Checker]:
    """Copy and compile a schema from outside; `SetupError` when it is invalid, unbounded or refers outside itself."""
    if isinstance(schema, LateSchema):
        return schema, LateChecker(schema, place, of_object)
    import jsonschema_rs

    from ferrule.validation.graph import SchemaGraph, refuse_unbounded
    from ferrule.validation.patterns import CACHE_SIZE, COMPILED_SIZE

    if not isinstance(schema, Mapping):
        raise SetupError(f"{place}: a schema is an object, not {type(schema).__name__}")
    refuse_unbounded(schema, place, max_subschemas)
    owned: dict[str, object] = copy.deepcopy(dict(schema))
    dialect = str(owned.get("$schema", _DEFAULT_DIALECT)).rstrip("#")
    name = _DIALECTS.get(dialect.removeprefix("https://").removeprefix("http://"))
    if name is None:
        raise SetupError(
            f"{place}: the dialect {quoted(dialect)!r} is not supported; use 2020-12, 2019-09, draft-07, 06 or 04"
        )
    if of_object and owned.get("type") != "object":
        raise SetupError(f'{place}: the root must say "type": "object"')
    graph = SchemaGraph(owned, "id" if name == "Draft4Validator" else "$id", place)
    graph.refuse_explosive()
    try:
        # The linear engine, because a backtracking one can be made to run for ages by a short pattern and text.
        engine = jsonschema_rs.RegexOptions(size_limit=COMPILED_SIZE, dfa_size_limit=CACHE_SIZE)
        # A text that is to be a pattern (draft 7 and before) is taken as it is: compiling it has a cost of its own.
        formats = {"regex": lambda text: True}
        options = {"pattern_options": engine, "formats": formats, "offline": True}
        return owned, Checker(getattr(jsonschema_rs, name)(owned, **options), graph)
    except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
        reason = short(str(error).partition("\n")[0])
        if "regex" in reason:
            hint = "; patterns must be small and run in linear time: no look-around or back-reference"
        else:
            hint = ""
        raise SetupError(f"{place}: not a valid schema of its dialect: {reason}{hint}") from error


def own_schema(schema: dict[str, object]) -> Checker | None:
    """Compile a schema made from types, to explain failures; None when its patterns are Python's alone."""
    import jsonschema_rs

    from ferrule.validation.graph import SchemaGraph

    formats = {name: _reads_as(type_) for name, type_ in _FORMATS.items()}
    for engine in (jsonschema_rs.RegexOptions(), jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)):
        try:
            validator = jsonschema_rs.Draft202012Validator(
                schema, formats=formats, validate_formats=True, pattern_options=engine, offline=True
            )
            return Checker(validator, SchemaGraph(schema, "$id", "schema"))
        except (ValueError, SetupError):
            continue
    return None


def _reads_as(type_: object) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        try:
            msgspec.convert(text, type_)
        except msgspec.ValidationError:
            return False
        return True

    return reads


def count_values(value: object, enough: int) -> tuple[int, int]:
    """Count the values a JSON value is made of, and the objects among them; exact only up to `enough` values."""
    values = objects = 0
    waiting = [value]
    while waiting and values <= enough:
        inner = waiting.pop()
        values += 1
        if isinstance(inner, dict):
            objects += 1
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
    return values, objects


def depth_of(value: object) -> int:
    """Count the levels of a JSON value."""
    depth = 0
    level = [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _violations(error: jsonschema_rs.ValidationError) -> list[Violation]:
    kind = error.kind
    message = error.message
    if kind.name == "additionalProperties" and isinstance(error.instance, dict):
        names: list[str] = getattr(kind, "unexpected", [])
        return [unknown(name, error.instance.get(name), error.instance_path) for name in names]
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(kind, "context", [])
    if branches and kind.name == "anyOf":
        meant = []
        for branch in branches:
            if _fits_the_kind(branch, len(error.instance_path)):
                meant.append(branch)
        if len(meant) == 1:
            found = []
            for inner in meant[0]:
                found += _violations(inner)
            return found
        reasons: dict[str, None] = {}
        for branch in branches:
            if branch:
                reasons[short(branch[0].message)] = None
        message = f"fits none of the alternatives: {'; '.join(reasons)}"
    return [Violation(pointer(error.instance_path), excerpt(error.instance), kind.name, short(message))]


def _fits_the_kind(branch: list[jsonschema_rs.ValidationError], level: int) -> bool:
    """Return whether a value is of the type and tag an alternative asks for, so that this one was meant."""
    for error in branch:
        below = len(error.instance_path) - level
        options = getattr(error.kind, "options", ())
        if (below == 0 and error.kind.name == "type") or (below == 1 and len(options) == 1):
            return False
    return True
