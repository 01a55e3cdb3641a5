"""What supervisors and the registry of a process do, as metrics, from plain values."""

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


def watch_registry(metrics: Metrics, stats: Callable[[], RegistryFacts]) -> None:
    """Show how much a registry holds whenever the metrics are read."""
    entries = metrics.gauge("ferrule_registry_entries")

    def read() -> None:
        found = stats()
        for (kind,), gauge in entries.children.items():
            gauge.set(found.entries.get(kind, 0))
        for kind, count in found.entries.items():
            entries.labels(kind).set(count)
        metrics.gauge("ferrule_registry_bindings").labels().set(found.bindings)

    metrics.before_reading(read)
