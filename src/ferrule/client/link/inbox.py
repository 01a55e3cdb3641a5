"""The notifications a client got: handled in order, one at a time, and never in the way of answers."""

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
from ferrule.protocol.session import READING_FAILURES
from ferrule.schema.notices import OLD_NAMES
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.client")

Deliver = Callable[[str, Any], Any]

_read_any = msgspec.json.Decoder(dict[str, Any]).decode


class Inbox:
    """Calls the handlers of notifications; a slow or failing handler delays only other notifications."""

    def __init__(self, limit: int = 10_000, max_bytes: int = MAX_NOTICES_SIZE) -> None:
        self._handlers: dict[str, list[Deliver]] = {}
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._limit = limit
        self._max_bytes = max_bytes
        self._held = 0
        """Bytes of the waiting notifications."""
        self._dropping = False
        """Whether one was dropped since the queue was last empty; the log has one line for all of them."""
        self._worker: asyncio.Task[None] | None = None

    @property
    def methods(self) -> frozenset[str]:
        """The methods of notifications that have a handler."""
        return frozenset(self._handlers)

    def on(self, method: str, handler: object) -> Deliver:
        """Add a handler: `f(params)`, `f(method, params)`, a queue, or `"module:function"`; return what `off` takes."""
        deliver = deliverer(handler)
        method = OLD_NAMES.get(method, method)
        self._handlers.setdefault(method, []).append(deliver)
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
        """Queue a notification for its handlers; where the queue is full, the oldest are dropped."""
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
            try:
                params = _read_any(text)
            except READING_FAILURES as reason:
                logger.warning("ignored: the notification %s has malformed params: %s", method, reason)
                continue
            for deliver in tuple(self._handlers.get(method, ())):
                try:
                    value = deliver(method, params)
                    if inspect.isawaitable(value):
                        await value
                except asyncio.CancelledError:
                    if self._worker is None or self._worker.cancelling():
                        raise
                    logger.warning("the handler of the notification %s was cancelled", method)
                except Exception:
                    logger.exception("the handler of the notification %s failed", method)
        self._dropping = False


def deliverer(handler: Any) -> Deliver:
    """Return a function of (method, params) that passes a notification to a handler of any kind."""

    def put(method: str, params: Any) -> Any:
        return handler.put((method, params))

    def put_nowait(method: str, params: Any) -> Any:
        return handler.put_nowait((method, params))

    def call(_method: str, params: Any) -> Any:
        return handler(params)

    if isinstance(handler, asyncio.Queue):
        return put
    if isinstance(handler, queue.Queue | queue.SimpleQueue):
        return put_nowait
    if isinstance(handler, str):
        handler = _imported(handler)
    if not callable(handler):
        raise SetupError(f"a notification handler is a function, a queue or 'module:function', not {handler!r}")
    if not _takes_method(handler):
        return call
    deliver: Deliver = handler
    return deliver


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as reason:
        raise SetupError(f"there is no notification handler {place!r}: {reason}") from None


def _takes_method(handler: Callable[..., Any]) -> bool:
    """Whether a function takes the method before the params: whether it cannot be called with one argument."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = 0
    required = 0
    takes_any = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            takes_any = True
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional += 1
            if parameter.default is parameter.empty:
                required += 1
    if takes_any:
        return positional != 1
    return required >= 2
