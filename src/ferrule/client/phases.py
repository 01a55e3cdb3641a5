"""Telling how far a conversation is to whoever wants to know."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ferrule.protocol.session import Phase

logger = logging.getLogger("ferrule.client")

PhaseHandler = Callable[[Phase, Phase], object]


class Phases:
    """The phase that was told last, and who is told of the next."""

    def __init__(self) -> None:
        self._last = Phase.PRE_INITIALIZATION
        self._handlers: list[PhaseHandler] = []

    def on_change(self, handler: PhaseHandler) -> None:
        """Call `handler(old, new)` when the phase changes."""
        self._handlers.append(handler)

    def tell(self, phase: Phase) -> None:
        """Tell everyone of a phase, unless it was told already; a failing handler harms nobody else."""
        before, self._last = self._last, phase
        if before is phase:
            return
        for handler in tuple(self._handlers):
            try:
                handler(before, phase)
            except Exception:
                logger.exception("a handler of the change from %s to %s failed", before, phase)
