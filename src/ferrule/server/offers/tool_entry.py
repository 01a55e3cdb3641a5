"""A tool as a server holds it, whatever answers its calls."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Raw, structs

from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler, composed
from ferrule.schema.tasks import TaskSupport
from ferrule.schema.tools import CallToolResult, PlainResult, Tool
from ferrule.server.calls.context import Context, MountedContext
from ferrule.server.calls.execution import ConcurrencyLimits, ToolExecution
from ferrule.server.calls.media import Linkable
from ferrule.server.calls.oversize import WHOLE_MESSAGE, policy_of
from ferrule.server.calls.results import wrapper_for, writer_for
from ferrule.server.calls.services import Services
from ferrule.server.calls.slots import Slots
from ferrule.server.calls.tool_results import ToolResults
from ferrule.server.functions.binder import Binding, InvalidArguments, names
from ferrule.server.middleware.stack import AnyLayer, checked, surrounding
from ferrule.server.offers.descriptions import ToolOptions, mirrored_of
from ferrule.server.offers.entry import Entry, ToolLike, Visible
from ferrule.server.offers.mount_point import through

EXACT = (int, str, bool)
"""Types whose values need no check and are written at once."""


class Reshaping(Protocol):
    """Writes the arguments of a tool as those of the tool it was made of."""

    def __call__(self, raw: Raw) -> Raw:
        """Write them."""

    def renamed(self, error: InvalidArguments) -> InvalidArguments:
        """Say by the caller's names what is wrong with them."""


class ToolCaller(Protocol):
    """What runs tools within their limits, and answers calls of them."""

    def within(self, entry: ToolEntry, call: Call) -> Awaitable[CallToolResult]:
        """Run a tool no longer than it may."""

    def call_whole(self, call: Call, entry: ToolEntry | None = None) -> Awaitable[CallToolResult]:
        """Answer a call with a tool, whatever the tool raises."""


class FastPath:
    """How a tool is answered where awaiting its function and wrapping the value is all there is to do."""

    __slots__ = ("context", "exact", "finish", "invoke", "services", "wrapped", "write")

    def __init__(
        self,
        invoke: Callable[[Any, Any], Awaitable[Any]],
        context: Callable[[Call, Services], Context[Any]] | None,
        services: Services,
        exact: type | None,
        write: Callable[[Any], CallToolResult | PlainResult],
        wrapped: Callable[[Any], CallToolResult],
        finish: Callable[[Call, Any], Awaitable[CallToolResult]],
    ) -> None:
        self.invoke = invoke
        self.context = context
        self.services = services
        self.exact = exact
        """The type of values that `write` takes as they are."""
        self.write = write
        self.wrapped = wrapped
        self.finish = finish
        """Makes the result of what is, or holds, something that is still to be made or read."""


class ToolEntry(Entry):
    """A tool, ready to be called; what answers it is a subclass's to say."""

    __slots__ = (
        "_looked_for",
        "fast_path",
        "layers",
        "links",
        "mirrored",
        "name",
        "reshape",
        "source",
        "surround",
        "task",
        "task_start",
        "timeout",
        "tool",
    )

    def __init__(
        self,
        services: Services,
        tool: Tool,
        *,
        wants_context: bool = False,
        tags: Iterable[str] | None = (),
        visible: Visible | None = None,
        scopes: Collection[str] = (),
        hide_without: bool = False,
        layers: Sequence[AnyLayer] = (),
        timeout: float | None = None,
        task: TaskSupport = "forbidden",
        task_start: str = "call",
    ) -> None:
        super().__init__(
            services,
            wants_context=wants_context,
            tags=tags,
            visible=visible,
            scopes=scopes,
            hide_without=hide_without,
        )
        self.name = tool.name
        self.tool = tool
        self.mirrored = mirrored_of(tool)
        self.layers = [checked(layer, f"tool {tool.name!r}") for layer in layers]
        self.timeout = timeout or services.settings.tool_timeout
        self.task = task
        self.task_start = task_start
        self.source: ToolEntry | None = None
        self.reshape: Reshaping | None = None
        """For a tool made of another, `source`: writes its arguments as those of the other."""
        self.surround: Callable[[], Handler | None] | None = None
        """For a mounted tool: puts the middleware around it that the servers it is from have now."""
        self.fast_path: FastPath | None = None
        """The shortest path to its answer, once it was looked for and where there is one."""
        self._looked_for = False
        self.links = False
        """Whether a result may be a link that is read as a resource."""

    def look_for_fast_path(self) -> FastPath | None:
        """Return the shortest path to its answer; looked for at its first call, for many tools are never called."""
        if not self._looked_for:
            self._looked_for = True
            if self.handler is None:
                self.fast_path = self.find_fast_path()
        return self.fast_path

    async def answer(self, call: Call) -> CallToolResult:
        """Run the tool, and leave what it raises to whoever asked for it."""
        raise NotImplementedError

    def find_fast_path(self) -> FastPath | None:
        """Return the shortest path to an answer, if running the tool is all there is to do."""
        return None

    def finish_for(self, outer: Services) -> None:
        """Keep what is too large for its answer where the client of this server finds it."""

    def show_as(self, tool: Tool) -> None:
        """Be listed like this from now on."""
        self.name = tool.name
        self.tool = tool
        self.mirrored = mirrored_of(tool)

    def made_of(self) -> list[ToolEntry]:
        """Return the tool this one was made of, the one that one was made of, and so on."""
        if self.source is None:
            return []
        return [self.source, *self.source.made_of()]

    # -- how it is run: prepared when it is offered, its shortest path at the first call

    def prepare(self, caller: ToolCaller) -> None:
        """Decide how a call is answered: a time limit, layers of its own, another tool, a mount may be on the way."""
        self.handler = None
        self.surround = None
        if self.reshape is not None:
            self.handler = partial(_reshaped, self)
        elif self.timeout is not None:
            self.handler = partial(caller.within, self)
        layers = []
        for layer in self.layers:
            layers.extend(surrounding(layer, "tools/call"))
        if layers:
            self.handler = composed(self.handler or self.answer, layers)
        if self.mount_path:
            inner = copy.copy(self)
            inner.forget_fast_path()
            self.surround = partial(through, self.mount_path, "tools/call", lambda call: caller.call_whole(call, inner))
            self.handler = self.surround() or self.handler
        self.forget_fast_path()

    def forget_fast_path(self) -> None:
        """Let the shortest path be looked for again."""
        self.fast_path = None
        self._looked_for = False

    def prepare_mounted(self, name: str, outer: Services, caller: ToolCaller) -> None:
        """Decide how a tool that was copied from a mounted server is run in its host, under another name."""
        self.name = name
        self.tool = self.mount_path[0][0].shown(self.tool, name)
        self.move_to(outer, caller)

    def move_to(self, outer: Services, caller: ToolCaller) -> None:
        """Let a copied tool, and copies of those it was made of, speak with the client of this server."""
        if self.source is not None:
            self.source = copy.copy(self.source)
            self.source.move_to(outer, caller)
        if self.context is not None:
            self.context = partial(MountedContext, outer)
        self.finish_for(outer)
        self.prepare(caller)


