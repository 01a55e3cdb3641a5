"""What a client keeps of the tools it has seen listed: which may be called twice, and what their results must fit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from ferrule.budgets.bounds import MAX_KEPT_SCHEMAS, MAX_KNOWN_TOOLS
from ferrule.errors import InvalidAnswer, SetupError, ToolError
from ferrule.schema.methods import Method
from ferrule.schema.tools import CallToolResult, Tool
from ferrule.validation.checker import TOO_COSTLY, Checker, foreign_checker
from ferrule.validation.violations import TooCostly

logger = logging.getLogger("ferrule.client")

QUICK = 4096
"""Bytes of an output schema that is compiled without a thread."""

_read_schema = msgspec.json.Decoder(dict[str, Any]).decode


class ToolFacts:
    """The tools one server has listed, as far as calls of them differ; the oldest are forgotten first."""

    def __init__(self, max_tools: int = MAX_KNOWN_TOOLS, max_bytes: int = MAX_KEPT_SCHEMAS) -> None:
        self.harmless: set[str] = set()
        """Tools that say that they may be called twice."""
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
        self._drop(name)
        size = len(name)
        hints = tool.annotations
        if hints is not None and (hints.read_only_hint or hints.idempotent_hint):
            self.harmless.add(name)
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

    def _drop(self, name: str) -> None:
        self._held -= self._sizes.pop(name, 0)
        self.harmless.discard(name)
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
        self.harmless.clear()
        self.changed()

    async def judged(self, name: str, result: CallToolResult, raise_on_error: bool) -> CallToolResult:
        """Return the result of a tool if it fits what the tool promised; raises ToolError when the tool failed."""
        if result.is_error:
            if raise_on_error:
                raise ToolError(result.text or f"the tool {name} failed", result=result)
        elif name in self.output_checks:
            await self.check(name, result)
        return result

    def fits(self, name: str, value: Any, size: int) -> bool:
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


class Repeats:
    """Decides whether a request may reach a server twice; whoever sends one again is told so by this alone."""

    def __init__(self, rows: Mapping[str, Method], tools: ToolFacts) -> None:
        self._rows = rows
        self._harmless = tools.harmless

    def allows(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether a request does the same when it is done twice; a tool says so when it is listed."""
        if method == "tools/call":
            return params["name"] in self._harmless
        row = self._rows.get(method)
        return row is not None and row.read_only


ADVICE = "Client(validate_results=False) takes results unchecked"


def _compile(name: str, text: bytes) -> Checker | InvalidAnswer | None:
    try:
        return foreign_checker(_read_schema(text), f"the output schema of the tool {name}")
    except TooCostly as reason:
        return InvalidAnswer(f"{reason}; {ADVICE}")
    except SetupError as reason:
        logger.warning("results of the tool %s are not checked: %s", name, reason)
        return None
