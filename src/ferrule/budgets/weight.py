"""What a JSON text will take in memory once it is decoded, and how deep it is nested, told without decoding it.

A number of two bytes becomes an object of 32, an object with one member one of 200, so 16 MiB of `[[],[],…` become half
a gibibyte. Counting separators is as fast as reading memory and errs upwards only: those inside strings count too.

The depth has one bound, whatever the interpreter allows: with 3.11 the decoder stops at what is left of a thousand
levels, later at ten thousand or where the stack ends. Few texts have enough brackets to come near the bound, and only
those are looked at closely.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ferrule.budgets.bounds import MAX_MESSAGE_WEIGHT, MAX_NESTING

LIGHT = 16 * 1024
"""A text up to this size is charged by its size alone; there can be only so many of them."""

PER_VALUE = 40
PER_LIST = 72
PER_OBJECT = 200
MOST_PER_BYTE = 2 + PER_OBJECT
"""No text weighs more than this per byte."""

FEW = 16
"""How many of a separator are looked for one by one before all are counted."""

PART = 64 * 1024
"""How much of a text is looked at a time: nothing longer than this is copied."""

BLOCK = 256
"""How many brackets are counted at once while they cannot reach the bound."""

MOST_BRACKETS = MAX_MESSAGE_WEIGHT // PER_LIST
"""A text that opens more than this is refused for its weight, and is not looked at."""

OPENING = ord("[")
TO_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


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


def too_deep(text: bytes) -> bool:
    """Whether a text is nested deeper than MAX_NESTING; for one that is not JSON the answer may be either."""
    if len(text) <= MAX_NESTING:
        return False
    if not MAX_NESTING < _count(text, b"[") + _count(text, b"{") <= MOST_BRACKETS:
        return False
    depth = 0
    quoted = False
    start = 0
    while start < len(text) and depth >= 0:
        end = start + PART
        if _escapes(text[start:end]):
            end += 1
        part = _marks(text[start:end])
        found = _deepest(b"".join(part.split(b'"')[quoted::2]), depth)
        if found is None:
            return True
        depth = found
        quoted ^= part.count(b'"') % 2 == 1
        start = end
    return False


def nests_too_deep(text: bytes) -> bool:
    """The same from Python 3.12 on: with 3.11 the decoder itself stops, and a look costs more than decoding."""
    return sys.version_info >= (3, 12) and too_deep(text)


def bounded_depth(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decoder that raises RecursionError for what is nested too deeply: with 3.11, that is any decoder."""
    if sys.version_info < (3, 12):
        return decode

    def read(text: Any) -> Any:
        if len(text) > MAX_NESTING and too_deep(bytes(text)):
            raise RecursionError("nested too deeply")
        return decode(text)

    return read


def _escapes(part: bytes) -> bool:
    """Whether the last byte escapes the next one."""
    return (len(part) - len(part.rstrip(b"\\"))) % 2 == 1


def _marks(part: bytes) -> bytes:
    """Leave brackets, all as square ones, and the quotes around strings that have some."""
    if b"\\" in part:
        part = part.replace(rb"\\", b"").replace(rb"\"", b"")
    return part.translate(TO_SQUARE, NO_BRACKETS).replace(b'""', b"")


def _deepest(brackets: bytes, depth: int) -> int | None:
    """Return how deep it is behind the brackets, None if that was too deep on the way."""
    for start in range(0, len(brackets), BLOCK):
        block = brackets[start : start + BLOCK]
        opened = block.count(b"[")
        if depth + opened > MAX_NESTING and _passes(block, MAX_NESTING - depth):
            return None
        depth += 2 * opened - len(block)
    return depth


def _passes(block: bytes, room: int) -> bool:
    for bracket in block:
        room += -1 if bracket == OPENING else 1
        if room < 0:
            return True
    return False
