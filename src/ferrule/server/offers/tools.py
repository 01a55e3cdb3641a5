"""The tools of a server: add, remove, list, call."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from ferrule.errors import (
    CapabilityNotSupported,
    Declined,
    InvalidParams,
    Refusal,
    ResultTooLarge,
    SetupError,
    ToolError,
    ToolFailed,
    ToolNotFound,
    ToolTimedOut,
    UrlElicitationRequired,
)
from ferrule.protocol.call import Call
from ferrule.protocol.needs import Need
from ferrule.runtime.dispatch import Handler, internal, label_of, need_within
from ferrule.schema.mirrored import NOT_ANNOTATED, Annotated
from ferrule.schema.tools import CallToolResult, ListToolsResult, PlainResult
from ferrule.server.calls.context import Context
from ferrule.server.calls.results import Oversized, UnwritableResult, failed, whole
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.calls.tool_results import RESULT_TYPES, TO_BE_MADE
from ferrule.server.functions.arguments import NoObject
from ferrule.server.functions.binder import InvalidArguments, InvalidOutput, bind
from ferrule.server.middleware.stack import MiddlewareStack
from ferrule.server.offers.catalogue import Catalogue, off
from ferrule.server.offers.descriptions import ToolOptions, described
from ferrule.server.offers.entry import ToolLike, require_only, with_questions
from ferrule.server.offers.tool_entry import FunctionTool, ObjectTool, ToolEntry
from ferrule.server.offers.versions import Versions
from ferrule.server.offers.visibility import Visibility

logger = logging.getLogger("ferrule.tools")


class Recipe:
    """Makes a tool of something else than a function when it is added to a server."""

    def offer(self, tools: Tools, options: ToolOptions) -> ToolEntry:
        """Make the tool and offer it."""
        raise NotImplementedError


class Tools:
    """The tools of one server."""

    def __init__(
        self,
        services: Services,
        layers: MiddlewareStack,
        visibility: Visibility,
        *,
        on_change: Callable[[], None],
        on_tasks: Callable[[], None],
        on_versions: Callable[[], None],
    ) -> None:
        self.services = services
        self._layers = layers
        self._visibility = visibility
        self._on_change = on_change
        self._on_tasks = on_tasks
        """Called when the first tool that runs as a task is offered: calls are answered in another way then."""
        self._speaks_numbers = services.settings.error_profile == "erlmcp"
        self.know_tasks = False
        """Whether there is, or was, a tool that runs as a task."""
        self._to_be_composed = False
        self.catalogue: Catalogue[ToolEntry] = Catalogue(
            "tool",
            lambda tools: ListToolsResult(tools=tools),
            lambda entry: entry.tool,
            page_size=services.settings.page_size,
            on_change=self._changed,
            is_on=visibility.is_on,
        )
        self.versions: Versions[ToolEntry] = Versions(self.catalogue, _renamed, on_versions)
        self._get = self.catalogue.get

    def add(self, fn: Callable[..., Any], options: ToolOptions, *, replace: bool = False) -> FunctionTool:
        """Offer a function as a tool."""
        entry = self.make(fn, options)
        if options.version is None:
            self.offer(entry, replace=replace)
            return entry
        self._visibility.notice(entry)
        self._note_task(entry)
        self.versions.add(entry.name, options.version, entry)
        return entry

    def add_object(self, given: ToolLike, options: ToolOptions) -> ToolEntry:
        """Offer an object as a tool."""
        require_only(
            options,
            ("tags", "visible", "scopes", "hide_without", "middleware", "timeout"),
            f"the tool {given.tool.name}",
        )
        entry = ObjectTool(self.services, given, options)
        entry.prepare(self)
        self.offer(entry)
        return entry

    def make(self, fn: Callable[..., Any], options: ToolOptions) -> FunctionTool:
        """Make a function ready to be called as a tool, without offering it."""
        binding = bind(
            with_questions(fn, RESULT_TYPES, inline=options.inline),
            context_type=Context,
            schema=options.schema,
            output_schema=options.output_schema,
            describe_output=options.structured_output is not False,
            content_types=RESULT_TYPES,
            in_thread=None if options.inline else lambda: Bulkhead(self.services.threads, options.max_threads).run,
        )
        if options.inline_refs is None:
            inlines = self.services.settings.inline_refs
        else:
            inlines = options.inline_refs
        entry = FunctionTool(self.services, described(binding, options, inlines=inlines), binding, options)
        entry.prepare(self)
        return entry

    def offer(self, entry: ToolEntry, *, replace: bool = False) -> None:
        """Offer what is ready to be called."""
        self._visibility.notice(entry)
        self._note_task(entry)
        self.catalogue.add(entry.name, entry, replace=replace)

    def remove(self, name: str) -> None:
        """Offer a tool no longer, or one version of it."""
        if not self.versions.remove(name):
            self.catalogue.remove(name)

    def adopt(self, entry: ToolEntry, name: str) -> ToolEntry:
        """Make a copied tool of a mounted server one of this server's."""
        entry.prepare_mounted(name, self.services, self)
        self._note_task(entry)
        return entry

    def _note_task(self, entry: ToolEntry) -> None:
        if entry.task != "forbidden" and not self.know_tasks:
            self.know_tasks = self._to_be_composed = True

    def _changed(self) -> None:
        """Called when the catalogue changed; the first tool that runs as a task changes how calls are answered."""
        self._on_change()
        if self._to_be_composed:
            self._to_be_composed = False
            self._on_tasks()

    def mirrored(self, name: str) -> Annotated:
        """Return which arguments of a tool its HTTP headers mirror; none for a tool nobody knows."""
        entry = self._get(name)
        if entry is None:
            return NOT_ANNOTATED
        return entry.mirrored

    async def call_whole(self, call: Call, entry: ToolEntry | None = None) -> CallToolResult:
        """Answer `tools/call` with a result that can be looked into."""
        return whole(await self.call(call, entry))

    async def call(self, call: Call, entry: ToolEntry | None = None) -> CallToolResult | PlainResult:
        """Answer `tools/call`, with the tool it names or with the one that is given."""
        params = call.params
        find = self._get
        entry = entry or find(params.name)
        if entry is None:
            raise self._missing(params.name)
        if entry.scopes:
            entry.admit(call, self.services)
        try:
            fast_path = entry.fast_path or entry.look_for_fast_path()
            if fast_path is not None:
                invoke = fast_path.invoke
                write = fast_path.write
                if fast_path.context is None:
                    context = None
                else:
                    context = fast_path.context(call, fast_path.services)
                value = await invoke(params.arguments, context)
                if type(value) is fast_path.exact:
                    return write(value)
                if isinstance(value, TO_BE_MADE):
                    return await fast_path.finish(call, value)
                return fast_path.wrapped(value)
            if entry.handler is not None:
                return await entry.handler(call)  # type: ignore[no-any-return]  # a tool's handler gives its result
            return await entry.answer(call)
        except ToolError as error:
            return self._told(call, error)
        except BaseException as error:
            return self._failure(call, entry, error)

    def with_told_errors(self, handler: Handler) -> Handler:
        """Return a handler that also makes a result of a ToolError of the layers around a call."""

        async def tell(call: Call) -> Any:
            try:
                return await handler(call)
            except ToolError as error:
                return self._told(call, error)

        return tell

    async def within(self, entry: ToolEntry, call: Call) -> CallToolResult:
        """Run a tool no longer than it may, also one that does not heed being cancelled."""
        limit = entry.timeout or 0.0
        scope = self.services.links.of(call).scope
        running = scope.spawn(_contained(entry.answer(call)))
        try:
            await asyncio.wait({running}, timeout=limit)
        finally:
            if not running.done():
                scope.cancel(running, label_of(call))
        if running.done():
            result, error = running.result()
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]
        call.expired = True
        return self._failed(call, f"The tool {entry.name} did not finish within {limit:g} seconds", ToolTimedOut)

    def _failed(self, call: Call, message: str, refusal: type[Refusal] = ToolFailed) -> CallToolResult:
        """Return a failure as a result; in the `erlmcp` profile, raise it by its number."""
        if self._by_number(call):
            raise refusal(message)
        return failed(message)

    def _by_number(self, call: Call) -> bool:
        return self._speaks_numbers and call.era is self.services.handshake

    def _tells_in_result(self, call: Call, error: InvalidArguments) -> bool:
        """Return whether a model is to read what is wrong with its arguments, or the client that sent them."""
        wanted = self.services.settings.bad_arguments
        if wanted != "auto":
            return wanted == "result"
        malformed = isinstance(error, NoObject) or self._by_number(call)
        return call.peer.revision.faults_in_results and not malformed

    def _told(self, call: Call, error: ToolError) -> CallToolResult:
        """Return the result of a ToolError: what the model is to read."""
        if self._by_number(call):
            from ferrule.server.offers.refusals import Refused

            if isinstance(error, Refused):
                raise Refusal(error.message, error.numbered_data, code=error.code)
        if isinstance(error.result, CallToolResult):
            return copy.copy(error.result)
        return self._failed(call, error.message)

    def _failure(self, call: Call, entry: ToolEntry, error: BaseException) -> CallToolResult:
        """Return the result of a call that failed: what the model can use, and nothing it must not know."""
        error = self._mapped(call, entry, error)
        if isinstance(error, ToolError):
            return self._told(call, error)
        if isinstance(error, UrlElicitationRequired):
            error = _asked_to_visit(call, error)
        if isinstance(error, InvalidArguments):
            return _bad_arguments(entry, error, in_result=self._tells_in_result(call, error))
        if isinstance(error, Declined | UnwritableResult | InvalidOutput | SetupError):
            logger.error("the tool %s failed: %s", entry.name, error)
            kind = ResultTooLarge if isinstance(error, Oversized) else ToolFailed
            return self._failed(call, f"The tool {entry.name} failed: {error}", kind)
        if (
            isinstance(error, Refusal | CapabilityNotSupported | Need | asyncio.CancelledError)
            or need_within(error) is not None
        ):
            try:
                raise error
            finally:
                # Its traceback holds this frame: both, and the arguments of the call, would wait for the collector.
                del error
        hint = LET_THROUGH.format(kind=type(error).__name__)
        masked = internal(f"the tool {entry.name}", error, hint).message
        return self._failed(call, f"The tool {entry.name} failed: {masked}")

    def _mapped(self, call: Call, entry: ToolEntry, error: BaseException) -> BaseException:
        """Let the layers say what an error means, those of the tool's own server first."""
        mount_path = list(entry.mount_path)
        for source in entry.made_of():
            mount_path.extend(source.mount_path)
        for point, _ in reversed(mount_path):
            error = point.child.layers.map_error(call, error)
        return self._layers.map_error(call, error)

    def _missing(self, name: str) -> Refusal:
        return self.missing(name, self.catalogue.hint(name))

    def missing(self, name: str, hint: str = "") -> Refusal:
        """Make the refusal of a call for a tool that is not there, or not for this caller."""
        if self.services.capabilities().tools is None:
            return off("tools")
        return ToolNotFound(name, hint)


