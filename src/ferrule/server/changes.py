"""Telling of changes, from any thread: at once, then at most once per interval, the last never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ferrule.runtime.limits import Coalescer
from ferrule.server.subscriptions import Subscriptions


class Changes:
    """The changes of one server, on their way to whoever listens."""

    def __init__(self, subscriptions: Subscriptions, interval: float) -> None:
        self._subscriptions = subscriptions
        self._coalescer = Coalescer(interval)
        self.loop: asyncio.AbstractEventLoop | None = None

    def updated(self, uri: str, extra: dict[str, Any]) -> None:
        """Tell that a resource changed."""
        self._soon(lambda: self._subscriptions.updated(uri, extra))

    def list_changed(self, kind: str) -> None:
        """Tell that a list changed."""
        self._soon(lambda: self._poke(kind))

    def _poke(self, kind: str) -> None:
        if self.loop is None:
            return
        delay = self._coalescer.poke(kind, self.loop.time())
        if delay == 0.0:
            self._subscriptions.changed(kind)
        elif delay is not None:
            self.loop.call_later(delay, self._fire, kind)

    def _fire(self, kind: str) -> None:
        if self.loop is not None:
            self._coalescer.fired(kind, self.loop.time())
            self._subscriptions.changed(kind)

    def _soon(self, deed: Callable[[], Any]) -> None:
        """Do it now when we are on the server's loop, else as soon as that loop can."""
        loop = self.loop
        if loop is None or loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            deed()
        else:
            loop.call_soon_threadsafe(deed)
