"""The graph of a JSON Schema: which subschemas a value is handed to, how often that can happen, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ferrule.errors import SetupError, quoted
from ferrule.validation.patterns import MAX_PATTERN_LENGTH, MAX_PATTERN_WEIGHT, pattern_cost
from ferrule.validation.violations import TooCostly, descend

MAX_DEPTH = 128
MAX_SUBSCHEMAS = 10_000
MAX_FOREIGN_SUBSCHEMAS = 3000
MAX_VISITS = 10_000
MAX_MINIMUM = 2**53

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_SAME_VALUE_BY_NAME = ("dependentSchemas", "dependencies")
_LIST_PARTS = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")
_OBJECT_PARTS = ("additionalProperties", "unevaluatedProperties", "propertyNames", "contentSchema")
_PARTS_BY_NAME = ("patternProperties",)
_EXCLUSIVE_PARTS_BY_NAME = ("properties",)
_STORES = ("$defs", "definitions")
_MINIMA = ("minLength", "minItems", "minProperties", "minContains")

_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords for which the validator runs the subschemas beside them again, to see what they have looked at."""

FRACTION_STEPS, TINY_FRACTION_STEPS = 700, 1500
"""How many visits a `multipleOf` that is no whole number takes, and one so small that fractions become long."""

Edges = dict[int, list[Any]]


