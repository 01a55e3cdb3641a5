"""The graph of a JSON Schema: which subschemas a value is handed to, and how often that can happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ferrule.errors import SetupError
from ferrule.validation.violations import descend

MAX_DEPTH = 128
MAX_SUBSCHEMAS = 10_000
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

Edges = dict[int, list[Any]]


def refuse_unbounded(schema: Mapping[str, Any], place: str) -> None:
    """Raise `SetupError` for a schema that is too deep, too wide or asks for the impossible."""
    stack: list[tuple[Any, int]] = [(schema, 1)]
    objects = 0
    while stack:
        value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise SetupError(f"{place}: nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            objects += 1
            if objects > MAX_SUBSCHEMAS:
                raise SetupError(f"{place}: more than {MAX_SUBSCHEMAS} subschemas")
            if large := [name for name in _MINIMA if isinstance(value.get(name), int) and value[name] > MAX_MINIMUM]:
                raise SetupError(f"{place}: {large[0]} is more than any value can have")
            value = list(value.values())
        if isinstance(value, list | tuple):
            stack += [(item, depth + 1) for item in value if isinstance(item, Mapping | list | tuple)]


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
        self._heights: dict[int, int] = {}
        for node in self._nodes:
            self._measure(node, frozenset())
        self._levels = self._visits(self._same)
        self._most = [next(self._levels)]

    def most_visits(self, depth: int, enough: int) -> int:
        """How often one part of a value `depth` levels deep may be looked at; exact only up to `enough`."""
        while len(self._most) <= min(depth, MAX_DEPTH) and self._most[-1] <= enough:
            self._most.append(max(self._most[-1], next(self._levels)))
        return self._most[min(depth, len(self._most) - 1)]

    def refuse_explosive(self) -> None:
        """Raise `SetupError` when a small value could cause a huge number of visits."""
        levels = self._visits(self._without_returns())
        for _ in range(MAX_DEPTH):
            if next(levels) > MAX_VISITS:
                raise SetupError(f"{self._place}: one value would be checked more than {MAX_VISITS} times")

    def _visits(self, same: Edges) -> Iterator[int]:
        """How often a part no, one, two, … levels inside a value is looked at."""
        # Heights put the subschemas that see the same value before the one that hands it to them.
        order = sorted(self._heights, key=self._heights.__getitem__)
        visits: dict[int, int] = {}
        for key in order:
            visits[key] = 1 + sum(visits[id(node)] for node in same[key])
        previous: dict[int, int] = {}
        while visits != previous:
            yield visits[id(self._root)]
            previous, visits = visits, {}
            for key in order:
                below = sum(previous[id(part)] for part in self._parts[key])
                below += max((previous[id(part)] for part in self._exclusive_parts[key]), default=0)
                visits[key] = below + sum(visits[id(node)] for node in same[key])
        # What is the same on two levels is the same on all that follow: so it is with most schemas, and soon.
        while True:
            yield visits[id(self._root)]

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
            same = [*_children(node, _SAME_VALUE), *_named_children(node, _SAME_VALUE_BY_NAME)]
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
            raise SetupError(f"{self._place}: {reference!r} refers outside the schema, and nothing is ever fetched")
        if fragment.startswith("/"):
            target = descend(target, [unquote(step) for step in fragment[1:].split("/")])
        elif fragment:
            target = self._anchors.get(f"{address}#{unquote(fragment)}")
        if not isinstance(target, dict | bool):
            raise SetupError(f"{self._place}: {reference!r} refers to nothing in the schema")
        if isinstance(target, dict):
            self._same[id(node)].append(target)
            self._index(target, address)

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


def _children(node: Any, keywords: Iterable[str]) -> list[Any]:
    found = [node.get(keyword) for keyword in keywords]
    nested = [item for value in found for item in (value if isinstance(value, list) else [value])]
    return [item for item in nested if isinstance(item, dict)]


def _named_children(node: Any, keywords: Iterable[str]) -> list[Any]:
    found = [node.get(keyword) for keyword in keywords]
    return [item for value in found if isinstance(value, dict) for item in value.values() if isinstance(item, dict)]


def _join(base: str, reference: str) -> str:
    # urljoin drops the base of schemes it does not know, such as urn:.
    return base + reference if reference.startswith("#") else urljoin(base, reference)
