"""How a tool's function is run: awaited, in place, in a thread, or drained; chosen once, when it is registered."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, structs

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import composed
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.context import Context
from ferrule.server.calls.slots import Slots
from ferrule.server.calls.streams import Budget, drained, drained_in_place, drained_in_thread
from ferrule.server.calls.threads import Bulkhead, Threads
from ferrule.server.functions.binder import Binding, InvalidArguments
from ferrule.server.middleware.stack import surrounding
from ferrule.server.offers.mounts import MountedContext, through

if TYPE_CHECKING:
    from ferrule.server.offers.tools import RegisteredTool
    from ferrule.server.server import Server


# How a tool is run where calling its function is not all: a time limit, layers of its own, another tool, a mount.
#
# It is settled once, when the tool is offered; a tool that needs nothing of it has no detour.


class Reshaping(Protocol):
    """Writes the arguments of a tool as those of the tool it was made of."""

    def __call__(self, raw: Raw) -> Raw:
        """Write them."""

    def renamed(self, error: InvalidArguments) -> InvalidArguments:
        """Say by the caller's names what is wrong with them."""


class Runner(Protocol):
    """What runs tools within their limits, and answers calls of them."""

    def within(self, entry: RegisteredTool, call: Call) -> Awaitable[CallToolResult]:
        """Run a tool no longer than it may."""

    def call_whole(self, call: Call, entry: RegisteredTool | None = None) -> Awaitable[CallToolResult]:
        """Answer a call with a tool, whatever the tool raises."""


def settle(entry: RegisteredTool, runner: Runner) -> None:
    """Decide how a tool is run."""
    entry.detour = None
    if entry.reshape is not None:
        entry.detour = partial(_reshaped, entry)
    elif entry.timeout is not None:
        entry.detour = partial(runner.within, entry)
    layers = [part for layer in entry.layers for part in surrounding(layer, "tools/call")]
    if layers:
        entry.detour = composed(entry.detour or partial(run, entry), layers)
    if entry.way:
        inner = copy.copy(entry)
        inner.direct = inner.plain and inner.detour is None
        entry.detour = through(entry, "tools/call", lambda call: runner.call_whole(call, inner)) or entry.detour
    entry.direct = entry.plain and entry.detour is None


def settle_adopted(entry: RegisteredTool, name: str, host: Server) -> None:
    """Decide how a tool that was copied from a mounted server is run in its host, under another name."""
    entry.name, entry.tool = name, entry.way[0][0].shown(entry.tool, name)
    _move(entry, host)


def _move(entry: RegisteredTool, host: Server) -> None:
    """Let a copied tool, and copies of those it was made of, speak with the client of this server."""
    if entry.source is not None:
        entry.source = copy.copy(entry.source)
        _move(entry.source, host)
    if entry.context is not None:
        entry.context = partial(MountedContext, host)
    entry.finish_for(host)
    settle(entry, host.tools)


async def run(entry: RegisteredTool, call: Call) -> CallToolResult:
    """Run a tool itself, and leave what it raises to whoever asked for it."""
    return await entry.run(call, None if entry.context is None else entry.context(call, entry.server))


async def _reshaped(entry: RegisteredTool, call: Call) -> Any:
    """Run the tool that another was made of, with the arguments it knows."""
    assert entry.reshape is not None
    assert entry.source is not None
    said = call.params
    source = entry.source
    call.params = structs.replace(said, name=source.name, arguments=entry.reshape(said.arguments))
    try:
        return await (source.detour(call) if source.detour is not None else run(source, call))
    except InvalidArguments as error:
        raise entry.reshape.renamed(error) from None
    finally:
        call.params = said


Run = Callable[[Any, Any], Awaitable[Any]]
"""Runs a function with raw arguments and a context; gives its value."""


class Concurrent:
    """How many calls of one tool may run at once, and how many wait."""

    __slots__ = ("max_concurrent", "max_threads", "max_waiting", "what")

    def __init__(self, name: str, max_threads: int, max_concurrent: int | None, max_waiting: int) -> None:
        self.what = f"the tool {name}"
        self.max_threads = _at_least(1, max_threads, self.what, "max_threads")
        self.max_concurrent = max_concurrent and _at_least(1, max_concurrent, self.what, "max_concurrent")
        if max_concurrent == 0:
            raise SetupError(f"{self.what}: max_concurrent must be at least 1, not 0")
        self.max_waiting = _at_least(0, max_waiting, self.what, "max_waiting")


def _at_least(least: int, value: Any, what: str, option: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SetupError(f"{what}: {option} must be a number of at least {least}, not {value!r}")
    return value


def run_for(
    binding: Binding, threads: Threads, crowding: Concurrent, budget: Budget, *, inline: bool
) -> tuple[Run, Slots | None]:
    """Choose how a function is run; gives the places its calls take, too, where they are counted."""
    streams = binding.signature.is_generator
    if not binding.is_async and not binding.signature.is_async_generator and not inline:
        most = min(crowding.max_threads, crowding.max_concurrent or crowding.max_threads)
        bulkhead = Bulkhead(threads, most, crowding.max_waiting, crowding.what)
        if not binding.signature.wraps_async:
            if streams:
                work = _draining_in_thread(binding, budget)
            else:
                work = binding.invoke
            return _threaded(bulkhead, work), bulkhead.places
        # The thread is done before the coroutine it gives is: the places of its calls are counted around both.
        run = _awaited(_threaded(bulkhead, binding.invoke))
    else:
        run = _in_loop(binding, budget)
    if crowding.max_concurrent is None:
        return run, None
    places = Slots(crowding.max_concurrent, crowding.max_waiting, crowding.what)
    return _in_turn(places, run), places


async def value_of(binding: Binding, bulkhead: Bulkhead | None, raw: bytes, context: Context | None) -> Any:
    """Run the function of a prompt or a resource, which is no generator: in the loop, or in a thread."""
    if bulkhead is not None:
        value = await bulkhead.run(lambda: binding.invoke(raw, context))
    else:
        value = binding.invoke(raw, context)
    if isinstance(value, Coroutine):
        return await value
    return value


def _in_loop(binding: Binding, budget: Budget) -> Run:
    invoke = binding.invoke
    if binding.signature.is_async_generator:
        return lambda arguments, context: drained(invoke(arguments, context), context, budget)
    if binding.signature.is_generator:
        return lambda arguments, context: drained_in_place(invoke(arguments, context), context, budget)
    if binding.is_async:
        return invoke

    async def run(arguments: Any, context: Any) -> Any:
        return invoke(arguments, context)

    if binding.signature.wraps_async:
        return _awaited(run)
    return run


def _draining_in_thread(binding: Binding, budget: Budget) -> Callable[[Any, Any], Any]:
    def work(arguments: Any, context: Context) -> Any:
        return drained_in_thread(binding.invoke(arguments, context), context, budget)

    return work


def _threaded(bulkhead: Bulkhead, work: Callable[[Any, Any], Any]) -> Run:
    return lambda arguments, context: bulkhead.run(lambda: work(arguments, context))


def _awaited(run: Run) -> Run:
    """Wait for what a plain function gives, where that is a coroutine."""

    async def run_and_wait(arguments: Any, context: Any) -> Any:
        value = await run(arguments, context)
        if isinstance(value, Coroutine):
            return await value
        return value

    return run_and_wait


def _in_turn(places: Slots, run: Run) -> Run:
    async def wait_and_run(arguments: Any, context: Any) -> Any:
        async with places:
            return await run(arguments, context)

    return wait_and_run
