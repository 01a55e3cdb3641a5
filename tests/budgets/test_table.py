"""Each bound of docs/guides/limits.md on what a peer may send or hold, tried below, at and above its value."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from table import NO_BOUNDS, PERIODS, PROBES, Period, Probe  # noqa: E402

from ferrule.budgets import process  # noqa: E402
from ferrule.budgets.account import Account  # noqa: E402
from ferrule.testing import run_in_virtual_time  # noqa: E402

for _module in sorted(HERE.glob("probes_*.py")):
    importlib.import_module(_module.stem)

PAGE = HERE.parents[1] / "docs" / "guides" / "limits.md"
ROW = re.compile(r"^\| [^|]+ \| [^|]+ \| `([^`]+)`", re.MULTILINE)
BUDGETED = re.compile(r"^\| [^|]+ \| [^|]+ \| `(ferrule\.budgets\.[\w.]+)`", re.MULTILINE)


def value_of(where: str) -> float:
    """Return the number that stands at a place of the code."""
    module, _, name = where.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    return getattr(found, "limit", found)


def limit_of(each: Probe) -> int:
    """Return the limit that is in force for a probe."""
    return int(value_of(each.where)) if each.lowered is None else each.lowered


def time_of(each: Period) -> float:
    """Return the time that is in force for a probe."""
    return value_of(each.where) if each.lowered is None else each.lowered


def test_every_bound_of_the_room_of_budgets_is_on_the_page_and_has_a_probe():
    bounds = importlib.import_module("ferrule.budgets.bounds")
    named = {f"ferrule.budgets.bounds.{name}" for name in vars(bounds) if name.startswith("MAX_")}
    named |= {f"ferrule.budgets.process.{name}" for name, found in vars(process).items() if isinstance(found, Account)}
    written = set(BUDGETED.findall(PAGE.read_text(encoding="utf-8")))
    assert named - written == set(), "not in docs/guides/limits.md"
    assert {each for each in written if ".bounds." in each or ".process." in each} - PROBES.keys() == set(), "no probe"


def test_every_probe_is_of_a_row_of_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert [where for where in [*PROBES, *PERIODS, *NO_BOUNDS] if f"`{where}`" not in page] == []


def test_every_row_of_the_page_is_tried_or_says_why_there_is_nothing_to_try():
    """BUD-22."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) > 350
    assert [where for where in rows if where not in {**PROBES, **PERIODS, **NO_BOUNDS}] == []


@pytest.mark.parametrize("each", PROBES.values(), ids=PROBES.keys())
@pytest.mark.parametrize(
    ("factor", "more", "taken"),
    [(1, -1, True), (1, 0, True), (1, 1, False), (1000, 0, False)],
    ids=["one less", "the limit", "one more", "a thousandfold"],
)
def test_a_bound_holds(each: Probe, factor: int, more: int, taken: bool):
    """BUD-22."""
    limit = limit_of(each)
    waiting = process.answers.held
    assert asyncio.run(each.attempt(limit, limit * factor + more)) is taken
    assert process.answers.held == waiting, "what waited for a peer is still counted"


@pytest.mark.parametrize("each", PERIODS.values(), ids=PERIODS.keys())
@pytest.mark.parametrize(
    ("factor", "stands"),
    [(0.99, True), (1.01, False), (1000, False)],
    ids=["shortly before", "shortly after", "a thousandfold"],
)
def test_a_time_ends(each: Period, factor: float, stands: bool):
    """BUD-22."""
    lasts = time_of(each)
    assert run_in_virtual_time(each.attempt(lasts, lasts * factor)) is stands