class FunctionTool(ToolEntry):
    """A tool whose calls run a function."""

    __slots__ = ("_execution", "_finishes_for", "_policy", "_results", "binding", "exact", "plain")

    def __init__(self, services: Services, tool: Tool, binding: Binding, options: ToolOptions) -> None:
        policy = policy_of(services.settings, options, binding, tool.name)
        super().__init__(
            services,
            tool,
            wants_context=binding.context_parameter is not None or binding.streams,
            tags=options.tags,
            visible=options.visible,
            scopes=options.scopes,
            hide_without=options.hide_without,
            layers=options.middleware,
            timeout=options.timeout,
            task=options.task_support,
            task_start=options.task_start,
        )
        if policy is not None and not policy.keeps_promise:
            self.tool = structs.replace(tool, output_schema=None)
        self.binding = binding
        limits = ConcurrencyLimits(
            f"the tool {tool.name}", options.max_threads, options.max_concurrent, options.max_waiting
        )
        budget = WHOLE_MESSAGE if policy is None else policy.budget
        self._execution = ToolExecution(binding, services.threads, limits, budget, inline=options.inline)
        self.exact: type | None = None
        if binding.returns in EXACT and options.output_schema is None:
            self.exact = binding.returns
        self._policy = policy
        self._finishes_for = services
        self._results: ToolResults | None = None
        self.plain = policy is None and options.max_concurrent is None
        """Whether all there is to do is to run the function in its own way and wrap its value."""
        self.links = (policy is not None and policy.kind == "spill") or names(binding.returns, (Linkable,))
        self.logs = binding.context_parameter is not None

    @property
    def slots(self) -> Slots | None:
        """The slots its calls take, where they are counted."""
        return self._execution.slots

    def results(self) -> ToolResults:
        """Return what makes its results."""
        if self._results is None:
            binding = self.binding
            wrap = wrapper_for(binding.returns, binding.output_schema, binding.wraps_output, binding.to_plain)
            self._results = ToolResults(self._finishes_for, binding, wrap, self.exact, self._policy)
        return self._results

    async def answer(self, call: Call) -> CallToolResult:
        """Run the function in its own way and make a result of its value."""
        context = None
        if self.context is not None:
            context = self.context(call, self.services)
        return await self.results().finish(call, await self._execution.start(call.params.arguments, context))

    def find_fast_path(self) -> FastPath | None:
        """Return the short way, if running the function and wrapping its value is all there is to do."""
        if not self.plain:
            return None
        results = self.results()
        return FastPath(
            self._execution.start,
            self.context,
            self.services,
            self.exact,
            writer_for(results.wrap),
            results.wrapped,
            results.finish,
        )

    def finish_for(self, outer: Services) -> None:
        """Keep what is too large for its answer where the client of this server finds it."""
        self._finishes_for = outer
        self._results = None


class ObjectTool(ToolEntry):
    """A tool whose calls an object answers."""

    __slots__ = ("_object", "_own_name")

    def __init__(self, services: Services, given: ToolLike, options: ToolOptions) -> None:
        super().__init__(
            services,
            given.tool,
            tags=options.tags,
            visible=options.visible,
            scopes=options.scopes,
            hide_without=options.hide_without,
            layers=options.middleware,
            timeout=options.timeout,
        )
        self._object = given
        self._own_name = given.tool.name

    async def answer(self, call: Call) -> CallToolResult:
        """Ask the object, by its own name."""
        original = call.params
        call.params = structs.replace(original, name=self._own_name)
        try:
            return await self._object.call(call)  # type: ignore[no-any-return]  # what the era can send
        finally:
            call.params = original


async def _reshaped(entry: ToolEntry, call: Call) -> Any:
    """Run the tool that another was made of, with the arguments it knows."""
    assert entry.reshape is not None
    assert entry.source is not None
    original = call.params
    source = entry.source
    call.params = structs.replace(original, name=source.name, arguments=entry.reshape(original.arguments))
    answer = source.handler or source.answer
    if source.surround is not None:
        # Its server may have removed it, and is not told then of middleware that is added.
        answer = source.surround() or answer
    try:
        return await answer(call)
    except InvalidArguments as error:
        raise entry.reshape.renamed(error) from None
    finally:
        call.params = original
