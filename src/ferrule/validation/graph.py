"""The graph of a JSON Schema: which subschemas a value is handed to, how often that can happen, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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

Node = Mapping[str, object]
"""A subschema. Nodes are compared by `id`: two of them may be equal."""
Edges = dict[int, list[Node]]
"""By the `id` of a node, the nodes it hands a value to."""


def refuse_unbounded(schema: Node, place: str, max_subschemas: int | None = None) -> None:
    """Raise `SetupError` for a schema that is too deep, too wide or asks for the impossible."""
    max_subschemas = max_subschemas or MAX_SUBSCHEMAS
    stack: list[tuple[object, int]] = [(schema, 1)]
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
            _refuse_large_minimum(value, place)
            value = list(value.values())
        if isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, Mapping | list | tuple):
                    stack.append((item, depth + 1))


def _refuse_large_minimum(schema: Node, place: str) -> None:
    for name in _MINIMA:
        minimum = schema.get(name)
        if isinstance(minimum, int | float) and minimum > MAX_MINIMUM:
            raise SetupError(f"{place}: {name} is more than any value can have")


def _pattern_weight(schema: Node, place: str) -> int:
    weight = 0
    for pattern in _patterns(schema):
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise TooCostly(f"{place}: a pattern is longer than {MAX_PATTERN_LENGTH} characters")
        weight += pattern_cost(pattern).weight
    return weight


def _patterns(schema: Node) -> list[str]:
    """Return the patterns of one subschema."""
    found = []
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        found.append(pattern)
    named = schema.get("patternProperties")
    if isinstance(named, Mapping):
        for pattern in named:
            if isinstance(pattern, str):
                found.append(pattern)
    return found


def _steps(node: Node) -> int:
    """Return how many visits one subschema is worth."""
    steps = 1
    choices = node.get("enum")
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, list | dict):
                steps += _values(choice)
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


def _per_byte(node: Node) -> int:
    """Return how many nanoseconds the patterns of one subschema take for a byte of text."""
    nanoseconds = 0
    for pattern in _patterns(node):
        nanoseconds += pattern_cost(pattern).per_byte
    return nanoseconds


def _values(value: object) -> int:
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

    def __init__(self, root: Node, id_keyword: str, place: str) -> None:
        self._root = root
        self._id_keyword = id_keyword
        self._place = place
        self._anchors: dict[str, Node] = {"": root}
        self._nodes: list[Node] = []
        self._same: Edges = {}
        self._parts: Edges = {}
        self._exclusive_parts: Edges = {}
        self._references: list[tuple[Node, str, str]] = []
        self._index(root, "")
        while self._references:
            self._follow(*self._references.pop())
        self._follow_dynamic()
        self._heights: dict[int, int] = {}
        for node in self._nodes:
            self._measure(node, frozenset())
        self._levels = self._visits(self._same, dict.fromkeys(self._same, 1))
        self._most = [next(self._levels)]
        self.compares = False
        """Whether items of a list are compared with each other."""
        self.names = False
        """Whether each name of an object may be a violation of its own."""
        self.demands = 0
        """How many members are required, each of which may be missing."""
        self.most_demands = 0
        """How many of them by one subschema."""
        self.alternatives = False
        """Whether a value may be refused by several subschemas at once, all of which are reported."""
        self._look_for_violations()
        self.steps: list[int] = []
        """How many visits a part no, one, two, … levels inside a value is worth; the last holds for all below."""
        self.per_byte: list[int] = []
        """How many nanoseconds patterns take for a byte of it."""

    def _look_for_violations(self) -> None:
        """Find out in which ways, and how often, a value may be refused."""
        for node in self._nodes:
            demands = _demands(node)
            self.demands += demands
            self.most_demands = max(self.most_demands, demands)
            if node.get("uniqueItems") is True:
                self.compares = True
            if "propertyNames" in node:
                self.names = True
            if "anyOf" in node or "oneOf" in node:
                self.alternatives = True

    def most_visits(self, depth: int, enough: int) -> int:
        """Return how often one part of a value `depth` levels deep may be looked at; exact only up to `enough`."""
        while len(self._most) <= min(depth, MAX_DEPTH) and self._most[-1] <= enough:
            self._most.append(max(self._most[-1], next(self._levels, 0)))
        return self._most[min(depth, len(self._most) - 1)]

    def refuse_explosive(self) -> None:
        """Raise `TooCostly` when a small value could cause a huge number of visits."""
        same = self._without_returns()
        ones = dict.fromkeys(self._same, 1)
        if max(self._each_level(same, ones)) > MAX_VISITS:
            raise TooCostly(f"{self._place}: one value would be checked more than {MAX_VISITS} times")
        steps: dict[int, int] = {}
        per_byte: dict[int, int] = {}
        for node in self._nodes:
            steps[id(node)] = _steps(node)
            per_byte[id(node)] = _per_byte(node)
        self.steps = self._each_level(same, steps)
        self.per_byte = self._each_level(same, per_byte)

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
        """Yield how often a part no, one, two, … levels inside a value is looked at, each time by its weight."""
        # Heights put the subschemas that see the same value before the one that hands it to them.
        order = sorted(self._heights, key=self._heights.__getitem__)
        visits: dict[int, int] = {}
        for key in order:
            visits[key] = weights[key] + _sum(visits, same[key])
        previous: dict[int, int] = {}
        while visits != previous:
            yield visits[id(self._root)]
            previous = visits
            visits = {}
            for key in order:
                below = _sum(previous, self._parts[key]) + _most(previous, self._exclusive_parts[key])
                visits[key] = below + _sum(visits, same[key])
        # What is the same on two levels is the same on all that follow: so it is with most schemas, and soon.

    def _without_returns(self) -> Edges:
        """Return the same-value edges without those back into a subschema at work: the validator knows its verdict."""
        kept: Edges = {}
        for key in self._same:
            kept[key] = []
        is_open: dict[int, bool] = {id(self._root): True}
        stack = [(self._root, self._outward(self._root))]
        while stack:
            node, outward = stack[-1]
            following = next(outward, None)
            if following is None:
                is_open[id(node)] = False
                stack.pop()
                continue
            inner, sees_same = following
            if sees_same and not is_open.get(id(inner), False):
                kept[id(node)].append(inner)
            if id(inner) not in is_open:
                is_open[id(inner)] = True
                stack.append((inner, self._outward(inner)))
        return kept

    def _outward(self, node: Node) -> Iterator[tuple[Node, bool]]:
        """Yield the nodes a node leads to, and whether they see the same value."""
        for inner in self._same[id(node)]:
            yield inner, True
        for inner in self._parts[id(node)]:
            yield inner, False
        for inner in self._exclusive_parts[id(node)]:
            yield inner, False

    def _index(self, start: Node, base: str) -> None:
        """Find the nodes below one, and their edges."""
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
            self._same[id(node)] = same
            self._parts[id(node)] = parts
            self._exclusive_parts[id(node)] = exclusive
            for keyword in _REFERENCES:
                reference = node.get(keyword)
                if isinstance(reference, str):
                    self._references.append((node, reference, base))
            for child in (*same, *parts, *exclusive, *_named_children(node, _STORES)):
                stack.append((child, base))

    def _name(self, node: Node, base: str) -> str:
        """Note the addresses of a subschema. Return the base of the references inside it."""
        identity = node.get(self._id_keyword)
        if isinstance(identity, str):
            address = _join(base, identity)
            self._anchors[address.rstrip("#")] = node
            base = urldefrag(address).url
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = node.get(keyword)
            if isinstance(anchor, str):
                self._anchors[f"{base}#{anchor}"] = node
        return base

    def _follow(self, node: Node, reference: str, base: str) -> None:
        """Add the edge of a reference, and what it leads to."""
        address, _, fragment = _join(base, reference).partition("#")
        target: object = self._anchors.get(address)
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
        named: dict[str, list[Node]] = {}
        for node in self._nodes:
            anchor = node.get("$dynamicAnchor")
            if isinstance(anchor, str):
                named.setdefault(anchor, []).append(node)
        for node in self._nodes:
            reference = node.get("$dynamicRef")
            if isinstance(reference, str):
                same = self._same[id(node)]
                known = set(map(id, same))
                for other in named.get(reference.partition("#")[2], []):
                    if id(other) not in known:
                        same.append(other)

    def _measure(self, node: Node, above: frozenset[int]) -> None:
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
        self._heights[key] = 1 + _most(self._heights, self._same[key])
        if self._heights[key] > MAX_DEPTH:
            raise SetupError(f"{self._place}: a chain of more than {MAX_DEPTH} references")


def _sum(counts: dict[int, int], nodes: list[Node]) -> int:
    """Return the sum of what is counted for some nodes."""
    total = 0
    for node in nodes:
        total += counts[id(node)]
    return total


def _most(counts: dict[int, int], nodes: list[Node]) -> int:
    """Return the most that is counted for one of some nodes."""
    most = 0
    for node in nodes:
        most = max(most, counts[id(node)])
    return most


def _times(node: Node) -> int:
    """Return how often the subschemas beside a subschema's keywords see its value."""
    for keyword in _UNEVALUATED:
        if keyword in node:
            return 3
    return 1


def _demands(node: Node) -> int:
    """Return how many members a subschema requires, one by one."""
    lists = [node.get("required")]
    for keyword in ("dependentRequired", "dependencies"):
        dependent = node.get(keyword)
        if isinstance(dependent, dict):
            lists += dependent.values()
    count = 0
    for each in lists:
        if isinstance(each, list):
            count += len(each)
    return count


def _children(node: Node, keywords: Iterable[str]) -> list[Node]:
    """Return the subschemas that some keywords hold, one each or a list."""
    children: list[Node] = []
    for keyword in keywords:
        value = node.get(keyword)
        if isinstance(value, dict):
            children.append(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    children.append(item)
    return children


def _named_children(node: Node, keywords: Iterable[str]) -> list[Node]:
    """Return the subschemas that some keywords hold by name."""
    children: list[Node] = []
    for keyword in keywords:
        value = node.get(keyword)
        if isinstance(value, dict):
            for item in value.values():
                if isinstance(item, dict):
                    children.append(item)
    return children


def _join(base: str, reference: str) -> str:
    # urljoin drops the base of schemes it does not know, such as urn:.
    if reference.startswith("#"):
        return base + reference
    return urljoin(base, reference)
