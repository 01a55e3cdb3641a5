"""The weight of a JSON text is at least what its values take once they are decoded."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from ferrule.budgets.weight import FEW, LIGHT, PER_LIST, PER_OBJECT, PER_VALUE, full_weight, weight

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
