"""The middleware of one server, sorted by what it surrounds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from ferrule.errors import SetupError
from ferrule.protocol.call import Call, Note
from ferrule.runtime.dispatch import Handler, Layer, NoteHandler
from ferrule.server.functions.signatures import takes
from ferrule.server.middleware.hooks import HOOKS, Middleware
from ferrule.settings.option import alike

AnyLayer = Layer | Middleware


@runtime_checkable
class CountedCache(Protocol):
    """A layer that keeps results, and counts how often they were of use."""

    hits: int
    misses: int

    @property
    def entries(self) -> int:
        """How many results are kept."""


def checked(layer: object, where: str) -> AnyLayer:
    """Return a layer that can surround calls; SetupError says what is wrong with another."""
    if isinstance(layer, Middleware):
        for hook in HOOKS.values():
            if not inspect.iscoroutinefunction(getattr(layer, hook)):
                raise SetupError(f"{where}: {type(layer).__name__}.{hook} must be an `async def`")
        for hook in ("on_notification", "on_error"):
            if inspect.iscoroutinefunction(getattr(layer, hook)):
                raise SetupError(f"{where}: {type(layer).__name__}.{hook} must be a plain `def`: nobody waits for it")
        _refuse_misspelled(type(layer), where)
        return layer
    if isinstance(layer, type) and issubclass(layer, Middleware):
        raise SetupError(f"{where}: {layer.__name__} is a class: give an object, {layer.__name__}()")
    if not callable(layer):
        raise SetupError(f"{where}: {layer!r} is neither a Middleware nor a function of (call, proceed)")
    if not takes(layer, 2):
        name = getattr(layer, "__qualname__", repr(layer))
        raise SetupError(f"{where}: {name} must take two arguments: async def {name}(call, proceed)")
    return layer


def _refuse_misspelled(kind: type[Middleware], where: str) -> None:
    """Refuse a method that is nearly a hook: it would never be called, and nobody would be told."""
    hooks = [name for name in vars(Middleware) if name.startswith("on_")]
    for name in dir(kind):
        if not name.startswith("on_") or name in hooks:
            continue
        if name == "on_message":
            meant = "on_request"
        else:
            meant = alike(name, hooks, closeness=0.85)
        if meant:
            raise SetupError(f"{where}: {kind.__name__}.{name} is not a hook; did you mean {meant}?")


def surrounding(layer: AnyLayer, method: str) -> list[Layer]:
    """Return what of a layer surrounds a method: a function always, of a Middleware the hooks it overrides."""
    if not isinstance(layer, Middleware):
        return [layer]
    hooks = ["on_request", HOOKS.get(method, "")]
    found: list[Layer] = []
    for hook in hooks:
        if hook and _overrides(layer, hook):
            found.append(getattr(layer, hook))
    return found


def _overrides(layer: Middleware, hook: str) -> bool:
    return getattr(type(layer), hook) is not getattr(Middleware, hook)


class MiddlewareStack:
    """The middleware of one server, in the order it was added."""

    def __init__(self) -> None:
        self._layers: list[AnyLayer] = []
        self._error_mappers: list[Callable[[Call, Exception], Exception | None]] = []

    def add(self, layer: AnyLayer) -> None:
        """Put one more layer inside those there are."""
        self._layers.append(layer)
        if isinstance(layer, Middleware) and _overrides(layer, "on_error"):
            self._error_mappers.append(layer.on_error)

    def clear(self) -> None:
        """Take every layer away."""
        self._layers.clear()
        self._error_mappers.clear()

    def around(self, method: str) -> list[Layer]:
        """Return what surrounds a method, outermost first."""
        found: list[Layer] = []
        for layer in self._layers:
            found.extend(surrounding(layer, method))
        return found

    def caches(self) -> list[CountedCache]:
        """Return the layers that keep results."""
        found: list[CountedCache] = []
        for layer in self._layers:
            if isinstance(layer, CountedCache):
                found.append(layer)
        return found

    def map_error(self, call: Call, error: BaseException) -> BaseException:
        """Return what to raise instead of what a handler raised; the layer nearest to the handler is asked first."""
        for map_one in reversed(self._error_mappers):
            if isinstance(error, Exception):
                error = map_one(call, error) or error
        return error

    def with_mapped_errors(self, handler: Handler) -> Handler:
        """Let a handler raise what the layers make of its errors; without such layers, it is the handler itself."""
        if not self._error_mappers:
            return handler

        async def handle(call: Call) -> Any:
            try:
                return await handler(call)
            except Exception as error:
                raise self.map_error(call, error) from error

        return handle

    def listening(self, notes: Mapping[str, NoteHandler]) -> tuple[dict[str, NoteHandler], NoteHandler | None]:
        """Surround the handlers of notifications; return them, and what is called for all others."""
        listeners: list[Callable[[Note, NoteHandler], None]] = []
        for layer in self._layers:
            if isinstance(layer, Middleware) and _overrides(layer, "on_notification"):
                listeners.append(layer.on_notification)
        if not listeners:
            return dict(notes), None
        heard = {}
        for name, handler in notes.items():
            heard[name] = _heard(handler, listeners)
        return heard, _heard(_nothing, listeners)


def _heard(handler: NoteHandler, listeners: list[Callable[[Note, NoteHandler], None]]) -> NoteHandler:
    for listener in reversed(listeners):
        handler = _around(listener, handler)
    return handler


def _around(listener: Callable[[Note, NoteHandler], None], proceed: NoteHandler) -> NoteHandler:
    return lambda note: listener(note, proceed)


def _nothing(note: Note) -> None:
    """Do nothing: nobody listens to this notification."""
