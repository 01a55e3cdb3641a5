"""Metrics as another process can read them, and the metrics of several processes as those of one.

Rule: counters and histograms are added up. A gauge is added up too, unless its row says that the highest or the lowest
value stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from ferrule.telemetry.metrics import MAX_SERIES, MAX_VALUES, Gauge, Histogram, Metric, Metrics
from ferrule.telemetry.table import TABLE, MetricRow


class NumberCopy(Struct, frozen=True, array_like=True):
    """A counter or a gauge at one moment."""

    labels: tuple[str, ...]
    value: float


class HistogramCopy(Struct, frozen=True, array_like=True):
    """A histogram at one moment."""

    labels: tuple[str, ...]
    counts: list[int]
    sum: float


class MetricCopy(Struct, frozen=True, array_like=True):
    """One metric at one moment."""

    row: MetricRow
    numbers: list[NumberCopy] = []
    histograms: list[HistogramCopy] = []


Snapshot = list[MetricCopy]

encode_snapshot = msgspec.msgpack.Encoder().encode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode


def take_snapshot(metrics: Metrics) -> Snapshot:
    """Return all metrics as they are now."""
    found = []
    for metric in metrics.read():
        copy = MetricCopy(metric.row, [], [])
        for labels, child in metric.children.items():
            if isinstance(child, Histogram):
                copy.histograms.append(HistogramCopy(labels, list(child.counts), child.sum))
            else:
                copy.numbers.append(NumberCopy(labels, child.value))
        found.append(copy)
    return found


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """Return what still counts of a process that has ended."""
    return [copy for copy in snapshot if copy.row.type != "gauge"]


def merge(snapshots: Iterable[Snapshot]) -> Metrics:
    """Return the metrics of several processes as those of one; each keeps its own limits of time series."""
    together = list(snapshots)
    room = max(len(together), 1)
    merged = Metrics(TABLE, max_series=MAX_SERIES * room, max_values=MAX_VALUES * room)
    known = {row.name: row for row in merged.rows}
    for snapshot in together:
        for copy in snapshot:
            name = copy.row.name
            if name not in known:
                known[name] = copy.row
                merged.add(copy.row)
            if known[name].type == copy.row.type and known[name].edges == copy.row.edges:
                _add(merged, copy)
    return merged


def _add(merged: Metrics, copy: MetricCopy) -> None:
    row = copy.row
    for histogram in copy.histograms:
        total = merged.histogram(row.name).labels(*histogram.labels)
        for bucket, count in enumerate(histogram.counts):
            total.counts[bucket] += count
        total.sum += histogram.sum
    for number in copy.numbers:
        if row.type == "counter":
            merged.counter(row.name).labels(*number.labels).add(number.value)
        else:
            _add_gauge(merged.gauge(row.name), number)


def _add_gauge(metric: Metric[Gauge], number: NumberCopy) -> None:
    is_first = number.labels not in metric.children
    gauge = metric.labels(*number.labels)
    if is_first:
        gauge.set(number.value)
    elif metric.row.merge == "highest":
        gauge.set(max(gauge.value, number.value))
    elif metric.row.merge == "lowest":
        gauge.set(min(gauge.value, number.value))
    else:
        gauge.add(number.value)
