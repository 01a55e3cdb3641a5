"""A tool made of a Python function."""

from __future__ import annotations

from msgspec import structs

from ferrule.protocol.call import Call
from ferrule.schema.tools import CallToolResult, Tool
from ferrule.server.calls.execution import Concurrent, run_for
from ferrule.server.calls.media import Linkable
from ferrule.server.calls.oversize import WHOLE_MESSAGE, policy_of
from ferrule.server.calls.results import wrapper_for, writer_for
from ferrule.server.calls.services import Services
from ferrule.server.calls.tool_results import ToolResults
from ferrule.server.functions.binder import Binding, names
from ferrule.server.offers.descriptions import ToolOptions
from ferrule.server.offers.tool_entry import FastPath, ToolEntry

EXACT = (int, str, bool)
"""Types whose values need no check and are written at once."""


class FunctionTool(ToolEntry):
    """A tool whose calls run a function."""

    __slots__ = ("_results", "_start", "_write", "binding", "exact", "places", "plain")

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
        crowding = Concurrent(tool.name, options.max_threads, options.max_concurrent, options.max_waiting)
        budget = WHOLE_MESSAGE if policy is None else policy.budget
        self._start, self.places = run_for(binding, services.threads, crowding, budget, inline=options.inline)
        self.exact: type | None = None
        if binding.returns in EXACT and options.output_schema is None:
            self.exact = binding.returns
        wrap = wrapper_for(binding.returns, binding.output_schema, binding.wraps_output, binding.to_plain)
        self._write = writer_for(wrap)
        self._results = ToolResults(services, binding, wrap, self.exact, policy)
        self.plain = policy is None and options.max_concurrent is None
        """Whether all there is to do is to run the function in its own way and wrap its value."""
        self.links = (policy is not None and policy.kind == "spill") or names(binding.returns, (Linkable,))
        self.logs = binding.context_parameter is not None

    async def answer(self, call: Call) -> CallToolResult:
        """Run the function in its own way and make a result of what it gives."""
        context = None
        if self.context is not None:
            context = self.context(call, self.services)
        return await self._results.finish(call, await self._start(call.params.arguments, context))

    def find_fast_path(self) -> FastPath | None:
        """Return the short way, if running the function and wrapping its value is all there is to do."""
        if not self.plain:
            return None
        results = self._results
        return FastPath(
            self._start, self.context, self.services, self.exact, self._write, results.wrapped, results.finish
        )

    def finish_for(self, outer: Services) -> None:
        """Keep what is too large for its answer where the client of this server finds it."""
        self._results = self._results.of(outer)
