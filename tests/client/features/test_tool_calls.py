"""Calls of tools that become tasks: which do, in either era, and what a caller sees of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import CapabilityNotSupported, Client, Context, PeerError, Server, TimedOut, ToolError
from ferrule.errors import Cancelled, InvalidAnswer
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def new_app() -> Server:
    app = Server("s", tasks=TaskSettings(poll_interval=0.01))

    @app.tool(task="optional")
    async def free(ctx: Context) -> str:
        return f"task: {ctx.task is not None}"

    @app.tool(task="required")
    async def bound() -> int:
        return 7

    @app.tool
    async def plain() -> str:
        return "plain"

    @app.tool(task="optional")
    async def fail() -> str:
        raise ToolError("no luck")

    @app.tool(task="optional")
    async def wait() -> str:
        await asyncio.sleep(3600)
        return "late"

    return app


@pytest.fixture
def app() -> Server:
    return new_app()


class TestWhichCalls:
    @pytest.mark.parametrize("task", [True, 60.0, 60])
    async def test_a_call_becomes_a_task_when_it_is_asked_to(self, app, era, task):
        """seed:TASK-01: and is followed to its end, as if it were none."""
        async with pair(app, era) as client:
            assert (await client.call_tool("free", task=task)).text == "task: True"

    async def test_a_call_is_none_when_it_is_asked_not_to(self, app, era):
        async with pair(app, era, tasks=True) as client:
            assert (await client.call_tool("free", task=False)).text == "task: False"
            assert (await client.call_tool("plain", task=False)).text == "plain"

    async def test_by_default_nothing_is_said_about_tasks(self, app, era):
        """EXT-3: an extension is off until it is switched on."""
        recorder = Recorder(Memory(app))
        async with pair(recorder, era) as client:
            assert (await client.call_tool("free")).text == "task: False"
        assert EXTENSION not in str(recorder.sent("client"))

    async def test_a_client_may_leave_it_to_the_server(self, app):
        """TASK-4: both kinds of answer are taken, and the tool decides which it is."""
        async with pair(app, "stateless", tasks=True) as client:
            assert (await client.call_tool("free")).text == "task: True"
            assert (await client.call_tool("bound")).data == 7
            assert (await client.call_tool("plain")).text == "plain"

    async def test_a_tool_that_must_be_a_task_is_called_as_one(self, app):
        """TSKX-3: known from the list of tools, or found out by being refused."""
        recorder = Recorder(Memory(app))
        async with pair(recorder, "handshake") as client:
            assert (await client.call_tool("bound")).data == 7
            assert len(recorder.sent("client", "tools/list")) == 1
            assert (await client.call_tool("bound")).data == 7
        calls = recorder.sent("client", "tools/call")
        assert ["task" in call["params"] for call in calls] == [False, True, True]

    async def test_each_request_says_for_itself_that_it_knows_tasks(self, app):
        """TASK-1, TASK-16: only those that are about tasks do, unless the client always does."""
        recorder = Recorder(Memory(app))
        async with pair(recorder, "stateless") as client:
            await client.call_tool("free", task=True)
            await client.call_tool("free")
        declared = {
            message["method"]: EXTENSION in message["params"]["_meta"][CAPABILITIES].get("extensions", {})
            for message in recorder.sent("client")
            if "id" in message
        }
        assert declared == {"server/discover": False, "tools/call": False, "tasks/get": True}
        assert "task" not in recorder.sent("client", "tools/call")[0]["params"]

    async def test_a_life_is_asked_for_in_milliseconds(self, app):
        recorder = Recorder(Memory(app))
        async with pair(recorder, "handshake") as client:
            await client.call_tool("free", task=1.5)
            await client.call_tool("free", task=True)
        assert [call["params"]["task"] for call in recorder.sent("client", "tools/call")] == [{"ttl": 1500}, {}]

    async def test_a_server_that_runs_no_tasks_is_not_asked_to(self, era):
        app = Server("s")
        app.add_tool("plain", lambda: "plain")
        recorder = Recorder(Memory(app))
        async with pair(recorder, era) as client:
            with pytest.raises(CapabilityNotSupported, match="tasks"):
                await client.call_tool("plain", task=True)
            with pytest.raises(CapabilityNotSupported):
                await client.start_task("plain")
        assert recorder.sent("client", "tools/call") == []

    @pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
    async def test_nor_is_one_whose_revision_has_none(self, app, version):
        async with Client(app, protocol_version=version) as client:
            assert (await client.call_tool("bound")).text == "7"
            with pytest.raises(CapabilityNotSupported):
                await client.call_tool("bound", task=True)
            with pytest.raises(CapabilityNotSupported):
                await client.task("x").status()

    async def test_a_tool_that_is_never_a_task_is_refused_where_it_is_asked(self, app, era):
        async with pair(app, era) as client:
            if era == "stateless":
                assert (await client.call_tool("plain", task=True)).text == "plain"
            else:
                with pytest.raises(PeerError, match="does not run as a task"):
                    await client.call_tool("plain", task=True)

    async def test_who_calls_by_hand_gets_the_answer(self, app, era):
        async with pair(app, era, tasks=True) as client:
            answer = await client.request("tools/call", {"name": "free"})
            assert answer["content"][0]["text"] == "task: False"


class TestWhatTheCallerSees:
    async def test_a_failure_is_raised_as_for_any_call(self, app, era):
        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="no luck"):
                await client.call_tool("fail", task=True)
            assert (await client.call_tool("fail", task=True, raise_on_error=False)).is_error

    async def test_a_result_is_held_to_the_tools_promise(self, era, raw):
        """Also when it comes as the end of a task."""
        tool = {"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
        tool["outputSchema"] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        wrong = {"content": [], "structuredContent": {"n": "x"}}
        kept = {"taskId": "1", "status": "completed", "createdAt": "", "lastUpdatedAt": "", "result": wrong}
        declared = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}, "extensions": {EXTENSION: {}}}
        new = {"resultType": "task", **kept, "status": "working"} if era == "stateless" else {"task": kept}
        answers = {
            "tools/list": {"tools": [tool], "ttlMs": 0, "cacheScope": "private"},
            "tools/call": new,
            "tasks/get": kept,
            "tasks/result": wrong,
        }
        async with Client(raw(era, answers, capabilities=declared), mode=era) as client:
            await client.list_tools()
            with pytest.raises(InvalidAnswer, match="output schema"):
                await client.call_tool("t", task=True)

    async def test_a_time_out_ends_the_wait_and_the_task(self, app, era):
        """Only this call knows of the task: nobody else could want it."""
        async with pair(app, era) as client:
            with pytest.raises(TimedOut, match="did not end within"):
                await client.call_tool("wait", task=True, timeout=0.05)
            await client.ping()
            assert app.host.tasks.live == {}

    async def test_cancelling_the_call_cancels_the_task(self, app, era):
        """CANC-4, TASK-13: by `tasks/cancel`, never by the notification for calls."""
        recorder = Recorder(Memory(app))
        async with pair(recorder, era) as client:
            call = asyncio.ensure_future(client.call_tool("wait", task=True))
            while not app.host.tasks.live:
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled()
            await client.ping()
            assert app.host.tasks.live == {}
        assert len(recorder.sent("client", "tasks/cancel")) == 1
        assert not [m for m in recorder.sent("client", "notifications/cancelled") if era == "handshake"]

    async def test_a_task_that_somebody_else_cancels_is_said_to_be(self, app, era):
        async with pair(app, era) as client:
            call = asyncio.ensure_future(client.call_tool("wait", task=True))
            while not app.host.tasks.live:
                await asyncio.sleep(0)
            await next(iter(app.host.tasks.live.values())).cancel("lunch")
            with pytest.raises(Cancelled, match="lunch"):
                await call

    async def test_a_task_instead_of_another_answer_is_none(self, raw):
        """TASK-4: on a method that has no tasks it is an invalid answer."""
        new = {"resultType": "task", "taskId": "1", "status": "working", "createdAt": "", "lastUpdatedAt": ""}
        server = raw("stateless", {"prompts/get": new, "tools/call": new})
        async with Client(server, mode="stateless", tasks=True) as client:
            with pytest.raises(InvalidAnswer):
                await client.get_prompt("p")
        async with Client(server, mode="stateless") as client:
            with pytest.raises(InvalidAnswer):
                await client.call_tool("t")

    async def test_rounds_come_before_the_task(self, era):
        """TASK-7: questions of the call itself are answered first."""
        app = Server("s", tasks=TaskSettings(poll_interval=0.01))

        @app.tool(task="required", task_start="handler")
        async def order(ctx: Context) -> str:
            name = await ctx.ask("Name?", str)
            await ctx.start_task()
            color = await ctx.ask("Color?", str)
            return f"{name} likes {color}"

        async def user(question: Any) -> Any:
            return {"value": {"Name?": "Ann", "Color?": "blue"}[question.message]}

        async with pair(app, era, elicitation=user) as client:
            assert (await client.call_tool("order", task=True)).text == "Ann likes blue"

    async def test_the_wish_for_a_task_is_ignored_by_this_client(self, raw):
        """TSKX-2: it declares none for questions, and answers them as any other."""
        async with Client(server := raw(), mode="handshake", sampling=lambda _: "hello"):
            params = {"messages": [], "maxTokens": 1, "task": {"ttl": 5}}
            server.ask("sampling/createMessage", params)
            assert (await server.replied())["result"]["content"]["text"] == "hello"
        assert "tasks" not in server.received[0]["params"]["capabilities"]


async def test_tasks_are_listed_where_there_is_a_list(app, era):
    """TSKX-11"""
    async with pair(app, era) as client:
        started = {(await client.start_task("free")).id for _ in range(3)}
        if era == "handshake":
            assert {state.task_id for state in await client.list_tasks()} == started
            assert {state.task_id async for state in client.iter_tasks()} == started
        else:
            with pytest.raises(CapabilityNotSupported, match="does not exist"):
                await client.list_tasks()
