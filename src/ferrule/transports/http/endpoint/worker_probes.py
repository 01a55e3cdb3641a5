"""What a load balancer and a scraper ask one worker, answered for all of them: /livez, /readyz and /metrics.

Rule 1: the server is ready while one worker is: connections wait in the queue of a worker that is not there yet.
Rule 2: it is alive while the worker that is asked is: the overseer replaces those that are not.
Rule 3: metrics of some workers only would look as if counters had fallen. Where not all can be gathered there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from ferrule.supervision.scope import Scope
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.endpoint.neighbours import WorkerHealth, WorkerReports
from ferrule.transports.http.endpoint.probes import HEALTH_HEAD, asks_for_all, guarded
from ferrule.transports.http.heads import ALWAYS, RETRY_AFTER, TEXT_HEAD
from ferrule.transports.http.message import Handle, HttpRequest, Responder, header_lines
from ferrule.transports.http.settings import METRICS_PATH, READY_PATH

NOT_GATHERED = b"Unavailable: the overseer of the workers does not answer\n"
SILENT = "does not answer"


class WorkerProbes:
    """Answers for all workers; /livez stays what it is."""

    def __init__(self, reports: WorkerReports, guard: Guard) -> None:
        self._reports = reports
        self._scope = Scope(asyncio.get_running_loop())
        self.routes: dict[str, Handle] = {
            READY_PATH: guarded(guard, self._later(self._answer_ready)),
            METRICS_PATH: guarded(guard, self._later(self._answer_metrics)),
        }

    def _later(
        self, answer: Callable[[HttpRequest, Responder, bytes], Coroutine[Any, Any, None]]
    ) -> Callable[[HttpRequest, Responder, bytes], None]:
        def begin(request: HttpRequest, responder: Responder, head: bytes) -> None:
            task = self._scope.spawn(answer(request, responder, head))
            responder.watch(lambda: self._scope.cancel(task))

        return begin

    async def close(self) -> None:
        """Answer nothing more."""
        await self._scope.close()

    async def _answer_metrics(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        found = await self._reports.metrics(request.header(b"accept"))
        if found is None:
            responder.reply(503, TEXT_HEAD + RETRY_AFTER + head, NOT_GATHERED)
            return
        content_type, text = found
        own = header_lines({"Content-Type": content_type, "Cache-Control": "no-store", "Vary": "Accept", **ALWAYS})
        responder.reply(200, own + head, text)

    async def _answer_ready(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        workers = await self._reports.health()
        if workers is None:
            responder.reply(503, TEXT_HEAD + RETRY_AFTER + head, NOT_GATHERED)
            return
        problems = not_ready(workers)
        status = 503 if problems else 200
        if problems:
            head += RETRY_AFTER
        if asks_for_all(request):
            responder.reply(status, HEALTH_HEAD + head, msgspec.json.encode(report_of(workers)))
            return
        text = f"not ready: {', '.join(problems)}" if problems else "ready"
        responder.reply(status, TEXT_HEAD + head, f"{text}\n".encode())


def not_ready(workers: dict[int, WorkerHealth | None]) -> list[str]:
    """Return why no worker is ready, each reason once; nothing where one is."""
    reasons: dict[str, None] = {}
    for health in workers.values():
        if health is None:
            reasons[SILENT] = None
            continue
        if not health.problems:
            return []
        reasons.update(dict.fromkeys(health.problems))
    return list(reasons)


def report_of(workers: dict[int, WorkerHealth | None]) -> dict[str, Any]:
    """Return the checks of all workers as one report; the server is degraded where one of them is not healthy."""
    checks: dict[str, Any] = {}
    found: dict[str, Any] = {"status": "pass"}
    for slot, health in workers.items():
        if health is None:
            checks[f"worker {slot}"] = [{"status": "fail", "output": SILENT}]
            found["status"] = "warn"
            continue
        for name in ("version", "generation"):
            if name in health.report:
                found[name] = health.report[name]
        if health.problems or health.report.get("status") != "pass":
            found["status"] = "warn"
        if health.problems:
            checks[f"worker {slot}"] = [{"status": "fail", "output": ", ".join(health.problems)}]
        for name, results in health.report.get("checks", {}).items():
            checks[f"worker {slot}: {name}"] = results
    notes = not_ready(workers)
    if notes:
        found["status"] = "fail"
        found["notes"] = notes
    found["checks"] = checks
    return found
