"""What a worker reports of itself to its overseer, and what it learns there of all workers."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
from msgspec import Struct

from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.snapshot import Snapshot, take_snapshot
from ferrule.transports.http.endpoint.neighbours import WorkerHealth
from ferrule.workers.mesh import OVERSEER
from ferrule.workers.questions import Questions

OWN_HEALTH, OWN_METRICS = "health", "metrics"
"""What an overseer asks a worker."""
ALL_HEALTH, ALL_METRICS, LAST_METRICS = "health of all", "metrics of all", "last metrics"
"""What a worker asks its overseer, and what it tells it in the end."""
TIME_LIMIT = 1.0
"""How many seconds the overseer may take to gather what it is asked for: more than it gives its workers."""


class WorkerMetrics(Struct, frozen=True):
    """What one worker has counted."""

    pid: int
    metrics: Snapshot


class MetricsText(Struct, frozen=True):
    """The metrics of all workers, as a scraper reads them."""

    content_type: str
    text: bytes


encode = msgspec.msgpack.Encoder().encode
decode_metrics = msgspec.msgpack.Decoder(WorkerMetrics).decode
decode_health = msgspec.msgpack.Decoder(WorkerHealth).decode
_decode_text = msgspec.msgpack.Decoder(MetricsText).decode
_decode_all = msgspec.msgpack.Decoder(dict[int, WorkerHealth | None]).decode


class Reports:
    """What one worker reports; see `WorkerReports`."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self.own_health: Callable[[], WorkerHealth] | None = None
        self.own_metrics: Metrics | None = None
        questions.on(OWN_HEALTH, self._answer_health)
        questions.on(OWN_METRICS, self._answer_metrics)

    async def _answer_health(self, content: bytes) -> bytes | None:
        if self.own_health is None:
            return None
        return encode(self.own_health())

    async def _answer_metrics(self, content: bytes) -> bytes | None:
        if self.own_metrics is None:
            return None
        return encode(WorkerMetrics(os.getpid(), take_snapshot(self.own_metrics)))

    async def health(self) -> dict[int, WorkerHealth | None] | None:
        """Return how each worker is, by slot, None for one that does not answer; None where nobody knows."""
        found = await self._questions.ask(OVERSEER, ALL_HEALTH, limit=TIME_LIMIT)
        if found is None:
            return None
        return _decode_all(found)

    async def metrics(self, accept: str) -> tuple[str, bytes] | None:
        """Return the metrics of all workers, as content type and text for an `Accept` header; None where nobody can."""
        found = await self._questions.ask(OVERSEER, ALL_METRICS, accept.encode(), limit=TIME_LIMIT)
        if found is None:
            return None
        told = _decode_text(found)
        return told.content_type, told.text

    async def say_last(self) -> None:
        """Send the overseer what was counted here, before this worker ends."""
        last = await self._answer_metrics(b"")
        if last is not None:
            await self._questions.ask(OVERSEER, LAST_METRICS, last)
