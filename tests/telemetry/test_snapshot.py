"""The metrics of several processes as those of one."""

from __future__ import annotations

from ferrule.telemetry.exposition import expose
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.snapshot import decode_snapshot, encode_snapshot, merge, take_snapshot, without_gauges
from ferrule.telemetry.table import TABLE, MetricRow

OWN = MetricRow("shop_orders_total", "counter", ("size",), "Orders.")


def process(calls: int, uptime: float, started: float) -> Metrics:
    """Return the metrics of one process, with one of its user's own."""
    metrics = Metrics((*TABLE, OWN))
    for _ in range(calls):
        metrics.histogram("ferrule_store_operation_seconds").labels("task_get").observe(0.3)
    metrics.counter("shop_orders_total").labels("large").add(calls)
    metrics.gauge("ferrule_sessions").labels("http").set(calls)
    metrics.gauge("ferrule_uptime_seconds").labels().set(uptime)
    metrics.gauge("process_start_time_seconds").labels().set(started)
    return metrics


def test_counters_and_gauges_are_added_up_unless_one_stands_for_all() -> None:
    snapshots = []
    for metrics in (process(2, 10.0, 500.0), process(3, 7.0, 400.0), process(0, 9.0, 600.0)):
        snapshots.append(decode_snapshot(encode_snapshot(take_snapshot(metrics))))
    text = expose(merge(snapshots)).decode()
    for line in (
        'ferrule_store_operation_seconds_bucket{op="task_get",le="0.2"} 0',
        'ferrule_store_operation_seconds_bucket{op="task_get",le="0.5"} 5',
        'ferrule_store_operation_seconds_count{op="task_get"} 5',
        'shop_orders_total{size="large"} 5',
        'ferrule_sessions{carrier="http"} 5',
        "ferrule_uptime_seconds 10",
        "process_start_time_seconds 400",
    ):
        assert line in text.splitlines()


def test_of_a_process_that_ended_what_it_counted_stays() -> None:
    ended = without_gauges(take_snapshot(process(2, 10.0, 500.0)))
    text = expose(merge([ended, take_snapshot(process(1, 3.0, 600.0))])).decode()
    assert 'shop_orders_total{size="large"} 3' in text
    assert 'ferrule_sessions{carrier="http"} 1' in text
    assert "process_start_time_seconds 600" in text


def test_nothing_merged_is_nothing_and_rows_that_differ_are_left_out() -> None:
    assert expose(merge([])) == b""
    other = Metrics([MetricRow("shop_orders_total", "counter", ("size",), "Orders.", edges=(1.0,))])
    other.counter("shop_orders_total").labels("large").add(100)
    merged = merge([take_snapshot(process(1, 1.0, 1.0)), take_snapshot(other)])
    assert merged.counter("shop_orders_total").labels("large").value == 1
