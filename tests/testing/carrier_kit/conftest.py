"""Lets these tests use our own carriers, described for the kit."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(TESTS / "carriers"), str(TESTS / "transports")]
