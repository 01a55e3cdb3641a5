"""The tasks one owner started, so that none is forgotten and all can be ended together."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger("ferrule.scope")

EAGER = sys.version_info >= (3, 12)
"""From 3.12 on a task can start at once, without a turn of the loop."""


class Scope:
    """The tasks one owner started."""

    __slots__ = ("_loop", "tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that this scope owns."""
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def close(self, grace: float = 0.0) -> None:
        """Let the tasks end by themselves for a while, then cancel them, then leave those that will not go."""
        if self.tasks and grace > 0:
            await asyncio.wait(set(self.tasks), timeout=grace)
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            _, stuck = await asyncio.wait(set(self.tasks), timeout=1.0)
            if stuck:
                logger.warning("%d tasks ignore their cancellation and are left behind", len(stuck))
