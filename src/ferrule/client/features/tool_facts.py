"""What a client keeps of the tools it has seen listed: how they may be called, and what their results must fit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ferrule.budgets.bounds import MAX_KEPT_SCHEMAS, MAX_KNOWN_TOOLS
from ferrule.errors import InvalidAnswer, SetupError, ToolError, quoted
from ferrule.schema.methods import Method
from ferrule.schema.mirrored import ANNOTATION, NOT_ANNOTATED, Annotated, mirrored_arguments
from ferrule.schema.tools import CallToolResult, Tool, ToolAnnotations
from ferrule.validation.checker import TOO_COSTLY, Checker, foreign_checker
from ferrule.validation.violations import TooCostly
from ferrule.wire.channel import REPEATABLE, Handling

logger = logging.getLogger("ferrule.client")

QUICK = 4096
"""Bytes of an output schema that is compiled without a thread."""

MARK = ANNOTATION.encode()


class SeenTool(Struct, rename="camel"):
    """A listed tool, as far as its call is mirrored."""

    name: str
    input_schema: Raw = Raw(b"{}")
    annotations: ToolAnnotations | None = None


class SeenPage(Struct, rename="camel"):
    """One page of tools."""

    tools: list[SeenTool]


_read_schema = msgspec.json.Decoder(dict[str, Any]).decode
_read_page = msgspec.json.Decoder(SeenPage).decode
_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_list = msgspec.json.Decoder(list[Raw]).decode


class ToolFacts:
    """The tools one server has listed, as far as calls of them differ; the oldest are forgotten first."""

    def __init__(self, max_tools: int = MAX_KNOWN_TOOLS, max_bytes: int = MAX_KEPT_SCHEMAS) -> None:
        self.handling: dict[str, Handling] = {}
        """How calls of a tool may be handled on their way, where it is not like any other's; the oldest first."""
        self.only_as_task: set[str] = set()
        """Tools that are known to run as tasks only."""
        self.output_checks: dict[str, bytes | Checker | InvalidAnswer] = {}
        """What the result of a tool must fit: the text of its schema, that schema compiled, or why it cannot be."""
        self._max_tools = max_tools
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] = {}
        self._held = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def note(self, tool: Tool, *, checks: bool) -> None:
        """Keep what a listed tool says of itself, in place of what it said before."""
        name = tool.name
        mirrored = NOT_ANNOTATED
        if name in self.handling:
            mirrored = self.handling[name].mirrored
        self._drop(name)
        size = len(name)
        self._handle(name, tool.annotations, mirrored)
        if tool.execution is not None and tool.execution.get("taskSupport") == "required":
            self.only_as_task.add(name)
        if tool.output_schema is not None and checks:
            text = msgspec.json.encode(tool.output_schema)
            self.output_checks[name] = text
            size += len(text)
        self._sizes[name] = size
        self._held += size
        while len(self._sizes) > self._max_tools or (self._held > self._max_bytes and len(self._sizes) > 1):
            self._drop(next(iter(self._sizes)))

    def _handle(self, name: str, hints: ToolAnnotations | None, mirrored: Annotated) -> None:
        """Keep how calls of a tool may be handled; the oldest of too many is forgotten."""
        self.handling.pop(name, None)
        repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
        if mirrored:
            self.handling[name] = Handling(repeatable=repeatable, mirrored=mirrored)
        elif repeatable:
            self.handling[name] = REPEATABLE
        if len(self.handling) > self._max_tools:
            del self.handling[next(iter(self.handling))]

    def learn(self, raw: Raw) -> list[int]:
        """Note from a page of tools what their calls mirror. Return the positions of those that cannot be called."""
        try:
            page = _read_page(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Whoever asked for the list will say what is wrong with it.
            return []
        invalid = []
        wrong = ""
        for position, tool in enumerate(page.tools):
            mirrored = NOT_ANNOTATED
            if MARK in bytes(tool.input_schema):
                try:
                    mirrored = mirrored_arguments(_read_schema(tool.input_schema))
                except ValueError as reason:
                    logger.debug("the tool %r cannot be called over HTTP and is left out: %s", tool.name, reason)
                    wrong = f"{quoted(tool.name)!r}: {quoted(str(reason))}"
                    invalid.append(position)
            self._handle(tool.name, tool.annotations, mirrored)
        if invalid:
            # One line for a page, however many there are.
            logger.warning("%d tools cannot be called over HTTP and are left out; the last: %s", len(invalid), wrong)
        return invalid

    def _drop(self, name: str) -> None:
        self._held -= self._sizes.pop(name, 0)
        self.handling.pop(name, None)
        self.only_as_task.discard(name)
        self.output_checks.pop(name, None)

    def changed(self) -> None:
        """Called when the server says that its tools have changed: what results must fit may be something else."""
        self.output_checks.clear()
        self.only_as_task.clear()

    def clear(self) -> None:
        """Forget every tool."""
        self._sizes.clear()
        self._held = 0
        self.handling.clear()
        self.changed()

    async def judged(self, name: str, result: CallToolResult, raise_on_error: bool) -> CallToolResult:
        """Return the result of a tool if it fits what the tool promised; raises ToolError when the tool failed."""
        if result.is_error:
            if raise_on_error:
                raise ToolError(result.text or f"the tool {name} failed", result=result)
        elif name in self.output_checks:
            await self.check(name, result)
        return result

    def fits(self, name: str, value: object, size: int) -> bool:
        """Whether a value of at most `size` bytes is known at once to fit; where not, `check` finds out why."""
        check = self.output_checks[name]
        return isinstance(check, Checker) and check.accepts(value, size)

    async def check(self, name: str, result: CallToolResult) -> None:
        """Raise `InvalidAnswer` for a result that does not fit what its tool has promised."""
        check = self.output_checks[name]
        if isinstance(check, bytes):
            compiled = await self._compiled(name, check)
            if self.output_checks.get(name) is check:
                if compiled is None:
                    del self.output_checks[name]
                else:
                    self.output_checks[name] = compiled
            if compiled is None:
                return
            check = compiled
        if isinstance(check, InvalidAnswer):
            raise InvalidAnswer(str(check))
        value = result.structured_content
        found = check.violations(value, len(msgspec.json.encode(value)))
        if not found:
            return
        if found[0].message is TOO_COSTLY:
            raise InvalidAnswer(f"the result of the tool {name} {TOO_COSTLY}; {ADVICE}")
        raise InvalidAnswer(f"the result of the tool {name} does not fit its output schema: {found[0].message}")

    async def _compiled(self, name: str, text: bytes) -> Checker | InvalidAnswer | None:
        """Compile an output schema; a large one in a thread, since judging it takes long."""
        if len(text) <= QUICK:
            return _compile(name, text)
        return await asyncio.to_thread(_compile, name, text)


class HandlingRules:
    """Decides, for the keeper and for every transport, how a request may be handled on its way to one server."""

    def __init__(self, rows: Mapping[str, Method], tools: ToolFacts) -> None:
        self._read_only: set[str] = set()
        for row in rows.values():
            if row.read_only:
                self._read_only.add(row.name)
        self.learn = tools.learn
        self.of_tools = tools.handling
        """How calls of tools may be handled; a tool says so when it is listed."""

    def handling(self, method: str, params: Mapping[str, object]) -> Handling | None:
        """Return how a request may be handled; None for one that is like any other."""
        if method == "tools/call":
            return self.of_tools.get(str(params.get("name")))
        if method in self._read_only:
            return REPEATABLE
        return None

    def repeatable(self, method: str, params: Mapping[str, object]) -> bool:
        """Return whether a request does the same when it is done twice."""
        handling = self.handling(method, params)
        return handling is not None and handling.repeatable


def without_tools(raw: Raw, positions: Container[int]) -> Raw:
    """Write a page of tools again without some of them; everything else stays as the server wrote it."""
    page = _read_members(raw)
    tools = []
    for position, tool in enumerate(_read_list(page["tools"])):
        if position not in positions:
            tools.append(tool)
    page["tools"] = Raw(msgspec.json.encode(tools))
    return Raw(msgspec.json.encode(page))


ADVICE = "Client(validate_results=False) takes results unchecked"


def _compile(name: str, text: bytes) -> Checker | InvalidAnswer | None:
    try:
        return foreign_checker(_read_schema(text), f"the output schema of the tool {name}")
    except TooCostly as reason:
        return InvalidAnswer(f"{reason}; {ADVICE}")
    except SetupError as reason:
        logger.warning("results of the tool %s are not checked: %s", name, reason)
        return None
