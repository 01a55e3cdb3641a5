"""Which calls become tasks, in either era, and what becomes of their work."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from ferrule import Context, Depends, Progress, Refusal, Server, SetupError, ToolError
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.schema.lifecycle import ListCapability, ServerCapabilities
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.tasks import TaskCalls

EXTENSION = "io.modelcontextprotocol/tasks"
OLD = ("2024-11-05", "2025-03-26", "2025-06-18")


def new_app(**options: Any) -> Server:
    app = Server("s", **options)

    @app.tool(task="optional")
    async def free(text: str = "free") -> str:
        return text

    @app.tool(task="required")
    async def bound() -> str:
        return "bound"

    @app.tool
    async def plain(text: str = "plain") -> str:
        return text

    @app.tool(task=True)
    async def fail() -> str:
        raise ToolError("no luck")

    @app.tool(task=True)
    async def crash() -> str:
        raise KeyError("secret")

    @app.tool(task=True)
    async def refuse() -> str:
        raise Refusal("not today", {"why": "tired"})

    return app


async def test_a_call_goes_on_as_a_task_after_it_was_answered(era: str, peer: Any) -> None:
    """TSKX-4, TASK-2, TASK-5, seed:TASK-01, SPEC-15, JRPC-24, spec:TOOL-21: the task comes at once, working."""
    app, go = Server("s"), asyncio.Event()

    @app.tool(task="optional")
    async def slow() -> str:
        await go.wait()
        return "done"

    async with peer(app, era) as client:
        task = await client.start("slow")
        assert task["status"] == "working"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["createdAt"])
        assert task["createdAt"] == task["lastUpdatedAt"]
        assert {"result", "error", "inputRequests", "requestState"}.isdisjoint(task)
        times = (
            {"ttlMs": 3_600_000, "pollIntervalMs": 1000}
            if era == "stateless"
            else {"ttl": 3_600_000, "pollInterval": 1000}
        )
        assert {name: value for name, value in task.items() if name.startswith(("ttl", "poll"))} == times
        assert task.get("resultType") == ("task" if era == "stateless" else None)
        go.set()
        assert await client.text(task) == "done"
        assert (await client.end(task))["status"] == "completed"


async def test_a_task_is_kept_before_it_is_told_of(era: str, peer: Any) -> None:
    """TASK-6: an immediate look finds it."""
    async with peer(new_app(), era) as client:
        for _ in range(20):
            task = await client.start("free")
            assert (await client.look(task))["result"]["taskId"] == task["taskId"]


async def test_ids_cannot_be_guessed(era: str, peer: Any) -> None:
    """TASK-18, TSKX-5, TSKX-14: 192 random bits, never twice."""
    async with peer(new_app(), era) as client:
        ids = {(await client.start("free"))["taskId"] for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"[\w-]{32}", each) for each in ids)


class TestWhichCalls:
    async def test_a_tool_says_whether_it_runs_as_a_task(self, wire: Any) -> None:
        """TSKX-3, TOOL-3: in the one revision that has the member."""
        app = new_app()
        async with wire(app) as client:
            tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["result"]["tools"]}
        assert tools["free"]["execution"] == {"taskSupport": "optional"}
        assert tools["bound"]["execution"] == {"taskSupport": "required"}
        assert "execution" not in tools["plain"]
        async with wire(app, "stateless") as client:
            listed = (await client.request("tools/list"))["result"]["tools"]
        assert not any("execution" in tool for tool in listed)

    @pytest.mark.parametrize("version", OLD)
    @pytest.mark.parametrize("name", ["free", "bound", "plain"])
    async def test_a_revision_without_tasks_just_runs_the_tool(self, name: str, version: str, wire: Any) -> None:
        """TSKX-2, COMPAT-8: whatever the client says about tasks."""
        async with wire(new_app(), version=version) as client:
            opened = client.heard[0]["result"]["capabilities"]
            assert "tasks" not in opened
            assert "extensions" not in opened
            for more in ({}, {"task": {}}, {"task": 7}):
                answer = await client.request("tools/call", {"name": name, **more})
                assert answer["result"]["content"][0]["text"] == name
            assert (await client.request("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601

    async def test_without_the_wish_a_tool_that_may_is_answered_at_once(self, era: str, wire: Any) -> None:
        """TSKX-3, TASK-3: the stateless client did not declare the extension in this request."""
        async with wire(new_app(), era) as client:
            result = (await client.call("free"))["result"]
            assert result["content"][0]["text"] == "free"
            assert {"task", "taskId"}.isdisjoint(result)

    async def test_a_tool_that_must_be_a_task_refuses_to_be_none(self, era: str, wire: Any) -> None:
        """TSKX-3, TASK-3: method not found in the one era, the missing capability by name in the other."""
        async with wire(new_app(), era) as client:
            error = (await client.call("bound"))["error"]
        if era == "handshake":
            assert error["code"] == -32601
        else:
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        assert "bound" in error["message"]

    async def test_a_tool_that_is_never_a_task_refuses_to_be_one_where_it_is_asked(self, era: str, peer: Any) -> None:
        """TSKX-3, TASK-17: where the server decides, the member `task` means nothing."""
        async with peer(new_app(), era) as client:
            answer = await client.request("tools/call", {"name": "plain", "task": {"ttl": 60_000}})
        if era == "handshake":
            assert answer["error"]["code"] == -32601
        else:
            assert answer["result"]["content"][0]["text"] == "plain"
            assert "taskId" not in answer["result"]

    async def test_declared_once_is_not_declared_always(self, peer: Any) -> None:
        """TASK-3, TASK-1: each request speaks for itself."""
        async with peer(new_app(), "stateless") as client:
            assert "taskId" in await client.start("free")
            client.capabilities = {}
            assert "taskId" not in (await client.call("free"))["result"]
            client.capabilities = {"tasks": {"requests": {"tools": {"call": {}}}}}
            assert "taskId" not in (await client.call("free"))["result"]

    async def test_an_unknown_tool_is_unknown_also_as_a_task(self, era: str, peer: Any) -> None:
        async with peer(new_app(), era) as client:
            error = (await client.request("tools/call", {"name": "nobody", "task": {}}))["error"]
            assert (error["code"], "Unknown tool" in error["message"]) == (-32602, True)

    @pytest.mark.parametrize("task", [7, "x", [], {"ttl": "long"}, {"ttl": -1}])
    async def test_a_wish_that_makes_no_sense_is_refused(self, task: Any, peer: Any) -> None:
        async with peer(new_app()) as client:
            error = (await client.request("tools/call", {"name": "free", "task": task}))["error"]
            assert error["code"] == -32602
            assert "task" in error["message"]

    def test_options_that_make_no_sense_are_refused_where_they_are_written(self) -> None:
        for options in ({"task": "maybe"}, {"task": 3}, {"task": True, "task_start": "later"}):
            with pytest.raises(SetupError, match="task"):
                Server("s").tool(**options)(lambda: None)


class TestHowItEnds:
    async def test_a_tool_that_failed_is_told_as_each_era_tells_it(self, era: str, peer: Any) -> None:
        """TSKX-5, TASK-8: a failure for the model is a completed task where only protocol errors are failures."""
        async with peer(new_app(), era) as client:
            task = await client.start("fail")
            state = await client.end(task)
            assert state["status"] == ("failed" if era == "handshake" else "completed")
            assert state["statusMessage"] == "no luck"
            result = (await client.outcome(task))["result"]
            assert (result["isError"], result["content"][0]["text"]) == (True, "no luck")

    async def test_a_crash_is_masked(self, era: str, peer: Any) -> None:
        """The number of a crash is told, its words are not."""
        async with peer(new_app(), era) as client:
            task = await client.start("crash")
            state = await client.end(task)
            result = (await client.outcome(task))["result"]
            assert result["isError"]
            assert "reference" in result["content"][0]["text"]
            assert "secret" not in str((state, result))

    async def test_a_refusal_fails_the_task_with_its_own_error(self, era: str, peer: Any) -> None:
        """TASK-8, TSKX-7: the very error the call would have been refused with."""
        async with peer(new_app(), era) as client:
            task = await client.start("refuse")
            state = await client.end(task)
            assert (state["status"], state["statusMessage"]) == ("failed", "not today")
            assert "result" not in state
            assert ("error" in state) is (era == "stateless")
            error = (await client.outcome(task))["error"]
            assert error == {"code": -32603, "message": "not today", "data": {"why": "tired"}}

    async def test_bad_arguments_end_the_task_as_they_end_a_call(self, era: str, peer: Any) -> None:
        async with peer(new_app(), era) as client:
            task = await client.start("free", {"text": 7})
            assert "Invalid arguments" in await client.text(task)

    async def test_a_plain_function_runs_as_a_task_too(self, era: str, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        def think(ctx: Context) -> str:
            ctx.sync.report_progress(1, 2, "half")
            return f"{ctx.task_id} {ctx.sync.ask('Which?', str)}"

        async with peer(app, era) as client:
            task = await client.start("think")
            await client.reply(task, {"action": "accept", "content": {"value": "this"}})
            assert await client.text(task) == f"{task['taskId']} this"

    async def test_what_cannot_be_written_fails_the_task(self, era: str, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def odd() -> CallToolResult:
            return CallToolResult(content=[], structured_content={"x": object()})

        async with peer(app, era) as client:
            task = await client.start("odd")
            assert (await client.end(task))["status"] == "failed"
            assert "reference" in (await client.outcome(task))["error"]["message"]

    async def test_a_time_out_ends_the_work_and_not_the_call(self, era: str, peer: Any) -> None:
        """seed:TASK-02: how long a task may run is the tool's own limit."""
        app = Server("s")

        @app.tool(task="optional", timeout=0.05)
        async def never() -> str:
            await asyncio.sleep(3600)
            return "late"

        async with peer(app, era) as client:
            assert "did not finish within" in await client.text(await client.start("never"))


