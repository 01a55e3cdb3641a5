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

from msgspec import Raw, Struct

from ferrule.schema.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent, TextContent
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.context import Context
from ferrule.server.calls.media import Media
from ferrule.server.calls.results import Oversized, ToolResult, UnwritableResult, blocks, json_of


def size_of(result: CallToolResult) -> int:
    """Return how many bytes a result has: of its content or of its structured content, whichever is more."""
    return max(sum(map(block_size, result.content)), _data_size(result.structured_content))


def _data_size(value: object) -> int:
    """Return how long data is as JSON, without what only wraps it."""
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]
    if isinstance(value, str):
        return _bytes_in(value)
    if value is None:
        return 0
    if isinstance(value, Raw):
        return len(bytes(value))
    return len(json_of(value))


def block_size(block: ContentBlock) -> int:
    """Return how many bytes a block adds to a result."""
    if isinstance(block, TextContent):
        return _bytes_in(block.text)
    if isinstance(block, ImageContent | AudioContent):
        return len(block.data)
    if isinstance(block, EmbeddedResource):
        return _bytes_in(block.resource.text or "") + len(block.resource.blob or "")
    return 0


def _bytes_in(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode(errors="surrogatepass"))


MOST_PARTS = 100_000
"""How many parts a generator may yield that are not text, or are empty: those of no size would never end."""

FEW_TEXTS = 1000
"""So many short texts are joined into one, which takes less room."""


class Progress(Struct, frozen=True):
    """How far a generator is: `yield Progress(3, 10, "third page")`."""

    done: float
    total: float | None = None
    message: str | None = None


class Budget(Struct, frozen=True):
    """How much a generator may yield: over it, its result ends there, or the call fails."""

    size: int
    ends: bool = False


class Parts:
    """What a generator has yielded so far."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._parts: list[Any] = []
        self._texts: list[str] = []
        self._size = 0
        self._other_parts = 0
        """How many parts are not text, or are empty."""
        self._texts_told = 0
        """How many texts were told as progress."""
        self._reports_progress = False
        """Whether the generator tells of its progress itself."""
        self._whole: Any = None

    @property
    def full(self) -> bool:
        """Whether no more is wanted."""
        return self._size > self._budget.size

    def take(self, item: object) -> Progress | None:
        """Take what was yielded; return what to tell the client, if anything."""
        if isinstance(item, Progress):
            self._reports_progress = True
            return item
        if isinstance(item, int | float) and not isinstance(item, bool):
            self._reports_progress = True
            return Progress(item)
        if isinstance(item, ToolResult | CallToolResult):
            self._whole = item
            return None
        if item is None:
            return None
        self._hold(item)
        if self._reports_progress or not isinstance(item, str) or not item:
            return None
        self._texts_told += 1
        return Progress(self._texts_told, None, item)

    def _hold(self, part: object) -> None:
        """Keep a part, within the budget: it counts no more than it will in the result."""
        if isinstance(part, str) and part:
            self._texts.append(part)
            if len(self._texts) >= FEW_TEXTS:
                self._join()
        else:
            self._join()
            self._parts.append(part)
            self._other_parts += 1
            if self._other_parts > MOST_PARTS:
                raise UnwritableResult(f"a generator may give {MOST_PARTS:,} parts that are empty or not text")
        self._size += _size_of(part)
        if self.full and not self._budget.ends:
            raise Oversized(self._size, self._budget.size, at_least=True)

    def _join(self) -> None:
        if self._texts:
            self._parts.append("".join(self._texts))
            self._texts.clear()

    def result(self, returned: object = None) -> Any:
        """Return the result: what was returned, else the parts; a single part is given as it is."""
        if returned is not None:
            return returned
        if self._whole is not None:
            return self._whole
        self._join()
        joined: list[Any] = []
        for is_text, run in itertools.groupby(self._parts, lambda part: isinstance(part, str)):
            if is_text:
                joined.append("".join(run))
            else:
                joined.extend(run)
        if not joined:
            return None
        if len(joined) == 1:
            return joined[0]
        made: list[Any] = []
        for part in joined:
            if isinstance(part, Media):
                made.append(part)
            else:
                made.extend(blocks(part))
        return made


def _size_of(part: object) -> int:
    if isinstance(part, str):
        return len(part)
    # What media are is known when they are read.
    if isinstance(part, Media):
        return 0
    return sum(map(block_size, blocks(part)))


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
