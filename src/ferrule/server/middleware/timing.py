"""`Timing`: how many calls there were of what, and how long they took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ferrule.errors import Refusal
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.server.middleware.caller_key import target
from ferrule.server.middleware.hooks import Middleware

OTHERS = "…"
"""Under this name is counted what has no name of its own: callers invent names, and we do not keep them all."""


class Times(Struct):
    """What was measured of one method and name."""

    count: int = 0
    failed: int = 0
    """How many of them ended in an error, of whatever kind."""
    total: float = 0.0
    longest: float = 0.0

    @property
    def mean(self) -> float:
        """The seconds one took on average."""
        return self.total / self.count if self.count else 0.0


class Timing(Middleware):
    """Measures calls; `timing.times[("tools/call", "add")]` has the figures, and `on_time` is told of each call."""

    def __init__(
        self,
        *,
        on_time: Callable[[Call, float], None] | None = None,
        max_names: int = 1000,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.times: dict[tuple[str, str], Times] = {}
        self._on_time = on_time
        self._max_names = max_names
        self._clock = clock

    async def on_request(self, call: Call, proceed: Handler) -> Any:
        """Measure a call."""
        start = self._clock()
        failed = True
        name = target(call)
        try:
            result = await proceed(call)
            failed = bool(getattr(result, "is_error", None))
        except Refusal:
            name = OTHERS  # what is refused may never have existed
            raise
        finally:
            self._note(call, name, self._clock() - start, failed)
        return result

    def _note(self, call: Call, name: str, seconds: float, failed: bool) -> None:
        key = (call.method, name)
        if key not in self.times and len(self.times) >= self._max_names:
            key = (call.method, OTHERS)
        times = self.times.setdefault(key, Times())
        times.count += 1
        times.failed += failed
        times.total += seconds
        times.longest = max(times.longest, seconds)
        if self._on_time is not None:
            self._on_time(call, seconds)