def refuse_unbounded(schema: Mapping[str, Any], place: str, max_subschemas: int | None = None) -> None:
    """Raise `SetupError` for a schema that is too deep, too wide or asks for the impossible."""
    max_subschemas = max_subschemas or MAX_SUBSCHEMAS
    stack: list[tuple[Any, int]] = [(schema, 1)]
    objects = 0
    weight = 0
    while stack:
        value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise TooCostly(f"{place}: nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            objects += 1
            if objects > max_subschemas:
                raise TooCostly(f"{place}: more than {max_subschemas} subschemas")
            weight += _pattern_weight(value, place)
            if weight > MAX_PATTERN_WEIGHT:
                raise TooCostly(
                    f"{place}: its patterns have more than {MAX_PATTERN_WEIGHT} steps, counted repetitions written out"
                )
            if large := [name for name in _MINIMA if isinstance(value.get(name), int) and value[name] > MAX_MINIMUM]:
                raise SetupError(f"{place}: {large[0]} is more than any value can have")
            value = list(value.values())
        if isinstance(value, list | tuple):
            stack += [(item, depth + 1) for item in value if isinstance(item, Mapping | list | tuple)]


def _pattern_weight(schema: Mapping[str, Any], place: str) -> int:
    weight = 0
    for pattern in _patterns(schema):
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise TooCostly(f"{place}: a pattern is longer than {MAX_PATTERN_LENGTH} characters")
        weight += pattern_cost(pattern).weight
    return weight


def _patterns(schema: Mapping[str, Any]) -> list[str]:
    """Return the patterns of one subschema."""
    found = []
    if isinstance(pattern := schema.get("pattern"), str):
        found.append(pattern)
    if isinstance(named := schema.get("patternProperties"), Mapping):
        found += [pattern for pattern in named if isinstance(pattern, str)]
    return found


def _steps(node: Mapping[str, Any]) -> int:
    """Return how many visits one subschema is worth."""
    steps = 1
    choices = node.get("enum")
    if isinstance(choices, list):
        steps += sum(_values(choice) for choice in choices if isinstance(choice, list | dict))
    steps += _values(node.get("const"))
    required = node.get("dependentRequired")
    if isinstance(required, dict):
        steps += len(required)
    dependencies = node.get("dependencies")
    if isinstance(dependencies, dict):
        steps += len(dependencies)
    step = node.get("multipleOf")
    if isinstance(step, float) and not step.is_integer():
        steps += FRACTION_STEPS if abs(step) >= 1e-9 else TINY_FRACTION_STEPS
    return steps


def _per_byte(node: Mapping[str, Any]) -> int:
    """Return how many nanoseconds the patterns of one subschema take for a byte of text."""
    return sum(pattern_cost(pattern).per_byte for pattern in _patterns(node))


def _values(value: Any) -> int:
    """Count the values a JSON value is made of."""
    count = 0
    stack = [value]
    while stack:
        value = stack.pop()
        count += 1
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return count


class SchemaGraph:
    """Which subschemas see the same value as a subschema does, and which see a part of it."""

    def __init__(self, root: dict[str, Any], id_keyword: str, place: str) -> None:
        self._root = root
        self._id_keyword = id_keyword
        self._place = place
        self._anchors: dict[str, Any] = {"": root}
        self._nodes: list[Any] = []
        self._same: Edges = {}
        self._parts: Edges = {}
        self._exclusive_parts: Edges = {}
        self._references: list[tuple[Any, str, str]] = []
        self._index(root, "")
        while self._references:
            self._follow(*self._references.pop())
        self._follow_dynamic()
        self._heights: dict[int, int] = {}
        for node in self._nodes:
            self._measure(node, frozenset())
        self._levels = self._visits(self._same, dict.fromkeys(self._same, 1))
        self._most = [next(self._levels)]
        self.compares = any(node.get("uniqueItems") is True for node in self._nodes)
        """Whether items of a list are compared with each other."""
        self.names = any("propertyNames" in node for node in self._nodes)
        """Whether each name of an object may be a violation of its own."""
        self.demands = sum(map(_demands, self._nodes))
        """How many members are required, each of which may be missing."""
        self.most_demands = max((map(_demands, self._nodes)), default=0)
        """How many of them by one subschema."""
        self.alternatives = any("anyOf" in node or "oneOf" in node for node in self._nodes)
        """Whether a value may be refused by several subschemas at once, all of which are heard."""
        self.steps: list[int] = []
        """How many visits a part no, one, two, … levels inside a value is worth; the last holds for all below."""
        self.per_byte: list[int] = []
        """How many nanoseconds patterns take for a byte of it."""

    def most_visits(self, depth: int, enough: int) -> int:
        """How often one part of a value `depth` levels deep may be looked at; exact only up to `enough`."""
        while len(self._most) <= min(depth, MAX_DEPTH) and self._most[-1] <= enough:
            self._most.append(max(self._most[-1], next(self._levels, 0)))
        return self._most[min(depth, len(self._most) - 1)]

    def refuse_explosive(self) -> None:
        """Raise `TooCostly` when a small value could cause a huge number of visits."""
        same = self._without_returns()
        ones = dict.fromkeys(self._same, 1)
        if max(self._each_level(same, ones)) > MAX_VISITS:
            raise TooCostly(f"{self._place}: one value would be checked more than {MAX_VISITS} times")
        self.steps = self._each_level(same, {id(node): _steps(node) for node in self._nodes})
        self.per_byte = self._each_level(same, {id(node): _per_byte(node) for node in self._nodes})

    def _each_level(self, same: Edges, weights: dict[int, int]) -> list[int]:
        """Return the most a part on each level, or above it, is worth; the last holds for all levels below."""
        found: list[int] = []
        most = 0
        for worth in self._visits(same, weights):
            most = max(most, worth)
            found.append(most)
            if len(found) == MAX_DEPTH:
                break
        return found

    def _visits(self, same: Edges, weights: dict[int, int]) -> Iterator[int]:
        """How often a part no, one, two, … levels inside a value is looked at, each time counted by its weight."""
        # Heights put the subschemas that see the same value before the one that hands it to them.
        order = sorted(self._heights, key=self._heights.__getitem__)
        visits: dict[int, int] = {}
        for key in order:
            visits[key] = weights[key] + sum(visits[id(node)] for node in same[key])
        previous: dict[int, int] = {}
        while visits != previous:
            yield visits[id(self._root)]
            previous = visits
            visits = {}
            for key in order:
                below = sum(previous[id(part)] for part in self._parts[key])
                below += max((previous[id(part)] for part in self._exclusive_parts[key]), default=0)
                visits[key] = below + sum(visits[id(node)] for node in same[key])
        # What is the same on two levels is the same on all that follow: so it is with most schemas, and soon.

    def _without_returns(self) -> Edges:
        """The same-value edges but for those back into a subschema at work, whose verdict the validator remembers."""
        kept: Edges = {key: [] for key in self._same}
        is_open: dict[int, bool] = {id(self._root): True}
        stack = [(self._root, self._outward(self._root))]
        while stack:
            node, outward = stack[-1]
            inner, sees_same = next(outward, (None, False))
            if inner is None:
                is_open[id(node)] = False
                stack.pop()
                continue
            if sees_same and not is_open.get(id(inner), False):
                kept[id(node)].append(inner)
            if id(inner) not in is_open:
                is_open[id(inner)] = True
                stack.append((inner, self._outward(inner)))
        return kept

    def _outward(self, node: Any) -> Iterator[tuple[Any, bool]]:
        yield from ((inner, True) for inner in self._same[id(node)])
        yield from ((inner, False) for inner in (*self._parts[id(node)], *self._exclusive_parts[id(node)]))

    def _index(self, start: Any, base: str) -> None:
        stack = [(start, base)]
        while stack:
            node, base = stack.pop()
            if id(node) in self._same:
                continue
            base = self._name(node, base)
            self._nodes.append(node)
            same = [*_children(node, _SAME_VALUE), *_named_children(node, _SAME_VALUE_BY_NAME)] * _times(node)
            parts = [*_children(node, _LIST_PARTS + _OBJECT_PARTS), *_named_children(node, _PARTS_BY_NAME)]
            exclusive = _named_children(node, _EXCLUSIVE_PARTS_BY_NAME)
            self._same[id(node)], self._parts[id(node)], self._exclusive_parts[id(node)] = same, parts, exclusive
            self._references += [(node, node[key], base) for key in _REFERENCES if isinstance(node.get(key), str)]
            stack += [(child, base) for child in (*same, *parts, *exclusive, *_named_children(node, _STORES))]

    def _name(self, node: Any, base: str) -> str:
        """Note the addresses of a subschema, and give the base of the references inside it."""
        if isinstance(identity := node.get(self._id_keyword), str):
            address = _join(base, identity)
            self._anchors[address.rstrip("#")] = node
            base = urldefrag(address).url
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._anchors[f"{base}#{anchor}"] = node
        return base

    def _follow(self, node: Any, reference: str, base: str) -> None:
        address, _, fragment = _join(base, reference).partition("#")
        target = self._anchors.get(address)
        if target is None:
            outside = f"{quoted(reference)!r} refers outside the schema, and nothing is ever fetched"
            raise SetupError(f"{self._place}: {outside}")
        if fragment.startswith("/"):
            target = descend(target, list(map(unquote, fragment[1:].split("/"))))
        elif fragment:
            target = self._anchors.get(f"{address}#{unquote(fragment)}")
        if not isinstance(target, dict | bool):
            raise SetupError(f"{self._place}: {quoted(reference)!r} refers to nothing in the schema")
        if isinstance(target, dict):
            self._same[id(node)] += [target] * _times(node)
            self._index(target, address)

    def _follow_dynamic(self) -> None:
        """Count that a dynamic reference may lead to any subschema that has its anchor."""
        named: dict[str, list[Any]] = {}
        for node in self._nodes:
            if isinstance(anchor := node.get("$dynamicAnchor"), str):
                named.setdefault(anchor, []).append(node)
        for node in self._nodes:
            reference = node.get("$dynamicRef")
            if isinstance(reference, str):
                others = named.get(reference.partition("#")[2], [])
                self._same[id(node)] += [
                    other for other in others if all(other is not known for known in self._same[id(node)])
                ]

    def _measure(self, node: Any, above: frozenset[int]) -> None:
        """Count the subschemas one value is handed through, refusing those that hand it round in a circle."""
        key = id(node)
        if key in self._heights:
            return
        if key in above:
            raise SetupError(f"{self._place}: a $ref leads back to itself without looking into the value")
        if len(above) > MAX_DEPTH:
            raise SetupError(f"{self._place}: a chain of more than {MAX_DEPTH} references")
        for inner in self._same[key]:
            self._measure(inner, above | {key})
        self._heights[key] = 1 + max((self._heights[id(inner)] for inner in self._same[key]), default=0)
        if self._heights[key] > MAX_DEPTH:
            raise SetupError(f"{self._place}: a chain of more than {MAX_DEPTH} references")


def _times(node: Any) -> int:
    """Return how often the subschemas beside a subschema's keywords see its value."""
    if any(keyword in node for keyword in _UNEVALUATED):
        return 3
    return 1


def _demands(node: Any) -> int:
    """Return how many members a subschema requires, one by one."""
    lists = [node.get("required")]
    for keyword in ("dependentRequired", "dependencies"):
        dependent = node.get(keyword)
        if isinstance(dependent, dict):
            lists += dependent.values()
    return sum(len(each) for each in lists if isinstance(each, list))


def _children(node: Any, keywords: Iterable[str]) -> list[Any]:
    found = list(map(node.get, keywords))
    nested = [item for value in found for item in (value if isinstance(value, list) else [value])]
    return [item for item in nested if isinstance(item, dict)]


def _named_children(node: Any, keywords: Iterable[str]) -> list[Any]:
    found = list(map(node.get, keywords))
    return [item for value in found if isinstance(value, dict) for item in value.values() if isinstance(item, dict)]


def _join(base: str, reference: str) -> str:
    # urljoin drops the base of schemes it does not know, such as urn:.
    return base + reference if reference.startswith("#") else urljoin(base, reference)
