"""A server on stdio that asks by tasks, written with the official Python SDK 1.x."""

from __future__ import annotations

from typing import Any

import anyio
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

server = Server("mcp1-asking")
FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


@server.list_tools()
async def tools() -> list[types.Tool]:
    return [types.Tool(name="greet", inputSchema={"type": "object"})]


@server.call_tool()
async def call(name: str, arguments: dict[str, Any]) -> Any:
    asking = server.request_context.session.experimental
    answer = await asking.elicit_as_task("Who are you?", FORM, ttl=30000)
    question = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=answer.content["value"]))
    said = await asking.create_message_as_task([question], max_tokens=10)
    return [types.TextContent(type="text", text=said.content.text)]


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
