"""When a worker is replaced though nothing is wrong with it: it is old, or holds much memory."""

from __future__ import annotations

from msgspec import Struct

LEAST_AGE = 2.0
"""A worker is left alone for so many seconds, however it grows."""
JITTER = 0.2
"""By which share of the age a worker may be replaced earlier, so that those who began together do not end together."""
MIB = 1024 * 1024


class RecycleRule(Struct, frozen=True):
    """What a worker may become before it is replaced. Pure: age and chance are arguments."""

    max_age: float | None = None
    """Seconds."""
    max_memory: int | None = None
    """Bytes."""

    def reason(self, age: float, memory: int, at_first: int, chance: float) -> str:
        """Return why a worker is to be replaced, empty where it is not.

        A worker that held too much when it began would be no better after a replacement, and stays.
        """
        if age < LEAST_AGE:
            return ""
        if self.max_age is not None and age >= self.max_age * (1 - JITTER * chance):
            return f"it is {age:.0f} s old"
        if self.max_memory is not None and memory > self.max_memory >= at_first:
            return f"it holds {memory // MIB} MiB of memory, more than {self.max_memory // MIB}"
        return ""

    def begins_above(self, at_first: int) -> bool:
        """Whether a worker holds too much memory as soon as it serves."""
        return self.max_memory is not None and at_first > self.max_memory
