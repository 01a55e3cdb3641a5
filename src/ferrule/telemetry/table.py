"""The table of metrics: name, type, labels and meaning of each. Documents and dashboards are written from it.

Names and labels of operations are those of the OpenTelemetry semantic conventions for MCP (semantic-conventions-genai,
docs/gen-ai/mcp.md), in Prometheus' spelling. The edges of their buckets are the conventions' with finer ones below.
No label holds an id, a URI or a principal.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from ferrule.errors import SetupError

MetricType = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "highest", "lowest"]

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

FINE_EDGES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005)
"""Below those of the conventions: a call takes 20 microseconds."""
CONVENTION_EDGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
EDGES = FINE_EDGES + CONVENTION_EDGES
"""Upper edges of the buckets of durations, in seconds."""


class MetricRow(Struct, frozen=True):
    """One metric."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str
    edges: tuple[float, ...] = EDGES
    """Upper edges of the buckets of a histogram, in order."""
    merge: Merge = "sum"
    """What the gauges of several processes are as one."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SetupError(f"metric {self.name!r}: a name is made of letters, digits and underscores")
        if self.type == "counter" and not self.name.endswith("_total"):
            raise SetupError(f"metric {self.name!r}: the name of a counter must end with _total")
        for label in self.labels:
            if not LABEL.fullmatch(label) or label in ("le", "quantile") or label.startswith("__"):
                raise SetupError(f"metric {self.name!r}: {label!r} cannot be the name of a label")
        if list(self.edges) != sorted(set(self.edges)):
            raise SetupError(f"metric {self.name!r}: the edges of its buckets must rise")

    @property
    def family(self) -> str:
        """The name in OpenMetrics, where a counter is named without `_total`; no two metrics may share it."""
        if self.type == "counter":
            return self.name.removesuffix("_total")
        return self.name

    @property
    def series(self) -> int:
        """How many time series one set of label values makes."""
        if self.type == "histogram":
            return len(self.edges) + 3
        return 1


OPERATION = ("mcp_method_name", "gen_ai_tool_name", "error_type", "network_transport", "mcp_protocol_version")
SESSION = ("network_transport", "mcp_protocol_version")

TABLE = (
    MetricRow(
        "mcp_server_operation_duration_seconds",
        "histogram",
        OPERATION,
        "How long requests took that were received.",
    ),
    MetricRow(
        "mcp_client_operation_duration_seconds",
        "histogram",
        (*OPERATION, "ferrule_upstream"),
        "How long requests took that were sent.",
    ),
    MetricRow("mcp_server_session_duration_seconds", "histogram", SESSION, "How long sessions of a server lasted."),
    MetricRow("mcp_client_session_duration_seconds", "histogram", SESSION, "How long sessions of a client lasted."),
    MetricRow(
        "ferrule_build_info", "gauge", ("version", "python"), "Always 1; the labels say what runs.", merge="highest"
    ),
    MetricRow("ferrule_uptime_seconds", "gauge", (), "Seconds since the start.", merge="highest"),
    MetricRow("ferrule_sessions", "gauge", ("carrier",), "Sessions that are open."),
    MetricRow("ferrule_sessions_opened_total", "counter", ("carrier",), "Sessions that were opened."),
    MetricRow("ferrule_sessions_ended_total", "counter", ("carrier", "reason"), "Sessions that ended."),
    MetricRow("ferrule_connections", "gauge", ("listener",), "Connections that are open."),
    MetricRow("ferrule_connections_refused_total", "counter", ("listener", "reason"), "Connections turned away."),
    MetricRow("ferrule_calls_running", "gauge", ("upstream",), "Calls whose handler runs."),
    MetricRow("ferrule_calls_waiting", "gauge", ("upstream",), "Calls that wait for their turn."),
    MetricRow("ferrule_calls_parked", "gauge", ("upstream",), "Calls that wait for an answer of their caller."),
    MetricRow("ferrule_refusals_total", "counter", ("reason",), "Requests refused before any handler started."),
    MetricRow(
        "ferrule_upstream_up",
        "gauge",
        ("upstream", "replica"),
        "1 where an upstream can be used, else 0.",
        merge="lowest",
    ),
    MetricRow(
        "ferrule_breaker_state",
        "gauge",
        ("upstream", "replica"),
        "Circuit breaker: 0 closed, 1 half open, 2 open.",
        merge="highest",
    ),
    MetricRow(
        "ferrule_breaker_transitions_total", "counter", ("upstream", "replica"), "Changes of a circuit breaker's state."
    ),
    MetricRow("ferrule_ejections_total", "counter", ("upstream", "replica"), "Replicas taken out as outliers."),
    MetricRow("ferrule_retries_total", "counter", ("upstream", "why"), "Calls that were sent again."),
    MetricRow("ferrule_failovers_total", "counter", ("upstream", "why"), "Calls that went to another replica."),
    MetricRow("ferrule_outcome_unknown_total", "counter", ("upstream", "why"), "Calls whose outcome is not known."),
    MetricRow("ferrule_hedges_total", "counter", ("upstream",), "Calls that were sent to a second replica as well."),
    MetricRow("ferrule_dead_letters_total", "counter", ("upstream",), "Notifications that reached no replica."),
    MetricRow("ferrule_router_refusals_total", "counter", ("upstream", "why"), "Calls that a router refused."),
    MetricRow("ferrule_upstream_links", "gauge", ("upstream",), "Links to upstreams that are open."),
    MetricRow("ferrule_children", "gauge", ("upstream",), "Child processes that run."),
    MetricRow("ferrule_child_restarts_total", "counter", ("upstream",), "Restarts of supervised children."),
    MetricRow(
        "ferrule_subscriptions",
        "gauge",
        ("kind",),
        "Peers that listen to lists, and resources and tasks that somebody listens to.",
    ),
    MetricRow("ferrule_notifications_total", "counter", ("kind",), "Notifications that were received."),
    MetricRow("ferrule_notifications_dropped_total", "counter", ("kind",), "Notifications that were not delivered."),
    MetricRow("ferrule_tasks", "gauge", (), "Tasks that run."),
    MetricRow("ferrule_streams", "gauge", (), "Streams of events that are open."),
    MetricRow("ferrule_stream_cuts_total", "counter", (), "Streams that were cut because nobody read them."),
    MetricRow("ferrule_threads_busy", "gauge", (), "Worker threads that run a handler."),
    MetricRow("ferrule_thread_queue", "gauge", (), "Handlers that wait for a worker thread."),
    MetricRow(
        "ferrule_loop_lag_seconds",
        "gauge",
        (),
        "The longest delay of the event loop in the last 10 s.",
        merge="highest",
    ),
    MetricRow("ferrule_registry_entries", "gauge", ("kind",), "Entries of the registry."),
    MetricRow("ferrule_registry_bindings", "gauge", (), "Transports that are bound to a server."),
    MetricRow("ferrule_cache_entries", "gauge", ("cache",), "Results that are kept in memory."),
    MetricRow("ferrule_cache_hits_total", "counter", ("cache",), "Requests that were answered from a cache."),
    MetricRow("ferrule_cache_misses_total", "counter", ("cache",), "Requests that a cache could not answer."),
    MetricRow("ferrule_received_bytes_total", "counter", ("carrier",), "Bytes that came over streams and sockets."),
    MetricRow("ferrule_sent_bytes_total", "counter", ("carrier",), "Bytes that were written to streams and sockets."),
    MetricRow("ferrule_store_operations_total", "counter", ("op",), "Operations on stores."),
    MetricRow("ferrule_store_operation_seconds", "histogram", ("op",), "How long operations that may wait took."),
    MetricRow("ferrule_store_errors_total", "counter", ("op",), "Operations on stores that failed."),
    MetricRow("ferrule_store_queue", "gauge", (), "Operations that wait to be written."),
    MetricRow("ferrule_worker_restarts_total", "counter", ("slot",), "Restarts of worker processes."),
    MetricRow("ferrule_worker_up", "gauge", ("slot",), "1 where a worker process serves, else 0."),
    MetricRow("ferrule_config_generation", "gauge", (), "The number of the configuration in use.", merge="highest"),
    MetricRow("ferrule_config_reloads_total", "counter", ("result",), "Configurations that were loaded."),
    MetricRow("ferrule_auth_checks_total", "counter", ("result", "carrier"), "Callers a verifier was asked about."),
    MetricRow("ferrule_receipts_total", "counter", (), "Receipts that were written."),
    MetricRow("ferrule_receipts_lost_total", "counter", (), "Receipts that could not be written."),
    MetricRow("process_cpu_seconds_total", "counter", (), "CPU time of the process in seconds."),
    MetricRow("process_resident_memory_bytes", "gauge", (), "Resident memory of the process in bytes."),
    MetricRow("process_open_fds", "gauge", (), "File descriptors that are open."),
    MetricRow("process_max_fds", "gauge", (), "The limit of open file descriptors."),
    MetricRow(
        "process_start_time_seconds", "gauge", (), "When the process started, in seconds since 1970.", merge="lowest"
    ),
)
"""Every metric of ours."""


def as_markdown(table: tuple[MetricRow, ...] = TABLE) -> str:
    """Return the table as a page shows it."""
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for row in table:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.type} | {labels} | {row.help} |")
    return "\n".join(lines) + "\n"
