"""`Concurrency`: so many calls at once, for the whole server, each principal, session or tool."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.server.calls.slots import Slots
from ferrule.server.middleware.caller_key import Key, key_of, methods_of
from ferrule.server.middleware.hooks import Middleware


class Concurrency(Middleware):
    """Lets so many calls run at once; the next wait in line, and beyond `max_waiting` they are refused as busy.

    `by` is "server" for all together, "principal", "session", "tool", or a function of the call.
    """

    def __init__(
        self,
        limit: int,
        *,
        by: str | Key = "server",
        max_waiting: int = 1000,
        methods: Collection[str] = ("tools/call",),
    ) -> None:
        if limit < 1 or max_waiting < 0:
            raise SetupError(f"Concurrency: limit must be at least 1, max_waiting at least 0: {limit}, {max_waiting}")
        self._limit = limit
        self._key = key_of(by, "Concurrency")
        self._max_waiting = max_waiting
        self._methods = methods_of(methods, "Concurrency")
        self._slots: dict[Hashable, Slots] = {}

    async def on_request(self, call: Call, proceed: Handler) -> Any:
        """Run a call as soon as it may."""
        if call.method not in self._methods:
            return await proceed(call)
        key = self._key(call)
        slots = self._slots.setdefault(key, Slots(self._limit, self._max_waiting, call.method))
        try:
            async with slots:
                return await proceed(call)
        finally:
            if not slots.taken and not slots.waiting:
                self._slots.pop(key, None)
