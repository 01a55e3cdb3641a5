"""Notifications on the client's side: in order, one at a time, apart from the receiving of answers."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import queue
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.budgets.bounds import MAX_NOTICES_SIZE
from ferrule.errors import SetupError
from ferrule.protocol.call import Note
from ferrule.schema.notices import OLD_NAMES
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.client")

Deliver = Callable[[str, Any], Any]

_read_any = msgspec.json.Decoder(dict[str, Any]).decode


class Inbox:
    """Hands notifications to their handlers; a slow or failing handler delays only other notifications."""

    def __init__(self, limit: int = 10_000, max_bytes: int = MAX_NOTICES_SIZE) -> None:
        self._handlers: dict[str, list[Deliver]] = {}
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._limit = limit
        self._max_bytes = max_bytes
        self._held = 0
        """Bytes of the notifications that wait."""
        self._dropping = False
        """Whether notifications were dropped since none waited."""
        self._worker: asyncio.Task[None] | None = None

    @property
    def methods(self) -> frozenset[str]:
        """The notifications someone handles."""
        return frozenset(self._handlers)

    def on(self, method: str, handler: object) -> Deliver:
        """Add a handler: `f(params)`, `f(method, params)`, a queue, or `"module:function"`; gives what `off` takes."""
        deliver = deliverer(handler)
        self._handlers.setdefault(OLD_NAMES.get(method, method), []).append(deliver)
        return deliver

    def off(self, method: str, deliver: Deliver | None = None) -> None:
        """Remove one handler of a method, or all."""
        method = OLD_NAMES.get(method, method)
        kept = []
        for other in self._handlers.pop(method, ()):
            if deliver is not None and other is not deliver:
                kept.append(other)
        if kept:
            self._handlers[method] = kept

    def receive(self, note: Note, scope: Scope) -> None:
        """Take a notification; its handlers run soon."""
        if note.method not in self._handlers:
            logger.debug("no handler for the notification %s", note.method)
            return
        params = bytes(note.params)
        while self._waiting and (len(self._waiting) >= self._limit or self._held + len(params) > self._max_bytes):
            self._drop_oldest()
        self._waiting.append((note.method, params))
        self._held += len(params)
        if self._worker is None or self._worker.done():
            self._worker = scope.spawn(self._work())

    def _drop_oldest(self) -> None:
        if not self._dropping:
            logger.warning(
                "notification handlers are too slow: the oldest of %d waiting is dropped", len(self._waiting)
            )
        self._dropping = True
        _, params = self._waiting.popleft()
        self._held -= len(params)

    async def _work(self) -> None:
        while self._waiting:
            method, text = self._waiting.popleft()
            self._held -= len(text)
            params = _read_any(text)
            for deliver in tuple(self._handlers.get(method, ())):
                try:
                    value = deliver(method, params)
                    if inspect.isawaitable(value):
                        await value
                except asyncio.CancelledError:
                    raise
                except Exception:
                    logger.exception("the handler of the notification %s failed", method)
        self._dropping = False


def deliverer(handler: Any) -> Deliver:
    """Return a function of (method, params) that hands a notification to a handler of any kind."""
    if isinstance(handler, asyncio.Queue):
        return lambda method, params: handler.put((method, params))
    if isinstance(handler, queue.Queue | queue.SimpleQueue):
        return lambda method, params: handler.put_nowait((method, params))
    if isinstance(handler, str):
        handler = _named(handler)
    if not callable(handler):
        raise SetupError(f"a notification handler is a function, a queue or 'module:function', not {handler!r}")
    return handler if _takes_method(handler) else lambda _method, params: handler(params)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as reason:
        raise SetupError(f"there is no notification handler {place!r}: {reason}") from None


def _takes_method(handler: Callable[..., Any]) -> bool:
    """Return whether a function wants the method's name before the params: it cannot do with one argument alone."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = []
    for p in parameters:
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            positional.append(p)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return len(positional) != 1
    return sum(p.default is p.empty for p in positional) >= 2
