"""Monitor: the health and the metrics of one server.

A server on stdio that nobody asks for either never loads this.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from ferrule.server.calls.services import Services
from ferrule.server.middleware.stack import MiddlewareStack
from ferrule.telemetry.health import HealthMonitor
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.observer import Observer
from ferrule.telemetry.process import record_process
from ferrule.telemetry.recorder import MetricsRecorder

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
    ) -> None:
        self._services = services
        self._layers = layers
        self._tasks = tasks
        """How many tasks run."""
        self._observe = observe
        """Lets an observer see what happens from now on."""
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
            record_process(self._metrics, _own_version())
            self._watch(self._metrics)
        return self._metrics

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

    def _watch(self, metrics: Metrics) -> None:
        services = self._services
        threads = services.threads
        subscriptions = services.subscriptions
        metrics.watch("ferrule_threads_busy", source=lambda: threads.busy)
        metrics.watch("ferrule_thread_queue", source=lambda: threads.waiting)
        metrics.watch("ferrule_tasks", source=self._tasks)
        metrics.watch("ferrule_subscriptions", "lists", source=lambda: subscriptions.list_listeners)
        metrics.watch("ferrule_subscriptions", "resources", source=lambda: subscriptions.watched_resources)
        metrics.watch("ferrule_subscriptions", "tasks", source=lambda: subscriptions.watched_tasks)
        metrics.watch("ferrule_notifications_dropped_total", "progress", source=lambda: services.links.dropped_progress)
        metrics.watch("ferrule_notifications_dropped_total", "message", source=lambda: services.links.dropped_logs)
        metrics.watch("ferrule_cache_entries", "results", source=lambda: len(services.kept_results))
        metrics.before_reading(lambda: self._read_links(metrics))
        metrics.before_reading(lambda: self._read_caches(metrics))
        metrics.before_reading(lambda: self._read_lag(metrics))

    def _read_links(self, metrics: Metrics) -> None:
        figures = self._services.links.figures()
        metrics.gauge("ferrule_calls_running").labels("").set(figures.running)
        metrics.gauge("ferrule_calls_waiting").labels("").set(figures.waiting)
        metrics.gauge("ferrule_calls_parked").labels("").set(figures.asked)
        for carrier, traffic in figures.traffic.items():
            metrics.counter("ferrule_received_bytes_total").labels(carrier).value = traffic.received
            metrics.counter("ferrule_sent_bytes_total").labels(carrier).value = traffic.sent

    def _read_caches(self, metrics: Metrics) -> None:
        entries = 0
        hits = 0
        misses = 0
        caches = self._layers.caches()
        for cache in caches:
            entries += cache.entries
            hits += cache.hits
            misses += cache.misses
        if caches:
            metrics.gauge("ferrule_cache_entries").labels("calls").set(entries)
            metrics.counter("ferrule_cache_hits_total").labels("calls").value = hits
            metrics.counter("ferrule_cache_misses_total").labels("calls").value = misses

    def _read_lag(self, metrics: Metrics) -> None:
        if self._running is not None:
            lag = self.health.lag.longest(self._running.get_loop().time())
            metrics.gauge("ferrule_loop_lag_seconds").labels().set(lag)


def _own_version() -> str:
    """Return the version of this package; its top module is imported by nothing below it."""
    return str(sys.modules["ferrule"].__version__)
