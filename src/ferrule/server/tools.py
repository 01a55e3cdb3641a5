"""The tools of a server: add, remove, list, call."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ferrule.errors import (
    CapabilityNotSupported,
    Declined,
    InvalidParams,
    Refusal,
    SetupError,
    ToolError,
    ToolNotFound,
    UrlElicitationRequired,
)
from ferrule.protocol.call import Call
from ferrule.protocol.needs import Need
from ferrule.runtime.dispatch import internal, need_within
from ferrule.schema.apps import ToolUi, tool_ui
from ferrule.schema.content import CONTENT_TYPES
from ferrule.schema.model import Icon
from ferrule.schema.tools import CallToolResult, ListToolsResult, PlainResult, Tool, ToolAnnotations
from ferrule.server.asking import ask_to_visit
from ferrule.server.binding import Binding, InvalidArguments, InvalidOutput, bind
from ferrule.server.catalogue import Catalogue, off
from ferrule.server.context import Context
from ferrule.server.inlining import inlined
from ferrule.server.questions import with_questions
from ferrule.server.refusals import Refused
from ferrule.server.results import UnwritableResult, Wrap, failed, whole, wrapper_for, writer_for
from ferrule.server.threads import Bulkhead
from ferrule.transports.http import mirror

if TYPE_CHECKING:
    from ferrule.server.server import Server

logger = logging.getLogger("ferrule.tools")

SECRET = re.compile(r"passw|secret|token|api_?key|credential|authorization", re.IGNORECASE)
GOOD_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
MAX_DESCRIPTION = 10_000
EXACT = (int, str, bool)
ABANDONED_AFTER = 5.0
SEED_FAILURE, SEED_TIMEOUT = -32031, -32032
"""The numbers of the `erlmcp` error profile."""


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a tool besides its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = None
    timeout: float | None = None
    inline: bool = False
    schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    deprecated: bool = False
    max_threads: int = 32
    inline_refs: bool | None = None
    """Whether its schemas are written without references; None for what the server says."""
    ui: ToolUi | Mapping[str, Any] | str | None = None
    """The page that shows its results, by its URI; or that and who may call it."""


class RegisteredTool:
    """A tool, ready to be called."""

    __slots__ = (
        "binding",
        "bulkhead",
        "exact",
        "invoke",
        "is_async",
        "mirrored",
        "name",
        "timeout",
        "tool",
        "wants_context",
        "wrap",
        "write",
    )

    def __init__(
        self, tool: Tool, binding: Binding, options: ToolOptions, bulkhead: Bulkhead | None, timeout: float | None
    ) -> None:
        self.name = tool.name
        self.tool = tool
        self.binding = binding
        self.invoke = binding.invoke
        self.wants_context = binding.context_parameter is not None
        self.bulkhead = bulkhead
        self.timeout = timeout
        self.wrap: Wrap = wrapper_for(binding.returns, binding.output_schema, binding.wraps_output, binding.to_plain)
        self.write = writer_for(self.wrap)
        self.is_async = binding.is_async
        try:
            self.mirrored = mirror.annotations(tool.input_schema)
        except ValueError as reason:
            raise SetupError(f"tool {tool.name!r}: {reason}") from None
        for path in self.mirrored.values():
            if SECRET.search(path[-1]):
                where = ".".join(path)
                logger.warning(
                    "tool %s: %s looks like a secret, and headers are seen by many: do not mirror it", tool.name, where
                )
        self.exact = binding.returns if binding.returns in EXACT and options.output_schema is None else None

    async def run(self, call: Call, context: Context | None) -> CallToolResult:
        """Run the tool in its own way and wrap what it gives."""
        arguments = call.params.arguments
        if self.bulkhead is not None:
            value = await self.bulkhead.run(lambda: self.invoke(arguments, context))
        else:
            value = self.invoke(arguments, context)
            if self.is_async:
                value = await value
        return self.finished(value)

    def finished(self, value: Any) -> CallToolResult:
        """Check and wrap what the tool gave; a value of just the declared plain type needs no check."""
        if isinstance(value, CallToolResult):
            self._check_whole(value)
        elif isinstance(value, CONTENT_TYPES):
            self.binding.check_output(msgspec.to_builtins(value))
        elif type(value) is not self.exact:
            self.binding.check_output(value)
        return self.wrap(value)

    def _check_whole(self, result: CallToolResult) -> None:
        """A result the tool made itself keeps the promise of its output schema too, unless it tells of a failure."""
        if result.is_error or not self.binding.checks_output:
            return
        content = result.structured_content
        if self.binding.wraps_output and isinstance(content, dict):
            content = content.get("result")
        self.binding.check_output(content)


class Tools:
    """The tools of one server."""

    def __init__(self, server: Server, *, page_size: int, timeout: float | None, on_change: Callable[[], None]) -> None:
        self._server = server
        self._timeout = timeout
        self.catalogue: Catalogue[RegisteredTool] = Catalogue(
            "tool",
            lambda tools: ListToolsResult(tools=tools),
            lambda entry: entry.tool,
            page_size=page_size,
            on_change=on_change,
        )
        self._get = self.catalogue.get

    def add(self, fn: Callable[..., Any], options: ToolOptions, *, replace: bool = False) -> RegisteredTool:
        """Offer a function as a tool."""
        content_types = (*CONTENT_TYPES, CallToolResult)
        binding = bind(
            with_questions(fn, content_types),
            context_type=Context,
            schema=options.schema,
            output_schema=options.output_schema,
            content_types=content_types,
        )
        inlines = self._server.settings.inline_refs if options.inline_refs is None else options.inline_refs
        tool = _described(binding, options, inlines=inlines)
        threaded = not binding.is_async and not options.inline
        bulkhead = Bulkhead(self._server.threads, options.max_threads) if threaded else None
        entry = RegisteredTool(tool, binding, options, bulkhead, options.timeout or self._timeout)
        self.catalogue.add(tool.name, entry, replace=replace)
        return entry

    def mirrored(self, name: str) -> mirror.Annotated:
        """Tell which arguments of a tool its HTTP headers mirror; none for a tool nobody knows."""
        entry = self._get(name)
        return mirror.NOT_ANNOTATED if entry is None else entry.mirrored

    async def call_whole(self, call: Call) -> CallToolResult:
        """Answer `tools/call` with a result that can be looked into."""
        return whole(await self.call(call))

    async def call(self, call: Call) -> CallToolResult | PlainResult:
        """Answer `tools/call`."""
        entry = self._get(call.params.name)
        if entry is None:
            raise self._missing(call.params.name)
        context = Context(call, self._server) if entry.wants_context else None
        try:
            if entry.timeout is not None:
                return await self._within(entry.timeout, call, entry, context)
            if entry.is_async:
                value = await entry.invoke(call.params.arguments, context)
                return entry.write(value) if type(value) is entry.exact else entry.finished(value)
            return await entry.run(call, context)
        except ToolError as error:
            return self._told(call, error)
        except BaseException as error:
            return self._failure(call, entry, error)

    async def _within(self, limit: float, call: Call, entry: RegisteredTool, context: Context | None) -> CallToolResult:
        """Run a tool no longer than it may, also one that does not heed being cancelled."""
        scope = self._server.links.of(call).scope
        running = scope.spawn(_contained(entry.run(call, context)))
        try:
            await asyncio.wait({running}, timeout=limit)
        finally:
            if not running.done():
                scope.cancel(running)
        if running.done():
            result, error = running.result()
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]
        asyncio.get_running_loop().call_later(ABANDONED_AFTER, _tell_abandoned, entry.name, running)
        return self._failed(call, f"The tool {entry.name} did not finish within {limit:g} seconds", SEED_TIMEOUT)

    def _failed(self, call: Call, message: str, seed_code: int) -> CallToolResult:
        """Tell of a failure in the result; in the `erlmcp` profile, by its number."""
        if self._by_number(call):
            raise Refusal(message, code=seed_code)
        return failed(message)

    def _by_number(self, call: Call) -> bool:
        return self._server.settings.error_profile == "erlmcp" and call.era is self._server.handshake

    def _told(self, call: Call, error: ToolError) -> CallToolResult:
        """Tell the model what the tool wants it to read."""
        if isinstance(error, Refused) and self._by_number(call):
            raise Refusal(error.message, error.data, code=error.code)
        if isinstance(error.result, CallToolResult):
            return copy.copy(error.result)
        return self._failed(call, error.message, SEED_FAILURE)

    def _failure(self, call: Call, entry: RegisteredTool, error: BaseException) -> CallToolResult:
        """Tell the model what it can use; hide what it must not know."""
        if isinstance(error, UrlElicitationRequired):
            error = _asked_to_visit(call, error)
        if isinstance(error, InvalidArguments):
            return _bad_arguments(call, entry, error, in_result=not self._by_number(call))
        if isinstance(error, Declined | UnwritableResult | InvalidOutput | SetupError):
            logger.error("the tool %s failed: %s", entry.name, error)
            return self._failed(call, f"The tool {entry.name} failed: {error}", SEED_FAILURE)
        if (
            isinstance(error, Refusal | CapabilityNotSupported | Need | asyncio.CancelledError)
            or need_within(error) is not None
        ):
            raise error
        masked = internal(f"the tool {entry.name}", error).message
        return self._failed(call, f"The tool {entry.name} failed: {masked}", SEED_FAILURE)

    def _missing(self, name: str) -> Refusal:
        if self._server.capabilities.tools is None:
            return off("tools")
        return ToolNotFound(name, self.catalogue.hint(name))


def _asked_to_visit(call: Call, refusal: UrlElicitationRequired) -> Exception:
    """Ask for what a refusal requires where it can be asked for; gives why the call fails where it cannot."""
    try:
        ask_to_visit(call, refusal)
    except Declined as declined:
        return declined
    return refusal


async def _contained(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Wait for work; give what it raises instead of raising it, so that no SystemExit ends the loop."""
    try:
        return await work, None
    except BaseException as error:
        return None, error


