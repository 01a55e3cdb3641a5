"""The tasks of a server: bounds, expiry, and their end with the server."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from msgspec import structs

from ferrule import Context, Server
from ferrule.errors import Busy, StoreUnavailable
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.runtime.tasks.tasks import EXPIRED, STOPPED
from ferrule.schema.tasks import GOING_ON, TaskError
from ferrule.stores.contracts import StoredTask
from ferrule.stores.memory import MemoryTasks


def virtual() -> float:
    return asyncio.get_running_loop().time()


def new_app(**settings: Any) -> Server:
    app = Server("s", tasks=TaskSettings(**settings), keepalive_interval=None)

    @app.tool(task="optional")
    async def quick() -> str:
        return "quick"

    @app.tool(task="optional")
    async def wait(ctx: Context) -> str:
        await asyncio.sleep(1_000_000)
        return "late"

    return app


async def test_a_task_whose_life_has_no_end_is_told_to_be_over_like_any_other(peer: Any) -> None:
    app = new_app(ttl=None, max_ttl=None)
    async with peer(app) as client:
        task = await client.start("quick")
        assert await client.text(task) == "quick"
        assert client.told("notifications/tasks/status")[-1]["params"]["status"] == "completed"
        assert app.host.tasks.live == {}


async def test_other_processes_are_told_which_task_has_changed(peer: Any) -> None:
    async def nowhere(task_id: str) -> None:
        return None

    app = new_app()
    told: list[str] = []
    app.host.tasks.peers = SimpleNamespace(mark="", changed=told.append, get=nowhere)
    async with peer(app) as client:
        task = await client.start("quick")
        assert await client.text(task) == "quick"
    assert set(told) == {task["taskId"]}


async def test_a_server_that_serves_again_runs_its_tasks_anew() -> None:
    tasks = new_app().host.tasks
    first = tasks.scope
    assert tasks.scope is first
    await tasks.close()
    assert tasks.scope is not first
    await tasks.close()


async def test_a_store_that_is_away_twice_is_told_how_a_task_stands_both_times(peer: Any) -> None:
    class Away(MemoryTasks):
        tries = 0

        async def update(self, task: StoredTask, only: Any) -> bool:
            self.tries += 1
            if self.tries % 2:
                raise StoreUnavailable("cut off")
            return await super().update(task, only)

    store = Away()
    async with peer(new_app(store=store)) as client:
        for tries in (2, 4):
            task = await client.start("quick")
            await asyncio.sleep(10)
            assert store.tries == tries
            kept = await store.get(task["taskId"], virtual())
            assert kept is not None
            assert kept.status == "completed"


async def test_a_task_of_a_dead_node_that_ended_meanwhile_is_told_as_it_ended() -> None:
    class Ended(MemoryTasks):
        async def update(self, task: StoredTask, only: Any) -> bool:
            if task.status == "failed":
                await super().update(structs.replace(task, status="completed", error=None), only)
                return False
            return await super().update(task, only)

    async def dead(node: str) -> bool:
        return False

    store = Ended()
    tasks = new_app(store=store, clock=lambda: 0.0).host.tasks
    others: Any = SimpleNamespace(name="here", lives=dead)
    task = StoredTask(
        id="t", owner="", tool="quick", created=0.0, updated=0.0, ttl=None, poll_interval=1.0, node="there"
    )
    await store.create(task, 0.0)
    found = await tasks._of_other_node(task, others)
    assert found.status == "completed"
    await tasks.close()


class TestBounds:
    async def test_only_so_many_run_at_once(self, era: str, peer: Any) -> None:
        """seed:TASK-02, TSKX-14: one more is refused as busy until one has ended."""
        async with peer(new_app(max_running=2), era) as client:
            first = await client.start("wait")
            await client.start("wait")
            answer = await client.request("tools/call", {"name": "wait", "task": {}})
            assert "2 tasks run already" in answer["error"]["message"]
            await client.cancel(first)
            await asyncio.sleep(0.01)
            await client.start("wait")

    async def test_work_that_does_not_heed_its_end_keeps_its_place(self, era: str, peer: Any) -> None:
        app, release = new_app(max_running=1), asyncio.Event()

        @app.tool(task="optional")
        async def stubborn() -> str:
            try:
                await asyncio.sleep(1_000_000)
            except asyncio.CancelledError:
                await release.wait()
            return "at last"

        async with peer(app, era) as client:
            task = await client.start("stubborn")
            await asyncio.sleep(0.01)
            await client.cancel(task)
            await asyncio.sleep(0.01)
            answer = await client.request("tools/call", {"name": "wait", "task": {}})
            assert "1 tasks run already" in answer["error"]["message"]
            release.set()
            await asyncio.sleep(0.01)
            await client.start("wait")

    async def test_one_owner_cannot_take_every_place(self, era: str, peer: Any) -> None:
        app = new_app(max_running_per_owner=1)
        async with peer(app, era, principal="ann") as ann, peer(app, era, principal="bob") as bob:
            await ann.start("wait")
            answer = await ann.request("tools/call", {"name": "wait", "task": {}})
            assert "1 of your tasks" in answer["error"]["message"]
            await bob.start("wait")

    async def test_a_store_that_is_full_refuses(self, era: str, peer: Any) -> None:
        async with peer(new_app(store=MemoryTasks(max_tasks=1)), era) as client:
            task = await client.start("wait")
            answer = await client.request("tools/call", {"name": "quick", "task": {}})
            assert "keeps as many tasks as it can" in answer["error"]["message"]
            await client.cancel(task)
            await client.start("quick")

    async def test_what_the_store_refused_takes_no_place(self, era: str, peer: Any) -> None:
        class SingleExchange(MemoryTasks):
            refused = False

            async def create(self, task: Any, now: float) -> None:
                if not self.refused:
                    self.refused = True
                    raise Busy("not now")
                await super().create(task, now)

        async with peer(new_app(store=SingleExchange(), max_running=1), era) as client:
            answer = await client.request("tools/call", {"name": "quick", "task": {}})
            assert answer["error"]["message"] == "not now"
            assert await client.text(await client.start("quick")) == "quick"

    async def test_ten_thousand_that_have_ended_stay_within_bounds(self, peer: Any) -> None:
        store = MemoryTasks(max_tasks=500, max_bytes=100_000)
        app = new_app(store=store)
        async with peer(app, "stateless") as client:
            for _ in range(10_000):
                await client.start("quick")
                await asyncio.sleep(0)
                client.heard.clear()
                client.times.clear()
            await asyncio.sleep(0.01)
            gc.collect()
            assert len(store) <= 500
            assert store.size <= 100_000
            assert app.host.tasks.live == {}
            assert len(asyncio.all_tasks()) < 10


async def test_a_task_that_has_ended_is_held_by_nobody(era: str, peer: Any) -> None:
    """Its result is kept; its call, and the timer of its life, are not."""
    app = new_app()
    async with peer(app, era) as client:
        task = await client.start("wait")
        run = weakref.ref(app.host.tasks.live[task["taskId"]])
        await client.cancel(task)
        await asyncio.sleep(0.01)
        gc.collect()
        assert run() is None
        assert (await client.look(task))["result"]["status"] == "cancelled"


@pytest.mark.parametrize("when", ["at once", "in its midst", "at its end"])
async def test_the_params_of_a_call_are_held_as_long_as_its_work_runs(when: str, peer: Any) -> None:
    """Whenever it became a task; where that was at its end, nothing is held."""
    app, go = Server("s", tasks=TaskSettings(max_running=1)), asyncio.Event()

    @app.tool(task="optional", task_start="call" if when == "at once" else "handler")
    async def work(ctx: Context, text: str) -> str:
        if when == "in its midst":
            await ctx.start_task()
        if when != "at its end":
            await go.wait()
        return ""

    async with peer(app) as client:
        account = client.link.holdings.account
        task = await client.start("work", {"text": "x" * 1000})
        assert account.held == 0 or when != "at its end"
        assert account.held > 1000 or when == "at its end"
        go.set()
        await client.outcome(task)
        await asyncio.sleep(0.01)
        assert account.held == 0


async def test_a_drain_without_tasks_takes_no_time(peer: Any) -> None:
    app = new_app()
    async with peer(app, "stateless") as client:
        await client.end(await client.start("quick"))
        await asyncio.sleep(0.01)
        await app.host.tasks.drain(60.0)


async def test_a_call_that_does_not_become_a_task_leaves_nothing_behind(peer: Any, caplog: Any) -> None:
    app = Server("s")

    @app.tool(task="optional", task_start="handler")
    async def plain() -> str:
        return "plain"

    async with peer(app, "stateless", capabilities={}) as client, peer(app, "stateless") as able:
        for one in (client, able):
            answer = await one.request("tools/call", {"name": "plain", "arguments": {}})
            assert "result" in answer
        await asyncio.sleep(0.01)
        gc.collect()
    assert [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}] == []


async def test_the_log_names_a_task_by_the_beginning_of_its_id(era: str, peer: Any, caplog: Any) -> None:
    """Whoever knows the whole of it may see the task."""
    with caplog.at_level(logging.INFO, "ferrule.tasks"):
        async with peer(new_app(), era) as client:
            task = await client.start("quick")
            await client.end(task)
    said = [record.getMessage() for record in caplog.records if record.name == "ferrule.tasks"]
    name = task["taskId"][:6]
    assert said == [f"task {name}: quick was started", f"task {name}: completed"]
    assert len(task["taskId"]) == 32


class TestExpiry:
    async def test_a_task_is_forgotten_when_its_time_is_over(self, era: str, peer: Any, virtual_time: None) -> None:
        """TSKX-13, TASK-9: and not before."""
        store = MemoryTasks()
        async with peer(new_app(ttl=60.0, clock=virtual, store=store), era) as client:
            task = await client.start("quick")
            await asyncio.sleep(59)
            assert (await client.look(task))["result"]["status"] == "completed"
            await asyncio.sleep(2)
            assert (await client.look(task))["error"]["code"] == -32602
            assert len(store) == 0, "it is not kept until somebody asks"

    @pytest.mark.parametrize("jump", [-1e9, 1e9])
    async def test_a_clock_that_is_set_ends_no_task_and_keeps_none(
        self, era: str, peer: Any, virtual_time: None, jump: float
    ) -> None:
        """TSKX-13: what is written down is the time on the wall, what is waited for is not."""
        wall, store = 1e9, MemoryTasks()
        async with peer(new_app(ttl=60.0, clock=lambda: wall, store=store), era) as client:
            task = await client.start("quick")
            assert task["createdAt"].startswith("2001-09-09")
            wall += jump
            await asyncio.sleep(59)
            assert (await client.look(task))["result"]["status"] == "completed"
            await asyncio.sleep(3)
            assert (await client.look(task))["error"]["code"] == -32602
            assert len(store) == 0

    async def test_a_server_that_starts_again_forgets_tasks_as_before(
        self, era: str, peer: Any, virtual_time: None
    ) -> None:
        store = MemoryTasks()
        app = new_app(ttl=60.0, clock=virtual, store=store)
        for _ in range(2):
            async with peer(app, era) as client:
                await client.end(await client.start("quick"))
                await asyncio.sleep(1)
        await asyncio.sleep(62)
        assert len(store) == 2, "a server that has stopped looks for nothing"
        async with peer(app, era) as client:
            await client.end(await client.start("quick"))
            assert len(store) == 1
            await asyncio.sleep(62)
            assert len(store) == 0

    async def test_one_that_still_runs_is_ended_first(self, era: str, peer: Any, virtual_time: None) -> None:
        app = new_app(ttl=60.0, clock=virtual)
        async with peer(app, era) as client:
            task = await client.start("wait")
            if era == "stateless":
                client.ask("subscriptions/listen", {"notifications": {"taskIds": [task["taskId"]]}})
            await asyncio.sleep(61)
            told = client.told("notifications/tasks" if era == "stateless" else "notifications/tasks/status")
            assert (told[-1]["params"]["status"], told[-1]["params"]["statusMessage"]) == ("failed", EXPIRED)
            assert (await client.look(task))["error"]["code"] == -32602
            assert app.host.tasks.live == {}
            now = virtual()
            await app.host.tasks.drain(60.0)
            assert virtual() == now, "its work has ended as well"

    @pytest.mark.parametrize("order", [(10, 100, 50), (100, 10, 50), (100, 50, 10)])
    async def test_each_is_forgotten_at_its_own_time(self, peer: Any, virtual_time: None, order: tuple[int]) -> None:
        """TASK-9: in whatever order they were started, and nobody looks for them in between."""

        class Counted(MemoryTasks):
            looks = 0

            async def expire(self, now: float) -> float | None:
                self.looks += 1
                return await super().expire(now)

        store = Counted()
        async with peer(new_app(ttl=1000.0, clock=virtual, store=store), "handshake") as client:
            for seconds in order:
                await client.start("quick", task={"ttl": seconds * 1000})
            for past, left in ((9, 3), (11, 2), (49, 2), (51, 1), (99, 1), (101, 0)):
                await asyncio.sleep(past - virtual())
                assert len(store) == left
            assert store.looks == 6, "one for each that is made, one for each that expires"

    async def test_one_that_still_runs_is_forgotten_whatever_the_clock_of_the_store_says(
        self, peer: Any, virtual_time: None
    ) -> None:
        store = MemoryTasks()
        async with peer(new_app(ttl=60.0, clock=lambda: 0.0, store=store), "stateless") as client:
            await client.start("wait")
            await asyncio.sleep(59)
            assert len(store) == 1
            await asyncio.sleep(2)
            assert len(store) == 0

    async def test_one_that_still_runs_is_forgotten_by_a_store_that_forgets_nothing_by_itself(
        self, peer: Any, virtual_time: None
    ) -> None:
        class Lasting(MemoryTasks):
            async def expire(self, now: float) -> float | None:
                return None

        store = Lasting()
        async with peer(new_app(ttl=60.0, clock=virtual, store=store), "stateless") as client:
            await client.start("wait")
            await asyncio.sleep(61)
            assert len(store) == 0

    async def test_whoever_waits_then_learns_it(self, peer: Any, virtual_time: None) -> None:
        async with peer(new_app(ttl=60.0, clock=virtual)) as client:
            task = await client.start("wait")
            assert (await client.outcome(task))["error"]["message"] == EXPIRED


class TestTheEnd:
    async def test_a_server_that_stops_ends_its_tasks(self, era: str, peer: Any) -> None:
        """SHUT-05: none is left running, each says how it ended."""
        store = MemoryTasks()
        app = new_app(store=store)
        before = asyncio.all_tasks()
        async with peer(app, era, principal="ann") as client:
            task = await client.start("wait")
            await asyncio.sleep(0)
        assert app.host.tasks.live == {}
        assert asyncio.all_tasks() - before == set()
        kept = await store.get(task["taskId"], 0.0)
        assert kept is not None
        assert (kept.status, kept.error and kept.error.message) == ("failed", STOPPED)
        async with peer(app, era, principal="ann") as client:
            assert (await client.look(task))["result"]["status"] == "failed"
            assert await client.text(await client.start("quick")) == "quick"

    async def test_a_server_that_drains_lets_them_end(self, era: str, peer: Any) -> None:
        app = Server("s")

        @app.tool(task="optional")
        async def short() -> str:
            await asyncio.sleep(0.05)
            return "done"

        async with peer(app, era) as client:
            task = await client.start("short")
            await app.drain(10.0)
            assert app.host.tasks.live == {}
            kept = await app.host.tasks.settings.store.get(task["taskId"], 0.0)
            assert kept is not None
            assert kept.status == "completed"

    async def test_a_drain_waits_for_what_is_no_task_yet(self, era: str, peer: Any) -> None:
        app, go = Server("s"), asyncio.Event()

        @app.tool(task="optional", task_start="handler")
        async def later() -> str:
            await go.wait()
            return "done"

        async with peer(app, era) as client:
            call = client.ask("tools/call", {"name": "later", "task": {}})
            await asyncio.sleep(0.01)
            draining = asyncio.ensure_future(app.host.tasks.drain(10.0))
            await asyncio.sleep(0.01)
            assert not draining.done()
            go.set()
            await draining
            assert "result" in await client.response(call)

    async def test_the_lifespan_is_there_as_long_as_a_task_runs(self, era: str, peer: Any) -> None:
        seen: list[Any] = []

        async def lifespan(app: Server) -> Any:
            yield "state"
            seen.append("closed")

        app = Server("s", lifespan=lifespan)

        @app.tool(task="optional")
        async def late(ctx: Context) -> str:
            try:
                await asyncio.sleep(3600)
            finally:
                seen.append(ctx.lifespan)
            return ""

        async with peer(app, era) as client:
            await client.start("late")
            await asyncio.sleep(0)
        assert seen == ["state", "closed"]

    async def test_work_that_will_not_end_does_not_hold_the_server(
        self, peer: Any, virtual_time: None, caplog: Any
    ) -> None:
        app, go = Server("s"), asyncio.Event()

        @app.tool(task="optional")
        async def stubborn() -> str:
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue
            return ""

        async with peer(app) as client:
            await client.start("stubborn")
            await asyncio.sleep(0)
        assert "left behind" in caplog.text
        go.set()
        await asyncio.sleep(0.01)


class TestAnotherProcess:
    """Two servers with one store stand for two processes that share it."""

    def two(self) -> tuple[Server, Server]:
        store = MemoryTasks()
        return new_app(store=store, poll_interval=0.01), new_app(store=store, poll_interval=0.01)

    async def test_a_task_is_seen_from_every_process(self, era: str, peer: Any) -> None:
        """TASK-6: on any instance."""
        here, there = self.two()
        async with peer(here, era, principal="ann") as first, peer(there, era, principal="ann") as second:
            task = await first.start("quick")
            assert (await second.look(task))["result"]["taskId"] == task["taskId"]
            assert await second.text(task) == "quick"

    async def test_one_that_is_cancelled_elsewhere_ends_when_it_has_something_to_say(self, era: str, peer: Any) -> None:
        store, go, ended = MemoryTasks(), asyncio.Event(), asyncio.Event()
        here, there = Server("s", tasks=TaskSettings(store=store)), new_app(store=store)

        @here.tool(task="optional")
        async def work(ctx: Context) -> str:
            try:
                await go.wait()
                await asyncio.sleep(0.11)
                await ctx.report_progress(1)
                await asyncio.sleep(3600)
            finally:
                ended.set()
            return ""

        async with peer(here, era, principal="ann") as first, peer(there, era, principal="ann") as second:
            task = await first.start("work")
            assert "result" in await second.cancel(task)
            assert (await second.look(task))["result"]["status"] == "cancelled"
            go.set()
            await ended.wait()
            assert (await first.look(task))["result"]["status"] == "cancelled"
            assert here.host.tasks.live == {}

    async def test_one_that_ends_while_it_is_cancelled_elsewhere_is_told_as_it_ended(self, peer: Any) -> None:
        go = asyncio.Event()

        class Late(MemoryTasks):
            async def update(self, task: Any, among: Any) -> bool:
                if task.status == "cancelled":
                    go.set()
                    while self.last != "completed":
                        await asyncio.sleep(0.001)
                changed = await super().update(task, among)
                self.last = task.status
                return changed

            last = ""

        store = Late()
        here, there = Server("s", tasks=TaskSettings(store=store)), new_app(store=store)

        @here.tool(task="optional")
        async def work() -> str:
            await go.wait()
            return ""

        async with peer(here, principal="ann") as first, peer(there, principal="ann") as second:
            task = await first.start("work")
            assert (await second.cancel(task))["result"]["status"] == "completed"

    @pytest.mark.parametrize(("elsewhere", "told"), [("failed", "no luck"), ("deleted", "The task was cancelled")])
    async def test_one_that_ended_elsewhere_is_told_as_it_ended_there(
        self, elsewhere: str, told: str, peer: Any
    ) -> None:
        """What was deleted counts as cancelled."""
        store, go = MemoryTasks(), asyncio.Event()
        here = Server("s", tasks=TaskSettings(store=store))

        @here.tool(task="optional")
        async def work() -> str:
            await go.wait()
            return "too late"

        async with peer(here) as client:
            task = await client.start("work")
            waiting = client.ask("tasks/result", {"taskId": task["taskId"]})
            kept = await store.get(task["taskId"], 0.0)
            assert kept is not None
            if elsewhere == "deleted":
                await store.delete(kept.id)
            else:
                error = TaskError(code=1, message="no luck")
                await store.update(structs.replace(kept, status="failed", error=error), GOING_ON)
            go.set()
            assert (await client.response(waiting))["error"]["message"] == told
            status = "cancelled" if elsewhere == "deleted" else "failed"
            assert client.told("notifications/tasks/status")[-1]["params"]["status"] == status


async def test_two_ends_at_once_leave_one(era: str, peer: Any) -> None:
    """What has ended never changes: whoever is first has ended it."""
    app = new_app()
    async with peer(app, era) as client:
        task = await client.start("wait")
        await asyncio.sleep(0)
        run = app.host.tasks.live[task["taskId"]]
        await asyncio.gather(run.cancel("first"), run.give_up("second"), run.cancel("third"))
        state = (await client.look(task))["result"]
        assert (state["status"], state["statusMessage"]) == ("cancelled", "first")
        assert not await run.change(status="working")


def test_a_setting_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(Exception, match="TaskSettings"):
        Server("s", tasks={"ttl": 5})  # type: ignore[arg-type]
    assert structs.replace(TaskSettings(), ttl=None).ttl is None


async def test_a_list_has_a_task_that_runs_here_as_it_is_now(peer: Any) -> None:
    """The store learns of a change later, or not at all."""
    app = new_app()
    async with peer(app) as client:
        await client.start("wait")
        (run,) = app.host.tasks.live.values()
        run._kept = structs.replace(run.kept, status_message="as it is now")
        found = await app.host.tasks.page(run.kept.owner, None, 10)
        assert [task.status_message for task in found] == ["as it is now"]


async def test_other_processes_are_told_of_a_task_that_has_changed(peer: Any) -> None:
    app = new_app()
    changed: list[str] = []
    async with peer(app) as client:
        await client.start("wait")
        (run,) = app.host.tasks.live.values()
        with mock.patch.object(app.host.tasks, "others", SimpleNamespace(changed=lambda task: changed.append(task.id))):
            app.host.tasks.changed(run.kept)
        assert changed == [run.id]
