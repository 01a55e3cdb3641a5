"""How quick is quick enough: bounds for a quiet machine, and wide ones that hold on any."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("FERRULE_LONG"))


def prompt(seconds: float) -> float:
    """Give a bound on time: this one with FERRULE_LONG, on a machine of its own; else one that only blunders exceed."""
    return seconds if LONG else max(20 * seconds, 2.0)
