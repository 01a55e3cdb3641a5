"""The interop client, written with Ferrule: the exercise of `peers/scenario.py` over our own `Client`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from peers import scenario

from ferrule import Client
from ferrule.errors import PeerError

MODES = {"legacy": "handshake", "modern": "stateless", "auto": "auto"}
TOOLS_CHANGED = "notifications/tools/list_changed"


class Session(scenario.Session):
    def __init__(self, client: Client, heard: scenario.Heard) -> None:
        self.client, self.heard = client, heard

    def protocol_version(self) -> str:
        return self.client.protocol_version

    def server(self) -> dict[str, Any]:
        return {"name": self.client.server_info.name, "instructions": self.client.instructions}

    async def ping(self) -> None:
        await self.client.ping()

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in await self.client.list_tools()]

    async def resource_uris(self) -> list[str]:
        return [resource.uri for resource in await self.client.list_resources()]

    async def template_uris(self) -> list[str]:
        return [template.uri_template for template in await self.client.list_resource_templates()]

    async def prompts(self) -> dict[str, list[str]]:
        listed = await self.client.list_prompts()
        return {prompt.name: [argument.name for argument in prompt.arguments or []] for prompt in listed}

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: Any = None) -> scenario.Called:
        result = await self.client.call_tool(tool, arguments, on_progress=on_progress, raise_on_error=False)
        return scenario.Called(result.text, bool(result.is_error), result.structured_content)

    async def read(self, uri: str) -> dict[str, Any]:
        (content,) = (await self.client.read_resource(uri)).contents
        fields = {"mimeType": content.mime_type, "text": content.text, "blob": content.blob}
        return {name: value for name, value in fields.items() if value is not None}

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[list[str]]:
        result = await self.client.get_prompt(name, arguments)
        return [[message.role, message.content.text] for message in result.messages]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        ref = {"type": "ref/prompt", "name": prompt}
        return list((await self.client.complete(ref, {"name": argument, "value": value})).values)

    async def set_log_level(self, level: str) -> None:
        """The stateless era takes the level when the client is made."""
        if self.client.protocol_version < "2026":
            await self.client.set_log_level(level)

    @contextlib.asynccontextmanager
    async def resource_updates(self, uri: str) -> AsyncIterator[None]:
        async with self.client.subscribe(uri) as changes, scenario.collecting(changes, self.heard.updates.append):
            yield

    def error_code(self, error: Exception) -> int | None:
        return error.code if isinstance(error, PeerError) else None


def make_client(target: scenario.Target, heard: scenario.Heard) -> Client:
    async def elicitation(params: Any) -> dict[str, Any]:
        return heard.elicitation(params.message, params.requested_schema)

    async def sampling(params: Any) -> str:
        return heard.sampling([(message.role, message.content.text) for message in params.messages], params.max_tokens)

    return Client(
        target.url or target.command,
        mode=MODES[target.mode],
        protocol_version=target.version if target.mode == "legacy" else None,
        elicitation=elicitation,
        sampling=sampling,
        roots=[scenario.ROOT],
        log_level="info",
        # Some peers take long to start on a busy machine.
        probe_timeout=100.0,
        init_timeout=100.0,
        request_timeout=60.0,
        tool_timeout=60.0,
        ping_timeout=60.0,
    )


@contextlib.asynccontextmanager
async def connect(target: scenario.Target) -> AsyncIterator[Session]:
    heard = scenario.Heard()
    client = make_client(target, heard)
    client.on_log(lambda level, data, logger: heard.logs.append([level, data]))
    client.on_notification(TOOLS_CHANGED, lambda params: heard.tool_changes.append("tools"))
    async with client:
        yield Session(client, heard)


if __name__ == "__main__":
    scenario.main(connect)