class TestBegunByTheHandler:
    def new_app(self) -> Server:
        app = Server("s")

        @app.tool(task="optional", task_start="handler")
        async def order(ctx: Context, start: bool = True) -> str:
            before = ctx.task_id
            name = await ctx.ask("Your name?", str, key="name")
            if start:
                await ctx.start_task(f"for {name}")
                await ctx.start_task("twice is once")
            return f"{name} {before} {ctx.task_id}"

        @app.tool(task="required", task_start="handler")
        async def doomed(ctx: Context) -> str:
            raise Refusal("never")

        return app

    async def test_questions_before_it_are_asked_in_the_call_itself(self, era: str, peer: Any, accept: Any) -> None:
        """TASK-7: the rounds of a call end before the task is made, and its state does not leak into it."""
        app = self.new_app()
        async with peer(app, era) as client:
            params: dict[str, Any] = {"name": "order", **({} if era == "stateless" else {"task": {}})}
            call = client.ask("tools/call", params)
            if era == "stateless":
                first = (await client.response(call))["result"]
                assert first["resultType"] == "input_required"
                assert "taskId" not in first
                again = {"inputResponses": {"name": accept(value="Ann")}, "requestState": first["requestState"]}
                task = (await client.request("tools/call", {**params, **again}))["result"]
                assert {"requestState", "inputRequests"}.isdisjoint(task)
            else:
                client.answer(await client.hear("elicitation/create"), accept(value="Ann"))
                task = (await client.response(call))["result"]["task"]
            assert (task["status"], task["statusMessage"]) == ("working", "for Ann")
            assert await client.text(task) == f"Ann None {task['taskId']}"

    async def test_a_call_that_never_begins_one_is_answered_as_it_is(self, era: str, peer: Any, accept: Any) -> None:
        """Unless it was asked to be a task: then it is one that has ended."""
        async with peer(self.new_app(), era) as client:
            params = {"name": "order", "arguments": {"start": False}}
            if era == "stateless":
                more = {"inputResponses": {"name": accept(value="Ann")}}
                assert (await client.request("tools/call", {**params, **more}))["result"]["resultType"] == "complete"
            else:
                call = client.ask("tools/call", {**params, "task": {}})
                client.answer(await client.hear("elicitation/create"), accept(value="Ann"))
                task = (await client.response(call))["result"]["task"]
                assert await client.text(task) == "Ann None None"

    async def test_a_call_that_fails_before_it_is_refused(self, era: str, peer: Any) -> None:
        async with peer(self.new_app(), era) as client:
            answer = await client.request("tools/call", {"name": "doomed", "task": {}})
            assert answer["error"]["message"] == "never"
            assert client.app.host.tasks.live == {}

    async def test_a_server_that_stops_before_the_work_began_says_so(self, era: str, peer: Any) -> None:
        app = self.new_app()
        async with peer(app, era) as client:
            call = client.ask("tools/call", {"name": "doomed", "task": {}})
            await app.host.tasks.close()
            answer = await client.response(call)
            assert answer["error"]["message"] == "The server stopped before the work began"

    async def test_cancelled_before_it_is_a_task_it_is_a_call(self, wire: Any) -> None:
        """CANC-4: what is no task yet is cancelled as any call; it leaves nothing behind."""
        app, ended = Server("s"), asyncio.Event()

        @app.tool(task="optional", task_start="handler")
        async def wait(ctx: Context) -> str:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()
            return ""

        async with wire(app) as client:
            call = client.ask("tools/call", {"name": "wait", "task": {}})
            await asyncio.sleep(0)
            client.notify("notifications/cancelled", {"requestId": call})
            await ended.wait()
            assert app.host.tasks.live == {}

    async def test_one_that_ended_before_it_became_a_task_runs_no_more(self, wire: Any) -> None:
        """A client may ask for as many as it likes, one after another."""
        app = Server("s", tasks=TaskSettings(max_running=2))

        @app.tool(task="optional", task_start="handler")
        async def quick() -> str:
            return "done"

        async with wire(app) as client:
            for _ in range(5):
                answer = await client.request("tools/call", {"name": "quick", "task": {}})
                assert answer["result"]["task"]["status"] == "completed", answer

    async def test_where_there_are_no_tasks_it_does_nothing(self, wire: Any, accept: Any) -> None:
        async with wire(self.new_app(), version="2025-06-18", capabilities={"elicitation": {}}) as client:
            call = client.ask("tools/call", {"name": "order"})
            client.answer(await client.hear("elicitation/create"), accept(value="Ann"))
            assert (await client.response(call))["result"]["content"][0]["text"] == "Ann None None"


