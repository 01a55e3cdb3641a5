"""A task in hand: look at it, wait for it, come back to it by its id, cancel it."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client, Context, PeerError, Refusal, Server, SyncClient, TimedOut, ToolError
from ferrule.client.features.tasks import Task
from ferrule.errors import Cancelled, InvalidAnswer
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.testing import pair

EXTENSION = "io.modelcontextprotocol/tasks"


def new_app(**settings) -> Server:
    app = Server("s", tasks=TaskSettings(poll_interval=0.01, access="id", **settings))
    app.go = asyncio.Event()

    @app.tool(task="optional")
    async def work(text: str = "done") -> str:
        await app.go.wait()
        return text

    @app.tool(task="optional")
    async def refuse() -> str:
        raise Refusal("not today", {"why": "tired"})

    @app.tool(task="optional")
    async def fail() -> str:
        raise ToolError("no luck")

    return app


@pytest.fixture
def app() -> Server:
    return new_app()


async def test_a_task_is_started_and_not_waited_for(app, era):
    async with pair(app, era) as client:
        task = await client.start_task("work", {"text": "yes"}, ttl=60)
        assert isinstance(task, Task)
        assert repr(task) == f"<Task {task.id}: working>"
        state = await task.status()
        assert (state.task_id, state.status) == (task.id, "working")
        assert (state.ttl if era == "handshake" else state.ttl_ms) == (60_000 if era == "handshake" else 3_600_000)
        app.go.set()
        assert (await task.result()).text == "yes"
        assert (await task.result()).text == "yes", "it may be had again"
        assert (await task.status()).status == "completed"


async def test_a_task_is_found_again_by_its_id_over_a_new_connection(app, era):
    """TASK-9: a restart loses nothing but the client."""
    await app.enter()
    try:
        async with pair(app, era) as client:
            task_id = (await client.start_task("work")).id
        app.go.set()
        async with pair(app, era) as client:
            assert (await client.task(task_id).result()).text == "done"
    finally:
        await app.leave()


async def test_all_states_are_seen_to_the_end(app, era):
    """TSKX-6"""
    async with pair(app, era) as client:
        task, seen = await client.start_task("work"), []
        async for state in task:
            seen.append(state.status)
            app.go.set()
        assert (seen[0], seen[-1], set(seen)) == ("working", "completed", {"working", "completed"})
        assert [state.status async for state in client.task(task.id)] == ["completed"]


async def test_cancelling_ends_it_and_waiting_less_does_not(app, era):
    """Whoever has the id may come back: only `cancel` ends a task that was started by hand."""
    async with pair(app, era) as client:
        task = await client.start_task("work")
        with pytest.raises(TimedOut):
            await task.result(timeout=0.03)
        waiting = asyncio.ensure_future(task.result())
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await task.status()).status == "working"
        await task.cancel()
        assert (await task.status()).status == "cancelled"
        with pytest.raises(Cancelled, match="was cancelled"):
            await task.result()


async def test_cancelling_what_has_ended_is_told_as_the_server_tells_it(app, era):
    async with pair(app, era) as client:
        app.go.set()
        task = await client.start_task("work")
        await task.result()
        await task.cancel()
        again = client.task(task.id)
        if era == "handshake":
            with pytest.raises(PeerError, match="terminal"):
                await again.cancel()
        else:
            await again.cancel()


async def test_an_error_is_the_one_the_call_would_have_had(app, era):
    """TSKX-7, TASK-8"""
    async with pair(app, era) as client:
        task = await client.start_task("refuse")
        with pytest.raises(PeerError, match="not today") as refused:
            await task.result()
        assert (refused.value.code, refused.value.data) == (-32603, {"why": "tired"})
        failed = await client.start_task("fail")
        with pytest.raises(ToolError, match="no luck"):
            await failed.result()
        assert (await failed.result(raise_on_error=False)).is_error


async def test_a_task_nobody_knows_is_said_to_be_unknown(app, era):
    async with pair(app, era) as client:
        for deed in (client.task("nobody").status(), client.task("nobody").result(), client.task("nobody").cancel()):
            with pytest.raises(PeerError, match="not found"):
                await deed


async def test_a_server_may_answer_at_once_instead(raw):
    """TASK-2: the server alone decides."""
    answers = {"tools/call": {"resultType": "complete", "content": [{"type": "text", "text": "now"}]}}
    declared = {"tools": {}, "extensions": {EXTENSION: {}}}
    async with Client(raw("stateless", answers, capabilities=declared), mode="stateless") as client:
        task = await client.start_task("t")
        assert (task.id, (await task.result()).text) == ("", "now")
        assert (await task.status()).status == "completed"
        assert [state.status async for state in task] == ["completed"]
        await task.cancel()
        assert "answered at once" in repr(task)


@pytest.mark.parametrize("state", [{"status": "completed"}, {"status": "completed", "result": {"content": 7}}])
async def test_an_end_that_makes_no_sense_is_an_invalid_answer(state, raw):
    new = {"resultType": "task", "taskId": "1", "status": "working", "createdAt": "", "lastUpdatedAt": ""}
    answers = {"tools/call": new, "tasks/get": {**new, "resultType": "complete", "pollIntervalMs": 1, **state}}
    declared = {"tools": {}, "extensions": {EXTENSION: {}}}
    async with Client(raw("stateless", answers, capabilities=declared), mode="stateless") as client:
        with pytest.raises(InvalidAnswer):
            await client.call_tool("t", task=True)


def test_a_script_uses_tasks_too(era):
    app = Server("s", tasks=TaskSettings(poll_interval=0.01))

    @app.tool(task="optional")
    async def ask(ctx: Context) -> str:
        return await ctx.ask("Who?", str)

    with SyncClient(app, mode=era, elicitation=lambda _: {"value": "me"}) as client:
        assert client.call_tool("ask", task=True).text == "me"
        task = client.start_task("ask")
        assert task.status().status in ("working", "input_required")
        assert task.result(timeout=10).text == "me"
        assert [state.status for state in client.task(task.id)] == ["completed"]
        other = client.start_task("ask")
        other.cancel()
        assert other.status().status == "cancelled"


async def test_a_tool_that_runs_only_as_a_task_is_called_like_any_other(era):
    """The refusal says what is missing, and the call is made again with it; nobody has to know beforehand."""
    app = Server("s", tasks=TaskSettings(poll_interval=0.01))

    @app.tool(task="required")
    async def bound(ctx: Context) -> bool:
        return ctx.task_id is not None

    async with pair(app, era) as client:
        assert (await client.call_tool("bound")).data is True
        with pytest.raises(PeerError):
            await client.call_tool("bound", task=False)
