"""Following a task: its pace, its questions, its progress, and what happens when it is out of reach."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Client, Context, OutcomeUnknown, PeerError, Reconnect, Server
from ferrule.client.features import task_watch as following
from ferrule.errors import InvalidAnswer, LinkLost, NotConnected
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED = {
    "tools": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    "extensions": {EXTENSION: {}},
}
SLOW = {"pollIntervalMs": 1000}
DONE = {"content": [{"type": "text", "text": "done"}]}


class Scripted:
    """A raw server whose one task is in one state after the other, each look seeing the next."""

    def __init__(self, raw: Any, era: str, *states: dict[str, Any], **answers: Any) -> None:
        self.era = era
        self.left = list(states)
        self.looks: list[float] = []
        script = {"tasks/get": self.look, "tasks/result": DONE, "tasks/update": {}, "tasks/cancel": {}}
        self.server = raw(era, {"tools/call": self.created, **script, **answers}, capabilities=DECLARED)

    def state(self, **more: Any) -> dict[str, Any]:
        pace = {} if "pollIntervalMs" not in more else {"pollInterval": more["pollIntervalMs"]}
        ended = {"result": DONE} if more.get("status") == "completed" else {}
        return {"taskId": "1", "status": "working", "createdAt": "", "lastUpdatedAt": "", **pace, **ended, **more}

    def created(self, _: Any) -> dict[str, Any]:
        first = self.state(**self.left.pop(0))
        return {"resultType": "task", **first} if self.era == "stateless" else {"task": first}

    def look(self, _: Any) -> Any:
        self.looks.append(asyncio.get_running_loop().time())
        given = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return self.state(**given) if isinstance(given, dict) else given

    def client(self, **options: Any) -> Client:
        return Client(self.server, mode=self.era, **options)

    @property
    def pauses(self) -> list[float]:
        return [round(after - before, 3) for before, after in zip(self.looks, self.looks[1:], strict=False)]


class TestPace:
    @pytest.mark.virtual_time
    async def test_the_server_sets_the_pace_and_may_change_it(self, era, raw):
        """TASK-9, TSKX-6"""
        slow, fast = {"pollIntervalMs": 4000}, {"pollIntervalMs": 500}
        script = Scripted(raw, era, slow, slow, fast, fast, {"status": "completed"})
        script.server.answers["subscriptions/listen"] = None
        async with script.client() as client:
            assert (await client.call_tool("t", task=True)).text == "done"
        assert script.pauses == [4.0, 0.5, 0.5]

    @pytest.mark.virtual_time
    @pytest.mark.parametrize(("told", "kept"), [(0, following.LEAST_PAUSE), (10**9, following.LONGEST_PAUSE)])
    async def test_a_pace_that_makes_no_sense_is_kept_within_bounds(self, told, kept, era, raw):
        pace = {"pollIntervalMs": told}
        script = Scripted(raw, era, pace, pace, pace, {"status": "completed"})
        async with script.client() as client:
            await client.call_tool("t", task=True)
        assert script.pauses == [kept, kept]

    @pytest.mark.virtual_time
    async def test_where_none_is_told_the_looks_become_fewer(self, era, raw):
        script = Scripted(raw, era, *[{}] * 15, {"status": "completed"})
        async with script.client() as client:
            await client.call_tool("t", task=True)
        assert script.pauses == sorted(script.pauses)
        assert (script.pauses[0] < 1, script.pauses[-1]) == (True, 5.0)

    async def test_a_notice_makes_it_look_at_once(self, era):
        """TSKX-12, TASK-14: in the stateless era by a subscription that ends with the last task."""
        app, go = Server("s", tasks=TaskSettings(poll_interval=30.0)), asyncio.Event()

        @app.tool(task="optional")
        async def slow() -> str:
            await go.wait()
            return "done"

        recorder = Recorder(Memory(app))
        async with pair(recorder, era) as client:
            calls = [asyncio.ensure_future(client.call_tool("slow", task=True)) for _ in range(20)]
            while len(app.host.tasks.live) < 20 or (era == "stateless" and len(app.host.services.subscriptions) == 0):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            go.set()
            assert {(await call).text for call in calls} == {"done"}
            await asyncio.sleep(0.01)
            assert len(app.host.services.subscriptions) == (1 if era == "handshake" else 0)
        assert len(recorder.sent("client", "subscriptions/listen")) <= 5, "those that come together ask together"

    async def test_a_server_that_tells_nothing_is_looked_at_all_the_same(self, raw, refused):
        pace = {"pollIntervalMs": 250}
        script = Scripted(raw, "stateless", pace, pace, {"status": "completed"})
        script.server.answers["subscriptions/listen"] = refused(-32601, "no")
        async with script.client() as client:
            assert (await client.call_tool("t", task=True)).text == "done"


class TestQuestions:
    def new_app(self) -> Server:
        app = Server("s", tasks=TaskSettings(poll_interval=0.01))

        @app.tool(task="optional")
        async def several(ctx: Context) -> str:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(ctx.ask(f"{which}?", str)) for which in ("first", "second")]
            third = await ctx.sample("third?", max_tokens=5)
            return " ".join([*(task.result() for task in asked), third.text])

        return app

    async def test_the_same_callbacks_answer_in_either_system(self, era):
        """TASK-10, TASK-18, TSKX-9: each question once, however often the task is looked at."""
        asked: list[str] = []

        async def user(question: Any) -> Any:
            asked.append(question.message)
            await asyncio.sleep(0.05)
            return {"value": question.message.upper()}

        async with pair(self.new_app(), era, elicitation=user, sampling=lambda _: "3") as client:
            assert (await client.call_tool("several", task=True)).text == "FIRST? SECOND? 3"
        assert sorted(asked) == ["first?", "second?"]

    async def test_a_question_that_cannot_be_answered_ends_the_call_and_the_task(self, raw):
        asks = {"status": "input_required", "inputRequests": {"k": {"method": "roots/list"}}, "pollIntervalMs": 1}
        script = Scripted(raw, "stateless", {"pollIntervalMs": 1}, asks)
        async with script.client() as client:
            with pytest.raises(InvalidAnswer, match="cannot be answered"):
                await client.call_tool("t", task=True)
            await client.ping()
        assert len(script.server.sent("tasks/cancel")) == 1

    async def test_a_callback_that_crashes_is_raised(self, raw):
        form = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
        asks = {"status": "input_required", "inputRequests": {"k": form}, "pollIntervalMs": 1}
        script = Scripted(raw, "stateless", {"pollIntervalMs": 1}, asks)

        async def user(_: Any) -> Any:
            raise ZeroDivisionError

        async with script.client(elicitation=user) as client:
            with pytest.raises(ZeroDivisionError):
                await client.call_tool("t", task=True)

    async def test_who_stops_waiting_is_asked_no_more(self, era):
        """A person in front of a form is not left there."""
        shown, gone = asyncio.Event(), asyncio.Event()

        async def user(_: Any) -> Any:
            shown.set()
            try:
                await asyncio.sleep(3600)
            finally:
                gone.set()

        async with pair(self.new_app(), era, elicitation=user, sampling=str) as client:
            call = asyncio.ensure_future(client.call_tool("several", task=True))
            await shown.wait()
            call.cancel()
            await asyncio.wait([call])
            await gone.wait()


class TestProgress:
    async def test_progress_is_heard_to_the_end(self, era):
        """PROG-5: by its token where tasks have progress, else from how the task stands."""
        app = Server("s", tasks=TaskSettings(poll_interval=0.3))

        @app.tool(task="optional")
        async def count(ctx: Context) -> str:
            for step in (1, 2, 3):
                await ctx.report_progress(step, 3, f"step {step}")
                await asyncio.sleep(0.15)
            return "counted"

        heard: list[Any] = []

        async def later(*told: Any) -> None:
            heard.append(told)

        async with pair(app, era) as client:
            await client.call_tool("count", task=True, on_progress=later)
            assert heard == [(step, 3, f"step {step}") for step in (1, 2, 3)]
            heard.clear()
            task = await client.start_task("count")
            await task.result(on_progress=lambda *told: heard.append(told))
            assert heard[-1] == (3, 3, "step 3")

    async def test_words_alone_are_counted(self, raw):
        """A server of somebody else's says where it is in words."""
        script = Scripted(
            raw,
            "stateless",
            {"pollIntervalMs": 1, "statusMessage": "begun"},
            {"pollIntervalMs": 1, "statusMessage": "begun"},
            {"pollIntervalMs": 1, "statusMessage": "halfway"},
            {"status": "completed", "statusMessage": "over"},
        )
        heard: list[Any] = []
        async with script.client() as client:
            await client.call_tool("t", task=True, on_progress=lambda *told: heard.append(told))
        assert heard == [(1, None, "begun"), (2, None, "halfway")]

    async def test_a_callback_that_fails_harms_nobody(self, raw, caplog):
        script = Scripted(raw, "stateless", {"pollIntervalMs": 1, "statusMessage": "begun"}, {"status": "completed"})
        async with script.client() as client:
            assert (await client.call_tool("t", task=True, on_progress=lambda *_: 1 / 0)).text == "done"
        assert "a progress callback failed" in caplog.text


