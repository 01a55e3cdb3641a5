"""One task while it runs: what it tells, what it asks, and that what has ended never changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Context, Declined, Server
from ferrule.errors import Cancelled
from ferrule.protocol.needs import Need, Question
from ferrule.runtime.tasks import run
from ferrule.runtime.tasks.run import TELL_EVERY
from ferrule.runtime.tasks.settings import TaskSettings

RELATED = "io.modelcontextprotocol/related-task"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
STATUS, CHANGED = "notifications/tasks/status", "notifications/tasks"


def new_app(steps: int = 3, pause: float = 0.0) -> Server:
    app = Server("s")

    @app.tool(task="optional")
    async def count(ctx: Context) -> str:
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
            await ctx.info(f"at {step}")
            await asyncio.sleep(pause)
        return "counted"

    return app


class TestTheEnd:
    async def test_what_has_ended_is_not_changed_and_not_told_again(self, era: str, peer: Any) -> None:
        """TSKX-5: neither in the store nor in what is told, whoever tries."""
        app, runs = Server("s"), []

        @app.tool(task="optional")
        async def once(ctx: Context) -> str:
            runs.extend(app.host.tasks.live.values())
            return "done"

        async with peer(app, era) as client:
            task = await client.start("once")
            before = await client.end(task)
            (run,) = runs or [None]
            assert run is not None
            told = len(client.heard)
            assert not await run.change(status="working")
            assert not await run.change(status="failed", status_message="again")
            await run.cancel()
            await asyncio.sleep(0)
            assert len(client.heard) == told
            assert run.kept.status == "completed"
            after = (await client.look(task))["result"]
        assert after["lastUpdatedAt"] == before["lastUpdatedAt"]


class TestTelling:
    async def test_progress_is_the_status_of_the_task(self, era: str, peer: Any) -> None:
        """PROG-5: in numbers it is beside the status, for which the stateless era has no member."""
        app, go = Server("s"), asyncio.Event()

        @app.tool(task="optional")
        async def half(ctx: Context) -> str:
            await ctx.report_progress(1, 2)
            await ctx.report_progress(2, 4, "two of four")
            await go.wait()
            return "done"

        async with peer(app, era) as client:
            task = await client.start("half")
            while (state := (await client.look(task))["result"]).get("statusMessage") != "two of four":
                await asyncio.sleep(0)
            if era == "stateless":
                assert state["_meta"]["ferrule/progress"] == {"progress": 2, "total": 4}
            go.set()
            assert "statusMessage" not in await client.end(task)

    async def test_progress_is_told_under_the_token_of_the_call_where_tasks_have_it(self, era: str, peer: Any) -> None:
        """PROG-5, TSKX-8, TASK-14: the token lives as long as the task; the second kind of tasks has no progress."""
        async with peer(new_app(), era) as client:
            task = await client.start("count", meta={"progressToken": "p"})
            await client.end(task)
            told = [message["params"] for message in client.told("notifications/progress")]
            logged = [message["params"] for message in client.told("notifications/message")]
        if era == "stateless":
            assert told == logged == []
        else:
            assert [(each["progressToken"], each["progress"], each["total"]) for each in told] == [
                ("p", 1, 3),
                ("p", 2, 3),
                ("p", 3, 3),
            ]
            assert len(logged) == 3
            assert all(each["_meta"] == {RELATED: {"taskId": task["taskId"]}} for each in told + logged)

    async def test_progress_is_not_told_to_whom_gave_no_token(self, era: str, peer: Any) -> None:
        """PROG-5."""
        async with peer(new_app(), era) as client:
            await client.end(await client.start("count"))
            assert client.told("notifications/progress") == []

    async def test_progress_must_increase(self, era: str, peer: Any, caplog: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def back(ctx: Context) -> str:
            await ctx.report_progress(2, 3, "far")
            await ctx.report_progress(1, 3, "back")
            await ctx.report_progress(2, 3, "still there")
            return str(ctx.task and ctx.task.kept.status_message)

        async with peer(app, era) as client:
            assert await client.text(await client.start("back")) == "far"
        assert caplog.text.count("must increase") == 2
        assert "2 after 2 was dropped" in caplog.text

    async def test_a_long_message_is_cut(self, era: str, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def babble(ctx: Context) -> str:
            await ctx.report_progress(1, message="x" * 10_000)
            await asyncio.sleep(3600)
            return ""

        async with peer(app, era) as client:
            task = await client.start("babble")
            while "statusMessage" not in (state := (await client.look(task))["result"]):
                await asyncio.sleep(0)
            assert len(state["statusMessage"]) == 500

    async def test_each_change_of_status_is_told_whole_without_being_asked_for(self, peer: Any) -> None:
        """TSKX-12, TSKX-8, seed:TOOL-18: to the session that started the task; the call itself was answered at once."""
        app = new_app(steps=0)
        async with peer(app) as client, peer(app) as other:
            task = await client.start("count")
            state = await client.end(task)
            told = [message["params"] for message in client.told(STATUS)]
            assert told[-1] == state
            assert not any("_meta" in each for each in told)
            assert client.heard.index(client.told(STATUS)[0]) > 1, "the answer to the call comes first"
            assert other.told(STATUS) == []
            assert client.told(CHANGED) == []

    async def test_a_subscription_hears_of_the_tasks_it_named(self, peer: Any, wire: Any) -> None:
        """TASK-14, SUB-1, seed:TOOL-18: acknowledged are those it may see, told is all that a look would show."""
        app, go = Server("s"), asyncio.Event()

        @app.tool(task="optional")
        async def wait(ctx: Context) -> str:
            await go.wait()
            return "done"

        async with peer(app, "stateless") as client, peer(app, "stateless") as other:
            task, unheard = await client.start("wait"), await client.start("wait")
            listening = client.ask("subscriptions/listen", {"notifications": {"taskIds": [task["taskId"], "nobody"]}})
            acknowledged = await client.hear("notifications/subscriptions/acknowledged")
            assert acknowledged["params"]["notifications"] == {"taskIds": [task["taskId"]]}
            go.set()
            await client.end(unheard)
            state = await client.end(task)
            notice = (await client.hear(CHANGED))["params"]
            assert notice.pop("_meta")[SUBSCRIPTION] == listening
            state.pop("_meta")
            assert {"resultType": "complete", **notice} == state
            assert [each["params"]["taskId"] for each in client.told(CHANGED)] == [task["taskId"]]
            assert other.told(CHANGED) == client.told(STATUS) == []
            assert len(app.host.services.subscriptions) == 1
            client.notify("notifications/cancelled", {"requestId": listening})
            await asyncio.sleep(0)
            assert len(app.host.services.subscriptions) == 0

    async def test_a_subscription_to_tasks_needs_the_extension(self, wire: Any) -> None:
        """TASK-14, TASK-15"""
        async with wire(new_app(), "stateless") as client:
            error = (await client.request("subscriptions/listen", {"notifications": {"taskIds": ["x"]}}))["error"]
            assert error["code"] == -32021
            assert "io.modelcontextprotocol/tasks" in error["data"]["requiredCapabilities"]["extensions"]

    async def test_a_flood_of_progress_is_thinned_out_and_its_last_word_told(
        self, era: str, peer: Any, virtual_time: None
    ) -> None:
        app, steps = Server("s"), 500

        @app.tool(task="optional")
        async def flood(ctx: Context) -> str:
            for step in range(1, steps + 1):
                await ctx.report_progress(step, steps, f"step {step}")
            await asyncio.sleep(10)
            return "done"

        async with peer(app, era) as client:
            await asyncio.sleep(1)
            task = await client.start("flood")
            if era == "stateless":
                client.ask("subscriptions/listen", {"notifications": {"taskIds": [task["taskId"]]}})
            await asyncio.sleep(5 * TELL_EVERY)
            told = [message["params"] for message in client.told(CHANGED if era == "stateless" else STATUS)]
            assert told[-1]["statusMessage"] == f"step {steps}"
            assert len(told) <= 3

    async def test_what_is_told_late_is_told_each_time(self, peer: Any, virtual_time: None) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def work(ctx: Context) -> str:
            for step in range(1, 6):
                await ctx.report_progress(step)
                await asyncio.sleep(0.075)
            await asyncio.sleep(10)
            return "done"

        async with peer(app) as client:
            await asyncio.sleep(1)
            await client.start("work")
            await asyncio.sleep(5)
            told = [message["params"]["statusMessage"] for message in client.told(STATUS)]
            assert told[0] == "1"
            assert told[-1] == "5"
            assert len(told) > 3

    async def test_what_was_told_meanwhile_is_not_told_late_as_well(self, peer: Any, virtual_time: None) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def work(ctx: Context) -> str:
            await ctx.report_progress(1)
            await ctx.report_progress(2)
            return await ctx.ask("Which?", str)

        async with peer(app) as client:
            await asyncio.sleep(1)
            await client.start("work")
            await asyncio.sleep(5)
            told = [message["params"]["status"] for message in client.told(STATUS)]
            assert told == ["working", "input_required"]

    async def test_whoever_asked_last_for_the_result_hears_of_progress(self, peer: Any) -> None:
        app, go = Server("s", tasks=TaskSettings(access="id")), asyncio.Event()

        @app.tool(task="optional")
        async def work(ctx: Context) -> str:
            await go.wait()
            await ctx.report_progress(1, message="half")
            return "done"

        async with peer(app) as first, peer(app) as second:
            task = await first.start("work")
            calls = [(client, client.ask("tasks/result", {"taskId": task["taskId"]})) for client in (first, second)]
            await asyncio.sleep(0.01)
            go.set()
            for client, call in calls:
                await client.response(call)
            told = [message["params"] for message in second.told(STATUS)]
            assert told[0]["statusMessage"] == "half"
            assert first.told(STATUS) == []


class TestAsking:
    async def test_a_handler_asks_in_a_task_as_it_asks_in_a_call(self, era: str, peer: Any, accept: Any) -> None:
        """What a handler says is the same; so is what it gets, also a no."""
        app = Server("s")

        @app.tool(task="optional")
        async def several(ctx: Context) -> str:
            first = await ctx.ask("First?", str)
            step = await ctx.step("deed", first.upper)
            answer = await ctx.elicit("Second?", int)
            try:
                await ctx.ask("Third?", str)
            except Declined as declined:
                return f"{first} {step} {answer.action} {answer.data} {declined.action}"
            return ""

        async with peer(app, era) as client:
            task = await client.start("several")
            answers = (accept(value="a"), accept(value=2), {"action": "decline"})
            if era == "stateless":
                for answer in answers:
                    await client.reply(task, answer)
                    await asyncio.sleep(0.001)
            else:
                await client.reply(task, *answers)
            assert await client.text(task) == "a A accept 2 decline"

    async def test_a_model_is_asked_too(self, era: str, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def think(ctx: Context) -> str:
            return (await ctx.sample("Well?", max_tokens=5, key="thought")).text

        answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Indeed."}}
        async with peer(app, era) as client:
            task = await client.start("think")
            await client.until(task, "input_required")
            if era == "stateless":
                params = {"taskId": task["taskId"], "inputResponses": {"thought": answer}}
                await client.request("tasks/update", params)
            else:
                client.ask("tasks/result", {"taskId": task["taskId"]})
                client.answer(await client.hear("sampling/createMessage"), answer)
            assert await client.text(task) == "Indeed."

    async def test_a_refused_question_is_raised_in_the_handler(self, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def ask(ctx: Context) -> str:
            try:
                await ctx.sample("Well?")
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            return ""

        async with peer(app) as client:
            task = await client.start("ask")
            client.ask("tasks/result", {"taskId": task["taskId"]})
            asked = await client.hear("sampling/createMessage")
            client.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "User rejected"}})
            assert await client.text(task) == "PeerError: User rejected (-1)"
            assert (await client.look(task))["result"]["status"] == "completed"

    async def test_a_question_the_handler_waits_for_no_more_is_open_no_more(self, era: str, peer: Any) -> None:
        app, enough, go = Server("s"), asyncio.Event(), asyncio.Event()

        @app.tool(task="optional")
        async def impatient(ctx: Context) -> str:
            asking = asyncio.ensure_future(ctx.ask("Well?", str))
            await enough.wait()
            asking.cancel()
            await go.wait()
            return "done"

        async with peer(app, era) as client:
            task = await client.start("impatient")
            await client.until(task, "input_required")
            enough.set()
            state = await client.until(task, "working")
            assert "inputRequests" not in state
            go.set()
            assert await client.text(task) == "done"

    async def test_an_answer_that_does_not_fit_fails_the_task(self, era: str, peer: Any, accept: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def ask(ctx: Context) -> str:
            return str(await ctx.ask("How many?", int))

        async with peer(app, era) as client:
            task = await client.start("ask")
            await client.reply(task, accept(value="many"))
            error = (await client.outcome(task))["error"]
            assert (error["code"], "does not fit" in error["message"]) == (-32602, True)


class TestItsContext:
    async def test_a_handler_knows_its_task(self, era: str, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def who(ctx: Context) -> str:
            return "none" if ctx.task is None else f"{ctx.task.id == ctx.task_id} {ctx.task.status} {ctx.cancelled}"

        async with peer(app, era) as client:
            assert await client.text(await client.start("who")) == "True working False"
            client.capabilities = {}
            assert (await client.call("who"))["result"]["content"][0]["text"] == "none"

    async def test_a_task_outlives_the_connection_it_was_started_on(self, era: str, peer: Any) -> None:
        """Its life is the server's, not that of a call or a link."""
        app, go = Server("s"), asyncio.Event()

        @app.tool(task="optional")
        async def slow(ctx: Context) -> str:
            await go.wait()
            await ctx.report_progress(1, message="nobody listens")
            await ctx.info("nobody listens")
            return "done"

        async with peer(app, era, principal="ann") as watcher:
            async with peer(app, era, principal="ann") as first:
                task = await first.start("slow", meta={"progressToken": 1})
            go.set()
            assert await watcher.text(task) == "done"


