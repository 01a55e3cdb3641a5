"""What is said about tasks, held to the official schemas; skipped where they are not beside the project."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from ferrule import Context, Refusal, Server, ToolError

SCHEMAS = Path(__file__).resolve().parents[4] / "shared" / "spec" / "schemas"
FIRST, SECOND = SCHEMAS / "2025-11-25.json", SCHEMAS / "ext-tasks.json"

pytestmark = pytest.mark.skipif(not SECOND.is_file(), reason=f"{SECOND} is not here")


def fits(schemas: Path, name: str, value: Any) -> None:
    document = json.loads(schemas.read_text(encoding="utf-8"))
    places = "$defs" if "$defs" in document else "definitions"
    schema = {"$ref": f"#/{places}/{name}", places: document[places]}
    assert [str(error) for error in jsonschema_rs.validator_for(schema).iter_errors(value)] == [], (name, value)


def new_app() -> Server:
    app = Server("s")

    @app.tool(task="optional")
    async def ask(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        return str(await ctx.ask("Which?", str))

    @app.tool(task="optional")
    async def refuse() -> str:
        raise Refusal("no", {"why": "tired"})

    @app.tool(task="optional")
    async def fail() -> str:
        raise ToolError("no luck")

    return app


async def test_the_first_form_fits_its_schema(peer: Any, accept: Any) -> None:
    """TSKX-4, TSKX-6, TSKX-10, TSKX-11, TSKX-12"""
    async with peer(new_app()) as client:
        fits(FIRST, "InitializeResult", client.heard[0]["result"])
        fits(FIRST, "ListToolsResult", (await client.request("tools/list"))["result"])
        created = (await client.request("tools/call", {"name": "ask", "task": {}}, meta={"progressToken": 1}))["result"]
        fits(FIRST, "CreateTaskResult", created)
        task = created["task"]
        fits(FIRST, "GetTaskResult", await client.until(task, "input_required"))
        fits(FIRST, "ListTasksResult", (await client.request("tasks/list"))["result"])
        (question,) = await client.reply(task, accept(value="this"))
        fits(FIRST, "ElicitRequest", question)
        result = (await client.outcome(task))["result"]
        fits(FIRST, "GetTaskPayloadResult", result)
        fits(FIRST, "CallToolResult", result)
        for name in ("refuse", "fail"):
            fits(FIRST, "GetTaskResult", await client.end(await client.start(name)))
        fits(FIRST, "CancelTaskResult", (await client.cancel(await client.start("ask")))["result"])
        for method, name in (("tasks/status", "TaskStatusNotification"), ("progress", "ProgressNotification")):
            told = client.told(f"notifications/{method}")
            assert told
            for notification in told:
                fits(FIRST, name, notification)


async def test_the_second_form_fits_its_schema(peer: Any, accept: Any) -> None:
    """TASK-5, TASK-8, TASK-11, TASK-13, TASK-14"""
    async with peer(new_app(), "stateless") as client:
        task = await client.start("ask")
        fits(SECOND, "CreateTaskResult", task)
        client.ask("subscriptions/listen", {"notifications": {"taskIds": [task["taskId"]]}})
        state = await client.until(task, "input_required")
        fits(SECOND, "GetTaskResult", state)
        responses = dict.fromkeys(state["inputRequests"], accept(value="this"))
        params = {"taskId": task["taskId"], "inputResponses": responses}
        fits(SECOND, "UpdateTaskResult", (await client.request("tasks/update", params))["result"])
        fits(SECOND, "GetTaskResult", await client.end(task))
        for name in ("refuse", "fail"):
            fits(SECOND, "GetTaskResult", await client.end(await client.start(name)))
        fits(SECOND, "CancelTaskResult", (await client.cancel(task))["result"])
        await asyncio.sleep(0)
        told = client.told("notifications/tasks")
        assert told
        for notification in told:
            fits(SECOND, "TaskStatusNotification", notification)
