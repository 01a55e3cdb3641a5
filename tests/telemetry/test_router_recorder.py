"""The decisions of a real router, as metrics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ferrule import Client, Server
from ferrule.errors import FerruleError, SetupError
from ferrule.routing.router import Router
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.router_recorder import RouterRecorder


def values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the children of a metric with their values, after a scrape."""
    for metric in metrics.read():
        if metric.row.name == name:
            return {labels: child.value for labels, child in metric.children.items()}  # type: ignore[union-attr]
    return {}


def decision(kind: str, target: str = "", reason: str = "") -> Any:
    return SimpleNamespace(kind=kind, target=target, reason=reason)


@pytest.mark.parametrize(
    ("kind", "name", "labels"),
    [
        ("breaker", "ferrule_breaker_transitions_total", ("db", "a")),
        ("ejected", "ferrule_ejections_total", ("db", "a")),
        ("retried", "ferrule_retries_total", ("db", "lost")),
        ("retried", "ferrule_failovers_total", ("db", "lost")),
        ("hedged", "ferrule_hedges_total", ("db",)),
        ("outcome_unknown", "ferrule_outcome_unknown_total", ("db", "lost")),
        ("dead_letter", "ferrule_dead_letters_total", ("db",)),
        ("overloaded", "ferrule_router_refusals_total", ("db", "overloaded")),
        ("no_target", "ferrule_router_refusals_total", ("db", "no_target")),
    ],
)
def test_each_decision_is_counted(kind: str, name: str, labels: tuple[str, ...]) -> None:
    """OBSV-05"""
    metrics = Metrics()
    recorder = RouterRecorder(metrics, "db")
    for _ in range(3):
        recorder.record(decision(kind, "a", "a sentence about 10.0.0.7"))
    recorder.record(decision("something new"))
    assert values(metrics, name) == {labels: 3}


def test_a_router_shows_its_targets_and_what_it_decides() -> None:
    """OBSV-05"""

    async def scene() -> None:
        app = Server("app")

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        metrics = Metrics()
        recorder = RouterRecorder(metrics, "sums")
        targets = {"one": app, "two": app}
        async with Router(targets, on_event=recorder.record) as router:
            recorder.watch(lambda: router.targets)
            await router.call_tool("add", {"a": 1, "b": 2})
            assert values(metrics, "ferrule_upstream_up") == {("sums", "one"): 1, ("sums", "two"): 1}
            assert values(metrics, "ferrule_breaker_state") == {("sums", "one"): 0, ("sums", "two"): 0}
            router.force_open("one")
            assert values(metrics, "ferrule_upstream_up")["sums", "one"] == 0
            assert values(metrics, "ferrule_breaker_state")["sums", "one"] == 2
            assert values(metrics, "ferrule_breaker_transitions_total")["sums", "one"] == 1
            router.force_open("two")
            with pytest.raises(FerruleError):
                await router.call_tool("add", {"a": 1, "b": 2})
            assert values(metrics, "ferrule_router_refusals_total")["sums", "no_target"] == 1
            await router.remove("two", 0.0)
            assert set(values(metrics, "ferrule_upstream_up")) == {("sums", "one")}

    asyncio.run(scene())


def test_the_decisions_of_a_client_of_several_targets_join_the_metrics_of_a_server() -> None:
    """OBSV-05: nothing is wired by hand, and nothing is left when the client is closed."""

    async def scene() -> None:
        front = Server("front", metrics=True)
        app = Server("app")

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        targets = [app, app]
        metrics = front.metrics
        for _ in range(2):
            async with Client(targets, metrics=metrics, upstream="sums") as client:
                await client.call_tool("add", {"a": 1, "b": 2})
                assert values(metrics, "ferrule_upstream_up") == {("sums", "0"): 1, ("sums", "1"): 1}
                assert values(metrics, "ferrule_upstream_links") == {("sums",): 2}
                client.router.force_open("0")
                client.router.force_open("1")
                with pytest.raises(FerruleError):
                    await client.call_tool("add", {"a": 1, "b": 2})
            assert values(metrics, "ferrule_upstream_up") == {}
            assert values(metrics, "ferrule_upstream_links") == {("sums",): 0}
        assert values(metrics, "ferrule_router_refusals_total") == {("sums", "no_target"): 2}
        assert values(metrics, "ferrule_breaker_transitions_total") == {("sums", "0"): 2, ("sums", "1"): 2}
        asked = metrics.histogram("mcp_client_operation_duration_seconds").children
        calls = {labels: child.count for labels, child in asked.items() if labels[0] == "tools/call"}
        assert [(labels[1], labels[5], count) for labels, count in calls.items()] == [("add", "sums", 2)]

    asyncio.run(scene())


def test_metrics_of_a_client_must_be_metrics() -> None:
    with pytest.raises(SetupError, match="metrics must be Metrics"):
        Client(Server("app"), metrics=True)  # type: ignore[arg-type]


def test_a_client_of_several_targets_names_its_replicas_itself() -> None:
    with pytest.raises(SetupError, match="replica cannot be used with several targets"):
        Client([Server("one"), Server("two")], replica="x")
