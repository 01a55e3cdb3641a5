"""What a load balancer and a scraper ask: /livez, /readyz and /metrics.

Rule 1: the page and the host are judged first, as for MCP itself.
Rule 2: whoever asks from elsewhere learns which check fails, not why; `?verbose` tells all, to this machine only.
Rule 3: however often metrics are asked for, writing them takes one part in `SHARE` of the time at most: a text is
written in one turn of the event loop, in some milliseconds for 5,000 time series, and kept for `SHARE` times as long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from ferrule.telemetry.exposition import content_type_for, expose
from ferrule.telemetry.health import HealthMonitor
from ferrule.telemetry.metrics import Metrics
from ferrule.transports.http.endpoint.guard import Guard, is_loopback
from ferrule.transports.http.endpoint.neighbours import WorkerHealth
from ferrule.transports.http.heads import ALWAYS, RETRY_AFTER, TEXT_HEAD
from ferrule.transports.http.message import Handle, HttpRequest, Responder, header_lines
from ferrule.transports.http.settings import LIVE_PATH, METRICS_PATH, READY_PATH

VERBOSE = "verbose"
HEALTH_HEAD = header_lines({"Content-Type": "application/health+json", "Cache-Control": "no-store", **ALWAYS})
SHARE = 20
"""A text of metrics that took a millisecond to write is kept for twenty."""
ALLOW = header_lines({"Allow": "GET, HEAD"})
FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")
"""Headers of a proxy on this machine: who asked it may be anybody."""


class HealthProbes:
    """Answers whether this process is alive and ready."""

    def __init__(self, health: HealthMonitor, guard: Guard, draining: Callable[[], bool]) -> None:
        self._health = health
        self._guard = guard
        self._draining = draining
        self.routes: dict[str, Handle] = {
            LIVE_PATH: guarded(guard, self._answer_live),
            READY_PATH: guarded(guard, self._answer_ready),
        }

    def _answer_live(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        problems = []
        if not self._health.is_alive():
            problems.append("the event loop does not turn as it should")
        self._answer(request, responder, head, "alive", problems)

    def _answer_ready(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        self._answer(request, responder, head, "ready", self._not_ready())

    def _not_ready(self) -> list[str]:
        problems = self._health.not_ready(brief=True)
        if self._draining() and not self._health.draining:
            problems.insert(0, "draining")
        return problems

    def report(self) -> WorkerHealth:
        """Return how this process is, as one of several workers."""
        return WorkerHealth(self._not_ready(), self._health.report())

    def _answer(self, request: HttpRequest, responder: Responder, head: bytes, word: str, problems: list[str]) -> None:
        status = 503 if problems else 200
        if problems:
            head += RETRY_AFTER
        if asks_for_all(request):
            report = self._health.report()
            if problems:
                report["notes"] = problems
            responder.reply(status, HEALTH_HEAD + head, msgspec.json.encode(report))
            return
        text = f"not {word}: {', '.join(problems)}" if problems else word
        responder.reply(status, TEXT_HEAD + head, f"{text}\n".encode())


class MetricsPage:
    """The text of some metrics, in the format that is asked for."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = metrics
        self._clock = clock
        self._texts: dict[str, bytes] = {}
        self._kept_until = -math.inf

    def answer(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the text for an `Accept` header."""
        content_type = content_type_for(accept)
        began = self._clock()
        if began >= self._kept_until:
            self._texts.clear()
        text = self._texts.get(content_type)
        if text is None:
            text = expose(self._metrics, content_type)
            self._texts[content_type] = text
            ended = self._clock()
            self._kept_until = ended + (ended - began) * SHARE
        return content_type, text


class MetricsProbe:
    """Answers with the metrics of this process."""

    def __init__(self, metrics: Metrics, guard: Guard) -> None:
        self._page = MetricsPage(metrics)
        self.routes: dict[str, Handle] = {METRICS_PATH: guarded(guard, self._answer)}

    def _answer(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        content_type, text = self._page.answer(request.header(b"accept"))
        own = header_lines({"Content-Type": content_type, "Cache-Control": "no-store", "Vary": "Accept", **ALWAYS})
        responder.reply(200, own + head, text)


def guarded(guard: Guard, answer: Callable[[HttpRequest, Responder, bytes], None]) -> Handle:
    """Return what answers GET and HEAD of those the guard lets in, and refuses all else."""

    def handle(request: HttpRequest, responder: Responder) -> None:
        verdict = guard.judge(request)
        if verdict.status:
            responder.reply(verdict.status, TEXT_HEAD, f"{verdict.why}\n".encode())
        elif request.method not in ("GET", "HEAD"):
            responder.reply(405, TEXT_HEAD + ALLOW + verdict.head, b"Method not allowed; use GET or HEAD\n")
        else:
            answer(request, responder, verdict.head)

    return handle


def asks_for_all(request: HttpRequest) -> bool:
    """Whether a request asks for every check, and comes from this machine without a proxy in between."""
    if VERBOSE not in request.query.split("&"):
        return False
    if any(name in request.headers for name in FORWARDED):
        return False
    return is_loopback(request.address)
