"""Which of several servers speaks: handlers that are told so."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ferrule.client.link.inbox import Deliver, deliverer
from ferrule.schema.notices import RESOURCE_UPDATED
from ferrule.schema.prefix import Prefix

SOURCE: ContextVar[str | None] = ContextVar("ferrule_source", default=None)
"""The name of the server whose question or notification is being handled."""

SERVER_KEY = "ferrule/server"
"""Under which key of its `_meta` a notification names the server it is from: a queue gets nothing else."""


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Name the server that speaks, for the handlers that run inside."""
    token = SOURCE.set(name)
    try:
        yield
    finally:
        SOURCE.reset(token)


def answering(name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler of questions that can be told which server asks."""
    if inspect.iscoroutinefunction(handler):

        async def answer(*given: object) -> Any:
            with speaking(name):
                return await handler(*given)

        return answer

    def answer_in_thread(*given: object) -> Any:
        with speaking(name):
            value = handler(*given)
        if inspect.isawaitable(value):
            return _awaited(name, value)
        return value

    return answer_in_thread


def hearing(name: str, prefix: Prefix, handler: object) -> Deliver:
    """Return a handler of notifications that can be told which server sent them; URIs have the server's prefix."""
    deliver = deliverer(handler)

    def hear(method: str, params: dict[str, Any]) -> Any:
        told = {**params, "_meta": {**(params.get("_meta") or {}), SERVER_KEY: name}}
        if method == RESOURCE_UPDATED and isinstance(told.get("uri"), str):
            told["uri"] = prefix.placed(told["uri"])
        with speaking(name):
            value = deliver(method, told)
        if inspect.isawaitable(value):
            return _awaited(name, value)
        return value

    return hear


async def _awaited(name: str, value: Awaitable[Any]) -> Any:
    with speaking(name):
        return await value