class TestComposition:
    def test_a_server_without_such_tools_has_the_handler_it_always_had(self) -> None:
        """What nobody uses costs nothing: there is no question to ask on the way of a call."""
        app = Server("s")
        app.add_tool("plain", lambda: "plain")
        assert app.host.dispatcher.handlers["tools/call"] == app.offers.tools.call
        assert app.host.capabilities.tasks is None

    async def test_the_first_such_tool_may_come_while_clients_are_there(self, era: str, peer: Any) -> None:
        app = Server("s")
        app.add_tool("plain", lambda: "plain")
        async with peer(app, era) as client:
            before = (await client.request("tools/call", {"name": "plain", "task": {}}))["result"]
            assert before["content"][0]["text"] == "plain"
            app.add_tool("late", lambda: "late", task="optional")
            assert isinstance(app.host.dispatcher.handlers["tools/call"], TaskCalls)
            assert await client.text(await client.start("late")) == "late"
            app.add_tool("later", lambda: "later", task="optional")
            assert await client.text(await client.start("later")) == "later"

    async def test_middleware_is_around_the_work_of_a_task(self, era: str, peer: Any) -> None:
        app, seen = new_app(), []

        @app.middleware
        async def layer(call: Any, proceed: Any) -> Any:
            result = await proceed(call)
            if call.method == "tools/call":
                seen.append(type(result))
            return result

        async with peer(app, era) as client:
            assert await client.text(await client.start("free")) == "free"
            assert seen == [CallToolResult]

    async def test_a_server_that_declares_no_tasks_ignores_the_wish(self, peer: Any) -> None:
        """TSKX-2: the receiver without the capability processes the request normally."""
        app = new_app(capabilities=ServerCapabilities(tools=ListCapability()))
        async with peer(app) as client:
            for name in ("free", "bound", "plain"):
                answer = await client.request("tools/call", {"name": name, "task": {}})
                assert answer["result"]["content"][0]["text"] == name
            assert (await client.request("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601

    async def test_a_call_from_this_process_is_no_task(self) -> None:
        assert (await new_app().call_tool("bound")).text == "bound"


class TestTogetherWithTheRest:
    async def test_a_mounted_tool_runs_as_a_task_of_the_server_it_is_mounted_in(self, era: str, peer: Any) -> None:
        """Also the first such tool, and one that comes later."""
        app, other = Server("s"), Server("other")

        @other.tool(task="optional")
        async def slow(ctx: Context) -> str:
            return f"{await ctx.ask('Which?', str)} {ctx.task_id is not None}"

        async with peer(app, era) as client:
            app.mount(other, prefix="far")
            task = await client.start("far_slow")
            await client.reply(task, {"action": "accept", "content": {"value": "this"}})
            assert await client.text(task) == "this True"
            app.unmount(other)
            assert app.host.capabilities.tasks is not None, "the task can still be asked about"
            other.add_tool("late", lambda: "late", task="required")
            app.mount(other, prefix="far")
            assert await client.text(await client.start("far_late")) == "late"

    async def test_a_tool_the_caller_does_not_see_is_not_there_as_a_task_either(self, era: str, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="required", visible=lambda ctx: ctx.principal == "ann")
        async def secret() -> str:
            return "secret"

        async with peer(app, era, principal="ann") as ann, peer(app, era, principal="bob") as bob:
            assert await ann.text(await ann.start("secret")) == "secret"
            for more in ({}, {"task": {}}):
                error = (await bob.request("tools/call", {"name": "secret", **more}))["error"]
                assert (error["code"], error["message"]) == (-32602, "Unknown tool: secret")

    async def test_a_generator_tells_of_its_progress_in_a_task_too(self, era: str, peer: Any) -> None:
        app, go = Server("s"), asyncio.Event()

        @app.tool(task="optional")
        async def count() -> Any:
            yield Progress(1, 2, "one")
            await go.wait()
            yield "counted"

        async with peer(app, era) as client:
            task = await client.start("count")
            while (await client.look(task))["result"].get("statusMessage") != "one":
                await asyncio.sleep(0.001)
            go.set()
            assert await client.text(task) == "counted"

    async def test_dependencies_live_as_long_as_the_work(self, era: str, peer: Any) -> None:
        app, go, seen = Server("s"), asyncio.Event(), []

        async def opened() -> Any:
            seen.append("opened")
            yield "it"
            seen.append("closed")

        @app.tool(task="optional")
        async def use(it: str = Depends(opened)) -> str:
            await go.wait()
            seen.append(f"used {it}")
            return "done"

        async with peer(app, era) as client:
            task = await client.start("use")
            go.set()
            assert await client.text(task) == "done"
        assert seen == ["opened", "used it", "closed"]


async def test_a_task_outlives_the_tool_it_runs(era: str, peer: Any) -> None:
    """The last tool that runs as a task may go: its tasks can still be asked about."""
    app, child, began, go = Server("s"), Server("child"), asyncio.Event(), asyncio.Event()

    @child.tool(task=True)
    async def slow() -> str:
        began.set()
        await go.wait()
        return "done"

    app.mount(child, "c")
    async with peer(app, era) as client:
        task = await client.start("c_slow")
        await began.wait()
        app.unmount(child)
        go.set()
        assert await client.text(task) == "done"
