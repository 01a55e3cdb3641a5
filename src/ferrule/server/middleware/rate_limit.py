"""`RateLimit`: so many calls a second, for each principal, session or tool."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from typing import Any

from ferrule.balancing.token_bucket import TokenBucket
from ferrule.errors import RateLimited
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.server.middleware.caller_key import Key, key_of, methods_of
from ferrule.server.middleware.hooks import Middleware
from ferrule.settings.option import NonNegativeFloat, PositiveInt, require


class RateLimit(Middleware):
    """Refuses calls beyond a rate, and says when to come again.

    `by` is "principal" (who is not authenticated counts by session or address), "session", "tool", "server" for all
    together, or a function of the call.
    """

    def __init__(
        self,
        rate: float,
        *,
        burst: float | None = None,
        by: str | Key = "principal",
        methods: Collection[str] = ("tools/call",),
        max_keys: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        require("RateLimit: max_keys", max_keys, PositiveInt)
        require("RateLimit: rate", rate, NonNegativeFloat)
        require("RateLimit: burst", burst, NonNegativeFloat | None)
        self._rate = rate
        if burst is None:
            self._burst = max(rate, 1.0)
        else:
            self._burst = burst
        TokenBucket(self._rate, self._burst)
        self._key = key_of(by, "RateLimit")
        self._methods = methods_of(methods, "RateLimit")
        self._max_keys = max_keys
        self._clock = clock
        self._buckets: dict[Hashable, TokenBucket] = {}

    async def on_request(self, call: Call, proceed: Handler) -> Any:
        """Let a call through while there is a token for it."""
        if call.method in self._methods:
            self._take(call)
        return await proceed(call)

    def _take(self, call: Call) -> None:
        key = self._key(call)
        now = self._clock()
        # Put back in, the bucket is the newest; the first to be forgotten is that of the caller who was quiet longest.
        bucket = self._buckets.pop(key, None) or TokenBucket(self._rate, self._burst)
        self._buckets[key] = bucket
        if len(self._buckets) > self._max_keys:
            del self._buckets[next(iter(self._buckets))]
        if not bucket.take(now):
            raise RateLimited(bucket.wait(now))
