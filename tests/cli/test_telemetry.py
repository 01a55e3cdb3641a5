"""`ferrule telemetry`."""

from __future__ import annotations

import json

import pytest

from ferrule.cli.main import main
from ferrule.telemetry.table import TABLE


def test_a_dashboard_has_a_panel_for_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    main(["telemetry", "grafana", "--title", "Shop"])
    board = json.loads(capsys.readouterr().out)
    assert board["title"] == "Shop"
    assert {panel["title"] for panel in board["panels"]} == {row.name for row in TABLE}


def test_anything_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["telemetry", "kibana"])
    assert "invalid choice: 'kibana'" in capsys.readouterr().err
