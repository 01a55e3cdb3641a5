"""Probes of what is counted and logged of peers, and of when a process is said to be ill."""

from __future__ import annotations

import asyncio
import json
import logging

from table import no_bound, period, probe

from ferrule.balancing.limiter import Limiter
from ferrule.telemetry.health import FAIL_LAG, HealthMonitor
from ferrule.telemetry.logs import JsonFormatter
from ferrule.telemetry.metrics import OTHER, Metrics
from ferrule.telemetry.table import MetricRow
from ferrule.transports.http.endpoint.probes import MetricsPage

ROW = MetricRow("ferrule_probe_total", "counter", ("name",), "Probes.")


def values(metrics: Metrics, count: int) -> set[str]:
    """Count something under so many values of a label. Return the values that have a time series."""
    counter = metrics.counter(ROW.name)
    for number in range(count):
        counter.labels(str(number)).add()
    return {value for (value,) in counter.children}


@probe("ferrule.telemetry.metrics.MAX_SERIES", lowered=50, clamps=True)
async def time_series(limit: int, size: int) -> bool:
    found = values(Metrics([ROW], max_series=limit, max_values=10**6), size - 1)  # and the one for all others
    assert len(found) <= limit
    return OTHER not in found


@probe("ferrule.telemetry.metrics.MAX_VALUES", lowered=50, clamps=True)
async def values_of_a_label(limit: int, size: int) -> bool:
    return OTHER not in values(Metrics([ROW], max_series=10**6, max_values=limit), size)


@probe("ferrule.telemetry.metrics.MAX_LABEL", clamps=True)
async def a_value_of_a_label(limit: int, size: int) -> bool:
    counter = Metrics([ROW]).counter(ROW.name)
    counter.labels("x" * size).add()
    return list(counter.children) == [("x" * size,)]


@period("ferrule.transports.http.endpoint.probes.SHARE", lowered=20.0)
async def a_text_of_metrics(lasts: float, seconds: float) -> bool:
    ticks = iter([0.0, 1.0, 1.0 + seconds])  # writing it takes one second
    metrics = Metrics([ROW])
    page = MetricsPage(metrics, lambda: next(ticks, 1.0 + seconds))
    _, before = page.answer("")
    metrics.counter(ROW.name).labels("new").add()
    return page.answer("")[1] == before


no_bound("ferrule.balancing.limiter.ALERT_AT", "when a warning is logged; nothing is refused at this part")


@period("ferrule.balancing.limiter.ALERT_EVERY")
async def a_warning(lasts: float, seconds: float) -> bool:
    warnings: list[str] = []
    limiter = Limiter(10, on_alert=lambda server, current, limit: warnings.append(server))
    loop = asyncio.get_running_loop()
    slots = [limiter.try_acquire("a", loop.time()) for _ in range(9)]
    await asyncio.sleep(seconds)
    slots.append(limiter.try_acquire("a", loop.time()))
    for slot in slots:
        assert slot is not None
        slot.release()
    return len(warnings) == 1


@period("ferrule.telemetry.health.FAIL_LAG")
async def a_late_loop(lasts: float, seconds: float) -> bool:
    monitor = HealthMonitor()
    monitor.lag.record(seconds, asyncio.get_running_loop().time())
    return monitor.is_alive()


@period("ferrule.telemetry.health.LAG_WINDOW")
async def a_loop_that_was_late(lasts: float, seconds: float) -> bool:
    monitor = HealthMonitor()
    monitor.lag.record(FAIL_LAG, asyncio.get_running_loop().time())
    await asyncio.sleep(seconds)
    return not monitor.is_alive()


no_bound("ferrule.telemetry.health.SYSTEM_INTERVAL", "our own pause between two looks at this process")


@probe("ferrule.telemetry.logs.MAX_FACT", clamps=True)
async def a_fact_in_json(limit: int, size: int) -> bool:
    record = logging.makeLogRecord({"msg": "m", "fact": "x" * size})
    return bool(json.loads(JsonFormatter().format(record))["fact"] == "x" * size)
