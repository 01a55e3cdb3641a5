"""Probes of how many tasks run and are kept, of what, and for how long; and of how a client follows one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest import mock

from msgspec import structs
from probes_wire import Met
from table import no_bound, period, probe

from ferrule import Client, Context, PeerError, Server, ToolError
from ferrule.client.features.task_watch import TaskWatch
from ferrule.client.features.tasks import TaskState
from ferrule.errors import Busy, LinkLost
from ferrule.protocol import session
from ferrule.runtime.tasks import methods
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.stores.contracts import StoredTask
from ferrule.stores.memory import SHARE, MemoryTasks


def working(**options: Any) -> Server:
    """Return a server with a tool that ends at once and one that does not, both of which may be tasks."""
    app = Server("s", tasks=TaskSettings(**options), max_concurrent_per_session=10**6, keepalive_interval=None)

    @app.tool(task="optional")
    async def done() -> str:
        return "done"

    @app.tool(task="optional")
    async def wait() -> None:
        await asyncio.Event().wait()

    return app


async def lives(app: Server, seconds: float, ttl: float | None = None) -> bool:
    """Return whether a task is still known after so many seconds."""
    async with Client(app, mode="handshake") as client:
        task = await client.start_task("done", ttl=ttl)
        await asyncio.sleep(seconds)
        try:
            await client.get_task(task.id)
        except PeerError:
            return False
    return True


@period("TaskSettings(ttl=…)", lowered=3600.0)
async def a_task(lasts: float, seconds: float) -> bool:
    return await lives(working(ttl=lasts, max_ttl=None), seconds)


@period("TaskSettings(max_ttl=…)", lowered=3600.0)
async def a_task_that_wants_more(lasts: float, seconds: float) -> bool:
    return await lives(working(max_ttl=lasts), seconds, ttl=10_000 * lasts)


@period("ferrule.runtime.tasks.settings.LEAST_TTL")
async def a_task_that_wants_less(lasts: float, seconds: float) -> bool:
    return await lives(working(), seconds, ttl=0.001)


no_bound("TaskSettings(poll_interval=…)", "a wish that a client is told; one that looks oftener is answered")


async def started(app: Server, count: int) -> bool:
    """Return whether so many tasks of one client run at once."""
    async with Client(app, mode="handshake") as client:
        for _ in range(count):
            try:
                await client.start_task("wait")
            except PeerError as refusal:
                return "Busy" not in str(refusal)
    return True


@probe("TaskSettings(max_running=…)", lowered=5)
async def running_tasks(limit: int, size: int) -> bool:
    return await started(working(max_running=limit, max_running_per_owner=10**6), size)


@probe("TaskSettings(max_running_per_owner=…)", lowered=5)
async def running_tasks_of_one(limit: int, size: int) -> bool:
    return await started(working(max_running_per_owner=limit), size)


def stored(number: int, owner: str) -> StoredTask:
    return StoredTask(id=f"{number}", owner=owner, tool="t", created=0.0, updated=0.0, ttl=None, poll_interval=1.0)


async def created(store: MemoryTasks, count: int, owners: int) -> bool:
    """Return whether so many tasks that go on are kept, for so many owners in turn."""
    try:
        for number in range(count):
            await store.create(stored(number, f"owner {number % owners}"), 0.0)
    except Busy:
        return False
    return len(store) == count


@probe("MemoryTasks(max_tasks=…)", lowered=5)
async def kept_tasks(limit: int, size: int) -> bool:
    return await created(MemoryTasks(max_tasks=limit), size, 10**6)


@probe("MemoryTasks(max_per_owner=…)", lowered=5)
async def kept_tasks_of_one(limit: int, size: int) -> bool:
    return await created(MemoryTasks(max_per_owner=limit), size, 1)


async def finished(store: MemoryTasks, number: int, owner: str, size: int) -> None:
    """Keep a task that has ended with a result of so many bytes."""
    task = stored(number, owner)
    await store.create(task, 0.0)
    assert await store.update(structs.replace(task, status="completed", result=b"x" * size), ["working"])


@probe("MemoryTasks(max_bytes=…)", lowered=10_000, clamps=True)
async def results_of_tasks(limit: int, size: int) -> bool:
    store = MemoryTasks(max_bytes=limit)
    for number in range(5):
        await finished(store, number, f"owner {number}", size - 4 * (size // 5) if number == 4 else size // 5)
        assert store.size <= limit or len(store) == 1  # a larger one alone is kept
    return store.size == size


@probe("ferrule.stores.memory.SHARE", lowered=10_000, clamps=True)
async def results_of_one(limit: int, size: int) -> bool:
    store = MemoryTasks(max_bytes=limit * SHARE)
    await finished(store, 0, "other", limit * (SHARE - 1))
    for number in (1, 2):
        await finished(store, number, "me", size - size // 2 if number == 2 else size // 2)
    if size <= 2 * limit:
        assert "0" in store._tasks  # none of them pushes the other's out
    return len(store) == 3


no_bound("ferrule.runtime.tasks.tasks.ID_BYTES", "a number of random bytes")


@probe("ferrule.runtime.tasks.methods.PAGE_SIZE", lowered=3, clamps=True)
async def listed_tasks(limit: int, size: int) -> bool:
    app = working(store=MemoryTasks(max_per_owner=10**6), max_running_per_owner=10**6, max_running=10**6)
    with mock.patch.object(methods, "PAGE_SIZE", limit):
        async with Client(app, mode="handshake") as client:
            for _ in range(size):
                await client.start_task("done")
                await asyncio.sleep(0)
            return len((await client.request("tasks/list", {}))["tasks"]) == size


@probe("ferrule.runtime.tasks.run.LONGEST_MESSAGE", clamps=True)
async def a_status_message(limit: int, size: int) -> bool:
    app = working()
    words = "x" * size

    @app.tool(task="optional")
    async def progress(ctx: Context) -> None:
        await ctx.report_progress(1, None, words)
        await asyncio.Event().wait()

    @app.tool(task="optional", task_start="handler")
    async def beginning(ctx: Context) -> None:
        await ctx.start_task(words)
        await asyncio.Event().wait()

    @app.tool(task="optional")
    async def failing() -> None:
        raise ToolError(words)

    whole = set()
    async with Client(app, mode="handshake") as client:
        for name in ("progress", "beginning", "failing"):
            task = await client.start_task(name)
            for _ in range(10):
                await asyncio.sleep(0)
            message = (await client.request("tasks/get", {"taskId": task.id})).get("statusMessage", "")
            assert len(message) <= limit
            whole.add(words in message)
    return whole == {True}


no_bound("ferrule.runtime.tasks.tasks.LEAST_SWEEP", "our own pause between two looks for tasks that have expired")


@period("ferrule.runtime.tasks.run.TELL_EVERY")
async def told_progress(lasts: float, seconds: float) -> bool:
    store = MemoryTasks()
    app = working(store=store)

    @app.tool(task="optional")
    async def progress(ctx: Context) -> None:
        await asyncio.sleep(1)
        for number in (1, 2):
            await ctx.report_progress(number)
        await asyncio.Event().wait()

    async with Client(app, mode="handshake") as client:
        task = await client.start_task("progress")
        await asyncio.sleep(1 + seconds)
        return store._tasks[task.id].progress == (1, None)


class Looked:
    """The requests of a client about a task, as its watch makes them."""

    comes_back = was_closed = False
    spawn = unwatch = mock.Mock()

    def __init__(self, pause: float = 1.0, patience: float = 30.0, back_at: float = 0.0) -> None:
        self.followed: dict[str, Any] = {}
        self.looks = 0
        self.patience = patience
        self._pause = pause
        self._back_at = back_at

    def state(self, status: str) -> TaskState:
        milliseconds = int(self._pause * 1000)
        return TaskState(task_id="1", status=status, created_at="", last_updated_at="", poll_interval_ms=milliseconds)  # type: ignore[arg-type]

    async def get(self, task_id: str) -> TaskState:
        self.looks += 1
        if asyncio.get_running_loop().time() < self._back_at:
            raise LinkLost("away")
        return self.state("completed" if self._back_at else "working")


async def looks_within(seconds: float, pause: float) -> int:
    """Return how often a client looks at a task, where the server asks for a look with this pause."""
    requests = Looked(pause)
    watch = TaskWatch(requests, "1", requests.state("working"), mock.Mock())  # type: ignore[arg-type]
    watch._react = lambda state: None  # type: ignore[method-assign]
    async with watch:
        try:
            async with asyncio.timeout(seconds):
                async for _ in watch.states():
                    assert requests.looks < 2, "enough"
        except (TimeoutError, AssertionError):
            return requests.looks
    return requests.looks


@period("ferrule.client.features.task_watch.LEAST_PAUSE")
async def a_short_pause(lasts: float, seconds: float) -> bool:
    return await looks_within(seconds, 0.0) == 0


@period("ferrule.client.features.task_watch.LONGEST_PAUSE")
async def a_long_pause(lasts: float, seconds: float) -> bool:
    return await looks_within(seconds, 10.0**9) == 0


@period("Client(task_patience=…)", lowered=30.0)
async def a_task_out_of_reach(lasts: float, seconds: float) -> bool:
    requests = Looked(patience=lasts, back_at=seconds)
    watch = TaskWatch(requests, "1", None, mock.Mock())  # type: ignore[arg-type]
    async with watch:
        try:
            return [state.status async for state in watch.states()] == ["completed"]
        except LinkLost:
            return False


@probe("ferrule.protocol.session.MOST_OUTLASTING", lowered=5, clamps=True)
async def outlasting(limit: int, size: int) -> bool:
    ours = Met().link.session
    with mock.patch.object(session, "MOST_OUTLASTING", limit):
        tokens = []
        for _ in range(size):
            awaited = ours.expect("tools/call", SimpleNamespace(), 0.0)
            ours.abandon(awaited.id)
            ours.outlast(awaited)
            tokens.append(awaited.id)
    return ours.progressed(tokens[0], 1.0, 0.0) is not None
