"""Lifespans: what a server needs while anyone uses it, from one function or several."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ferrule.errors import SetupError
from ferrule.server.extensions.extension import Extension, Extensions
from ferrule.server.functions.signatures import takes
from ferrule.server.notifications.changes import ChangeNotices
from ferrule.supervision.counted_lifetime import CountedLifetime

if TYPE_CHECKING:
    from ferrule.server.application import Application

logger = logging.getLogger("ferrule.server")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""A function of the `Server`."""


class BegunAlong(Protocol):
    """What begins after the lifespans of a server and ends before them."""

    async def enter(self) -> None:
        """Begin, for one more user."""

    async def leave(self) -> None:
        """End, when the last user leaves."""

    @property
    def begins_something(self) -> bool:
        """Whether anything has to begin."""


class Lifespans:
    """What a server needs while anyone uses it: begun for its first user, ended after its last."""

    def __init__(
        self,
        app: Application,
        lifespans: Sequence[Lifespan],
        extensions: Extensions,
        changes: ChangeNotices,
        *,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._app = app
        self._own = lifespans
        self._extensions = extensions
        self._changes = changes
        self._close = close
        """Ends what uses them: the tasks."""
        self.mounted: list[BegunAlong] = []
        """Those of the servers that are mounted in this one."""
        self.not_begun: BaseException | None = None
        """Why they could not begin."""
        self._value: Any = None
        self._begun = False
        self._lifetime = CountedLifetime(self._begin)

    async def enter(self) -> None:
        """Start what the server needs while anyone uses it; every enter is matched by a leave."""
        try:
            await self._lifetime.enter()
        except BaseException as error:
            self.not_begun = error
            raise

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""
        await self._lifetime.leave()

    async def _begin(self, stack: contextlib.AsyncExitStack) -> None:
        """Begin our lifespans, the extensions', then those of mounted servers."""
        self._changes.begin(asyncio.get_running_loop())
        stack.callback(self._ended)
        self._value = await entered(self._own, self._app, stack)
        for extension in self._extensions:
            own = extension.lifespan(self._app)
            if own is not None:
                await stack.enter_async_context(own)
        for child in self.mounted:
            await child.enter()
            stack.push_async_callback(child.leave)
        # Tasks use what was entered above, so they end before it does.
        stack.push_async_callback(self._close)
        self._begun = True

    def _ended(self) -> None:
        self._value = None
        self._changes.loop = None
        self._begun = False

    def yielded(self) -> Any:
        """Return what the lifespans yielded; SetupError while nobody has begun them, as in a call without a client."""
        if self._own and not self._begun:
            raise SetupError(
                f"the lifespan of the server {self._app.name!r} has not begun: call it through a Client,"
                f" or `await app.enter()` before and `await app.leave()` after"
            )
        return self._value

    @property
    def in_use(self) -> bool:
        """Whether anyone uses the server now."""
        return self._lifetime.users > 0

    @property
    def begins_something(self) -> bool:
        """Whether the server, one of its extensions or one mounted in it has a lifespan."""
        if self._own or any(child.begins_something for child in self.mounted):
            return True
        return any(type(extension).lifespan is not Extension.lifespan for extension in self._extensions)

    def check_startable(self, other: Lifespans) -> None:
        """Raise SetupError if a server to be mounted has yet to begin something, and we are beyond beginning."""
        if self.in_use and other.begins_something and not other.in_use:
            name = other._app.name
            raise SetupError(
                f"the server {name!r} has a lifespan and {self._app.name!r} is running already:"
                f" mount it before, or `await {name}.enter()` first and `leave()` at the end"
            )


def listed(lifespan: Lifespan | Sequence[Lifespan] | None) -> tuple[Lifespan, ...]:
    """Return the lifespans one by one, however they were given."""
    if lifespan is None:
        return ()
    given = tuple(lifespan) if isinstance(lifespan, Sequence) else (lifespan,)
    for each in given:
        if not callable(each):
            raise SetupError(
                f"lifespan: {each!r} is not a function: give one of (server) that is an async context manager"
            )
        _check_kind(each)
    return given


def _check_kind(lifespan: Lifespan) -> None:
    """Refuse a function that cannot be a lifespan, where its shape shows it already."""
    name = getattr(lifespan, "__qualname__", repr(lifespan))
    if inspect.iscoroutinefunction(lifespan):
        raise SetupError(f"lifespan: {name} never yields: write `yield` where the server serves, after what it needs")
    if not takes(lifespan, 1):
        raise SetupError(f"lifespan: {name} must take the server: async def {name}(server)")


async def entered(lifespans: Sequence[Lifespan], server: Application, stack: contextlib.AsyncExitStack) -> Any:
    """Begin lifespans in order, to be ended by the stack; return what they yielded, merged."""
    values: dict[str, Any] = {}
    for lifespan in lifespans:
        name = getattr(lifespan, "__qualname__", type(lifespan).__name__)
        try:
            manager = lifespan(server)
            if isinstance(manager, AsyncIterator):
                manager = contextlib.asynccontextmanager(lambda it=manager: it)()
            values[f"{len(values) + 1}, {name}"] = await stack.enter_async_context(manager)
        except Exception as error:
            # Which one it was is not to be seen from the error alone.
            error.add_note(f"while the lifespan {name} of the server {server.name!r} began")
            logger.error("the lifespan %s of the server %s cannot begin: %s", name, server.name, error)
            raise
    return _put_together(values)


def _put_together(values: Mapping[str, object]) -> Any:
    """Merge what several lifespans yielded: dicts into one, beside those that yielded nothing."""
    given = {}
    for name, value in values.items():
        if value is not None:
            given[name] = value
    if len(given) < 2:
        return next(iter(given.values()), None)
    merged: dict[Any, Any] = {}
    for name, value in given.items():
        if not isinstance(value, Mapping):
            raise SetupError(
                f"lifespan {name} yielded {type(value).__name__}: of several lifespans each yields a dict, or nothing"
            )
        for key in value:
            if key in merged:
                raise SetupError(f"lifespan {name} yielded {key!r}, which one before it yielded already")
        merged.update(value)
    return merged