class TestOutOfReach:
    async def test_a_new_connection_goes_on_where_the_old_one_was_lost(self, era):
        """The task did not notice."""
        app, go = Server("s", tasks=TaskSettings(poll_interval=0.01, access="id")), asyncio.Event()

        @app.tool(task="optional")
        async def slow() -> str:
            await go.wait()
            return "done"

        await app.enter()
        client = pair(app, era)
        await client.connect()
        call = asyncio.ensure_future(client.call_tool("slow", task=True))
        while not app.host.tasks.live:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        await client.reconnect()
        go.set()
        assert (await call).text == "done"
        await client.close()
        await app.leave()

    @pytest.mark.virtual_time
    async def test_patience_has_an_end(self, era, raw):
        script = Scripted(raw, era, {"pollIntervalMs": 100}, {"pollIntervalMs": 100})
        async with script.client(task_patience=10.0) as client:
            call = asyncio.ensure_future(client.call_tool("t", task=True))
            await script.server.heard("tasks/get")
            lost_at = asyncio.get_running_loop().time()
            script.server.die()
            with pytest.raises(LinkLost):
                await call
            assert 10 - 0.01 <= asyncio.get_running_loop().time() - lost_at <= 16

    @pytest.mark.virtual_time
    async def test_a_client_that_was_closed_does_not_wait_for_itself(self, era, raw):
        script = Scripted(raw, era, {"pollIntervalMs": 100}, {"pollIntervalMs": 100})
        client = script.client()
        await client.connect()
        call = asyncio.ensure_future(client.call_tool("t", task=True))
        await script.server.heard("tasks/get")
        started = asyncio.get_running_loop().time()
        await client.close(drain=0.0)
        with pytest.raises((NotConnected, LinkLost)):
            await call
        assert asyncio.get_running_loop().time() - started < 2

    async def test_a_refusal_is_not_waited_out(self, era, raw, refused):
        """A task that is gone does not come back."""
        script = Scripted(raw, era, {"pollIntervalMs": 1}, refused(-32602, "Task not found"))
        async with script.client() as client:
            with pytest.raises(PeerError, match="not found"):
                await client.call_tool("t", task=True)


