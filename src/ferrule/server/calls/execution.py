"""How a tool's function is run: awaited, in place, in a thread, or drained; chosen once, when it is first called."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import cached_property, partial
from time import monotonic
from typing import Any

from msgspec import Struct

from ferrule.server.calls.context import Context
from ferrule.server.calls.slots import Slots
from ferrule.server.calls.streams import Budget, drained, drained_in_place, drained_in_thread
from ferrule.server.calls.threads import Bulkhead, Threads
from ferrule.server.functions.binder import Binding

logger = logging.getLogger("ferrule.tools")

Run = Callable[[Any, Any], Awaitable[Any]]
"""Runs a function with raw arguments and a context, and returns its value."""

LONGEST_INLINE = 0.05
"""Seconds for which an inline function may hold the event loop before that is logged."""


class ConcurrencyLimits(Struct, frozen=True):
    """How many calls of one tool may run at once, and how many wait."""

    what: str
    """Which tool it is, for error messages."""
    max_threads: int
    max_concurrent: int | None
    max_waiting: int


def run_for(
    binding: Binding, threads: Threads, limits: ConcurrencyLimits, budget: Budget, *, inline: bool
) -> tuple[Run, Slots | None]:
    """Return how a function is run, and the slots its calls take where they are counted."""
    streams = binding.signature.is_generator
    if not binding.is_async and not binding.signature.is_async_generator and not inline:
        most = min(limits.max_threads, limits.max_concurrent or limits.max_threads)
        bulkhead = Bulkhead(threads, most, limits.max_waiting, limits.what)
        if not binding.signature.wraps_async:
            if streams:
                work = _draining_in_thread(binding, budget)
            else:
                work = binding.invoke
            return partial(bulkhead.run, work), bulkhead.slots
        # The coroutine outlives the thread, so the concurrency limit wraps both.
        run = _awaited(partial(bulkhead.run, binding.invoke))
    else:
        run = _in_loop(binding, budget, limits.what)
    if limits.max_concurrent is None:
        return run, None
    slots = Slots(limits.max_concurrent, limits.max_waiting, limits.what)
    return _in_turn(slots, run), slots


class ToolExecution:
    """How the function of a tool is run, the same for all copies of the tool; chosen at the first call."""

    def __init__(
        self, binding: Binding, threads: Threads, limits: ConcurrencyLimits, budget: Budget, *, inline: bool
    ) -> None:
        self._binding = binding
        self._threads = threads
        self._limits = limits
        self._budget = budget
        self._inline = inline

    @cached_property
    def _chosen(self) -> tuple[Run, Slots | None]:
        return run_for(self._binding, self._threads, self._limits, self._budget, inline=self._inline)

    @property
    def start(self) -> Run:
        """What runs it."""
        return self._chosen[0]

    @property
    def slots(self) -> Slots | None:
        """The slots its calls take, where they are counted."""
        return self._chosen[1]


async def value_of(binding: Binding, bulkhead: Bulkhead | None, raw: bytes, context: Context | None) -> Any:
    """Run the function of a prompt or a resource, which is no generator: in the loop, or in a thread."""
    if bulkhead is not None:
        value = await bulkhead.run(binding.invoke, raw, context)
    else:
        value = binding.invoke(raw, context)
    if isinstance(value, Coroutine):
        return await value
    return value


class InlineWatch:
    """Logs that an inline function is too slow to be inline."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._count = 0

    def note(self, seconds: float) -> None:
        """Log that the event loop was held for too long, each time the number of such calls has doubled."""
        if seconds <= LONGEST_INLINE:
            return
        self._count += 1
        count = self._count
        if count & (count - 1) == 0:
            logger.warning(
                "%s is inline and held the event loop for %.2f s (%d calls so far): nobody else is served meanwhile; "
                "without inline=True it runs in a thread",
                self._what,
                seconds,
                count,
            )


def watched(generator: Generator[Any, None, Any], watch: InlineWatch) -> Generator[Any, None, Any]:
    """Yield what a generator yields, which holds the event loop from one part to the next; report the longest time."""
    longest = 0.0
    try:
        while True:
            began = monotonic()
            try:
                part = next(generator)
            except StopIteration as stop:
                return stop.value
            finally:
                longest = max(longest, monotonic() - began)
            yield part
    finally:
        generator.close()
        watch.note(longest)


def _in_loop(binding: Binding, budget: Budget, what: str) -> Run:
    invoke = binding.invoke
    if binding.signature.is_async_generator:
        return lambda arguments, context: drained(invoke(arguments, context), context, budget)
    if binding.is_async:
        return invoke

    watch = InlineWatch(what)
    if binding.signature.is_generator:
        return lambda arguments, context: drained_in_place(watched(invoke(arguments, context), watch), context, budget)

    async def run(arguments: Any, context: Any) -> Any:
        began = monotonic()
        try:
            return invoke(arguments, context)
        finally:
            watch.note(monotonic() - began)

    if binding.signature.wraps_async:
        return _awaited(run)
    return run


def _draining_in_thread(binding: Binding, budget: Budget) -> Callable[[Any, Any], Any]:
    def work(arguments: Any, context: Context) -> Any:
        return drained_in_thread(binding.invoke(arguments, context), context, budget)

    return work


def _awaited(run: Run) -> Run:
    """Wait for what a plain function returns, where that is a coroutine."""

    async def run_and_wait(arguments: object, context: object) -> Any:
        value = await run(arguments, context)
        if isinstance(value, Coroutine):
            return await value
        return value

    return run_and_wait


def _in_turn(slots: Slots, run: Run) -> Run:
    async def wait_and_run(arguments: object, context: object) -> Any:
        async with slots:
            return await run(arguments, context)

    return wait_and_run
