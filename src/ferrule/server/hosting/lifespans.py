"""Lifespans: what a server needs while anyone uses it, from one function or several."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from ferrule.errors import SetupError
from ferrule.server.functions.signatures import takes

if TYPE_CHECKING:
    from ferrule.server.server import Server

logger = logging.getLogger("ferrule.server")

Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


def listed(lifespan: Lifespan | Sequence[Lifespan] | None) -> tuple[Lifespan, ...]:
    """Return the lifespans one by one, however they were given."""
    if lifespan is None:
        return ()
    given = tuple(lifespan) if isinstance(lifespan, Sequence) else (lifespan,)
    for each in given:
        if not callable(each):
            raise SetupError(
                f"lifespan: {each!r} is no function: give one of (server) that is an async context manager"
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


async def entered(lifespans: Sequence[Lifespan], server: Server, stack: contextlib.AsyncExitStack) -> Any:
    """Begin lifespans in order, to be ended by the stack; gives what they yielded, put together."""
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


def _put_together(values: Mapping[str, Any]) -> Any:
    """Merge what several lifespans yielded: dicts into one, beside those that yielded nothing."""
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) < 2:
        return next(iter(given.values()), None)
    merged: dict[Any, Any] = {}
    for name, value in given.items():
        if not isinstance(value, Mapping):
            raise SetupError(
                f"lifespan {name} yielded {type(value).__name__}: of several lifespans each yields a dict, or nothing"
            )
        if taken := [key for key in value if key in merged]:
            raise SetupError(f"lifespan {name} yielded {taken[0]!r}, which one before it yielded already")
        merged.update(value)
    return merged
