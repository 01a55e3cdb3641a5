"""Lets the tests of this folder import what they share, and the certificates of the transports' tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patient_kit import be_patient

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "transports")]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)
