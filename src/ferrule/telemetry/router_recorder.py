"""RouterRecorder: what a router decides, as metrics.

The decisions are plain values, so this module knows nothing of routers: `record` is given them, and `watch` a function
that returns the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ferrule.telemetry.metrics import Metrics

STATES = {"closed": 0.0, "half_open": 1.0, "open": 2.0}
"""The states of a breaker, as a gauge shows them."""


class Decision(Protocol):
    """A decision of a router: its kind, the target it is about, and why."""

    @property
    def kind(self) -> str:
        """One word: `breaker`, `ejected`, `retried`, `hedged`, `overloaded`, `no_target` and so on."""

    @property
    def target(self) -> str:
        """Whom it is about; empty for the whole group."""

    @property
    def reason(self) -> str:
        """Why, in words."""


class BreakerFacts(Protocol):
    """How a breaker stands."""

    @property
    def state(self) -> str:
        """`closed`, `half_open` or `open`."""


class TargetFacts(Protocol):
    """How one target of a router stands."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def connected(self) -> bool:
        """Whether it can be asked."""

    @property
    def ejected(self) -> bool:
        """Whether it was taken out as an outlier."""

    @property
    def breaker(self) -> BreakerFacts:
        """Its circuit breaker."""


class RouterRecorder:
    """Counts the decisions of one router."""

    def __init__(self, metrics: Metrics, upstream: str = "") -> None:
        self._metrics = metrics
        self._upstream = upstream

    def record(self, decision: Decision) -> None:
        """Count a decision; of a kind that is not known here, nothing."""
        counter = self._metrics.counter
        upstream = self._upstream
        match decision.kind:
            case "breaker":
                counter("ferrule_breaker_transitions_total").labels(upstream, decision.target).add()
            case "ejected":
                counter("ferrule_ejections_total").labels(upstream, decision.target).add()
            case "retried":
                # The reason is a sentence; a label is a word.
                counter("ferrule_retries_total").labels(upstream, "lost").add()
                counter("ferrule_failovers_total").labels(upstream, "lost").add()
            case "hedged":
                counter("ferrule_hedges_total").labels(upstream).add()
            case "outcome_unknown":
                counter("ferrule_outcome_unknown_total").labels(upstream, "lost").add()
            case "dead_letter":
                counter("ferrule_dead_letters_total").labels(upstream).add()
            case "overloaded" | "no_target":
                counter("ferrule_router_refusals_total").labels(upstream, decision.kind).add()

    def watch(self, targets: Callable[[], Iterable[TargetFacts]]) -> Callable[[], None]:
        """Show how each target stands whenever the metrics are read. Return a function that ends this."""
        up = self._metrics.gauge("ferrule_upstream_up")
        breaker = self._metrics.gauge("ferrule_breaker_state")
        known: set[str] = set()

        def forget(gone: set[str]) -> None:
            for name in gone:
                up.remove(self._upstream, name)
                breaker.remove(self._upstream, name)

        def read() -> None:
            found = set()
            for target in targets():
                found.add(target.name)
                state = target.breaker.state
                usable = target.connected and not target.ejected and state != "open"
                up.labels(self._upstream, target.name).set(1.0 if usable else 0.0)
                breaker.labels(self._upstream, target.name).set(STATES.get(state, 2.0))
            forget(known - found)
            known.clear()
            known.update(found)

        end_reading = self._metrics.before_reading(read)

        def end() -> None:
            end_reading()
            forget(known)

        return end