def _renamed(entry: ToolEntry, name: str, meta: dict[str, Any]) -> None:
    """Let a tool be listed by another name."""
    entry.show_as(structs.replace(entry.tool, name=name, meta={**(entry.tool.meta or {}), **meta}))


def _asked_to_visit(call: Call, refusal: UrlElicitationRequired) -> Exception:
    """Ask for what a refusal requires where it can be asked for; return why the call fails where it cannot."""
    from ferrule.server.calls.forms import ask_to_visit

    try:
        ask_to_visit(call, refusal)
    except (Declined, SetupError) as reason:
        return reason
    return refusal


LET_THROUGH = (
    "; the client does not see its text: raise ToolError, or use ErrorMapping({{{kind}: ToolError}}), if it may"
)
"""How the text of an exception reaches the client after all, as the end of a log line."""


async def _contained(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Wait for work; return what it raises instead of raising it, so that no SystemExit ends the loop."""
    try:
        return await work, None
    except BaseException as error:
        return None, error


def _bad_arguments(entry: ToolEntry, error: InvalidArguments, *, in_result: bool) -> CallToolResult:
    if in_result:
        return failed(f"Invalid arguments for the tool {entry.name}:\n{error}")
    violations = []
    for v in error.violations:
        violations.append({"path": v.path, "value": v.value, "rule": v.rule, "message": v.message})
    told = "; ".join(str(error).splitlines())
    raise InvalidParams(f"Invalid arguments for the tool {entry.name}: {told}", {"violations": violations})
