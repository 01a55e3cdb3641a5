"""Lets these tests use our own carriers, described for the kit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patient_kit import be_patient

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(TESTS / "carriers"), str(TESTS / "transports")]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)
