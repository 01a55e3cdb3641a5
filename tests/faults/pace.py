"""How quick is quick enough: bounds for a quiet machine, wide ones that hold on any, and CPU time, which does on both.

A test that uses `LONG`, `TURN` or `prompt` does less, or bounds less, by default: `tests/spec/coverage_map.py` counts
what it claims as proven in the long run only, where the requirement has a number. Bound the CPU time instead where you
can.
"""

from __future__ import annotations

import os
from pathlib import Path

LONG = bool(os.environ.get("FERRULE_LONG"))
TURN = 0.1 if LONG else 0.3
"""Seconds of CPU in one turn of a loop; where others share the core and its caches the same work takes far more."""
TICK = 1 / os.sysconf("SC_CLK_TCK")


def prompt(seconds: float) -> float:
    """Return a bound on time: this one with FERRULE_LONG, on a quiet machine; else one that only blunders exceed."""
    return seconds if LONG else max(20 * seconds, 2.0)


def cpu_of(pid: int) -> float:
    """Return the CPU time in seconds that a process has used, by all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK
