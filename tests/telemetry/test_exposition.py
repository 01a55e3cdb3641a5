"""Metrics as text, read by the parser of Prometheus' own client."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from ferrule.telemetry.exposition import OPENMETRICS, PROMETHEUS, content_type_for, expose
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.table import EDGES, TABLE, MetricRow

READERS = {PROMETHEUS: read_prometheus, OPENMETRICS: read_openmetrics}
each_format = pytest.mark.parametrize("content_type", READERS)


def read(metrics: Metrics, content_type: str) -> dict[str, Any]:
    """Return the families a scrape shows, by name."""
    text = expose(metrics, content_type).decode()
    return {family.name: family for family in READERS[content_type](text)}


def filled() -> Metrics:
    """Return metrics with one child for every row of our table."""
    metrics = Metrics()
    for row in TABLE:
        values = [f"{label} value" for label in row.labels]
        if row.type == "counter":
            metrics.counter(row.name).labels(*values).add(3)
        elif row.type == "gauge":
            metrics.gauge(row.name).labels(*values).set(-1.5)
        else:
            metrics.histogram(row.name).labels(*values).observe(0.00002)
    return metrics


@each_format
def test_a_real_parser_reads_every_metric_of_the_table(content_type: str) -> None:
    """OBSV-08: names, kinds and labels."""
    found = read(filled(), content_type)
    assert len(found) == len(TABLE)
    for row in TABLE:
        family = found[row.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (row.type, row.help)
        for sample in family.samples:
            labels = {name for name in sample.labels if name != "le"}
            assert labels == set(row.labels)


@each_format
def test_a_histogram_has_buckets_that_add_up_and_a_sum(content_type: str) -> None:
    metrics = Metrics()
    histogram = metrics.histogram("mcp_server_operation_duration_seconds")
    child = histogram.labels("tools/call", "add", "", "pipe", "")
    for seconds in (0.00002, 0.0001, 0.3, 1000.0):
        child.observe(seconds)
    [family] = read(metrics, content_type).values()
    buckets = {}
    rest = {}
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            buckets[float(sample.labels["le"])] = sample.value
        else:
            rest[sample.name.rpartition("_")[2]] = sample.value
        assert sample.labels["gen_ai_tool_name"] == "add"
        assert "error_type" not in sample.labels
    assert list(buckets) == [*EDGES, math.inf]
    assert (buckets[0.0001], buckets[0.2], buckets[0.5], buckets[300.0], buckets[math.inf]) == (2, 2, 3, 3, 4)
    assert rest == {"count": 4, "sum": pytest.approx(1000.30012)}


@each_format
@given(value=st.text(max_size=30), number=st.floats())
def test_any_label_value_and_any_number_comes_back(content_type: str, value: str, number: float) -> None:
    encodable = value.encode("utf-8", "replace").decode()
    metrics = Metrics([MetricRow("odd", "gauge", ("name",), 'A "help"\nwith \\ everything.')])
    metrics.gauge("odd").labels(encodable).set(number)
    [family] = read(metrics, content_type).values()
    [sample] = family.samples
    assert sample.labels.get("name", "") == encodable
    assert sample.value == number or (math.isnan(sample.value) and math.isnan(number))
    assert family.documentation == 'A "help"\nwith \\ everything.'


def test_both_formats_of_a_counter_as_they_are_written() -> None:
    metrics = Metrics([MetricRow("calls_total", "counter", ("tool",), "Calls.")])
    assert expose(metrics) == b""
    assert expose(metrics, OPENMETRICS) == b"# EOF\n"
    metrics.counter("calls_total").labels("add").add(2)
    assert expose(metrics).decode().splitlines() == [
        "# HELP calls_total Calls.",
        "# TYPE calls_total counter",
        'calls_total{tool="add"} 2',
    ]
    assert expose(metrics, OPENMETRICS).decode().splitlines() == [
        "# HELP calls Calls.",
        "# TYPE calls counter",
        'calls_total{tool="add"} 2',
        "# EOF",
    ]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", PROMETHEUS),
        ("*/*", PROMETHEUS),
        ("text/html", PROMETHEUS),
        ("text/plain;version=0.0.4", PROMETHEUS),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0, text/plain;q=0.5", OPENMETRICS),
        ("Application/OpenMetrics-Text;version=0.0.1;q=0.9,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.5", PROMETHEUS),
        ("application/openmetrics-text;q=0", PROMETHEUS),
        ("application/openmetrics-text;version=9.0.0", PROMETHEUS),
        ("application/openmetrics-text;q=much", PROMETHEUS),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
            "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            OPENMETRICS,
        ),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept: str, expected: str) -> None:
    assert content_type_for(accept) == expected
