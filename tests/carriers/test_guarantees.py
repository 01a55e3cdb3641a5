"""The table of guarantees: each cell is shown to hold, and the guide says just that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import guarantees
import pytest

PATIENCE = 120.0
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "guarantees.md"


@pytest.mark.parametrize(("guarantee", "row"), guarantees.all_cells())
def test_a_transport_holds_what_the_table_says(guarantee: str, row: str) -> None:
    """GUAR-01, GUAR-02, GUAR-03, GUAR-04, GUAR-05, GUAR-06, GUAR-10."""
    asyncio.run(asyncio.wait_for(guarantees.TABLE[guarantee][row].proof(guarantees.ROWS[row]), PATIENCE))


def test_the_guide_shows_the_table() -> None:
    """GUAR-01, GUAR-04: what arrives whole, and what is kept, is documented for each transport."""
    assert guarantees.rendered() in GUIDE.read_text(encoding="utf-8")
