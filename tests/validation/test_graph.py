"""The graph of a schema: references, circles and how often a value is looked at."""

import time
from typing import Any

import pytest

from ferrule.errors import SetupError
from ferrule.validation.graph import SchemaGraph, refuse_unbounded

LEAF: dict[str, Any] = {"type": "string"}


def graph(schema: dict[str, Any], id_keyword: str = "$id") -> SchemaGraph:
    return SchemaGraph(schema, id_keyword, "here")


def branching_tree() -> dict[str, Any]:
    branches = [{"properties": {"child": {"$ref": "#/$defs/node"}}} for _ in range(2)]
    return {"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": branches}}}


def doubling_ladder(steps: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"d{steps}": LEAF}
    for step in range(steps):
        rung = {"properties": {"child": {"$ref": f"#/$defs/d{step + 1}"}}}
        definitions[f"d{step}"] = {"allOf": [rung, dict(rung)]}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": LEAF}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": LEAF}},
        {"$ref": "#/odd/place/0", "odd": {"place": [LEAF]}},
        {"$ref": "#word", "$defs": {"a": {"$anchor": "word"}}},
        {"$dynamicRef": "#word", "$defs": {"a": {"$dynamicAnchor": "word"}}},
        {"$id": "https://example.com/s", "$ref": "https://example.com/s#/$defs/a", "$defs": {"a": LEAF}},
        {"$id": "https://example.com/s", "$ref": "item", "$defs": {"a": {"$id": "item", "type": "string"}}},
        {"$id": "urn:example:s", "$ref": "#/$defs/a", "$defs": {"a": LEAF}},
        {"$ref": "#/$defs/a", "$defs": {"a": True}},
        {"properties": {"$ref": LEAF}},
        {"const": {"$ref": "http://example.com/not-a-reference"}},
        {"properties": {"children": {"items": {"$ref": "#"}}}},
    ],
    ids=str,
)
def test_a_reference_inside_the_schema_is_followed(schema: dict[str, Any]) -> None:
    graph(schema)


@pytest.mark.parametrize(
    "reference",
    ["http://example.com/s", "https://example.com/s#/a", "file:///etc/passwd", "other.json", "//host/s", "urn:x:y"],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_out_of_the_schema_is_refused(reference: str, keyword: str) -> None:
    """SCH-3: what lies outside is never fetched, so the schema is refused."""
    with pytest.raises(SetupError, match="outside the schema, and nothing is ever fetched"):
        graph({"properties": {"default": {"items": {keyword: reference}}}})


@pytest.mark.parametrize("reference", ["#/$defs/missing", "#missing", "#/$defs/text", "#/$defs/list/9"])
def test_a_reference_to_nothing_is_refused(reference: str) -> None:
    """SCH-3: what cannot be resolved is refused, not let through."""
    with pytest.raises(SetupError, match="refers to nothing"):
        graph({"$ref": reference, "$defs": {"text": "x", "list": [LEAF]}})


def test_draft_4_names_its_subschemas_by_id() -> None:
    schema = {"id": "http://example.com/s", "definitions": {"a": {"id": "#word"}}, "not": {"$ref": "#word"}}
    graph(schema, "id")
    with pytest.raises(SetupError, match="refers to nothing"):
        graph(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
        {"$defs": {"unused": {"$ref": "#/$defs/unused"}}},
        {"if": {"not": {"$ref": "#"}}},
        {"dependentSchemas": {"x": {"$ref": "#"}}},
    ],
    ids=str,
)
def test_references_that_go_in_a_circle_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match="leads back to itself"):
        graph(schema)


def test_a_long_chain_of_references_is_refused_wherever_it_is_entered() -> None:
    """SCH-4: the depth of a check is bounded."""
    forwards = {f"d{step}": {"$ref": f"#/$defs/d{step + 1}"} for step in range(500)} | {"d500": LEAF}
    for definitions in (forwards, dict(reversed(forwards.items()))):
        with pytest.raises(SetupError, match="chain of more than 128"):
            graph({"$ref": "#/$defs/d0", "$defs": definitions})


def test_a_flat_schema_looks_at_each_part_once_or_twice() -> None:
    schema = {"properties": {"a": LEAF, "b": {"anyOf": [LEAF, {"type": "null"}]}}}
    assert [graph(schema).most_visits(depth, 99) for depth in (0, 1, 2, 50)] == [1, 3, 3, 3]


def test_the_visits_of_a_branching_recursive_schema_double_with_each_level() -> None:
    tree = graph(branching_tree())
    first, second, third = (tree.most_visits(depth, 10**6) for depth in (5, 6, 7))
    assert second > 1.9 * first
    assert third > 1.9 * second
    assert tree.most_visits(1000, 5000) > 5000


def test_a_recursive_schema_is_not_explosive_because_its_verdicts_are_remembered() -> None:
    started = time.process_time()
    graph(branching_tree()).refuse_explosive()
    assert time.process_time() - started < 0.1


def test_frm_14_a_schema_that_doubles_at_each_level_is_refused() -> None:
    """SCH-4: a few levels of shared definitions would check one value 2^30 times."""
    graph(doubling_ladder(8)).refuse_explosive()
    with pytest.raises(SetupError, match="more than 10000 times"):
        graph(doubling_ladder(30)).refuse_explosive()
    ring = doubling_ladder(30)
    ring["$defs"]["d30"] = {"properties": {"again": {"$ref": "#/$defs/d0"}}}
    with pytest.raises(SetupError, match="more than 10000 times"):
        graph(ring).refuse_explosive()


def test_schemas_that_are_too_deep_too_wide_or_impossible_are_refused() -> None:
    """SCH-4: depth, number of subschemas and sizes are bounded."""
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"allOf": [deep]}
    with pytest.raises(SetupError, match="deeper than 128"):
        refuse_unbounded(deep, "here")
    with pytest.raises(SetupError, match="more than 10000 subschemas"):
        refuse_unbounded({"properties": {str(n): {} for n in range(10_001)}}, "here")
    with pytest.raises(SetupError, match="minLength"):
        refuse_unbounded({"properties": {"a": {"minLength": 2**63}}}, "here")
    itself: dict[str, Any] = {}
    itself["not"] = itself
    with pytest.raises(SetupError, match="deeper than 128"):
        refuse_unbounded(itself, "here")
    refuse_unbounded({"enum": list(range(50_000)), "maxLength": 2**63}, "here")
