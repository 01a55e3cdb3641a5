"""Probes of the limits: for each bound on what a peer may send or hold, how to send or hold so much.

A probe is an async function that takes the limit in force and a size, brings that size to the real thing, and returns
whether it was taken. Each module `tests/budgets/probes_*.py` registers its own; `test_table.py` tries them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

Try = Callable[[int, int], Awaitable[bool]]


class Probe(NamedTuple):
    """How one bound is tried."""

    where: str
    """The third column of its row in `docs/guides/limits.md`."""
    attempt: Try
    lowered: int | None
    """The limit the probe puts in force where the default is too large to exceed a thousandfold; None: the default."""
    clamps: bool
    """Whether what is too much is cut or evicted rather than refused: then the probe returns whether all was kept."""


PROBES: dict[str, Probe] = {}


def probe(where: str, *, lowered: int | None = None, clamps: bool = False) -> Callable[[Try], Try]:
    """Register a probe of the bound that stands at this place of the code."""

    def register(attempt: Try) -> Try:
        assert where not in PROBES, f"{where} has two probes"
        PROBES[where] = Probe(where, attempt, lowered, clamps)
        return attempt

    return register
