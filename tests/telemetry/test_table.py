"""The table of metrics, and what is written from it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ferrule.errors import SetupError
from ferrule.telemetry.dashboard import dashboard
from ferrule.telemetry.table import CONVENTION_EDGES, EDGES, TABLE, MetricRow, as_markdown


def test_every_name_is_there_once() -> None:
    families = [row.family for row in TABLE]
    assert sorted(set(families)) == sorted(families)


def test_no_label_holds_an_id_a_uri_or_a_principal() -> None:
    """SOK-07"""
    labels = {label for row in TABLE for label in row.labels}
    assert not [label for label in labels if re.search(r"(^|_)(id|uri|principal|session|user|address)(_|$)", label)]


def test_the_edges_are_those_of_the_conventions_and_finer_ones_below() -> None:
    assert CONVENTION_EDGES == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
    assert (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, *CONVENTION_EDGES) == EDGES


def test_the_table_as_a_page_has_a_line_for_each_metric() -> None:
    lines = as_markdown().splitlines()
    assert len(lines) == len(TABLE) + 2
    assert "| `ferrule_sessions_ended_total` | counter | `carrier`, `reason` | Sessions that ended. |" in lines


def test_a_dashboard_shows_every_metric() -> None:
    made = json.loads(json.dumps(dashboard()))
    shown = {panel["title"] for panel in made["panels"]}
    assert shown == {row.name for row in TABLE}
    identities = [panel["id"] for panel in made["panels"]]
    assert identities == list(range(1, len(identities) + 1))
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]}
    assert len(places) == len(identities)


def test_the_queries_of_a_dashboard_name_metrics_and_labels_that_exist() -> None:
    queries = []
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            queries.append(target["expr"])
            assert target["expr"].count("(") == target["expr"].count(")")
    assert (
        "histogram_quantile(0.95, sum by (le) (rate(mcp_server_operation_duration_seconds_bucket"
        '{job=~"$job", instance=~"$instance"}[$__rate_interval])))'
    ) in queries
    assert 'sum by (listener) (ferrule_connections{job=~"$job", instance=~"$instance"})' in queries
    known = {row.name for row in TABLE}
    for query in queries:
        [name] = re.findall(r"([a-z_]+)\{", query)
        assert name in known or re.sub(r"_(bucket|count)$", "", name) in known


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (("a-b", "gauge", (), ""), "letters, digits and underscores"),
        (("calls", "counter", (), ""), "must end with _total"),
        (("a", "gauge", ("le",), ""), "'le' cannot be the name of a label"),
        (("a", "gauge", ("a-b",), ""), "'a-b' cannot be the name of a label"),
        (("a", "histogram", (), "", (2.0, 1.0)), "must rise"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(row: tuple[object, ...], match: str) -> None:
    with pytest.raises(SetupError, match=match):
        MetricRow(*row)  # type: ignore[arg-type]


def test_the_guide_lists_every_metric() -> None:
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "metrics.md"
    assert as_markdown() in guide.read_text(encoding="utf-8")
