"""The metrics of a server or client, exported through OpenTelemetry by callback: `export_metrics(app.metrics)`.

Nothing is recorded twice: observable instruments read our own counters when a reader of the OpenTelemetry SDK collects.
The API has no observable histogram, and its Python SDK no `MetricProducer`, so a histogram is exported as Prometheus
writes one: cumulative counters `….bucket` (attribute `le`), `….sum` and `….count`. Recording into a histogram of the
SDK would take longer than many a call.

Names and attributes are those of the semantic conventions (semantic-conventions-genai, docs/gen-ai/mcp.md) where these
have some. A reader may collect in a thread of its own: gauges are brought up to date in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ferrule.errors import SetupError
from ferrule.telemetry.metrics import Histogram, Metrics
from ferrule.telemetry.table import MetricRow

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider, Observation

SCOPE = "ferrule"
FRESH = 0.05
"""Seconds for which gauges are up to date: the instruments of one collection are read within a few milliseconds."""
PATIENCE = 1.0
"""Seconds to wait for the event loop; if it is blocked, gauges keep the values they had."""

NAMES = {
    "mcp_server_operation_duration_seconds": "mcp.server.operation.duration",
    "mcp_client_operation_duration_seconds": "mcp.client.operation.duration",
    "mcp_server_session_duration_seconds": "mcp.server.session.duration",
    "mcp_client_session_duration_seconds": "mcp.client.session.duration",
    "process_cpu_seconds_total": "process.cpu.time",
    "process_resident_memory_bytes": "process.memory.usage",
    "process_open_fds": "process.unix.file_descriptor.count",
}
"""Metrics that the conventions name; the others keep our names, with a dot behind the first word."""
ATTRIBUTES = {
    "mcp_method_name": "mcp.method.name",
    "gen_ai_tool_name": "gen_ai.tool.name",
    "error_type": "error.type",
    "network_transport": "network.transport",
    "mcp_protocol_version": "mcp.protocol.version",
    "ferrule_upstream": "ferrule.upstream",
}
"""Labels that the conventions name."""

Point = tuple[float, dict[str, str]]
"""A value and its attributes."""


def export_metrics(metrics: Metrics, provider: MeterProvider | None = None) -> None:
    """Let OpenTelemetry read these metrics; without a provider, through the one that is set for the whole program."""
    try:
        from opentelemetry.metrics import Observation, get_meter_provider
    except ImportError:
        raise SetupError("export_metrics needs OpenTelemetry: pip install 'ferrule[otel]'") from None
    meter = (provider or get_meter_provider()).get_meter(SCOPE)
    source = Source(metrics)
    for row in metrics.rows:
        name = otel_name(row)
        unit = unit_of(row)
        if row.type == "counter":
            meter.create_observable_counter(name, [_callback(source.numbers, row, Observation)], unit, row.help)
        elif row.type == "gauge":
            meter.create_observable_gauge(name, [_callback(source.numbers, row, Observation)], unit, row.help)
        else:
            for part, read, part_unit in (
                ("bucket", source.buckets, "1"),
                ("sum", source.sums, unit),
                ("count", source.counts, "1"),
            ):
                meter.create_observable_counter(
                    f"{name}.{part}", [_callback(read, row, Observation)], part_unit, row.help
                )


def otel_name(row: MetricRow) -> str:
    """Return the name of a metric in OpenTelemetry: `ferrule.sessions`, without the unit and `_total`."""
    known = NAMES.get(row.name)
    if known is not None:
        return known
    name = row.name.removesuffix("_total").removesuffix("_seconds").removesuffix("_bytes")
    return name.replace("_", ".", 1)


def unit_of(row: MetricRow) -> str:
    """Return the unit of a metric as OpenTelemetry writes it (UCUM)."""
    name = row.name.removesuffix("_total")
    if name.endswith("_seconds"):
        return "s"
    if name.endswith("_bytes"):
        return "By"
    return "1"


def _callback(
    read: Callable[[MetricRow], Iterable[Point]], row: MetricRow, observation: type[Observation]
) -> Callable[[Any], Iterable[Observation]]:
    def observe(options: object) -> list[Observation]:
        found = []
        for value, attributes in read(row):
            found.append(observation(value, attributes))
        return found

    return observe


class Source:
    """Reads metrics for the callbacks of instruments, from any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._read_at = -FRESH
        self._patience = PATIENCE

    def numbers(self, row: MetricRow) -> list[Point]:
        """Return the values of a counter or gauge."""
        self._refresh()
        if row.type == "counter":
            children = list(self._metrics.counter(row.name).children.items())
        else:
            children = list(self._metrics.gauge(row.name).children.items())  # type: ignore[arg-type]
        points = []
        for values, child in children:
            points.append((child.value, attributes_of(row, values)))
        return points

    def counts(self, row: MetricRow) -> list[Point]:
        """Return how many values each histogram of a metric has had."""
        points: list[Point] = []
        for attributes, histogram in self._histograms(row):
            points.append((float(histogram.count), attributes))
        return points

    def sums(self, row: MetricRow) -> list[Point]:
        """Return the sum of the values of each histogram."""
        points: list[Point] = []
        for attributes, histogram in self._histograms(row):
            points.append((histogram.sum, attributes))
        return points

    def buckets(self, row: MetricRow) -> list[Point]:
        """Return how many values of each histogram were at most as large as each edge."""
        points: list[Point] = []
        for attributes, histogram in self._histograms(row):
            below = 0
            for edge, count in zip((*row.edges, "+Inf"), list(histogram.counts), strict=True):
                below += count
                points.append((float(below), {**attributes, "le": str(edge)}))
        return points

    def _histograms(self, row: MetricRow) -> list[tuple[dict[str, str], Histogram]]:
        found = []
        for values, child in list(self._metrics.histogram(row.name).children.items()):
            found.append((attributes_of(row, values), child))
        return found

    def _refresh(self) -> None:
        """Bring up to date what is only read when somebody asks, in the thread it belongs to."""
        age = time.monotonic() - self._read_at
        if age < FRESH:
            return
        if age > PATIENCE:
            self._patience = PATIENCE
        self._read()
        self._read_at = time.monotonic()

    def _read(self) -> None:
        home = self._metrics.home
        if home is None or not home.is_running() or _running_loop() is home:
            self._metrics.read()
            return
        done = threading.Event()

        def read() -> None:
            self._metrics.read()
            done.set()

        try:
            home.call_soon_threadsafe(read)
        except RuntimeError:  # it was closed meanwhile
            return
        done.wait(self._patience)
        # A loop that is blocked is waited for once, not by every instrument.
        self._patience = PATIENCE if done.is_set() else 0.0


def attributes_of(row: MetricRow, values: tuple[str, ...]) -> dict[str, str]:
    """Return the labels of a child as attributes; an empty one is the same as none."""
    found = {}
    for label, value in zip(row.labels, values, strict=True):
        if value:
            found[ATTRIBUTES.get(label, label)] = value
    return found


def _running_loop() -> object:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
