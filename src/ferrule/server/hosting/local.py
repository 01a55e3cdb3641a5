"""Calls that come from this process, without a client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from ferrule.errors import ToolError
from ferrule.protocol.call import Call, Peer
from ferrule.protocol.handshake import NEWEST
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities
from ferrule.schema.prompts import GetPromptParams, GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult
from ferrule.schema.tools import CallToolParams, CallToolResult, Tool
from ferrule.server.calls.context import Context
from ferrule.server.offers.prompts import Prompts
from ferrule.server.offers.resources import Resources
from ferrule.server.offers.tools import Tools
from ferrule.wire.channel import ChannelDefaults, Origin
from ferrule.wire.messages import Message

if TYPE_CHECKING:
    from ferrule.server.server import Server


class LocalCalls:
    """The half of a server that this process uses directly."""

    tools: Tools
    resources: Resources
    prompts: Prompts

    def list_tools(self) -> list[Tool]:
        """Return the tools as they are listed."""
        return [entry.tool for entry in self.tools.catalogue]

    def list_resources(self) -> list[Any]:
        """Return the resources as they are listed."""
        return [entry.listed for entry in self.resources.catalogue]

    def list_resource_templates(self) -> list[Any]:
        """Return the templates as they are listed."""
        return [entry.listed for entry in self.resources.templates]

    def list_prompts(self) -> list[Prompt]:
        """Return the prompts as they are listed."""
        return [entry.prompt for entry in self.prompts.catalogue]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, raise_on_error: bool = True
    ) -> CallToolResult:
        """Call a tool in process, without a client; raises ToolError when it failed, unless `raise_on_error` is off."""
        raw = Raw(msgspec.json.encode(arguments or {}))
        params = CallToolParams(name=name, arguments=raw)
        result = await self.tools.call_whole(_local(self._whole(), "tools/call", params))
        if result.is_error and raise_on_error:
            raise ToolError(result.text or f"the tool {name} failed", result=result)
        return result

    async def read_resource(self, uri: str, context: Context | None = None) -> ReadResourceResult:
        """Read a resource in process."""
        call = _local if context is None else lambda *_: context.call
        return await self.resources.read_within(uri, lambda: call(self._whole(), "resources/read"))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Fill in a prompt in process."""
        params = GetPromptParams(name=name, arguments=dict(arguments or {}))
        return await self.prompts.fill(_local(self._whole(), "prompts/get", params))

    def _whole(self) -> Server:
        return self  # type: ignore[return-value]  # only a Server has this half


def _local(server: Server, name: str, params: Any = None) -> Call:
    """Make a call that nobody sent."""
    if server.loop is None or server.loop.is_closed():
        server.changes.begin(asyncio.get_running_loop())
    link = server.link(Origin(carrier="memory"))
    server.links.forget(link, None)
    peer = Peer(NEWEST, ClientCapabilities())
    call = Call(
        0, METHODS[name], params, Raw(b"{}"), None, server.handshake, peer, LocalChannel(), link.session.origin, link
    )
    link.session.running[call.id] = call
    return call


class LocalChannel(ChannelDefaults):
    """The channel of a call that came from this process: nobody is told anything."""

    def send(self, message: Message | Sequence[Message]) -> None:
        """Tell nobody."""

    async def wait_writable(self) -> None:
        """Return at once: nobody reads."""

    def close(self, reason: str = "") -> None:
        """There is nothing to close."""
