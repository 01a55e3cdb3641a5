"""What a JSON text will take in memory once it is decoded, estimated without decoding it.

A number of two bytes becomes an object of 32, an object with one member one of 200, so 16 MiB of `[[],[],…` become half
a gibibyte. Counting separators is as fast as reading memory and errs upwards only: those inside strings count too.
"""

from __future__ import annotations

LIGHT = 16 * 1024
"""A text up to this size is charged by its size alone; there can be only so many of them."""

PER_VALUE = 40
PER_LIST = 72
PER_OBJECT = 200
MOST_PER_BYTE = 2 + PER_OBJECT
"""No text weighs more than this per byte."""

FEW = 16
"""How many of a separator are looked for one by one before all are counted."""


def weight(text: bytes) -> int:
    """Estimate how many bytes a JSON text takes while it is worked on: itself, its strings again, and its values."""
    size = len(text)
    if size <= LIGHT:
        return size
    return full_weight(text)


def full_weight(text: bytes) -> int:
    """Estimate the same for a text of any size: for what is kept rather than worked on."""
    values = PER_VALUE * _count(text, b",") + PER_LIST * _count(text, b"[") + PER_OBJECT * _count(text, b"{")
    return 2 * len(text) + values


def _count(text: bytes, mark: bytes) -> int:
    """Count a byte. Where it is rare, as in a long string, finding it is eight times as fast as counting it."""
    found = 0
    at = text.find(mark)
    while at >= 0 and found < FEW:
        found += 1
        at = text.find(mark, at + 1)
    if at < 0:
        return found
    return found + text.count(mark, at)
