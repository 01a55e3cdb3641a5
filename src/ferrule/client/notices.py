"""Notifications on the client's side: in order, one at a time, apart from the receiving of answers."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.protocol.call import Note
from ferrule.schema.notices import OLD_NAMES
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.client")

Deliver = Callable[[str, Any], Any]

_read_any = msgspec.json.Decoder(dict[str, Any]).decode


class Notices:
    """Hands notifications to their handlers; a slow or failing handler delays only other notifications."""

    def __init__(self, limit: int = 10_000) -> None:
        self._handlers: dict[str, list[Deliver]] = {}
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque(maxlen=limit)
        self._limit = limit
        self._worker: asyncio.Task[None] | None = None

    def on(self, method: str, handler: Any) -> None:
        """Add a handler: `f(params)`, `f(method, params)`, a queue, or `"module:function"`."""
        self._handlers.setdefault(OLD_NAMES.get(method, method), []).append(_deliverer(handler))

    def off(self, method: str) -> None:
        """Remove the handlers of a method."""
        self._handlers.pop(OLD_NAMES.get(method, method), None)

    def listens(self, method: str) -> bool:
        """Tell whether anyone handles a method."""
        return method in self._handlers

    def receive(self, note: Note, scope: Scope) -> None:
        """Take a notification; its handlers run soon."""
        if note.method not in self._handlers:
            logger.debug("no handler for the notification %s", note.method)
            return
        if len(self._waiting) == self._limit:
            logger.warning("notification handlers are too slow: the oldest of %d waiting is dropped", self._limit)
        self._waiting.append((note.method, _read_any(note.params)))
        if self._worker is None or self._worker.done():
            self._worker = scope.spawn(self._work())

    async def _work(self) -> None:
        while self._waiting:
            method, params = self._waiting.popleft()
            for deliver in tuple(self._handlers.get(method, ())):
                try:
                    value = deliver(method, params)
                    if inspect.isawaitable(value):
                        await value
                except asyncio.CancelledError:
                    raise
                except Exception:
                    logger.exception("the handler of the notification %s failed", method)


def _deliverer(handler: Any) -> Deliver:
    if isinstance(handler, str):
        module, _, name = handler.partition(":")
        handler = getattr(importlib.import_module(module), name)
    if isinstance(handler, asyncio.Queue):
        queue = handler
        return lambda method, params: queue.put((method, params))
    takes_method = len(inspect.signature(handler).parameters) >= 2
    return handler if takes_method else lambda _method, params: handler(params)
