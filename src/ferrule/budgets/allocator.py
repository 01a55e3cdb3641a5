"""The memory of large messages is kept while they come, and given back to the system when they stop.

The C library gives each large block back at once and takes it anew for the next message, page by page: a third of what
a message of a megabyte costs. Its thresholds hold for the whole process, so only `app.run`, whose process is its own,
raises them, from a large message on until none came for a while: what is taken after that is given back at once again.
Where the C library has no such thresholds nothing is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from ferrule.budgets import process

TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
"""What glibc calls them (malloc.h)."""

LARGEST_BLOCK = 32 * 1024 * 1024
"""Bytes of the largest block that is kept; glibc allows no more."""
KEPT = 2 * LARGEST_BLOCK
"""Bytes that are kept at the end of the heap until all is given back."""
USUAL = 128 * 1024
"""Both thresholds as the C library has them at first."""
QUIET = 2.0
"""Seconds without a large message after which all that is free is given back."""
LITTLE = 1024 * 1024
"""Bytes of messages that may still be held when nobody looks again: giving these back can wait."""


class Thresholds(Protocol):
    """The functions of glibc that this needs."""

    mallopt: Callable[[int, int], int]
    malloc_trim: Callable[[int], int]


class Allocator:
    """Sets how much freed memory the C library keeps."""

    def __init__(self, quiet: float = QUIET) -> None:
        self._quiet = quiet
        self._owns_process = False
        self._library: Thresholds | None = None
        self._looked = False
        self._large_messages = 0
        self._keeps = False
        self._waiting = False

    def own_process(self) -> None:
        """Allow it to change what holds for the whole process."""
        self._owns_process = True

    def large_message(self) -> None:
        """Keep memory from now on: a large message is read or written."""
        if not self._owns_process:
            return
        self._large_messages += 1
        if not self._looked:
            self._looked = True
            self._library = _library()
        if self._library is not None and not self._keeps:
            self._keeps = True
            self._library.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
            self._library.mallopt(TRIM_THRESHOLD, KEPT)
        if self._library is not None and not self._waiting:
            self._waiting = True
            self._look_later(self._library)

    def _look_later(self, library: Thresholds) -> None:
        asyncio.get_running_loop().call_later(self._quiet, self._look, self._large_messages, library)

    def _look(self, seen: int, library: Thresholds) -> None:
        """Return free memory to the system where no large message came since the last look, until little is held."""
        if self._large_messages != seen:
            self._look_later(library)
            return
        if self._keeps:
            self._keeps = False
            library.mallopt(MMAP_THRESHOLD, USUAL)
            library.mallopt(TRIM_THRESHOLD, USUAL)
        library.malloc_trim(0)
        # What was taken while much was kept is between other blocks: it is not given back when it becomes free.
        if process.requests.held + process.answers.held > LITTLE:
            self._look_later(library)
        else:
            self._waiting = False


def _library() -> Thresholds | None:
    """Return the C library where it is glibc."""
    import ctypes  # six milliseconds, which most programs never need

    try:
        library = ctypes.CDLL(None)
        _ = library.mallopt, library.malloc_trim
    except (OSError, TypeError, AttributeError):
        return None
    return cast("Thresholds", library)


allocator = Allocator()
"""That of this process."""
