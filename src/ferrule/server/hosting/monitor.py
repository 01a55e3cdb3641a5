"""Monitor: the health and the metrics of one server.

A server on stdio that nobody asks for either never loads this.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ferrule.server.calls.services import Services
from ferrule.server.middleware.stack import MiddlewareStack
from ferrule.telemetry.health import HealthMonitor
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.observer import Observer
from ferrule.telemetry.process import record_process
from ferrule.telemetry.recorder import MetricsRecorder
from ferrule.telemetry.system_recorder import (
    RegistryFacts,
    StoreRecorder,
    SupervisorFacts,
    count_store_operations,
    restart_recorder,
    show_registry,
)

if TYPE_CHECKING:
    from ferrule.telemetry.receipt_log import ReceiptLog

STOP_TIME = 2.0
"""Seconds in which checks may end with the server."""


class Monitor:
    """What a server lets be seen of itself."""

    def __init__(
        self,
        services: Services,
        layers: MiddlewareStack,
        *,
        tasks: Callable[[], int],
        observe: Callable[[Observer], None],
        measure_stores: Callable[[Callable[[str, float, bool], None]], None],
        receipts: ReceiptLog | None = None,
    ) -> None:
        self._services = services
        self._layers = layers
        self._tasks = tasks
        """How many tasks run."""
        self._observe = observe
        """Lets an observer see what happens from now on."""
        self._measure_stores = measure_stores
        """Lets a function be called with every operation of the server's stores from now on."""
        self.registry_stats: Callable[[], RegistryFacts] | None = None
        """How much the registry of the server holds; None while nobody has asked for one."""
        self._receipts = receipts
        self._metrics: Metrics | None = None
        self._running: asyncio.Task[None] | None = None
        self.health = HealthMonitor(version=services.app.version)
        self.health.register_system()

    @property
    def metrics(self) -> Metrics:
        """The metrics of the server, recorded from the first time they are asked for."""
        if self._metrics is None:
            self._metrics = Metrics()
            if self._running is not None:
                self._metrics.home = self._running.get_loop()
            self._observe(MetricsRecorder(self._metrics))
            self._measure_stores(StoreRecorder(self._metrics).record)
            record_process(self._metrics, _own_version())
            for read in (
                self._read_services,
                self._read_links,
                self._read_receipts,
                self._read_caches,
                self._read_registry,
                self._read_lag,
                count_store_operations,
            ):
                self._metrics.before_reading(partial(read, self._metrics))
        return self._metrics

    def supervised(self, event: SupervisorFacts) -> None:
        """Called when something happened to what is supervised."""
        if self._metrics is not None:
            restart_recorder(self._metrics)(event)

    def start(self) -> None:
        """Run the checks of health from now on; a no-op while they run."""
        loop = asyncio.get_running_loop()
        if self._running is None or self._running.get_loop() is not loop:
            self._running = loop.create_task(self.health.run(), name="health")
        if self._metrics is not None:
            self._metrics.home = loop

    async def stop(self) -> None:
        """Run the checks no more."""
        running = self._running
        self._running = None
        if running is not None and running.get_loop() is asyncio.get_running_loop():
            running.cancel()
            await asyncio.wait([running], timeout=STOP_TIME)

    # -- what is read when the metrics are

    def _read_services(self, metrics: Metrics) -> None:
        services = self._services
        metrics.gauge("ferrule_threads_busy").labels().set(services.threads.busy)
        metrics.gauge("ferrule_thread_queue").labels().set(services.threads.waiting)
        metrics.gauge("ferrule_tasks").labels().set(self._tasks())
        subscriptions = metrics.gauge("ferrule_subscriptions")
        subscriptions.labels("lists").set(services.subscriptions.list_listeners)
        subscriptions.labels("resources").set(services.subscriptions.watched_resources)
        subscriptions.labels("tasks").set(services.subscriptions.watched_tasks)
        metrics.gauge("ferrule_cache_entries").labels("results").set(len(services.kept_results))

    def _read_links(self, metrics: Metrics) -> None:
        links = self._services.links
        dropped = metrics.counter("ferrule_notifications_dropped_total")
        dropped.labels("progress").value = links.dropped_progress
        dropped.labels("message").value = links.dropped_logs
        figures = links.figures()
        metrics.gauge("ferrule_calls_running").labels("").set(figures.running)
        metrics.gauge("ferrule_calls_waiting").labels("").set(figures.waiting)
        metrics.gauge("ferrule_calls_parked").labels("").set(figures.asked)
        for carrier, traffic in figures.traffic.items():
            metrics.counter("ferrule_received_bytes_total").labels(carrier).value = traffic.received
            metrics.counter("ferrule_sent_bytes_total").labels(carrier).value = traffic.sent

    def _read_receipts(self, metrics: Metrics) -> None:
        if self._receipts is not None:
            metrics.counter("ferrule_receipts_total").labels().value = self._receipts.written
            metrics.counter("ferrule_receipts_lost_total").labels().value = self._receipts.lost

    def _read_caches(self, metrics: Metrics) -> None:
        caches = self._layers.caches()
        if caches:
            metrics.gauge("ferrule_cache_entries").labels("calls").set(sum(cache.entries for cache in caches))
            metrics.counter("ferrule_cache_hits_total").labels("calls").value = sum(cache.hits for cache in caches)
            metrics.counter("ferrule_cache_misses_total").labels("calls").value = sum(cache.misses for cache in caches)

    def _read_registry(self, metrics: Metrics) -> None:
        if self.registry_stats is not None:
            show_registry(metrics, self.registry_stats())

    def _read_lag(self, metrics: Metrics) -> None:
        if self._running is not None:
            lag = self.health.lag.longest(self._running.get_loop().time())
            metrics.gauge("ferrule_loop_lag_seconds").labels().set(lag)


def _own_version() -> str:
    """Return the version of this package; its top module is imported by nothing below it."""
    return str(sys.modules["ferrule"].__version__)