async def test_a_result_that_could_not_be_sent_is_a_failure(
    era: str, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for what is said around a result."""
    app = Server("s")

    @app.tool(task="optional")
    async def repeat(count: int) -> str:
        return "x" * count

    monkeypatch.setattr(run, "MAX_MESSAGE_SIZE", 64 * 1024)
    async with peer(app, era) as client:
        small = await client.end(await client.start("repeat", {"count": 20_000}))
        large = await client.end(await client.start("repeat", {"count": 26_000}))
    assert (small["status"], large["status"]) == ("completed", "failed")
    assert "more than the 49,152 that can be sent" in large["statusMessage"]


async def test_a_result_may_be_just_as_long_as_can_be_sent(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Server("s")

    @app.tool(task="optional")
    async def repeat() -> str:
        return "x" * 1000

    async with peer(app) as client:
        await client.end(task := await client.start("repeat"))
        kept = await app.host.tasks.settings.store.get(task["taskId"], 0.0)
        assert kept is not None
        assert kept.result is not None
        for lacking, status in ((0, "completed"), (1, "failed")):
            monkeypatch.setattr(run, "MAX_MESSAGE_SIZE", len(kept.result) + 16 * 1024 - lacking)
            assert (await client.end(await client.start("repeat")))["status"] == status


async def test_who_stops_waiting_for_a_change_is_forgotten(peer: Any) -> None:
    app, go = Server("s"), asyncio.Event()

    @app.tool(task="optional")
    async def stay() -> str:
        await go.wait()
        return "done"

    async with peer(app, "stateless") as client:
        task = await client.start("stay")
        running = app.host.tasks.live[task["taskId"]]
        waiting = [asyncio.create_task(running.changed()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0.01)
        assert len(running._watchers) == 2
        go.set()
        await asyncio.wait(waiting)
        assert running._watchers == []


async def test_a_task_that_has_ended_asks_nothing_more(era: str, peer: Any) -> None:
    app, ended, outcome = Server("s"), asyncio.Event(), []

    @app.tool(task="optional")
    async def stubborn(ctx: Context) -> str:
        try:
            await asyncio.sleep(1_000_000)
        except asyncio.CancelledError:
            try:
                await asyncio.wait_for(ctx.elicit("Still?", str), 30)
            except Exception as error:
                outcome.append(error)
            ended.set()
        return "done"

    async with peer(app, era) as client:
        task = await client.start("stubborn")
        await asyncio.sleep(0.01)
        await client.cancel(task)
        await asyncio.wait_for(ended.wait(), 60)
        assert [type(error) for error in outcome] == [Cancelled]
        assert client.told("elicitation/create") == []


async def test_who_no_longer_waits_for_the_result_is_told_nothing(peer: Any) -> None:
    app, go = Server("s"), asyncio.Event()

    @app.tool(task="optional")
    async def stay() -> str:
        await go.wait()
        return "done"

    async with peer(app) as client:
        task = await client.start("stay")
        running = app.host.tasks.live[task["taskId"]]
        waiting = client.ask("tasks/result", {"taskId": task["taskId"]})
        while not running._attending:
            await asyncio.sleep(0.001)
        client.notify("notifications/cancelled", {"requestId": waiting})
        while running._attending:
            await asyncio.sleep(0.001)
        go.set()
        assert await client.text(task) == "done"


async def test_a_task_cannot_ask_by_ending(era: str, peer: Any) -> None:
    app = Server("s")

    @app.tool(task="optional")
    async def ends() -> str:
        raise Need([("where", Question("roots/list", {}))])

    async with peer(app, era) as client:
        state = await client.end(await client.start("ends"))
        assert state["status"] == "failed"
        assert state["statusMessage"] == "A task asks with ctx.elicit, ctx.ask or ctx.sample, not by ending"


async def test_work_that_cancels_itself_fails_its_task(era: str, peer: Any) -> None:
    app = Server("s")

    @app.tool(task="optional")
    async def give_up() -> str:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async with peer(app, era) as client:
        task = await client.start("give_up")
        error = (await client.outcome(task))["error"]
        assert (error["code"], error["message"]) == (-32603, "The work of the task was cancelled")
        assert (await client.look(task))["result"]["status"] == "failed"
