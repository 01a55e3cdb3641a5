"""Calls that come from this process, without a client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from ferrule.errors import ToolError
from ferrule.protocol.call import Call, Peer
from ferrule.protocol.handshake import NEWEST
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities
from ferrule.schema.prompts import GetPromptParams, GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.tools import CallToolParams, CallToolResult, Tool
from ferrule.server.calls.context import Context
from ferrule.server.hosting.host import Host
from ferrule.wire.channel import ChannelDefaults, Origin
from ferrule.wire.messages import Message


class LocalCalls:
    """What this process asks of a server in it, without a client."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._offers = host.offers

    def list_tools(self) -> list[Tool]:
        """Return the tools as they are listed."""
        catalogue = self._offers.tools.catalogue
        found = []
        for entry in catalogue:
            if catalogue.is_listed(entry):
                found.append(entry.tool)
        return found

    def list_resources(self) -> list[Resource]:
        """Return the resources as they are listed."""
        found = []
        for entry in self._offers.resources.catalogue:
            if isinstance(entry.listed, Resource):
                found.append(entry.listed)
        return found

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the templates as they are listed."""
        found = []
        for entry in self._offers.resources.templates:
            if isinstance(entry.listed, ResourceTemplate):
                found.append(entry.listed)
        return found

    def list_prompts(self) -> list[Prompt]:
        """Return the prompts as they are listed."""
        catalogue = self._offers.prompts.catalogue
        return [entry.prompt for entry in catalogue if catalogue.is_listed(entry)]

    async def call_tool(
        self, name: str, arguments: Mapping[str, object] | None, *, raise_on_error: bool
    ) -> CallToolResult:
        """Call a tool; raises ToolError when it failed, unless `raise_on_error` is off."""
        raw = Raw(msgspec.json.encode(arguments or {}))
        params = CallToolParams(name=name, arguments=raw)
        result = await self._offers.tools.call_whole(self._call("tools/call", params))
        if result.is_error and raise_on_error:
            raise ToolError(result.text or f"the tool {name} failed", result=result)
        return result

    async def read_resource(self, uri: str, context: Context | None) -> ReadResourceResult:
        """Read a resource, for a handler that has a context or for nobody."""

        def call() -> Call:
            if context is None:
                return self._call("resources/read")
            return context.call

        return await self._offers.resources.read_within(uri, call)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None) -> GetPromptResult:
        """Fill in a prompt."""
        params = GetPromptParams(name=name, arguments=dict(arguments or {}))
        return await self._offers.prompts.fill(self._call("prompts/get", params))

    def _call(self, name: str, params: object = None) -> Call:
        """Make a call that nobody sent."""
        changes = self._host.services.changes
        if changes.loop is None or changes.loop.is_closed():
            changes.begin(asyncio.get_running_loop())
        link = self._host.link(Origin(carrier="memory"))
        self._host.links.forget(link, None)
        era = self._host.services.handshake
        peer = Peer(NEWEST, ClientCapabilities())
        call = Call(0, METHODS[name], params, Raw(b"{}"), None, era, peer, LocalChannel(), link.session.origin, link)
        link.session.running[call.id] = call
        return call


class LocalChannel(ChannelDefaults):
    """The channel of a call that came from this process: nobody is told anything."""

    def send(self, message: Message | Sequence[Message]) -> None:
        """Do nothing: nobody listens."""

    async def wait_writable(self) -> None:
        """Return at once: nobody reads."""

    def close(self, reason: str = "") -> None:
        """There is nothing to close."""
