"""Lets the tests of this folder import what those of all stores share, and the bounds of the fault tests."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "stores"), str(TESTS / "faults")]
