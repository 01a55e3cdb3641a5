"""How a tool is run where calling its function is not all: a time limit, layers of its own, another tool, a mount.

It is settled once, when the tool is offered; a tool that needs nothing of it has no detour.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, structs

from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import composed
from ferrule.schema.tools import CallToolResult
from ferrule.server.functions.binder import InvalidArguments
from ferrule.server.middleware.stack import surrounding
from ferrule.server.offers.mounts import MountedContext, through

if TYPE_CHECKING:
    from ferrule.server.offers.tools import RegisteredTool
    from ferrule.server.server import Server


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
    said, source = call.params, entry.source
    call.params = structs.replace(said, name=source.name, arguments=entry.reshape(said.arguments))
    try:
        return await (source.detour(call) if source.detour is not None else run(source, call))
    except InvalidArguments as error:
        raise entry.reshape.renamed(error) from None
    finally:
        call.params = said
