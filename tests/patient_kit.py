"""Has more patience with carriers than the kit itself: these machines may be slow and busy."""

from __future__ import annotations

import pytest

from ferrule.testing.carrier_kit import Carrier, carrier, life
from ferrule.testing.carrier_kit import verdict as judging


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every rule wait for as long as it may take on a machine that does a lot besides."""
    monkeypatch.setattr(Carrier, "patience", 60.0)
    monkeypatch.setattr(carrier, "READY_WITHIN", 60.0)
    monkeypatch.setattr(life, "READY_WITHIN", 60.0)
    monkeypatch.setattr(life, "SETTLE_WITHIN", 20.0)
    monkeypatch.setattr(judging, "PATIENCE", 300.0)
