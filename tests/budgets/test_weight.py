"""The weight of a JSON text is at least what its values take once they are decoded.

How deep it is nested is told from its brackets, never from those in strings, and alike on every Python.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc

import msgspec
import pytest

from ferrule.budgets.bounds import MAX_NESTING
from ferrule.budgets.weight import (
    BLOCK,
    FEW,
    LIGHT,
    MOST_BRACKETS,
    PART,
    PER_LIST,
    PER_OBJECT,
    PER_VALUE,
    full_weight,
    too_deep,
    weight,
)

WIDE = {
    "empty lists": b"[" + b",".join([b"[]"] * 200_000) + b"]",
    "empty objects": b"[" + b",".join([b"{}"] * 200_000) + b"]",
    "small numbers": b"[" + b",".join([b"1000"] * 200_000) + b"]",
    "fractions": b"[" + b",".join([b"1.5"] * 200_000) + b"]",
    "short strings": b"[" + b",".join([b'"\xc3\xa9\xc3\xa9"'] * 200_000) + b"]",
    "one string": b'"' + b"x" * 1_000_000 + b'"',
    "wide strings": b'"' + b"x" * 500_000 + "\u20ac".encode() * 100_000 + b'"',
    "objects of one member": b"[" + b",".join([b'{"a":1}'] * 100_000) + b"]",
    "nested lists": b"[" * 500 + b"]" * 500 + b" " * LIGHT,
}


@pytest.mark.parametrize("text", WIDE.values(), ids=WIDE.keys())
def test_a_decoded_text_takes_less_than_twice_its_weight(text: bytes):
    tracemalloc.start()
    try:
        value = msgspec.json.decode(text)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value is not None
    assert taken <= 2 * weight(text), f"{taken} bytes for {len(text)}, weighed {weight(text)}"


def test_a_light_text_weighs_its_size():
    assert weight(b"," * LIGHT) == LIGHT
    assert weight(b"," * (LIGHT + 1)) > 40 * LIGHT


@pytest.mark.parametrize("count", [0, 1, FEW - 1, FEW, FEW + 1, 1000])
@pytest.mark.parametrize(("mark", "each"), [(b",", PER_VALUE), (b"[", PER_LIST), (b"{", PER_OBJECT)])
def test_each_separator_weighs_wherever_it_stands_and_however_many_there_are(mark: bytes, each: int, count: int):
    text = mark.join([b"x"] * (count + 1))
    assert full_weight(text) == 2 * len(text) + count * each
    together = mark * count
    assert full_weight(together) == 2 * count + count * each


MANY = b"[],{}," * MAX_NESTING
OPENINGS = {"lists": (b"[", b"]"), "objects": (b'{"a":', b"}"), "spaced": (b' [ 1, "x" , ', b" ] ")}


def nested(levels: int, inner: bytes = b"1", kind: str = "lists") -> bytes:
    opening, closing = OPENINGS[kind]
    return opening * levels + inner + closing * levels


@pytest.mark.parametrize("kind", OPENINGS)
@pytest.mark.parametrize("before", [b"", MANY, b'"' + b"[" * 5000 + b'",', b'"]]]",' * 5000])
def test_the_bound_is_the_same_whatever_stands_before(before: bytes, kind: str) -> None:
    assert not too_deep(b"[" + before + nested(MAX_NESTING - 1, kind=kind) + b"]")
    assert too_deep(b"[" + before + nested(MAX_NESTING, kind=kind) + b"]")


@pytest.mark.parametrize(
    "string",
    [rb'"]"', rb'"\""', rb'"\"]"', rb'"\\"', rb'"\\\"]]"', rb'"\n\\]"', rb'"[\u005d]]"', b'""', b'"[["'],
    ids=lambda string: string.decode(),
)
def test_brackets_in_strings_close_nothing_and_open_nothing(string: bytes) -> None:
    inner = b",".join([string] * 500)
    assert not too_deep(b"[%b,%b]" % (inner, nested(MAX_NESTING - 1, inner)))
    assert too_deep(b"[%b,%b]" % (inner, nested(MAX_NESTING, inner)))


@pytest.mark.parametrize("padding", range(-4, 5))
@pytest.mark.parametrize("string", [rb"\\]", rb"\"]", b"]", b"[", rb"\\\"]"])
def test_a_string_may_stand_across_two_parts(string: bytes, padding: int) -> None:
    head = b"[" * MAX_NESTING + b'"' + b"x" * (PART - MAX_NESTING - 1 + padding)
    text = head + string + b'",%b' + b"]" * MAX_NESTING
    assert not too_deep(text % b"1")
    assert too_deep(text % b"[]")


def test_it_says_what_a_walk_through_the_values_says() -> None:
    chance = random.Random(1)
    for _ in range(60):
        levels = chance.randint(MAX_NESTING - 3, MAX_NESTING + 3)
        value: object = chance.choice([["]"], ['"['], ["\\"], [1], {"}": "{"}])
        for _ in range(levels - 1):
            value = chance.choice([[value], {'a"[': value}, [[], value, "]"], ["\\", value, {}], {"x": {}, "y": value}])
        assert too_deep(json.dumps(value).encode()) == (levels > MAX_NESTING)


@pytest.mark.parametrize("text", [b"[" * 5000, b'{"a":' * 5000, b"[" * (MAX_NESTING + 1)])
def test_what_has_no_end_is_too_deep_as_well(text: bytes) -> None:
    assert too_deep(text)


def test_a_text_that_closes_more_than_it_opened_is_left_to_the_decoder() -> None:
    assert not too_deep(b"]" * 10 * PART + b"[" * 5000)


def test_what_is_refused_for_its_weight_is_not_looked_at() -> None:
    assert not too_deep(b"[" * (MOST_BRACKETS + 1))
    assert too_deep(b"[" * MOST_BRACKETS)


def test_the_worst_text_takes_a_bounded_time() -> None:
    """As many brackets as a message may have, all about the bound."""
    edge = MAX_NESTING - 1
    text = b"[" * edge + b"[]," * (MOST_BRACKETS - edge - BLOCK) + b"]" * edge
    began = time.process_time()
    assert not too_deep(text)
    assert time.process_time() - began < 2
