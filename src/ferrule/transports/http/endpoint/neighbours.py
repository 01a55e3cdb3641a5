"""The contract of whoever knows the other workers of a server: a session lives in one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct

from ferrule.telemetry.metrics import Metrics
from ferrule.transports.http.message import HttpRequest, Responder


class WorkerHealth(Struct, frozen=True):
    """How one worker is."""

    problems: list[str]
    """Why no new work should be sent to it; none where it is ready."""
    report: dict[str, Any]
    """All its checks, in the form of `application/health+json`."""


class WorkerReports(Protocol):
    """What every worker reports of itself, and what is known of all of them."""

    own_health: Callable[[], WorkerHealth] | None
    """How this worker is; None where it does not say."""
    own_metrics: Metrics | None
    """What this worker has counted; None where it does not count."""

    async def health(self) -> dict[int, WorkerHealth | None] | None:
        """Return how each worker is, by slot, None for one that does not answer; None where nobody knows."""

    async def metrics(self, accept: str) -> tuple[str, bytes] | None:
        """Return the metrics of all workers, as content type and text for an `Accept` header; None where nobody can."""


class Neighbours(Protocol):
    """The other workers."""

    on_told: Callable[[bytes], None]
    """Called with what another worker tells all."""

    def tell(self, content: bytes) -> None:
        """Send something to all others."""

    @property
    def mark(self) -> str:
        """How the ids begin that are made here."""

    def chosen(self, number: int) -> str:
        """Return how the ids begin of the worker that all choose for a number; it may be this one."""

    @property
    def reports(self) -> WorkerReports:
        """What workers report of themselves."""

    def on_question(self, topic: str, answer: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        """Answer what other workers ask about a topic; None where there is nothing to say."""

    async def ask(self, identity: str, topic: str, content: bytes) -> bytes | None:
        """Return what the worker says that made an id; None where it says nothing, or none of the others made it."""

    async def ask_all(self, topic: str, content: bytes) -> list[bytes]:
        """Return what the other workers say, those that say something in time."""

    def pass_on(self, identity: str, request: HttpRequest, responder: Responder) -> bool:
        """Let the worker that made an id answer a request; return False where that is none of the others."""
