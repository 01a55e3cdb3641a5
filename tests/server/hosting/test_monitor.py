"""What a server lets be seen of itself: metrics that are fed by what happens, and health that runs while it is used."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ferrule import Caching, Client, Context, Http, Observer, PeerError, Server, Tcp, ToolError
from ferrule.errors import Busy
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.stores.contracts import StoredTask
from ferrule.stores.memory import MemoryTasks
from ferrule.telemetry.exposition import expose
from ferrule.types import ObservedRequest, Outcome

SERVED = "mcp_server_operation_duration_seconds_count"


def shown(app: Server, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of one name as a scrape shows them, by the values of their labels."""
    found = {}
    for family in text_string_to_metric_families(expose(app.metrics).decode()):
        for sample in family.samples:
            if sample.name == name:
                found[tuple(sample.labels.values())] = sample.value
    return found


def total(app: Server, name: str) -> float:
    """Return the sum of all samples of one name."""
    return sum(shown(app, name).values())


class Workshop(Server):
    """A server with a tool of each kind."""

    def __init__(self, **options: Any) -> None:
        super().__init__("workshop", **options)
        self.release = asyncio.Event()
        self.add_tool("add", self.add)
        self.add_tool("fail", self.fail)
        self.add_tool("hold", self.hold)
        self.add_tool("count", self.count)
        self.add_tool("sleepy", self.sleepy)
        self.add_resource("notes://today", lambda: "nothing")

    async def add(self, a: int, b: int) -> int:
        return a + b

    async def fail(self) -> None:
        raise ToolError("no")

    async def hold(self) -> str:
        await self.release.wait()
        return "released"

    async def count(self, to: int, ctx: Context) -> int:
        for number in range(to):
            await ctx.report_progress(number + 1, to)
        return to

    def sleepy(self) -> str:
        asyncio.run_coroutine_threadsafe(self.release.wait(), self.loop).result()
        return "awake"

    loop: asyncio.AbstractEventLoop


async def until(true: Any) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


def test_counters_are_right_after_a_scripted_exchange() -> None:
    """TBEH-10, OBSV-08: requests, errors, refusals, sessions, bytes."""

    async def scene() -> None:
        app = Workshop(metrics=True)
        listener, ready = Tcp(port=0), asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await ready.wait()
        async with Client(listener.url, mode="handshake") as client:
            for _ in range(7):
                await client.call_tool("add", {"a": 1, "b": 2})
            for _ in range(2):
                with pytest.raises(ToolError):
                    await client.call_tool("fail")
            with pytest.raises(Exception, match="Method not found"):
                await client.request("no/such", {})
            assert shown(app, "ferrule_sessions") == {("tcp",): 1}
            assert shown(app, "ferrule_connections") == {("tcp",): 1}
            inside = shown(app, "ferrule_received_bytes_total")["tcp",]
        await until(lambda: total(app, "ferrule_connections") == 0)
        calls = shown(app, SERVED)
        revision = next(key[-1] for key in calls if key[0] == "initialize")
        assert calls["tools/call", "add", "tcp", revision] == 7
        assert calls["tools/call", "fail", "tool_error", "tcp", revision] == 2
        assert shown(app, "ferrule_refusals_total") == {("unknown_method",): 1}
        assert shown(app, "ferrule_notifications_total")["initialized",] == 1
        assert shown(app, "ferrule_sessions") == {("tcp",): 0}
        assert shown(app, "ferrule_sessions_ended_total") == {("tcp", "closed"): 1}
        assert total(app, "mcp_server_session_duration_seconds_count") == 1
        assert inside > 500
        assert shown(app, "ferrule_received_bytes_total")["tcp",] >= inside
        assert shown(app, "ferrule_sent_bytes_total")["tcp",] > 500
        await app.stop()
        await asyncio.wait_for(serving, 60)

    asyncio.run(scene())