def _tell_abandoned(name: str, running: asyncio.Task[Any]) -> None:
    if not running.done():
        logger.error("the tool %s goes on %g seconds after it was cancelled: abandoned", name, ABANDONED_AFTER)


def _bad_arguments(call: Call, entry: RegisteredTool, error: InvalidArguments, *, in_result: bool) -> CallToolResult:
    if in_result and call.peer.revision.faults_in_results:
        return failed(f"Invalid arguments for the tool {entry.name}:\n{error}")
    violations = [{"path": v.path, "value": v.value, "rule": v.rule, "message": v.message} for v in error.violations]
    told = "; ".join(str(error).splitlines())
    raise InvalidParams(f"Invalid arguments for the tool {entry.name}: {told}", {"violations": violations})


def _described(binding: Binding, options: ToolOptions, *, inlines: bool) -> Tool:
    name = options.name or binding.name
    if not name or name == "<lambda>":
        raise SetupError("a tool needs a name: pass name=… for a lambda")
    if not GOOD_NAME.fullmatch(name):
        logger.warning("the tool name %r is outside [A-Za-z0-9_.-]{1,128}: some clients will refuse it", name)
    description = options.description or binding.description
    if description is not None and len(description) > MAX_DESCRIPTION:
        raise SetupError(f"the description of the tool {name!r} is longer than {MAX_DESCRIPTION} characters")
    meta = dict(options.meta) if options.meta else None
    if options.deprecated:
        meta = {**(meta or {}), "deprecated": True}
    if options.ui is not None:
        meta = {**(meta or {}), "ui": msgspec.to_builtins(tool_ui(options.ui))}
    annotations = options.annotations
    return Tool(
        name=name,
        title=options.title,
        description=description,
        input_schema=_published(binding.input_schema, inlines and options.schema is None, name),
        output_schema=binding.output_schema
        and _published(binding.output_schema, inlines and options.output_schema is None, name),
        annotations=_annotations(annotations),
        icons=options.icons,
        meta=meta,
    )


def _published(schema: dict[str, Any], inlines: bool, name: str) -> dict[str, Any]:
    return inlined(schema, f"the schema of the tool {name!r}") if inlines else schema


def _annotations(given: ToolAnnotations | Mapping[str, Any] | None) -> ToolAnnotations | None:
    if given is None or isinstance(given, ToolAnnotations):
        return given
    snake = {re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), key): value for key, value in given.items()}
    try:
        return ToolAnnotations(**snake)
    except TypeError as reason:
        raise SetupError(f"unknown tool annotation: {reason}") from None
