"""The interop client, written with the official Python SDK 2.x."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import scenario
from mcp import Client, ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning

warnings.simplefilter("ignore", MCPDeprecationWarning)

INFO = types.Implementation(name="interop-mcp2", version="1.0.0")


def handlers(heard: scenario.Heard) -> dict[str, Any]:
    async def elicit(context, params):
        content = heard.elicitation(params.message, params.requested_schema)
        return types.ElicitResult(action="accept", content=content)

    async def sample(context, params):
        text = heard.sampling([(m.role, m.content.text) for m in params.messages], params.max_tokens)
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text=text), model="test")

    async def roots(context):
        return types.ListRootsResult(roots=[types.Root(uri=scenario.ROOT)])

    async def log(params):
        heard.logs.append([params.level, params.data])

    async def message(notification):
        if isinstance(notification, types.ResourceUpdatedNotification):
            heard.updates.append(str(notification.params.uri))
        elif isinstance(notification, types.ToolListChangedNotification):
            heard.tool_changes.append("tools")

    return {
        "elicitation_callback": elicit,
        "sampling_callback": sample,
        "list_roots_callback": roots,
        "logging_callback": log,
        "message_handler": message,
        "client_info": INFO,
    }


class Session(scenario.Session):
    """Works on a `Client` and on a `ClientSession`: both offer the same calls."""

    def __init__(self, client: Any, heard: scenario.Heard) -> None:
        self.client, self.heard = client, heard

    @property
    def modern(self) -> bool:
        return self.client.protocol_version >= "2026"

    def protocol_version(self) -> str:
        return self.client.protocol_version

    def server(self) -> dict[str, Any]:
        info = self.client.server_info
        return {"name": info.name if info else None, "instructions": self.client.instructions}

    async def ping(self) -> None:
        await self.client.send_ping()

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def resource_uris(self) -> list[str]:
        return [str(resource.uri) for resource in (await self.client.list_resources()).resources]

    async def template_uris(self) -> list[str]:
        return [template.uri_template for template in (await self.client.list_resource_templates()).resource_templates]

    async def prompts(self) -> dict[str, list[str]]:
        listed = (await self.client.list_prompts()).prompts
        return {prompt.name: [argument.name for argument in prompt.arguments or []] for prompt in listed}

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: Any = None) -> scenario.Called:
        result = await self.client.call_tool(tool, arguments, progress_callback=on_progress)
        return scenario.Called(result.content[0].text, result.is_error, result.structured_content)

    async def read(self, uri: str) -> dict[str, Any]:
        (content,) = (await self.client.read_resource(uri)).contents
        return content.model_dump(by_alias=True, exclude_none=True, exclude={"uri"})

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[list[str]]:
        result = await self.client.get_prompt(name, arguments)
        return [[message.role, message.content.text] for message in result.messages]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.client.complete(ref, {"name": argument, "value": value})).completion.values

    async def set_log_level(self, level: str) -> None:
        if not self.modern:
            await self.client.set_logging_level(level)

    @contextlib.asynccontextmanager
    async def resource_updates(self, uri: str) -> AsyncIterator[None]:
        if self.modern:
            async with self.client.listen(resource_subscriptions=[uri]):
                yield
        else:
            await self.client.subscribe_resource(uri)
            yield
            await self.client.unsubscribe_resource(uri)

    def tool_changes(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return self.client.listen(tools_list_changed=True) if self.modern else contextlib.nullcontext()

    def error_code(self, error: Exception) -> int | None:
        return error.error.code if isinstance(error, MCPError) else None


async def handshake(session: ClientSession, version: str) -> None:
    """Offer an older revision than `initialize()` would."""
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
    session.adopt(await session.send_request(request, types.InitializeResult))
    await session.send_notification(types.InitializedNotification())


def transport_of(target: scenario.Target) -> contextlib.AbstractAsyncContextManager[Any]:
    if target.url:
        return streamable_http_client(target.url)
    return stdio_client(StdioServerParameters(command=target.command[0], args=target.command[1:]))


@contextlib.asynccontextmanager
async def connect(target: scenario.Target) -> AsyncIterator[Session]:
    heard = scenario.Heard()
    transport = transport_of(target)
    if target.mode != "legacy":
        mode = "auto" if target.mode == "auto" else target.version or "2026-07-28"
        async with Client(transport, mode=mode, log_level="info", **handlers(heard)) as client:
            yield Session(client, heard)
    elif target.version in (None, "2025-11-25"):
        async with Client(transport, mode="legacy", **handlers(heard)) as client:
            yield Session(client, heard)
    else:
        async with transport as streams, ClientSession(*streams, **handlers(heard)) as session:
            await handshake(session, target.version)
            yield Session(session, heard)


if __name__ == "__main__":
    scenario.main(connect)