class TestLosses:
    PLAN = Reconnect(jitter=0)

    @pytest.mark.virtual_time
    async def test_a_task_whose_link_is_lost_before_it_is_followed_is_followed_on_the_next(self, era, raw):
        """TASK-16"""
        script = Scripted(raw, era, SLOW, SLOW, {"status": "completed"})
        script.server.answers["subscriptions/listen"] = None
        async with script.client(reconnect=self.PLAN) as client:
            task = await client.start_task("t")
            script.server.die(LinkLost("gone"))
            assert (await task.result()).text == "done"

    @pytest.mark.virtual_time
    async def test_a_call_as_a_task_lost_after_it_was_sent_has_an_unknown_outcome(self, era, raw):
        script = Scripted(raw, era, SLOW)
        script.server.answers["tools/call"] = None
        async with script.client(reconnect=self.PLAN) as client:
            call = asyncio.create_task(client.call_tool("t", task=True))
            await script.server.heard("tools/call")
            script.server.die(LinkLost("gone"))
            with pytest.raises(OutcomeUnknown):
                await call

    @pytest.mark.virtual_time
    async def test_a_result_that_was_waited_for_on_a_lost_link_is_asked_for_again(self, raw):
        """The wait dies with its link; whoever follows the task was not cancelled."""
        asks = {"status": "input_required", **SLOW}
        script = Scripted(raw, "handshake", asks, {"status": "completed"})
        answers = iter([None, DONE])
        script.server.answers["tasks/result"] = lambda _: next(answers)
        async with script.client(reconnect=self.PLAN) as client:
            call = asyncio.create_task(client.call_tool("t", task=True))
            await script.server.heard("tasks/result")
            script.server.die(LinkLost("gone"))
            assert (await call).text == "done"
