"""What the operating system knows of this process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ferrule.telemetry import process
from ferrule.telemetry.exposition import expose
from ferrule.telemetry.metrics import Metrics


def values(metrics: Metrics) -> dict[str, float]:
    """Return what a scrape shows, by name."""
    found = {}
    for family in text_string_to_metric_families(expose(metrics).decode()):
        for sample in family.samples:
            found[sample.name] = sample.value
    return found


def test_a_process_has_its_standard_metrics() -> None:
    metrics = Metrics()
    process.record_process(metrics, "1.2.3")
    found = values(metrics)
    assert found["ferrule_build_info"] == 1
    assert 0 <= found["ferrule_uptime_seconds"] < 60
    assert 0 < found["process_cpu_seconds_total"] <= time.process_time()
    assert 5e6 < found["process_resident_memory_bytes"] < 1e11
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"]
    assert time.time() - 86_400 < found["process_start_time_seconds"] <= time.time()
    assert 'version="1.2.3"' in expose(metrics).decode()


def test_metrics_of_the_process_are_read_anew_each_time() -> None:
    metrics = Metrics()
    process.record_process(metrics, "1")
    before = values(metrics)["process_open_fds"]
    reading, writing = os.pipe()
    try:
        assert values(metrics)["process_open_fds"] == before + 2
    finally:
        os.close(reading)
        os.close(writing)


def test_where_the_system_does_not_tell_there_is_a_figure_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STATM", Path("/nowhere/statm"))
    monkeypatch.setattr(process, "DESCRIPTORS", ("/nowhere/fd",))
    assert process.resident_memory() > 5e6
    assert process.open_descriptors() == 0