def test_metrics_alone_show_the_same_as_metrics_beside_another_observer() -> None:
    """A server that has nothing but metrics takes a shorter way, to the same figures."""

    class Other(Observer):
        def request_finished(self, request: ObservedRequest, outcome: Outcome) -> None:
            pass

    async def figures(**options: Any) -> Any:
        app = Workshop(metrics=True, max_concurrent_per_session=1, max_waiting_per_session=1, **options)
        for mode in ("handshake", "stateless"):
            async with Client(app, mode=mode) as client:
                await client.call_tool("add", {"a": 1, "b": 2})
                await client.list_tools()
                await client.read_resource("notes://today")
                with pytest.raises(ToolError):
                    await client.call_tool("fail")
                with pytest.raises(ToolError):
                    await client.call_tool("add", {"a": "x"})
                with pytest.raises(Exception, match="nknown"):
                    await client.call_tool("nobody")
                if mode == "handshake":
                    app.release.clear()
                    first = asyncio.ensure_future(client.call_tool("hold"))
                    await until(lambda: total(app, "ferrule_calls_running") == 1)
                    second = asyncio.ensure_future(client.call_tool("hold"))
                    await until(lambda: total(app, "ferrule_calls_waiting") == 1)
                    with pytest.raises(Exception, match="Busy"):
                        await client.call_tool("hold")
                    second.cancel()
                    await asyncio.wait([second])
                    await until(lambda: total(app, "ferrule_calls_waiting") == 0)
                    app.release.set()
                    await first
        await asyncio.sleep(0)
        names = ("ferrule_refusals_total", "ferrule_sessions", "ferrule_sessions_opened_total")
        found = {name: shown(app, name) for name in (*names, "ferrule_notifications_total")}
        # The handshake has no revision before it was made.
        found[SERVED] = {key: count for key, count in shown(app, SERVED).items() if key[0] != "initialize"}
        return found

    async def scene() -> None:
        alone = await figures()
        assert alone == await figures(observer=Other())
        kinds = {key[:3] for key in alone[SERVED]}
        assert ("tools/call", "fail", "tool_error") in kinds
        assert any("cancelled" in key for key in alone[SERVED])
        assert ("busy",) in alone["ferrule_refusals_total"]

    asyncio.run(scene())


def test_gauges_show_what_is_the_case_when_they_are_read() -> None:
    async def scene() -> None:
        app = Workshop(metrics=True, progress_rate=1)
        app.loop = asyncio.get_running_loop()
        async with Client(app, mode="handshake") as client:
            await client.request("resources/subscribe", {"uri": "notes://today"})
            held = [asyncio.ensure_future(client.call_tool("hold")) for _ in range(3)]
            asleep = asyncio.ensure_future(client.call_tool("sleepy"))
            await until(lambda: total(app, "ferrule_calls_running") == 4 and total(app, "ferrule_threads_busy") == 1)
            assert shown(app, "ferrule_subscriptions") == {("lists",): 1, ("resources",): 1, ("tasks",): 0}
            assert total(app, "ferrule_thread_queue") == 0
            assert set(shown(app, "ferrule_loop_lag_seconds")) == {()}
            app.release.set()
            await asyncio.gather(*held, asleep)
            assert total(app, "ferrule_calls_running") == 0
            heard: list[float] = []
            await client.call_tool("count", {"to": 50}, on_progress=lambda progress, *_: heard.append(progress))
            dropped = shown(app, "ferrule_notifications_dropped_total")
            assert dropped["progress",] >= 40
            assert len(heard) + dropped["progress",] >= 49
        assert shown(app, "ferrule_subscriptions")["resources",] == 0
        assert total(app, "process_open_fds") > 0
        assert shown(app, "ferrule_build_info")

    asyncio.run(scene())


def test_caches_can_be_seen() -> None:
    """SUPV-07"""

    async def scene() -> None:
        app = Workshop(metrics=True, middleware=[Caching(tools={"add"}, shared=True)])
        async with Client(app) as client:
            for number in (1, 1, 1, 2):
                await client.call_tool("add", {"a": number, "b": 2})
        assert shown(app, "ferrule_cache_entries")["calls",] == 2
        assert shown(app, "ferrule_cache_hits_total") == {("calls",): 2}
        assert shown(app, "ferrule_cache_misses_total") == {("calls",): 2}

    asyncio.run(scene())


def test_health_runs_while_somebody_uses_the_server() -> None:
    async def scene() -> None:
        app = Server("app")
        ran: list[str] = []
        app.health.register("before", lambda: ran.append("before"))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with Client(app):
            await until(lambda: "before" in ran)
            app.health.register("later", lambda: ran.append("later"))
            await until(lambda: "later" in ran)
            assert app.health.word == "healthy"
            assert set(app.health.report()["checks"]) == {"memory", "descriptors", "event loop", "before", "later"}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scene())


def test_a_monitor_made_while_the_server_runs_starts_at_once() -> None:
    async def scene() -> None:
        app = Server("app")
        async with Client(app):
            ran: list[str] = []
            app.health.register("late", lambda: ran.append("late"))
            await until(lambda: ran)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scene())


def test_a_server_lives_in_one_loop_after_another() -> None:
    app = Server("app", metrics=True)

    async def scene() -> None:
        async with Client(app) as client:
            await client.ping()

    asyncio.run(scene())
    asyncio.run(scene())
    assert shown(app, SERVED)


