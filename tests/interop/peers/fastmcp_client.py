"""The interop client, written with FastMCP 4."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import scenario
from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from fastmcp.client.transports import ClientTransport, StdioTransport, StreamableHttpTransport
from mcp import MCPError
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import LOG_LEVEL_META_KEY

warnings.simplefilter("ignore", MCPDeprecationWarning)

INFO = types.Implementation(name="interop-fastmcp", version="1.0.0")


class Changes(MessageHandler):
    def __init__(self, heard: scenario.Heard) -> None:
        self.heard = heard

    async def on_resource_updated(self, message: types.ResourceUpdatedNotification) -> None:
        self.heard.updates.append(str(message.params.uri))

    async def on_tool_list_changed(self, message: types.ToolListChangedNotification) -> None:
        self.heard.tool_changes.append("tools")


def handlers(heard: scenario.Heard) -> dict[str, Any]:
    async def elicit(message, response_type, params, context):
        return heard.elicitation(message, params.requested_schema)

    async def sample(messages, params, context):
        return heard.sampling([(m.role, m.content.text) for m in messages], params.max_tokens)

    async def log(message):
        heard.logs.append([message.level, message.data])

    return {
        "elicitation_handler": elicit,
        "sampling_handler": sample,
        "roots": [scenario.ROOT],
        "log_handler": log,
        "message_handler": Changes(heard),
        "client_info": INFO,
    }


class Session(scenario.Session):
    def __init__(self, client: Client, heard: scenario.Heard) -> None:
        self.client, self.heard = client, heard
        self.call_meta: dict[str, Any] | None = None

    @property
    def modern(self) -> bool:
        return self.client.protocol_version >= "2026"

    def protocol_version(self) -> str:
        return self.client.protocol_version

    def server(self) -> dict[str, Any]:
        info = self.client.server_info
        return {"name": info.name if info else None, "instructions": self.client.instructions}

    async def ping(self) -> None:
        await self.client.ping()

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in await self.client.list_tools()]

    async def resource_uris(self) -> list[str]:
        return [str(resource.uri) for resource in await self.client.list_resources()]

    async def template_uris(self) -> list[str]:
        return [template.uri_template for template in await self.client.list_resource_templates()]

    async def prompts(self) -> dict[str, list[str]]:
        listed = await self.client.list_prompts()
        return {prompt.name: [argument.name for argument in prompt.arguments or []] for prompt in listed}

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: Any = None) -> scenario.Called:
        result = await self.client.call_tool(
            tool, arguments, progress_handler=on_progress, raise_on_error=False, meta=self.call_meta
        )
        return scenario.Called(result.content[0].text, result.is_error, result.structured_content)

    async def read(self, uri: str) -> dict[str, Any]:
        (content,) = await self.client.read_resource(uri)
        return content.model_dump(by_alias=True, exclude_none=True, exclude={"uri"})

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[list[str]]:
        result = await self.client.get_prompt(name, arguments)
        return [[message.role, message.content.text] for message in result.messages]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.client.complete(ref, {"name": argument, "value": value})).values

    async def set_log_level(self, level: str) -> None:
        if self.modern:
            self.call_meta = {LOG_LEVEL_META_KEY: level}
        else:
            await self.client.set_logging_level(level)

    @contextlib.asynccontextmanager
    async def resource_updates(self, uri: str) -> AsyncIterator[None]:
        """FastMCP has no call for this; the session it exposes has."""
        if self.modern:
            async with listen(self.client.session, resource_subscriptions=[uri]):
                yield
        else:
            await self.client.session.subscribe_resource(uri)
            yield
            await self.client.session.unsubscribe_resource(uri)

    def tool_changes(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return listen(self.client.session, tools_list_changed=True) if self.modern else contextlib.nullcontext()

    def error_code(self, error: Exception) -> int | None:
        return error.error.code if isinstance(error, MCPError) else None


async def handshake(client: Client, version: str) -> None:
    """Offer an older revision than the client would; it then finds the session negotiated."""
    request = types.InitializeRequest(
        params=types.InitializeRequestParams(
            protocol_version=version,
            capabilities=types.ClientCapabilities(
                elicitation=types.ElicitationCapability(),
                sampling=types.SamplingCapability(),
                roots=types.RootsCapability(),
            ),
            client_info=INFO,
        )
    )
    client.session.adopt(await client.session.send_request(request, types.InitializeResult))
    await client.session.send_notification(types.InitializedNotification())


def transport_of(target: scenario.Target) -> ClientTransport:
    if target.url:
        return StreamableHttpTransport(target.url)
    return StdioTransport(target.command[0], target.command[1:], keep_alive=False)


@contextlib.asynccontextmanager
async def connect(target: scenario.Target) -> AsyncIterator[Session]:
    heard = scenario.Heard()
    mode = target.version or "2026-07-28" if target.mode == "modern" else target.mode
    older = target.mode == "legacy" and target.version not in (None, "2025-11-25")
    async with Client(transport_of(target), mode=mode, auto_initialize=not older, **handlers(heard)) as client:
        if older:
            await handshake(client, target.version)
        yield Session(client, heard)


if __name__ == "__main__":
    scenario.main(connect)
