"""Telling a caller how far its call is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ferrule.budgets.bounds import MAX_PROGRESS_WAITING
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.client")

ProgressHandler = Callable[[float, float | None, str | None], Any]
"""A callback that gets what is done, of how much if that is known, and in words."""


def progress_told(progress: ProgressHandler, scope: Scope) -> ProgressHandler:
    """Return a callback that does not wait for the caller's, which may."""

    running = 0

    def ended(_task: asyncio.Task[None]) -> None:
        nonlocal running
        running -= 1

    def tell(done: float, total: float | None, message: str | None) -> None:
        nonlocal running
        if running >= MAX_PROGRESS_WAITING:
            return
        value = progress(done, total, message)
        if asyncio.iscoroutine(value):
            running += 1
            scope.spawn(contained(value)).add_done_callback(ended)

    return tell


async def contained(work: Coroutine[Any, Any, Any]) -> None:
    """Wait for a progress callback; one that fails harms nobody else."""
    try:
        await work
    except Exception:
        logger.exception("a progress callback failed")


class ProgressRelay:
    """Hands progress on to whoever wants to know at the moment."""

    def __init__(self, target: ProgressHandler | None = None) -> None:
        self.target = target
        self.heard = False

    def __call__(self, done: float, total: float | None, message: str | None) -> Any:
        """Return how far it is."""
        self.heard = True
        if self.target is None:
            return None
        return self.target(done, total, message)
