"""A server on stdio whose tool runs as a task, written with the official Python SDK 1.x."""

from __future__ import annotations

from typing import Any

import anyio
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

server = Server("mcp1-tasks")
server.experimental.enable_tasks()
FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


@server.list_tools()
async def tools() -> list[types.Tool]:
    execution = types.ToolExecution(taskSupport="required")
    return [types.Tool(name=name, inputSchema={"type": "object"}, execution=execution) for name in ("greet", "wait")]


@server.call_tool()
async def call(name: str, arguments: dict[str, Any]) -> Any:
    context = server.request_context
    context.experimental.validate_task_mode(types.TASK_REQUIRED)

    async def work(task: Any) -> types.CallToolResult:
        await task.update_status("at work")
        if name == "wait":
            await anyio.sleep(3600)
        answer = await task.elicit("Who are you?", FORM)
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"Hello, {answer.content['value']}!")])

    return await context.experimental.run_task(work)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
