"""Probes of the limits: for each bound on what a peer may send or hold, how to send or hold so much.

A probe is an async function that takes the limit in force and a size, brings that size to the real thing, and returns
whether it was taken. That of a time (`period`) runs on a virtual clock: it takes the time in force and the seconds that
pass, and returns whether the thing still stands after them. What is on the page and bounds nothing that a peer sends or
holds says so with `no_bound`. Each module `tests/budgets/probes_*.py` registers its own; `test_table.py` tries all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

Try = Callable[[int, int], Awaitable[bool]]
Wait = Callable[[float, float], Awaitable[bool]]


class Probe(NamedTuple):
    """How one bound is tried."""

    where: str
    """The third column of its row in `docs/guides/limits.md`."""
    attempt: Try
    lowered: int | None
    """The limit the probe puts in force where the default is too large to exceed a thousandfold; None: the default."""
    clamps: bool
    """Whether what is too much is cut or evicted rather than refused: then the probe returns whether all was kept."""


class Period(NamedTuple):
    """How one bound on time is tried."""

    where: str
    attempt: Wait
    lowered: float | None
    """The time the probe puts in force where it needs another than the default."""


PROBES: dict[str, Probe] = {}
PERIODS: dict[str, Period] = {}
NO_BOUNDS: dict[str, str] = {}
"""Rows of the page that bound nothing a peer sends or holds, with what they are instead."""


def probe(where: str, *, lowered: int | None = None, clamps: bool = False) -> Callable[[Try], Try]:
    """Register a probe of the bound that stands at this place of the code."""

    def register(attempt: Try) -> Try:
        assert where not in PROBES, f"{where} has two probes"
        PROBES[where] = Probe(where, attempt, lowered, clamps)
        return attempt

    return register


def period(where: str, *, lowered: float | None = None) -> Callable[[Wait], Wait]:
    """Register a probe of the time that stands at this place of the code."""

    def register(attempt: Wait) -> Wait:
        assert where not in PERIODS, f"{where} has two probes"
        PERIODS[where] = Period(where, attempt, lowered)
        return attempt

    return register


def no_bound(where: str, reason: str) -> None:
    """Say of a row of the page why there is nothing to try."""
    assert where not in NO_BOUNDS, f"{where} is said twice"
    NO_BOUNDS[where] = reason