def test_a_listener_is_bound_before_the_server_is_ready() -> None:
    async def scene() -> None:
        app = Server("app")
        listeners = [Http(port=0), Tcp(port=0)]
        seen: list[Any] = []
        ready = asyncio.Event()

        class Unbound(set[str]):
            def discard(self, name: str) -> None:
                seen.append((name, app.health.not_ready()))
                super().discard(name)

        app.host.unbound = Unbound()
        serving = asyncio.ensure_future(app.serve(*listeners, ready=ready.set))
        await ready.wait()
        assert seen == [
            ("http", ["http is not bound"]),
            ("tcp", ["tcp is not bound"]),
        ]
        assert app.health.not_ready() == []
        await app.stop()
        await asyncio.wait_for(serving, 60)

    asyncio.run(scene())


def test_restarts_and_the_registry_can_be_seen() -> None:
    """OBSV-05"""

    async def scene() -> None:
        app = Server("app", metrics=True)
        listener, ready = Tcp(port=0), asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await ready.wait()
        assert shown(app, "ferrule_registry_entries") == {}
        assert app.registry.find("server", "app") is not None
        assert shown(app, "ferrule_registry_entries")["server",] == 1
        assert shown(app, "ferrule_registry_entries")["transport",] == 1
        assert shown(app, "ferrule_child_restarts_total") == {}
        for times in (1, 2):
            listener._accepting[0]._listening.shutdown(socket.SHUT_RDWR)  # as it dies, and is bound again
            await until(lambda: shown(app, "ferrule_child_restarts_total") == {("app/listeners/tcp",): times})  # noqa: B023
            await until(lambda: bool(listener._accepting))
        await app.stop()
        await asyncio.wait_for(serving, 60)

    asyncio.run(scene())


def http_bytes(app: Server) -> tuple[float, float]:
    """Return how many bytes came over HTTP, and how many were written."""
    return shown(app, "ferrule_received_bytes_total")["http",], shown(app, "ferrule_sent_bytes_total")["http",]


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
def test_the_bytes_of_http_are_counted_also_after_their_connection(mode: Any) -> None:
    """TBEH-10"""

    async def scene() -> None:
        app = Workshop()
        listener, ready = Http(port=0), asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await ready.wait()
        async with Client(listener.url, mode=mode) as client:
            received, sent = http_bytes(app)
            await client.call_tool("add", {"a": 1, "b": 2})
            received_then, sent_then = http_bytes(app)
            assert 150 < received_then - received < 2_000
            assert 150 < sent_then - sent < 2_000
        await until(lambda: total(app, "ferrule_connections") == 0)
        await app.stop()
        await asyncio.wait_for(serving, 60)
        assert http_bytes(app)[0] >= received_then
        assert http_bytes(app)[1] >= sent_then

    asyncio.run(scene())


def test_the_bytes_of_http2_are_counted() -> None:
    async def scene() -> None:
        app = Workshop()
        listener, ready = Http(port=0, http2=True), asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await ready.wait()
        async with httpx.AsyncClient(http1=False, http2=True) as web:
            base = f"http://127.0.0.1:{listener.address[1]}"
            page = (await web.get(f"{base}/metrics")).text
            assert shown(app, "ferrule_sent_bytes_total")["http",] > len(page)
            assert shown(app, "ferrule_received_bytes_total")["http",] > 50
        await app.stop()
        await asyncio.wait_for(serving, 60)

    asyncio.run(scene())


@pytest.mark.parametrize("late", [False, True])
def test_the_operations_of_the_store_of_tasks_are_counted(*, late: bool) -> None:
    """Also where metrics are asked for after the first task was made."""

    class Full(MemoryTasks):
        async def create(self, task: StoredTask, now: float) -> None:
            if task.tool == "fail":
                raise Busy("no room")
            await super().create(task, now)

    async def scene() -> None:
        app = Server("app", metrics=not late, tasks=TaskSettings(store=Full()))

        @app.tool(task=True)
        async def slow() -> str:
            return "done"

        @app.tool(task=True)
        async def fail() -> str:
            return "never"

        async with Client(app, tasks=True) as client:
            if late:
                task = await client.start_task("slow")
                await task.result()
                assert shown(app, "ferrule_store_operations_total") == {}
            task = await client.start_task("slow")
            await task.result()
            with pytest.raises(PeerError, match="no room"):
                await client.start_task("fail")
        counted = shown(app, "ferrule_store_operations_total")
        assert counted["task_create",] == 2
        assert counted["task_update",] >= 1
        assert shown(app, "ferrule_store_errors_total") == {("task_create",): 1}
        assert shown(app, "ferrule_store_operation_seconds_count")["task_create",] == 2

    asyncio.run(scene())


def test_events_that_are_kept_for_a_lost_reader_are_operations_of_a_store() -> None:
    async def scene() -> None:
        app = Workshop()
        listener, ready = Http(port=0, response="sse"), asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await ready.wait()
        async with Client(listener.url, mode="handshake") as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        assert shown(app, "ferrule_store_operations_total")["event_append",] >= 1
        await app.stop()
        await asyncio.wait_for(serving, 60)

    asyncio.run(scene())
