"""A tool that a server answers by itself, with what the caller sees of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from ferrule.errors import ToolError
from ferrule.protocol.call import Call
from ferrule.schema.content import TextContent
from ferrule.schema.tools import CallToolResult, Tool
from ferrule.server.calls.services import Services
from ferrule.server.offers.tool_entry import ToolEntry

T = TypeVar("T")

Action = Callable[[Services, Call], Awaitable[CallToolResult]]
"""Answers a call of a server's client."""

_write = msgspec.json.Encoder().encode


class ServerTool(ToolEntry):
    """A tool that is part of the server: where it is mounted, it speaks of the host."""

    __slots__ = ("_action", "_outer")

    def __init__(self, services: Services, tool: Tool, action: Action) -> None:
        super().__init__(services, tool)
        self._action = action
        self._outer = services

    async def answer(self, call: Call) -> CallToolResult:
        """Answer the call for whoever's client sent it."""
        return await self._action(self._outer, call)

    def finish_for(self, outer: Services) -> None:
        """Speak of the host from now on: its client knows what is here by the host's names."""
        self._outer = outer


def read_arguments(call: Call, kind: type[T]) -> T:
    """Read the arguments of a call; raise ToolError for those that do not fit."""
    try:
        return msgspec.json.decode(call.params.arguments, type=kind)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise ToolError(f"Invalid arguments for the tool {call.params.name}: {reason}") from None


def told(value: dict[str, Any]) -> CallToolResult:
    """Return a result that programs and models can read."""
    written = _write(value)
    return CallToolResult(content=[TextContent(written.decode())], structured_content=Raw(written))


def object_schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return schema
