"""The health and the metrics of all workers, gathered by their overseer when somebody asks.

Rule 1: what workers have counted is added up, and a counter never falls: a worker that ended counts with what it said
last.
Rule 2: however often metrics are asked for, gathering them takes one part in `SHARE` of the time at most.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Protocol

from ferrule.telemetry.exposition import content_type_for, expose
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.snapshot import Snapshot, merge, take_snapshot, without_gauges
from ferrule.transports.http.endpoint.neighbours import WorkerHealth
from ferrule.workers.questions import Questions
from ferrule.workers.reports import (
    ALL_HEALTH,
    ALL_METRICS,
    LAST_METRICS,
    OWN_HEALTH,
    OWN_METRICS,
    MetricsText,
    decode_health,
    decode_metrics,
    encode,
)

SHARE = 20
"""Metrics that took a millisecond to gather are kept for twenty."""


class MonitoredSlot(Protocol):
    """The place of one worker."""

    number: int
    restarts: int
    """How often a worker was started here after the first."""

    @property
    def is_up(self) -> bool:
        """Whether a worker serves here."""


class WorkersMonitor:
    """Answers for all workers."""

    def __init__(self, questions: Questions, slots: Sequence[MonitoredSlot]) -> None:
        self._questions = questions
        self._slots = slots
        self._said: dict[int, Snapshot] = {}
        """What each process has said last, by its number."""
        self._ended: Snapshot = []
        """What all processes that ended have counted."""
        self._texts: dict[str, bytes] = {}
        self._kept_until = -math.inf
        self._gathering: asyncio.Task[Metrics] | None = None
        questions.on(ALL_METRICS, self._answer_metrics)
        questions.on(ALL_HEALTH, self._answer_health)
        questions.on(LAST_METRICS, self._take_last)

    def ended(self, pid: int) -> None:
        """Called when the process of a worker has ended: what it counted stays."""
        said = self._said.pop(pid, None)
        if said is not None:
            self._ended = take_snapshot(merge([self._ended, without_gauges(said)]))

    # -- health

    async def _answer_health(self, content: bytes) -> bytes:
        asked = [self._health_of(slot) for slot in self._slots]
        found = await asyncio.gather(*asked)
        return encode({slot.number: health for slot, health in zip(self._slots, found, strict=True)})

    async def _health_of(self, slot: MonitoredSlot) -> WorkerHealth | None:
        said = await self._questions.ask(slot.number, OWN_HEALTH)
        if said is None:
            return None
        return decode_health(said)

    # -- metrics

    async def _answer_metrics(self, content: bytes) -> bytes:
        content_type = content_type_for(content.decode("latin-1"))
        text = self._texts.get(content_type)
        if text is None or time.monotonic() >= self._kept_until:
            text = await self._written(content_type)
        return encode(MetricsText(content_type, text))

    async def _written(self, content_type: str) -> bytes:
        # Who asks while others wait is answered together with them.
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.ensure_future(self._gather())
        metrics = await asyncio.shield(self._gathering)
        began = time.process_time()
        text = self._texts[content_type] = expose(metrics, content_type)
        self._kept_until += (time.process_time() - began) * SHARE
        return text

    async def _gather(self) -> Metrics:
        said = await asyncio.gather(*(self._questions.ask(slot.number, OWN_METRICS) for slot in self._slots))
        began = time.process_time()
        for content in said:
            if content is not None:
                self._keep(content)
        metrics = merge([self._ended, *self._said.values()])
        for slot in self._slots:
            number = str(slot.number)
            metrics.gauge("ferrule_worker_up").labels(number).set(int(slot.is_up))
            metrics.counter("ferrule_worker_restarts_total").labels(number).value = slot.restarts
        self._texts.clear()
        self._kept_until = time.monotonic() + (time.process_time() - began) * SHARE
        return metrics

    async def _take_last(self, content: bytes) -> None:
        self._keep(content)

    def _keep(self, content: bytes) -> None:
        said = decode_metrics(content)
        self._said[said.pid] = said.metrics
