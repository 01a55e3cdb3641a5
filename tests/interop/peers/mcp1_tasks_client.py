"""Uses tools as tasks with the official Python SDK 1.x; prints what it saw as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client, types


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"value": "Ann"})


async def ended(session, task_id):
    """Poll as the SDK tells its users to: wait for the result as soon as input is required."""
    seen = []
    async for state in session.experimental.poll_task(task_id):
        seen.append(state.status)
        if state.status == "input_required":
            break
    result = await session.experimental.get_task_result(task_id, types.CallToolResult)
    return result, seen


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with (
        stdio_client(server) as (read, write),
        ClientSession(read, write, elicitation_callback=elicit) as session,
    ):
        opened = await session.initialize()
        greeted = await session.experimental.call_tool_as_task("greet", {}, ttl=60_000)
        result, seen = await ended(session, greeted.task.taskId)
        failed = await session.experimental.call_tool_as_task("fail", {})
        failure, _ = await ended(session, failed.task.taskId)
        waiting = await session.experimental.call_tool_as_task("wait", {})
        cancelled = await session.experimental.cancel_task(waiting.task.taskId)
        listed = await session.experimental.list_tasks()
        print(
            json.dumps(
                {
                    "declared": opened.capabilities.tasks.model_dump(exclude_none=True),
                    "created": greeted.task.status,
                    "asked": "input_required" in seen,
                    "greeting": result.content[0].text,
                    "failure": [failure.isError, failure.content[0].text],
                    "failed": (await session.experimental.get_task(failed.task.taskId)).status,
                    "cancelled": cancelled.status,
                    "listed": len(listed.tasks),
                }
            )
        )


asyncio.run(main())
