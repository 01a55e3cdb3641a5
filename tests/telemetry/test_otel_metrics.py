"""Metrics as OpenTelemetry reads them: through the real SDK, by callback, from any thread."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ferrule import Client, Server, SetupError, ToolError
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.otel_metrics import export_metrics, otel_name, unit_of
from ferrule.telemetry.table import TABLE

DURATION = "mcp.server.operation.duration"


class Exported:
    """A reader of the SDK's, and what it has collected."""

    def __init__(self, metrics: Metrics) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader])
        export_metrics(metrics, self.provider)

    def collect(self) -> dict[str, Any]:
        """Return the metrics that are there now, by name."""
        data = self.reader.get_metrics_data()
        found: dict[str, Any] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "ferrule"
                for metric in scope.metrics:
                    found[metric.name] = metric
        return found

    def values(self, name: str) -> dict[frozenset[tuple[str, Any]], float]:
        """Return the points of one metric, by their attributes."""
        return {frozenset(point.attributes.items()): point.value for point in self.collect()[name].data.data_points}

    def close(self) -> None:
        self.provider.shutdown()


def shop(**options: Any) -> Server:
    app = Server("shop", metrics=True, **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fail() -> None:
        raise ToolError("no")

    return app


def test_calls_are_seen_with_the_names_of_the_conventions() -> None:
    async def scene() -> None:
        app = shop()
        exported = Exported(app.metrics)
        async with Client(app, mode="stateless") as client:
            for _ in range(3):
                await client.call_tool("add", {"a": 1, "b": 2})
            with pytest.raises(ToolError):
                await client.call_tool("fail")
            counted = {}
            for attributes, value in exported.values(f"{DURATION}.count").items():
                known = dict(attributes)
                counted[known.get("gen_ai.tool.name"), known.get("error.type")] = value
                assert known["network.transport"] == "memory"
                assert known["mcp.protocol.version"] == "2026-07-28"
            assert (counted["add", None], counted["fail", "tool_error"]) == (3, 1)
            metric = exported.collect()[f"{DURATION}.sum"]
            assert (metric.unit, metric.data.is_monotonic) == ("s", True)
        exported.close()

    asyncio.run(scene())


def test_buckets_are_cumulative_and_end_with_all() -> None:
    metrics = Metrics()
    exported = Exported(metrics)
    histogram = metrics.histogram("mcp_server_session_duration_seconds").labels("pipe", "r")
    for seconds in (0.02, 0.02, 40.0, 1_000.0):
        histogram.observe(seconds)
    buckets = {}
    for attributes, value in exported.values("mcp.server.session.duration.bucket").items():
        buckets[dict(attributes)["le"]] = value
    assert (buckets["0.01"], buckets["0.02"], buckets["60.0"], buckets["+Inf"]) == (0, 2, 3, 4)
    assert list(exported.values("mcp.server.session.duration.sum").values()) == [1_040.04]
    exported.close()


def test_gauges_are_brought_up_to_date_in_the_thread_of_the_loop() -> None:
    """A reader of the SDK's collects in a thread of its own."""

    async def scene() -> None:
        app = shop()
        exported = Exported(app.metrics)
        threads: list[int] = []
        app.metrics.before_reading(lambda: threads.append(threading.get_ident()))
        async with Client(app):
            found = await asyncio.to_thread(exported.values, "process.memory.usage")
            assert next(iter(found.values())) > 1_000_000
            assert set(threads) == {threading.get_ident()}
            names = await asyncio.to_thread(exported.collect)
            assert {"ferrule.sessions", "ferrule.build_info", "process.cpu.time"} <= names.keys()
        exported.close()

    asyncio.run(scene())


def test_a_blocked_loop_holds_up_a_reader_for_a_second_only() -> None:
    async def scene() -> float:
        app = shop()
        exported = Exported(app.metrics)
        took = []

        def collect() -> None:
            began = time.monotonic()
            exported.collect()
            took.append(time.monotonic() - began)

        async with Client(app):
            thread = threading.Thread(target=collect)
            thread.start()
            thread.join(60)  # in the loop's own thread: nothing turns meanwhile
        exported.close()
        return took[0]

    assert 0.9 < asyncio.run(scene()) < 30


def test_every_metric_has_a_name_of_its_own() -> None:
    names = [otel_name(row) for row in TABLE]
    assert len(set(names)) == len(names)
    assert otel_name(TABLE[0]) == DURATION
    units = {row.name: unit_of(row) for row in TABLE}
    assert units["process_cpu_seconds_total"] == "s"
    assert units["process_resident_memory_bytes"] == "By"
    assert units["ferrule_sessions"] == "1"


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.metrics", None)
    with pytest.raises(SetupError, match=r"pip install 'ferrule\[otel\]'"):
        export_metrics(Metrics())
