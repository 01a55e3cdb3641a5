"""Counters, gauges and histograms, and the bounds of their labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.telemetry.exposition import expose
from ferrule.telemetry.metrics import MAX_SERIES, OTHER, Histogram, Metrics
from ferrule.telemetry.table import EDGES, MetricRow

CALLS = MetricRow("calls_total", "counter", ("tool",), "Calls.")
LOAD = MetricRow("load", "gauge", (), "Load.")
WAIT = MetricRow("wait_seconds", "histogram", ("tool",), "Waits.", (1.0, 2.0, 4.0))


def series_of(metrics: Metrics) -> int:
    """Count the time series as a scrape shows them."""
    lines = expose(metrics).decode().splitlines()
    return sum(not line.startswith("#") for line in lines)


def test_a_counter_counts_and_a_gauge_rises_and_falls() -> None:
    metrics = Metrics([CALLS, LOAD])
    metrics.counter("calls_total").labels("add").add()
    metrics.counter("calls_total").labels("add").add(2)
    metrics.counter("calls_total").labels("mul").add()
    metrics.gauge("load").labels().set(5)
    metrics.gauge("load").labels().add()
    metrics.gauge("load").labels().add(-2)
    assert {key: child.value for key, child in metrics.counter("calls_total").children.items()} == {
        ("add",): 3,
        ("mul",): 1,
    }
    assert metrics.gauge("load").labels().value == 4


def test_a_value_at_an_edge_belongs_below_it() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    for value in (0.0, 1.0, 1.1, 2.0, 4.0, 4.1, 100.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1, 2]
    assert histogram.sum == pytest.approx(112.2)
    assert histogram.count == 7


@given(st.lists(st.floats(0.0, 400.0)))
def test_each_value_is_counted_in_the_first_bucket_that_holds_it(values: list[float]) -> None:
    histogram = Histogram(EDGES)
    for value in values:
        histogram.observe(value)
    for position, edge in enumerate(EDGES):
        assert sum(histogram.counts[: position + 1]) == sum(value <= edge for value in values)
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values))


def test_the_child_of_some_labels_is_made_once() -> None:
    metrics = Metrics([CALLS])
    assert metrics.counter("calls_total").labels("add") is metrics.counter("calls_total").labels("add")


def test_a_label_has_a_thousand_values_and_all_others_together_one() -> None:
    metrics = Metrics([CALLS])
    calls = metrics.counter("calls_total")
    for number in range(1_500):
        calls.labels(f"tool {number}").add()
    assert len(calls.children) == 1_001
    assert calls.labels(OTHER).value == 500
    assert calls.labels("tool 999").value == 1
    assert calls.labels("tool 1000") is calls.labels(OTHER)
    assert calls.labels("").value == 0


def test_a_hundred_thousand_names_make_at_most_five_thousand_series() -> None:
    """SOK-07: whatever the metric, and nothing is lost."""
    metrics = Metrics()
    served = metrics.histogram("mcp_server_operation_duration_seconds")
    for number in range(100_000):
        served.labels("tools/call", f"tool {number}", "", "pipe", "").observe(0.001)
        metrics.counter("ferrule_retries_total").labels(f"upstream {number}", "lost").add()
        metrics.gauge("ferrule_worker_up").labels(str(number)).set(1)
    assert MAX_SERIES == 5_000
    assert series_of(metrics) <= 5_000
    assert sum(child.count for child in served.children.values()) == 100_000
    assert served.labels(*[OTHER] * 5).count > 99_000


def test_the_budget_of_series_is_counted_as_a_scrape_counts() -> None:
    metrics = Metrics([WAIT, CALLS], max_series=40)
    for number in range(100):
        metrics.histogram("wait_seconds").labels(f"tool {number}").observe(1)
        metrics.counter("calls_total").labels(f"tool {number}").add()
    assert 35 <= series_of(metrics) <= 40


def test_a_removed_child_makes_room() -> None:
    metrics = Metrics([CALLS], max_values=2, max_series=4)
    calls = metrics.counter("calls_total")
    for number in range(10):
        calls.labels(f"tool {number}").add()
        calls.remove(f"tool {number}")
    calls.remove("nobody")
    assert calls.children == {}
    calls.labels("a")
    calls.labels("b")
    assert calls.labels("c") is calls.labels(OTHER)
    calls.remove("a")
    assert calls.labels("c") is not calls.labels(OTHER)


def test_a_long_value_is_cut() -> None:
    metrics = Metrics([CALLS])
    metrics.counter("calls_total").labels("x" * 1_000).add()
    assert list(metrics.counter("calls_total").children) == [("x" * 128,)]


def test_a_gauge_is_the_sum_of_its_sources_and_a_counter_never_falls() -> None:
    metrics = Metrics([CALLS, LOAD])
    loads = [3, 4]
    counts = [10, 20]
    ends = [metrics.watch("load", source=lambda place=place: loads[place]) for place in (0, 1)]
    ends += [metrics.watch("calls_total", "add", source=lambda place=place: counts[place]) for place in (0, 1)]
    metrics.read()
    assert (metrics.gauge("load").labels().value, metrics.counter("calls_total").labels("add").value) == (7, 30)
    counts[0] = 15
    for end in (*ends, *ends):
        end()
    counts[1] = loads[1] = 1_000
    metrics.read()
    assert (metrics.gauge("load").labels().value, metrics.counter("calls_total").labels("add").value) == (0, 35)


def test_a_source_that_fails_leaves_the_rest_readable(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics([CALLS, LOAD])
    metrics.counter("calls_total").labels("add").add()
    metrics.watch("load", source=lambda: 1 / 0)
    assert [metric.row.name for metric in metrics.read()] == ["calls_total", "load"]
    assert "a reader of metrics failed" in caplog.text


def test_readers_are_called_before_metrics_are_read(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics([LOAD])

    def broken() -> None:
        raise ValueError("no")

    metrics.before_reading(broken)
    metrics.before_reading(lambda: metrics.gauge("load").labels().set(7))
    [metric] = metrics.read()
    assert metric.row.name == "load"
    assert metrics.gauge("load").labels().value == 7
    assert "a reader of metrics failed, which was ignored" in caplog.text


def test_metrics_without_children_are_not_read() -> None:
    metrics = Metrics()
    metrics.counter("ferrule_refusals_total")
    assert metrics.read() == []


def test_wrong_use_is_told_with_the_name() -> None:
    metrics = Metrics([CALLS])
    with pytest.raises(SetupError, match="no metric 'cals_total'"):
        metrics.counter("cals_total")
    with pytest.raises(SetupError, match="'calls_total' is a counter, not a gauge"):
        metrics.gauge("calls_total")
    with pytest.raises(SetupError, match="calls_total has the labels tool, and was given 2 values"):
        metrics.counter("calls_total").labels("a", "b")
    with pytest.raises(SetupError, match="has a metric of this name already"):
        metrics.add(CALLS)
    with pytest.raises(SetupError, match="has a metric of this name already"):
        metrics.add(MetricRow("calls", "gauge", (), "The same family in OpenMetrics."))
