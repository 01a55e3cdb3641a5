"""Composes middleware once, and turns what a handler raised into an outcome."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ferrule.errors import CapabilityNotSupported, EncodeError, Internal, MethodNotFound, Refusal
from ferrule.protocol.call import Call, Note
from ferrule.protocol.needs import Need
from ferrule.schema.tools import CallToolParams

logger = logging.getLogger("ferrule.dispatch")

Handler = Callable[[Call], Awaitable[Any]]
Instant = Callable[[Call], object]
Layer = Callable[[Call, Handler], Awaitable[object]]
NoteHandler = Callable[[Note], None]


class Finisher(Protocol):
    """Takes what becomes of calls. It is handed over whole: a bound method would be made anew for each call."""

    def finish(self, call: Call, outcome: object) -> None:
        """Called when a call is over."""


class Handlers(dict[str, Handler]):
    """Handlers by method; a method nobody handles is refused."""

    def __missing__(self, method: str) -> Handler:
        raise MethodNotFound(f"Method not found: {method}", {"method": method})


class Dispatcher:
    """Runs calls. Handlers wait and may be anyone's code; instant ones are our own, never wait and need no task.

    Middleware surrounds every method alike, or each as it is asked for by name. What is surrounded may wait, so it is
    not instant.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        instant: Mapping[str, Instant],
        notes: Mapping[str, NoteHandler],
        middleware: Sequence[Layer] | Callable[[str], Sequence[Layer]] = (),
        *,
        other_notes: NoteHandler | None = None,
    ) -> None:
        around = middleware if callable(middleware) else lambda _: middleware
        self.handlers = Handlers()
        self.instant: dict[str, Instant] = {}
        for name, handler in handlers.items():
            self.handlers[name] = composed(handler, around(name))
        for name, at_once in instant.items():
            layers = around(name)
            if layers:
                # A layer may wait, so what it surrounds is awaited too.
                self.handlers[name] = composed(_waiting(at_once), layers)
            else:
                self.instant[name] = at_once
        self.notes = dict(notes)
        self._other_notes = other_notes

    async def run(self, call: Call, finisher: Finisher) -> None:
        """Run one call to its outcome, whatever its handler does, and hand the outcome over."""
        try:
            if call.retry:
                call.answers = call.era.recall(call)
            outcome = call.era.shape_result(call, await self.handlers[call.row.name](call))
        except Refusal as refusal:
            # Its traceback holds this very frame, and with it the call, until the next garbage collection.
            outcome = refusal.with_traceback(None)
        except BaseException as error:  # a handler may raise anything; it ends its own call only
            outcome = self._explain(call, error)
        finisher.finish(call, outcome)

    def run_now(self, call: Call, handler: Instant) -> object:
        """Run a call that cannot wait."""
        try:
            return call.era.shape_result(call, handler(call))
        except Refusal as refusal:
            return refusal.with_traceback(None)
        except Exception as error:
            return self._explain(call, error)

    def note(self, note: Note) -> None:
        """Hand a notification to whoever listens to it."""
        handler = self.notes.get(note.method, self._other_notes)
        if handler is None:
            logger.debug("no handler for the notification %s", note.method)
            return
        try:
            handler(note)
        except msgspec.DecodeError as reason:
            # What the peer wrote, no failure of ours: no traceback.
            logger.warning("ignored: the notification %s has malformed params: %s", note.method, reason)
        except Exception:
            logger.exception("the handler of the notification %s failed", note.method)

    def _explain(self, call: Call, error: BaseException) -> object:
        need = need_within(error)
        if need is not None:
            try:
                return call.era.pause(call, need)
            except Refusal as refusal:
                return refusal
        if isinstance(error, CapabilityNotSupported):
            return call.era.lacking(error)
        if isinstance(error, asyncio.CancelledError) and (call.cancelled or _being_cancelled()):
            return Internal("The call was cancelled: the server is shutting down")
        return internal(_named(call), error)


LONGEST_SUBJECT = 200


def _named(call: Call) -> str:
    """Return the method and what it is about: a prompt or tool by its name, a resource by its URI."""
    subject = getattr(call.params, "name", None) or getattr(call.params, "uri", None)
    if isinstance(subject, str):
        return f"{call.method} {subject[:LONGEST_SUBJECT]!r}"
    return call.method


def internal(what: str, error: BaseException, hint: str = "") -> Internal:
    """Log a failure under a reference number, and make the refusal that tells no more than the number."""
    from ferrule.supervision.tracebacks import shown

    reference = os.urandom(4).hex()
    logger.error("%s failed (reference %s)%s", what, reference, hint, exc_info=shown(error))
    return Internal(f"Internal error (reference {reference})", {"reference": reference})


def unencodable(call: Call, error: EncodeError) -> Internal:
    """Make the refusal for a result that cannot be written; the reason is about types, not about values."""
    masked = internal(f"writing the result of {call.method}", error)
    return Internal(f"The result of {call.method} cannot be written: {error}", masked.data)


def need_within(error: BaseException) -> Need | None:
    """Find a Need, also inside the exception group of a task group."""
    if isinstance(error, Need):
        return error
    if isinstance(error, BaseExceptionGroup):
        found: Need | None = None
        for part in error.exceptions:
            need = need_within(part)
            if need is not None:
                found = need if found is None else Need([*found.questions, *need.questions])
        return found
    return None


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def composed(handler: Handler, middleware: Sequence[Layer]) -> Handler:
    """Surround a handler with layers, the first of them outermost; without any, it is the handler itself."""
    for layer in reversed(middleware):
        handler = _around(layer, handler)
    return handler


def _around(layer: Layer, proceed: Handler) -> Handler:
    return lambda call: layer(call, proceed)


def _waiting(handler: Instant) -> Handler:
    async def wait(call: Call) -> object:
        return handler(call)

    return wait


def label_of(call: Call) -> str:
    """Return what a call is, for logs: "tool 'pack' (request 17)", or the method where it is no tool's."""
    params = call.params
    if isinstance(params, CallToolParams):
        what = f"tool {params.name!r}"
    else:
        what = call.method
    return f"{what} (request {call.id!r})"
