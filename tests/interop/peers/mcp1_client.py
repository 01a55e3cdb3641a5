"""The interop client, written with the official Python SDK 1.x."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import scenario
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

INFO = types.Implementation(name="interop-mcp1", version="1.0.0")


def handlers(heard: scenario.Heard) -> dict[str, Any]:
    async def elicit(context, params):
        content = heard.elicitation(params.message, params.requestedSchema)
        return types.ElicitResult(action="accept", content=content)

    async def sample(context, params):
        text = heard.sampling([(m.role, m.content.text) for m in params.messages], params.maxTokens)
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="test")

    async def roots(context):
        return types.ListRootsResult(roots=[types.Root(uri=scenario.ROOT)])

    async def log(params):
        heard.logs.append([params.level, params.data])

    async def message(message):
        notification = getattr(message, "root", None)
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
    def __init__(self, session: ClientSession, initialized: types.InitializeResult, heard: scenario.Heard) -> None:
        self.session, self.initialized, self.heard = session, initialized, heard

    def protocol_version(self) -> str:
        return str(self.initialized.protocolVersion)

    def server(self) -> dict[str, Any]:
        return {"name": self.initialized.serverInfo.name, "instructions": self.initialized.instructions}

    async def ping(self) -> None:
        await self.session.send_ping()

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def resource_uris(self) -> list[str]:
        return [str(resource.uri) for resource in (await self.session.list_resources()).resources]

    async def template_uris(self) -> list[str]:
        return [template.uriTemplate for template in (await self.session.list_resource_templates()).resourceTemplates]

    async def prompts(self) -> dict[str, list[str]]:
        listed = (await self.session.list_prompts()).prompts
        return {prompt.name: [argument.name for argument in prompt.arguments or []] for prompt in listed}

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: Any = None) -> scenario.Called:
        result = await self.session.call_tool(tool, arguments, progress_callback=on_progress)
        return scenario.Called(result.content[0].text, result.isError, result.structuredContent)

    async def call_and_cancel(self, tool: str, arguments: dict[str, Any]) -> None:
        """This SDK tells the server of a cancellation only by hand; the request id is the session's private counter."""
        request_id = self.session._request_id
        call = asyncio.create_task(self.call(tool, arguments))
        await asyncio.sleep(0.6)
        params = types.CancelledNotificationParams(requestId=request_id, reason="no longer needed")
        await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    async def read(self, uri: str) -> dict[str, Any]:
        (content,) = (await self.session.read_resource(AnyUrl(uri))).contents
        return content.model_dump(by_alias=True, exclude_none=True, exclude={"uri"})

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[list[str]]:
        result = await self.session.get_prompt(name, arguments)
        return [[message.role, message.content.text] for message in result.messages]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.session.complete(ref, {"name": argument, "value": value})).completion.values

    async def set_log_level(self, level: str) -> None:
        await self.session.set_logging_level(level)

    @contextlib.asynccontextmanager
    async def resource_updates(self, uri: str) -> AsyncIterator[None]:
        await self.session.subscribe_resource(AnyUrl(uri))
        yield
        await self.session.unsubscribe_resource(AnyUrl(uri))

    def error_code(self, error: Exception) -> int | None:
        return error.error.code if isinstance(error, McpError) else None


async def handshake(session: ClientSession, version: str) -> types.InitializeResult:
    """Offer an older revision than `initialize()` would."""
    capabilities = types.ClientCapabilities(
        elicitation=types.ElicitationCapability(), sampling=types.SamplingCapability(), roots=types.RootsCapability()
    )
    params = types.InitializeRequestParams(protocolVersion=version, capabilities=capabilities, clientInfo=INFO)
    request = types.ClientRequest(types.InitializeRequest(params=params))
    result = await session.send_request(request, types.InitializeResult)
    await session.send_notification(types.ClientNotification(types.InitializedNotification()))
    return result


def streams_of(target: scenario.Target) -> contextlib.AbstractAsyncContextManager[Any]:
    if target.url:
        return streamable_http_client(target.url)
    return stdio_client(StdioServerParameters(command=target.command[0], args=target.command[1:]))


@contextlib.asynccontextmanager
async def connect(target: scenario.Target) -> AsyncIterator[Session]:
    heard = scenario.Heard()
    async with (
        streams_of(target) as (incoming, outgoing, *_),
        ClientSession(incoming, outgoing, **handlers(heard)) as session,
    ):
        newest = target.version in (None, types.LATEST_PROTOCOL_VERSION)
        initialized = await (session.initialize() if newest else handshake(session, target.version))
        yield Session(session, initialized, heard)


if __name__ == "__main__":
    scenario.main(connect)
