"""A real supervisor and a real registry, as metrics."""

from __future__ import annotations

import asyncio

from ferrule.registry.local import LocalRegistry
from ferrule.supervision.child import Child, Ready
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.supervisor import Supervisor
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.system_recorder import restart_recorder, watch_registry
from ferrule.testing import run_in_virtual_time


def shown(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the children of a metric with their values, after a scrape."""
    for metric in metrics.read():
        if metric.row.name == name:
            return {labels: child.value for labels, child in metric.children.items()}  # type: ignore[union-attr]
    return {}


def test_restarts_are_counted_by_child() -> None:
    metrics = Metrics()

    async def scene() -> None:
        runs = 0

        async def crash_twice(ready: Ready) -> None:
            nonlocal runs
            runs += 1
            ready()
            await asyncio.sleep(0.1)
            if runs <= 2:
                raise OSError("gone")
            await asyncio.Event().wait()

        child = Child("http", crash_twice, plan=RestartPlan(intensity=5))
        async with Supervisor("app", child, on_event=restart_recorder(metrics)):
            while runs < 3:
                await asyncio.sleep(1)

    run_in_virtual_time(scene())
    assert shown(metrics, "ferrule_child_restarts_total") == {("app/http",): 2}


def test_a_registry_shows_what_it_holds() -> None:
    """OBSV-05"""

    async def scene() -> None:
        metrics = Metrics()
        registry = LocalRegistry()
        watch_registry(metrics, registry.stats)
        registry.register("server", "shop", object())
        first = registry.register("transport", "tcp", object())
        registry.register("transport", "http", object())
        registry.bind("tcp", "shop")
        assert shown(metrics, "ferrule_registry_entries") == {("server",): 1, ("transport",): 2}
        assert shown(metrics, "ferrule_registry_bindings") == {(): 1}
        first.unregister()
        registry.unregister("server", "shop")
        assert shown(metrics, "ferrule_registry_entries") == {("server",): 0, ("transport",): 1}
        assert shown(metrics, "ferrule_registry_bindings") == {(): 0}

    asyncio.run(scene())
