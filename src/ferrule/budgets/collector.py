"""Long texts are decoded, and our modules imported, without the garbage collector.

Both make many objects that all live. The collector would run every few hundred of them and look at the same ones again
and again: four megabytes of nested objects take 90 ms without it and 220 ms with it, a server's modules 70 and 77 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TypeVar

LONG = 256 * 1024
"""Bytes of a text from which on it is decoded without the collector."""

Source = TypeVar("Source")
Value = TypeVar("Value")


class CollectorPaused:
    """Holds the garbage collector back while a block runs; within another such block it does nothing."""

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._was_on:
            gc.enable()


def decode_long(decode: Callable[[Source], Value], text: Source, size: int) -> Value:
    """Decode a text, without the collector where it is long."""
    if size <= LONG:
        return decode(text)
    with CollectorPaused():
        return decode(text)


def import_to_stay(name: str) -> ModuleType:
    """Import a module and all it needs, which live as long as the process."""
    if name in sys.modules or not gc.isenabled() or gc.get_freeze_count():
        return import_module(name)
    with CollectorPaused():
        module = import_module(name)
        # Thawed again, all there is counts as old: otherwise the collector would look through it in its next round.
        gc.freeze()
        gc.unfreeze()
    return module
