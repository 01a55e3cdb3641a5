"""What supervisors, the registry and the stores of a process do, as metrics, from plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ferrule.telemetry.metrics import Metrics


class SupervisorFacts(Protocol):
    """Something that happened to a supervised child."""

    @property
    def kind(self) -> str:
        """One word: `started`, `ready`, `ended`, `restarting`, `gave_up` or `abandoned`."""

    @property
    def path(self) -> str:
        """Whose: `app/listeners/http`."""


class RegistryFacts(Protocol):
    """How much a registry holds."""

    @property
    def entries(self) -> Mapping[str, int]:
        """How many of each kind."""

    @property
    def bindings(self) -> int:
        """How many transports are bound to a server."""


def restart_recorder(metrics: Metrics) -> Callable[[SupervisorFacts], None]:
    """Return what counts the restarts of children: give it to a supervisor as `on_event`."""
    restarts = metrics.counter("ferrule_child_restarts_total")

    def record(event: SupervisorFacts) -> None:
        if event.kind == "restarting":
            restarts.labels(event.path).add()

    return record


class StoreRecorder:
    """Records the operations of stores: how long each took, and whether it failed."""

    def __init__(self, metrics: Metrics) -> None:
        self._seconds = metrics.histogram("ferrule_store_operation_seconds")
        self._errors = metrics.counter("ferrule_store_errors_total")

    def record(self, operation: str, took: float, failed: bool) -> None:
        """Record an operation by its name."""
        self._seconds.labels(operation).observe(took)
        if failed:
            self._errors.labels(operation).add()


def count_store_operations(metrics: Metrics) -> None:
    """Set how many operations of stores there were that have left their durations."""
    operations = metrics.counter("ferrule_store_operations_total")
    for labels, durations in metrics.histogram("ferrule_store_operation_seconds").children.items():
        operations.labels(*labels).value = durations.count


def watch_registry(metrics: Metrics, stats: Callable[[], RegistryFacts]) -> None:
    """Show how much a registry holds whenever the metrics are read."""
    metrics.before_reading(lambda: show_registry(metrics, stats()))


def show_registry(metrics: Metrics, found: RegistryFacts) -> None:
    """Set the gauges of a registry to what it holds."""
    entries = metrics.gauge("ferrule_registry_entries")
    for (kind,), gauge in entries.children.items():
        gauge.set(found.entries.get(kind, 0))
    for kind, count in found.entries.items():
        entries.labels(kind).set(count)
    metrics.gauge("ferrule_registry_bindings").labels().set(found.bindings)
