"""What servers and clients do, as metrics: recorded from real calls, and read as a scrape shows them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ferrule import Client, Server, ToolError
from ferrule.errors import FerruleError
from ferrule.telemetry.exposition import expose
from ferrule.telemetry.metrics import OTHER, Metrics
from ferrule.telemetry.observer import (
    ObservedChild,
    ObservedConnection,
    ObservedLink,
    ObservedNotification,
    ObservedRequest,
    Observers,
    Outcome,
)
from ferrule.telemetry.recorder import MAX_KEPT, MetricsRecorder
from ferrule.wire.channel import Origin

SERVED = "mcp_server_operation_duration_seconds"
ASKED = "mcp_client_operation_duration_seconds"


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what a scrape shows, by name and labels, without buckets."""
    found = {}
    for family in text_string_to_metric_families(expose(metrics).decode()):
        for sample in family.samples:
            if "le" not in sample.labels:
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def counts(metrics: Metrics, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the counts of one metric by the values of some labels; an absent label is empty."""
    found: dict[tuple[str, ...], float] = {}
    for (sample, given), value in samples(metrics).items():
        if sample == name:
            known = dict(given)
            key = tuple(known.get(label, "") for label in labels)
            found[key] = found.get(key, 0.0) + value
    return found


def finished(method: str = "tools/call", name: str = "add", started: bool = True, **facts: Any) -> ObservedRequest:
    """Return a request that was answered after 20 microseconds."""
    options: dict[str, Any] = {"transport": "stdio", "revision": "r", "began": 1.0, "ended": 1.00002, **facts}
    if started:
        options["started"] = 1.00001
    return ObservedRequest(id=1, method=method, name=name, origin=Origin("stdio"), **options)


OK = Outcome(kind="ok")


def test_calls_are_counted_by_tool_and_outcome() -> None:
    """OBSV-08: over a real link."""

    async def scene() -> None:
        metrics = Metrics()
        app = Server("app", observer=MetricsRecorder(metrics))

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @app.tool
        async def fail() -> None:
            raise ToolError("no")

        async with Client(app) as client:
            for _ in range(3):
                await client.call_tool("add", {"a": 1, "b": 2})
            with pytest.raises(ToolError):
                await client.call_tool("fail")
            for name in ("nobody", "nothing"):
                with pytest.raises((ToolError, FerruleError)):
                    await client.call_tool(name)
            await client.list_tools()
        calls = counts(metrics, f"{SERVED}_count", "mcp_method_name", "gen_ai_tool_name", "error_type")
        assert calls["tools/call", "add", ""] == 3
        assert calls["tools/call", "fail", "tool_error"] == 1
        assert sum(value for (method, name, _), value in calls.items() if method == "tools/call" and not name) == 2
        assert calls["tools/list", "", ""] >= 1
        assert {name for _, name, _ in calls} == {"", "add", "fail"}
        transports = counts(metrics, f"{SERVED}_count", "network_transport")
        assert set(transports) == {("memory",)}
        assert counts(metrics, "ferrule_sessions", "carrier") in ({("memory",): 0}, {})

    asyncio.run(scene())


def test_what_a_client_sends_is_counted_with_its_upstream() -> None:
    async def scene() -> None:
        metrics = Metrics()
        app = Server("app")

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        async with Client(app, observer=MetricsRecorder(metrics, upstream="sums")) as client:
            assert counts(metrics, "ferrule_upstream_links", "upstream") == {("sums",): 1}
            await client.call_tool("add", {"a": 1, "b": 2})
            with pytest.raises(FerruleError):
                await client.read_resource("nothing://here")
        calls = counts(metrics, f"{ASKED}_count", "mcp_method_name", "gen_ai_tool_name", "ferrule_upstream")
        assert calls["tools/call", "add", "sums"] == 1
        assert counts(metrics, "ferrule_upstream_links", "upstream") == {("sums",): 0}
        assert sum(counts(metrics, "mcp_client_session_duration_seconds_count", "network_transport").values()) == 1

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (OK, ""),
        (Outcome(kind="input_required"), ""),
        (Outcome(kind="tool_error"), "tool_error"),
        (Outcome(kind="error", code=-32603, reason="internal"), "-32603"),
        (Outcome(kind="error", reason="InvalidAnswer"), "InvalidAnswer"),
        (Outcome(kind="refused", code=-32602, reason="invalid_params"), "-32602"),
        (Outcome(kind="cancelled", reason="caller"), "cancelled"),
        (Outcome(kind="timed_out"), "timeout"),
        (Outcome(kind="lost"), "lost"),
    ],
)
def test_each_outcome_has_its_error_type(outcome: Outcome, expected: str) -> None:
    metrics = Metrics()
    MetricsRecorder(metrics).request_finished(finished(), outcome)
    MetricsRecorder(metrics).request_answered(finished(), outcome)
    assert counts(metrics, f"{SERVED}_count", "error_type") == {(expected,): 1}
    assert counts(metrics, f"{ASKED}_count", "error_type") == {(expected,): 1}


@pytest.mark.parametrize(
    ("transport", "expected"),
    [("stdio", "pipe"), ("http", "tcp"), ("websocket", "tcp"), ("tcp", "tcp"), ("unix", "unix"), ("toy", "toy")],
)
def test_transports_have_the_names_of_the_conventions(transport: str, expected: str) -> None:
    metrics = Metrics()
    MetricsRecorder(metrics).request_finished(finished(transport=transport), OK)
    assert counts(metrics, f"{SERVED}_count", "network_transport", "mcp_protocol_version") == {(expected, "r"): 1}


def test_the_duration_is_what_is_recorded() -> None:
    metrics = Metrics()
    recorder = MetricsRecorder(metrics)
    recorder.request_finished(finished(), OK)
    recorder.request_finished(finished(began=0.0, ended=3.0), OK)
    assert sum(counts(metrics, f"{SERVED}_sum", "gen_ai_tool_name").values()) == pytest.approx(3.00002)
    [child] = metrics.histogram(SERVED).children.values()
    assert child.counts[0] == 1
    assert child.count == 2


def test_only_tools_are_named_never_uris_or_prompts() -> None:
    """SOK-07"""
    metrics = Metrics()
    recorder = MetricsRecorder(metrics)
    for method, name in (("resources/read", "secret://1"), ("prompts/get", "p"), ("tools/call", "add")):
        recorder.request_finished(finished(method, name), OK)
        recorder.request_answered(finished(method, name), OK)
    assert {name for (name,) in counts(metrics, f"{SERVED}_count", "gen_ai_tool_name")} == {"", "add"}
    assert {name for (name,) in counts(metrics, f"{ASKED}_count", "gen_ai_tool_name")} == {"", "add"}
    assert "secret" not in expose(metrics).decode()


def test_whatever_peers_write_makes_few_series_and_takes_no_room_from_what_exists() -> None:
    """SOK-07: a hundred thousand names of tools, methods, revisions and codes."""
    metrics = Metrics()
    recorder = MetricsRecorder(metrics)
    unknown = Outcome(kind="error", code=-32602, reason="unknown_tool")
    refused = Outcome(kind="refused", code=-32601, reason="unknown_method")
    busy = Outcome(kind="refused", code=-32000, reason="busy")
    for number in range(25_000):
        recorder.request_finished(finished(name=f"tool {number}"), unknown)
        recorder.request_finished(finished(method=f"method {number}", started=False), refused)
        recorder.request_finished(finished(name=f"tool {number}", started=False, revision=f"r{number}"), busy)
        recorder.request_answered(finished(name=f"tool {number}"), Outcome(kind="error", code=number))
        recorder.notification_received(ObservedNotification(method=f"notifications/{number}", transport="stdio"))
    lines = [line for line in expose(metrics).decode().splitlines() if not line.startswith("#")]
    assert len(lines) < 150
    assert len(recorder._served_histograms) + len(recorder._asked_histograms) < 10
    recorder.request_finished(finished(name="real"), OK)
    names = counts(metrics, f"{SERVED}_count", "mcp_method_name", "gen_ai_tool_name")
    assert names == {("tools/call", ""): 50_000, (OTHER, ""): 25_000, ("tools/call", "real"): 1}
    assert counts(metrics, "ferrule_refusals_total", "reason") == {("unknown_method",): 25_000, ("busy",): 25_000}
    assert counts(metrics, "ferrule_notifications_total", "kind") == {(OTHER,): 25_000}


def test_more_tools_than_are_kept_are_counted_together() -> None:
    metrics = Metrics()
    recorder = MetricsRecorder(metrics)
    for number in range(MAX_KEPT + 100):
        recorder.request_finished(finished(name=f"tool {number}"), OK)
        recorder.request_answered(finished(name=f"tool {number}"), OK)
    assert len(recorder._served_histograms) == MAX_KEPT
    assert len(recorder._asked_histograms) == MAX_KEPT
    assert sum(counts(metrics, f"{SERVED}_count", "gen_ai_tool_name").values()) == MAX_KEPT + 100


def test_known_notifications_are_counted_by_name() -> None:
    metrics = Metrics()
    MetricsRecorder(metrics).notification_received(
        ObservedNotification(method="notifications/tools/list_changed", transport="stdio")
    )
    assert counts(metrics, "ferrule_notifications_total", "kind") == {("tools/list_changed",): 1}


def test_sessions_rise_and_fall_and_end_for_a_reason() -> None:
    metrics = Metrics()
    recorder = MetricsRecorder(metrics)
    links = [ObservedLink(side="server", transport="http", opened=float(number)) for number in range(3)]
    for link in links:
        recorder.link_opened(link)
    for link in links[:2]:
        link.closed = 10.0
        link.revision = "r"
    recorder.link_closed(links[0], None)
    recorder.link_closed(links[1], OSError("gone"))
    assert counts(metrics, "ferrule_sessions", "carrier") == {("http",): 1}
    assert counts(metrics, "ferrule_sessions_opened_total", "carrier") == {("http",): 3}
    assert counts(metrics, "ferrule_sessions_ended_total", "carrier", "reason") == {
        ("http", "closed"): 1,
        ("http", "lost"): 1,
    }
    lasted = counts(metrics, "mcp_server_session_duration_seconds_sum", "network_transport", "mcp_protocol_version")
    assert lasted == {("tcp", "r"): 19}


def test_connections_and_children_rise_and_fall() -> None:
    metrics = Metrics()
    recorder = MetricsRecorder(metrics, upstream="db")
    connection = ObservedConnection(transport="tcp")
    child = ObservedChild(command="server", pid=1, started=0.0)
    for _ in range(3):
        recorder.connection_opened(connection)
        recorder.child_started(child)
    recorder.connection_closed(connection)
    recorder.child_exited(child)
    recorder.connection_refused("tcp", "full")
    assert counts(metrics, "ferrule_connections", "listener") == {("tcp",): 2}
    assert counts(metrics, "ferrule_connections_refused_total", "listener", "reason") == {("tcp", "full"): 1}
    assert counts(metrics, "ferrule_children", "upstream") == {("db",): 2}


def test_recording_is_off_the_path_and_cheap() -> None:
    """OBSV-01: a call is recorded in a few hundred nanoseconds of CPU time, with nothing awaited, sent or written."""
    metrics = Metrics()
    observers = Observers([MetricsRecorder(metrics)])
    request = finished()
    best = float("inf")
    for _ in range(20):
        start = time.process_time()
        for _ in range(5_000):
            observers.request_finished(request, OK)
        best = min(best, time.process_time() - start)
    assert best / 5_000 < 3e-6
    assert not observers.wants("request_admitted", "request_started", "request_sent", "exchange_finished")


def test_a_recorder_that_fails_does_not_reach_the_call() -> None:
    """SUPV-03, OBSV-01"""

    async def scene() -> None:
        recorder = MetricsRecorder(Metrics())
        recorder._served = None  # type: ignore[assignment]
        app = Server("app", observer=recorder)

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        async with Client(app) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    asyncio.run(scene())
