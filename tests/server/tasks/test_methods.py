"""What clients ask about tasks: looking, waiting, listing, answering, cancelling, in either era."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ferrule import Context, Server
from ferrule.errors import EncodeError
from ferrule.runtime.link import Link
from ferrule.runtime.tasks.methods import PAGE_SIZE
from ferrule.runtime.tasks.settings import TaskSettings

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"


def new_app(**options: Any) -> Server:
    app = Server("s", **options)

    @app.tool(task="optional")
    async def quick(text: str = "quick") -> str:
        return text

    @app.tool(task="optional")
    async def wait() -> str:
        await asyncio.sleep(3600)
        return "late"

    @app.tool(task="optional")
    async def ask(ctx: Context) -> str:
        return f"{await ctx.ask('Which?', str, key='which')}"

    @app.tool(task="optional")
    async def ask_two(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.ask("Same?", str, key="same")) for _ in range(2)]
        return " ".join(task.result() for task in asked)

    return app


class TestDeclaring:
    async def test_each_generation_hears_of_its_own_kind(self, wire: Any) -> None:
        """TSKX-1, TASK-1, TASK-17, CAP-1: the first kind is a capability, the second an extension, never both."""
        async with wire(new_app()) as client:
            declared = client.heard[0]["result"]["capabilities"]
            assert declared["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            assert "extensions" not in declared
        async with wire(new_app(), "stateless") as client:
            declared = (await client.request("server/discover"))["result"]["capabilities"]
            assert declared["extensions"] == {EXTENSION: {}}
            assert "tasks" not in declared

    async def test_a_server_without_such_tools_declares_and_answers_nothing(self, era: str, peer: Any) -> None:
        app = Server("s")
        app.add_tool("plain", lambda: "plain")
        async with peer(app, era) as client:
            for method in ("tasks/get", "tasks/cancel"):
                assert (await client.request(method, {"taskId": "x"}))["error"]["code"] == -32601
        assert app.host.capabilities.tasks is None
        assert app.host.capabilities.extensions is None

    async def test_extensions_of_ones_own_stay_beside_it(self) -> None:
        app = new_app(extensions={"com.example/own": {"x": 1}})
        assert app.host.capabilities.extensions == {EXTENSION: {}, "com.example/own": {"x": 1}}

    async def test_where_an_id_opens_a_task_there_is_no_list(self, peer: Any) -> None:
        """TSKX-14: who cannot be known again must not see what others have."""
        async with peer(new_app(tasks=TaskSettings(access="id"))) as client:
            assert "list" not in client.heard[0]["result"]["capabilities"]["tasks"]
            assert (await client.request("tasks/list"))["error"]["code"] == -32601

    @pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
    async def test_a_request_that_does_not_declare_the_extension_is_refused(self, method: str, wire: Any) -> None:
        """TASK-15: before it is looked whether there is such a task."""
        async with wire(new_app(), "stateless") as client:
            error = (await client.request(method, {"taskId": "x", "inputResponses": {}}))["error"]
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}

    @pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
    async def test_what_the_second_kind_took_away_is_not_there(self, method: str, peer: Any) -> None:
        """TASK-17, HTM-14"""
        async with peer(new_app(), "stateless") as client:
            assert (await client.request(method, {"taskId": "x"}))["error"]["code"] == -32601

    async def test_what_the_first_kind_did_not_have_is_not_there(self, peer: Any) -> None:
        async with peer(new_app()) as client:
            params = {"taskId": "x", "inputResponses": {}}
            assert (await client.request("tasks/update", params))["error"]["code"] == -32601


class TestLooking:
    async def test_a_task_nobody_knows_is_not_found(self, era: str, peer: Any) -> None:
        """TASK-15, TSKX-13"""
        async with peer(new_app(), era) as client:
            methods = ["tasks/get", "tasks/cancel", "tasks/update" if era == "stateless" else "tasks/result"]
            for method in methods:
                error = (await client.request(method, {"taskId": "nobody", "inputResponses": {}}))["error"]
                assert (error["code"], "not found" in error["message"]) == (-32602, True)

    async def test_the_task_is_flat_and_whole(self, era: str, peer: Any) -> None:
        """TSKX-6, TASK-8, TSKX-8: the result is in it where there is no other way to it."""
        async with peer(new_app(), era) as client:
            task = await client.start("quick")
            state = await client.end(task)
            assert (state["taskId"], state["status"]) == (task["taskId"], "completed")
            assert state["createdAt"] == task["createdAt"]
            assert RELATED not in state.get("_meta", {})
            if era == "stateless":
                assert state["resultType"] == "complete"
                assert state["result"] == {
                    "resultType": "complete",
                    "content": [{"type": "text", "text": "quick"}],
                    "structuredContent": {"result": "quick"},
                }
                assert (state["ttlMs"], state["pollIntervalMs"]) == (3_600_000, 1000)
                assert {"ttl", "pollInterval"}.isdisjoint(state)
            else:
                assert (state["ttl"], state["pollInterval"]) == (3_600_000, 1000)
                assert {"ttlMs", "pollIntervalMs", "resultType", "result", "_meta"}.isdisjoint(state)

    async def test_a_life_without_end_is_told_as_null(self, era: str, peer: Any) -> None:
        """A member that must be there is there also when it is null."""
        async with peer(new_app(tasks=TaskSettings(ttl=None, max_ttl=None)), era) as client:
            task = await client.start("quick")
            name = "ttlMs" if era == "stateless" else "ttl"
            assert task[name] is None
            assert (await client.end(task))[name] is None

    async def test_a_wished_life_is_granted_within_bounds(self, peer: Any) -> None:
        """TSKX-6: and the actual one is told."""
        async with peer(new_app(tasks=TaskSettings(max_ttl=100.0))) as client:
            for asked, granted in ((60_000, 60_000), (10**9, 100_000), (0, 1000), (None, 100_000)):
                assert (await client.start("quick", task={"ttl": asked}))["ttl"] == granted

    @pytest.mark.parametrize("asked", [2**63, 10**400, 1e308])
    async def test_a_life_beyond_all_measure_is_no_error(self, peer: Any, asked: float) -> None:
        for most in (100.0, None):
            async with peer(new_app(tasks=TaskSettings(max_ttl=most))) as client:
                task = await client.start("wait", task={"ttl": asked})
                assert (await client.look(task))["result"]["status"] == "working"

    async def test_a_result_too_long_for_any_message_fails_its_task_and_is_not_kept(self, peer: Any, era: str) -> None:
        """Kept, every look at it would fail, and the client would look again."""
        app = new_app()

        @app.tool(task="optional", output_schema=None)
        async def long() -> str:
            return "x" * 17_000_000

        async with peer(app, era) as client:
            task = await client.start("long")
            assert (await client.end(task))["status"] == "failed"
            assert "more than the" in (await client.outcome(task))["error"]["message"]
            assert app.host.tasks.settings.store.size == 0


class TestWaiting:
    async def test_the_result_is_what_the_call_would_have_been_answered_with(self, wire: Any, peer: Any) -> None:
        """TSKX-7, TSKX-8: and says to which task it belongs; it may be had again."""
        async with peer(new_app()) as client:
            plain = (await client.call("quick"))["result"]
            task = await client.start("quick")
            for _ in range(2):
                result = (await client.request("tasks/result", {"taskId": task["taskId"]}))["result"]
                assert result.pop("_meta") == {RELATED: {"taskId": task["taskId"]}}
                assert result == plain

    async def test_who_asks_early_waits(self, peer: Any) -> None:
        app, go = Server("s"), asyncio.Event()

        @app.tool(task="optional")
        async def slow() -> str:
            await go.wait()
            return "done"

        async with peer(app) as client:
            task = await client.start("slow")
            first, second = (client.ask("tasks/result", {"taskId": task["taskId"]}) for _ in range(2))
            await asyncio.sleep(0.01)
            assert not any(message.get("id") in (first, second) and "result" in message for message in client.heard)
            go.set()
            for each in (first, second):
                assert (await client.response(each))["result"]["content"][0]["text"] == "done"

    async def test_waiting_takes_no_place_of_a_call(self, peer: Any) -> None:
        async with peer(new_app(max_concurrent_per_session=1)) as client:
            task = await client.start("wait")
            for _ in range(3):
                client.ask("tasks/result", {"taskId": task["taskId"]})
            assert (await client.call("quick"))["result"]["content"][0]["text"] == "quick"

    async def test_a_cancelled_task_has_no_result(self, peer: Any) -> None:
        async with peer(new_app()) as client:
            task = await client.start("wait")
            waiting = client.ask("tasks/result", {"taskId": task["taskId"]})
            await client.cancel(task)
            assert "cancelled" in (await client.response(waiting))["error"]["message"]

    async def test_a_message_about_a_task_is_found_by_its_params(self, peer: Any) -> None:
        """TSKX-8: `related-task` in the request is ignored."""
        async with peer(new_app()) as client:
            task, other = await client.start("quick"), await client.start("wait")
            meta = {RELATED: {"taskId": other["taskId"]}}
            state = await client.request("tasks/get", {"taskId": task["taskId"]}, meta=meta)
            assert state["result"]["taskId"] == task["taskId"]


class TestCancelling:
    async def test_a_task_is_cancelled_for_good(self, era: str, peer: Any) -> None:
        """TSKX-10, TASK-13: the task itself in the one era, a mere acknowledgement in the other."""
        async with peer(new_app(), era) as client:
            task = await client.start("wait")
            answer = (await client.cancel(task))["result"]
            if era == "handshake":
                assert (answer["taskId"], answer["status"]) == (task["taskId"], "cancelled")
            else:
                assert answer.pop("_meta").keys() == {"io.modelcontextprotocol/serverInfo"}
                assert answer == {"resultType": "complete"}
            await asyncio.sleep(0.01)
            state = (await client.look(task))["result"]
            assert (state["status"], state["statusMessage"]) == ("cancelled", "The task was cancelled")
            assert {"result", "error"}.isdisjoint(state)

    async def test_a_task_that_has_ended_cannot_be_cancelled(self, era: str, peer: Any) -> None:
        """TSKX-10, TASK-13: refused in the one era, acknowledged in the other, and unchanged in both."""
        async with peer(new_app(), era) as client:
            task = await client.start("quick")
            await client.end(task)
            answer = await client.cancel(task)
            if era == "handshake":
                assert answer["error"]["code"] == -32602
                assert "'completed'" in answer["error"]["message"]
            else:
                assert answer["result"]["resultType"] == "complete"
            assert (await client.look(task))["result"]["status"] == "completed"
            again = await client.start("wait")
            await client.cancel(again)
            assert ("error" in await client.cancel(again)) is (era == "handshake")

    async def test_the_work_hears_of_it(self, era: str, peer: Any) -> None:
        app, heard = Server("s"), asyncio.Event()
        seen: list[bool] = []

        @app.tool(task="optional")
        async def work(ctx: Context) -> str:
            try:
                await asyncio.sleep(3600)
            finally:
                seen.append(ctx.cancelled)
                heard.set()
            return ""

        async with peer(app, era) as client:
            task = await client.start("work")
            await asyncio.sleep(0)
            await client.cancel(task)
            await heard.wait()
            assert seen == [True]

    async def test_work_that_does_not_heed_it_changes_nothing(self, era: str, peer: Any) -> None:
        """TSKX-10: a cancelled task stays cancelled also when its work comes to an end."""
        app, go, ended = Server("s"), asyncio.Event(), asyncio.Event()

        @app.tool(task="optional")
        async def stubborn() -> str:
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue
            ended.set()
            return "done all the same"

        async with peer(app, era) as client:
            task = await client.start("stubborn")
            await asyncio.sleep(0.01)
            await client.cancel(task)
            go.set()
            await ended.wait()
            await asyncio.sleep(0.01)
            assert (await client.look(task))["result"]["status"] == "cancelled"

    async def test_the_notification_for_calls_does_not_cancel_a_task(self, era: str, peer: Any) -> None:
        """CANC-4, TASK-13: the call was answered, its id means nothing any more."""
        async with peer(new_app(), era) as client:
            task = await client.start("wait")
            call = max(message["id"] for message in client.heard if "id" in message and "result" in message)
            client.notify("notifications/cancelled", {"requestId": call})
            await asyncio.sleep(0.01)
            assert (await client.look(task))["result"]["status"] == "working"


async def test_an_unknown_id_is_repeated_in_part(era: str, peer: Any) -> None:
    async with peer(new_app(), era) as client:
        error = (await client.look({"taskId": "x" * 250}))["error"]
        assert error["data"] == {"taskId": "x" * 200}


class TestListing:
    async def test_tasks_are_listed_in_pages_in_order(self, peer: Any) -> None:
        """TSKX-11, PAGE-1: what can be got is listed."""
        async with peer(new_app(tasks=TaskSettings(max_running_per_owner=1000))) as client:
            started = [(await client.start("quick"))["taskId"] for _ in range(PAGE_SIZE + 5)]
            first = (await client.request("tasks/list"))["result"]
            rest = (await client.request("tasks/list", {"cursor": first["nextCursor"]}))["result"]
            assert len(first["tasks"]) == PAGE_SIZE
            assert "nextCursor" not in rest
            listed = [task["taskId"] for task in first["tasks"] + rest["tasks"]]
            assert sorted(listed) == sorted(started)
            assert {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"} == set(rest["tasks"][0])

    async def test_a_page_that_holds_all_tasks_is_the_last(self, peer: Any) -> None:
        """PAGE-1."""
        async with peer(new_app(tasks=TaskSettings(max_running_per_owner=1000))) as client:
            for _ in range(PAGE_SIZE):
                await client.start("quick")
            page = (await client.request("tasks/list"))["result"]
            assert len(page["tasks"]) == PAGE_SIZE == 100
            assert "nextCursor" not in page

    @pytest.mark.parametrize("cursor", ["x", "!!!!", "", "QUJD", "AAAA!AAAAAAA="])
    async def test_a_cursor_we_did_not_give_is_refused(self, cursor: str, peer: Any) -> None:
        """TSKX-13"""
        async with peer(new_app()) as client:
            assert (await client.request("tasks/list", {"cursor": cursor}))["error"]["code"] == -32602


class TestWhoMaySee:
    async def test_a_session_sees_its_own_tasks_only(self, peer: Any) -> None:
        """TSKX-14: for everybody else they are not there."""
        app = new_app()
        async with peer(app) as mine, peer(app) as other:
            task = await mine.start("wait")
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                error = (await other.request(method, {"taskId": task["taskId"]}))["error"]
                assert (error["code"], "not found" in error["message"]) == (-32602, True)
            assert (await other.request("tasks/list"))["result"]["tasks"] == []
            assert len((await mine.request("tasks/list"))["result"]["tasks"]) == 1

    async def test_a_principal_sees_its_tasks_from_everywhere(self, era: str, peer: Any) -> None:
        """TASK-18, TSKX-14: also over another connection, and nobody else does."""
        app = new_app()
        async with peer(app, era, principal="ann") as first:
            task = await first.start("quick")
            async with peer(app, era, principal="ann") as again, peer(app, era, principal="bob") as other:
                assert (await again.end(task))["status"] == "completed"
                assert (await other.look(task))["error"]["code"] == -32602
                assert (await other.cancel(task))["error"]["code"] == -32602
            async with peer(app, era) as nobody:
                assert (await nobody.look(task))["error"]["code"] == -32602

    async def test_without_sessions_and_principals_the_id_opens_the_task(self, peer: Any) -> None:
        app = new_app()
        async with peer(app, "stateless") as first, peer(app, "stateless") as second:
            assert (await second.end(await first.start("quick")))["status"] == "completed"

    async def test_a_server_may_let_the_id_open_tasks_of_sessions_too(self, peer: Any) -> None:
        app = new_app(tasks=TaskSettings(access="id"))
        async with peer(app) as keeps_it_alive:
            async with peer(app) as first:
                task = await first.start("quick")
            async with peer(app) as second:
                assert await second.text(task) == "quick"
            assert not keeps_it_alive.lost


class TestAnswering:
    async def test_a_task_that_needs_input_says_so(self, era: str, peer: Any, accept: Any) -> None:
        """TASK-8, TASK-10, TSKX-9: what it needs is in it, or is asked of whoever waits for the result."""
        async with peer(new_app(), era) as client:
            task = await client.start("ask")
            state = await client.until(task, "input_required")
            if era == "stateless":
                question = state["inputRequests"]["which"]
                assert question["method"] == "elicitation/create"
                assert "id" not in question
                assert RELATED not in question["params"].get("_meta", {})
            else:
                assert "inputRequests" not in state
                assert client.told("elicitation/create") == []
            (question,) = await client.reply(task, accept(value="this"))
            if era == "handshake":
                assert question["params"]["_meta"] == {RELATED: {"taskId": task["taskId"]}}
            assert question["params"]["message"] == "Which?"
            assert await client.text(task) == "this"

    async def test_answers_may_come_one_by_one_and_keys_are_never_used_again(self, peer: Any, accept: Any) -> None:
        """TASK-11, TASK-12: a partial answer is taken, what is not asked is ignored."""
        async with peer(new_app(), "stateless") as client:
            task = await client.start("ask_two")
            while len(asked := (await client.until(task, "input_required"))["inputRequests"]) < 2:
                await asyncio.sleep(0)
            assert set(asked) == {"same", "same#2"}

            async def update(**responses: Any) -> None:
                params = {"taskId": task["taskId"], "inputResponses": responses}
                assert (await client.request("tasks/update", params))["result"]["resultType"] == "complete"

            await update(nonsense={"a": 1})
            await update(same=accept(value="one"))
            state = (await client.look(task))["result"]
            assert (state["status"], set(state["inputRequests"])) == ("input_required", {"same#2"})
            await update(same=accept(value="too late"), **{"same#2": accept(value="two")})
            assert await client.text(task) == "one two"
            await update(same=accept(value="much too late"))

    async def test_answers_that_are_no_object_are_refused(self, peer: Any) -> None:
        async with peer(new_app(), "stateless") as client:
            task = await client.start("ask")
            for wrong in (7, [], None):
                params = {"taskId": task["taskId"], "inputResponses": wrong}
                assert (await client.request("tasks/update", params))["error"]["code"] == -32602
            assert "inputResponses" in str(await client.request("tasks/update", {"taskId": task["taskId"]}))

    async def test_a_task_that_asks_can_be_cancelled(self, era: str, peer: Any) -> None:
        async with peer(new_app(), era) as client:
            task = await client.start("ask")
            await client.until(task, "input_required")
            await client.cancel(task)
            state = (await client.look(task))["result"]
            assert (state["status"], "inputRequests" in state) == ("cancelled", False)

    async def test_who_leaves_without_an_answer_is_followed_by_the_next(self, peer: Any, accept: Any) -> None:
        """TSKX-9: a question is asked of one who waits, and again of another when that one goes away."""
        async with peer(new_app()) as client:
            task = await client.start("ask")
            first = client.ask("tasks/result", {"taskId": task["taskId"]})
            asked = await client.hear("elicitation/create")
            second = client.ask("tasks/result", {"taskId": task["taskId"]})
            await asyncio.sleep(0.01)
            assert len(client.told("elicitation/create")) == 1
            client.notify("notifications/cancelled", {"requestId": first})
            again = await client.hear("elicitation/create", 1)
            assert client.told("notifications/cancelled")[0]["params"]["requestId"] == asked["id"]
            client.answer(again, accept(value="second"))
            assert (await client.response(second))["result"]["content"][0]["text"] == "second"

    async def test_who_only_stops_sending_is_followed_by_another(self, peer: Any, accept: Any) -> None:
        """TSKX-9: it cannot answer any more, and still waits for the result."""
        app = new_app(tasks=TaskSettings(access="id"))
        async with peer(app) as first, peer(app) as second:
            task = await first.start("ask")
            calls = [(client, client.ask("tasks/result", {"taskId": task["taskId"]})) for client in (first, second)]
            await first.hear("elicitation/create")
            assert not second.told("elicitation/create")
            first.link.end_received(first.channel)
            second.answer(await second.hear("elicitation/create"), accept(value="second"))
            for client, call in calls:
                assert (await client.response(call))["result"]["content"][0]["text"] == "second"

    async def test_a_waiting_client_that_cannot_be_asked_leaves_the_question_to_another(
        self, peer: Any, accept: Any, caplog: Any
    ) -> None:
        app = new_app(tasks=TaskSettings(access="id"))
        async with peer(app) as able, peer(app, capabilities={}) as unable:
            task = await able.start("ask")
            with caplog.at_level(logging.INFO, "ferrule.tasks"):
                calls = [(client, client.ask("tasks/result", {"taskId": task["taskId"]})) for client in (unable, able)]
                able.answer(await able.hear("elicitation/create"), accept(value="able"))
            assert "waits for another caller" in caplog.text
            for client, call in calls:
                assert (await client.response(call))["result"]["content"][0]["text"] == "able"

    async def test_a_question_that_cannot_be_sent_is_told_in_the_log(
        self, peer: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> None:
            raise EncodeError("too long")

        async with peer(new_app()) as client:
            task = await client.start("ask")
            monkeypatch.setattr(Link, "ask", refuse)
            waiting = client.ask("tasks/result", {"taskId": task["taskId"]})
            await asyncio.sleep(0.01)
            assert [each.getMessage() for each in caplog.records] == [
                f"a question of the task {task['taskId']} cannot be asked"
            ]
            await client.cancel(task)
            assert (await client.response(waiting))["error"]["message"] == "The task was cancelled"

    async def test_a_client_that_cannot_be_asked_is_not(self, era: str, peer: Any) -> None:
        """STL-6: the task fails as the call would have."""
        capabilities = {"extensions": {EXTENSION: {}}}
        async with peer(new_app(), era, capabilities=capabilities) as client:
            error = (await client.outcome(await client.start("ask")))["error"]
            assert error["code"] == (-32021 if era == "stateless" else -32600)
