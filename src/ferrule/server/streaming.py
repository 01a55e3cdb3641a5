"""Handlers that are generators: what they yield is progress and parts of the result.

A `Progress` or a number is told to the client. Anything else is a part of the result; text is told as progress too,
unless the generator tells of its progress itself. What a generator returns, or a whole result that it yields, is the
result, whatever else it yielded; without it the result is made of the parts, with texts that follow each other joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Generator
from typing import Any

from msgspec import Struct

from ferrule.schema.tools import CallToolResult
from ferrule.server.context import Context
from ferrule.server.media import Media
from ferrule.server.results import Oversized, ToolResult, blocks, json_of

LEAST_PART = 16
"""How many bytes a part counts at least, so that endless empty ones come to an end."""


class Progress(Struct, frozen=True):
    """How far a generator is: `yield Progress(3, 10, "third page")`."""

    done: float
    total: float | None = None
    message: str | None = None


class Budget(Struct, frozen=True):
    """How much a generator may give: over it, its result ends there, or the call fails."""

    size: int
    ends: bool = False


class Parts:
    """What a generator gave so far."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._parts: list[Any] = []
        self._size = 0
        self._count = 0
        self._tells = False
        self._whole: Any = None

    @property
    def full(self) -> bool:
        """Whether no more is wanted."""
        return self._size > self._budget.size

    def take(self, item: Any) -> Progress | None:
        """Take what was yielded; gives what to tell the client."""
        if isinstance(item, Progress):
            self._tells = True
            return item
        if isinstance(item, int | float) and not isinstance(item, bool):
            self._tells = True
            return Progress(item)
        if isinstance(item, ToolResult | CallToolResult):
            self._whole = item
            return None
        if item is None:
            return None
        self._parts.append(item)
        self._size += max(LEAST_PART, _size_of(item))
        if self.full and not self._budget.ends:
            raise Oversized(self._size, self._budget.size, at_least=True)
        if self._tells or not isinstance(item, str):
            return None
        self._count += 1
        return Progress(self._count, None, item)

    def result(self, returned: Any = None) -> Any:
        """Give the result: what was returned, else the parts; a single part is given as it is."""
        if returned is not None or self._whole is not None:
            return self._whole if returned is None else returned
        joined: list[Any] = []
        for is_text, run in itertools.groupby(self._parts, lambda part: isinstance(part, str)):
            parts = list(run)
            joined += ["".join(parts)] if is_text else parts
        if len(joined) < 2:
            return joined[0] if joined else None
        return [block for part in joined for block in ([part] if isinstance(part, Media) else blocks(part))]


def _size_of(part: Any) -> int:
    if isinstance(part, str):
        return len(part)
    return LEAST_PART if isinstance(part, Media) else len(json_of(part))


async def drained(generator: AsyncGenerator[Any, None], context: Context, budget: Budget) -> Any:
    """Run an async generator to its end, and close it whatever happens."""
    parts = Parts(budget)
    async with contextlib.aclosing(generator):
        async for item in generator:
            await _tell(context, parts.take(item))
            if parts.full:
                break
    return parts.result()


async def drained_in_place(generator: Generator[Any, None, Any], context: Context, budget: Budget) -> Any:
    """Run a plain generator in the loop."""
    parts = Parts(budget)
    with contextlib.closing(generator):
        while not parts.full:
            try:
                item = next(generator)
            except StopIteration as stop:
                return parts.result(stop.value)
            await _tell(context, parts.take(item))
    return parts.result()


def drained_in_thread(generator: Generator[Any, None, Any], context: Context, budget: Budget) -> Any:
    """Run a plain generator in this thread, until it ends or its call does."""
    parts = Parts(budget)
    heard = context.hears_progress
    with contextlib.closing(generator):
        while not parts.full:
            context.raise_if_cancelled()
            try:
                item = next(generator)
            except StopIteration as stop:
                return parts.result(stop.value)
            notice = parts.take(item)
            if notice is not None and heard:
                context.sync.report_progress(notice.done, notice.total, notice.message)
    return parts.result()


async def _tell(context: Context, notice: Progress | None) -> None:
    if notice is None:
        await asyncio.sleep(0)  # a generator that never waits would hold the loop
    else:
        await context.report_progress(notice.done, notice.total, notice.message)
