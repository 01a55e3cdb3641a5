"""What runs while a server serves, as a supervision tree."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ferrule import Client, Server, Tcp
from ferrule.supervision.child import Child, ChildState
from ferrule.supervision.supervisor import Supervisor

WITHIN = 20.0


@contextlib.asynccontextmanager
async def served(app: Server, *listeners: Any) -> AsyncIterator[Supervisor]:
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(*listeners, ready=ready.set))
    await ready.wait()
    assert app.supervisor is not None
    await until(lambda: all(child.state == "running" for child in children(app).values()))
    try:
        yield app.supervisor
    finally:
        await app.stop(1.0)
        await serving


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN):
        while not true():
            await asyncio.sleep(0.005)


def children(app: Server) -> dict[str, ChildState]:
    assert app.supervisor is not None
    return {child.name: child for child in app.supervisor.children}


def tree_of(app: Server) -> list[tuple[str, str, str]]:
    """Return the path, restart kind and state of everything in the tree."""
    found: list[tuple[str, str, str]] = []
    waiting = list(children(app).values())
    while waiting:
        child = waiting.pop(0)
        found.append((child.path, child.restart, child.state))
        waiting = [*child.children, *waiting]
    return found


async def test_a_server_that_serves_is_a_tree_that_can_be_seen() -> None:
    """SUPV-01, SUPV-02: core, transports and observability; the registry is permanent, the server transient."""
    app = Server("seen")
    assert app.supervisor is None
    async with served(app, Tcp(port=0), Tcp(port=0)) as tree:
        assert tree.path == "app"
        assert tree_of(app) == [
            ("app/registry", "permanent", "running"),
            ("app/telemetry", "permanent", "running"),
            ("app/server", "transient", "running"),
            ("app/listeners", "temporary", "running"),
            ("app/listeners/tcp", "transient", "running"),
            ("app/listeners/tcp-2", "transient", "running"),
        ]
    assert {state for _, _, state in tree_of(app)} == {"stopped", "ended"}


async def test_telemetry_that_crashes_never_reaches_the_calls() -> None:
    """SUPV-03: it is tried again and never given up, and one that hangs delays nothing."""
    app, tcp = Server("watched"), Tcp(port=0)
    starts: list[int] = []

    @app.tool
    async def greet() -> str:
        return "Hello"

    async def export(ready: Callable[[], None]) -> None:
        starts.append(len(starts))
        if len(starts) > 1:
            raise OSError("the collector is away")
        ready()
        await asyncio.sleep(0)
        raise OSError("the collector went away")

    async def hang(ready: Callable[[], None]) -> None:
        await asyncio.sleep(3600)

    app._runner.add_exporter(Child("stuck", hang))
    async with served(app, tcp), Client(tcp.url) as client:
        app._runner.add_exporter(Child("exporter", export))
        await until(lambda: len(starts) >= 2)
        stuck, exporter = children(app)["telemetry"].children
        assert stuck.state == "starting"
        assert exporter.path == "app/telemetry/exporter"
        assert exporter.error == "OSError: the collector is away"
        assert (await client.call_tool("greet")).data == "Hello"
        assert children(app)["telemetry"].state == "running"


async def test_a_lifespan_whose_task_is_killed_begins_again_and_the_listeners_serve_on() -> None:
    """SUPV-02: the server is restarted after an abnormal end."""
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, int]]:
        told.append("begun")
        yield {}
        told.append("ended")

    app, tcp = Server("mortal", lifespan=lifespan), Tcp(port=0)

    @app.tool
    async def greet() -> str:
        return "Hello"

    async with served(app, tcp), Client(tcp.url, reconnect=False) as client:
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "child app/server"]
        task.cancel()
        await until(lambda: children(app)["server"].restarts == 1 and children(app)["server"].state == "running")
        assert (await client.call_tool("greet")).data == "Hello"
        # The listener uses it still, so it never ended.
        assert told == ["begun"]
    assert told == ["begun", "ended"]


async def test_a_lifespan_has_all_the_time_it_needs_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not abandoned as other children are."""
    monkeypatch.setattr("ferrule.supervision.supervisor.GRACE", 0.01)
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(0.2)
        told.append("ended")

    async with served(Server("slow", lifespan=lifespan), Tcp(port=0)):
        pass
    assert told == ["ended"]


async def test_a_lifespan_that_fails_at_its_end_is_told_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("cannot flush")

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        raise error

    app = Server("clumsy", lifespan=lifespan)
    with pytest.raises(ValueError, match="cannot flush") as failed:
        async with served(app, Tcp(port=0)):
            pass
    assert failed.value is error
    serving = asyncio.ensure_future(app.serve(Tcp(port=0)))
    await until(lambda: app.host.lifespans.in_use)
    serving.cancel()
    with pytest.raises(ValueError, match="cannot flush"):
        await serving
    assert caplog.records == []


@pytest.mark.parametrize("way", ["cancel", "stop"])
async def test_a_server_may_be_served_again(way: str) -> None:
    """SHUT-05: whatever ended it."""
    app = Server("again")
    before = asyncio.all_tasks()
    for _ in range(3):
        ready = asyncio.Event()
        tcp = Tcp(port=0)
        serving = asyncio.ensure_future(app.serve(tcp, ready=ready.set))
        await ready.wait()
        async with Client(tcp.url) as client:
            await client.ping()
        if way == "cancel":
            serving.cancel()
        else:
            await app.stop()
        await asyncio.wait({serving}, timeout=WITHIN)
        assert serving.cancelled() == (way == "cancel")
        assert asyncio.all_tasks() == before
        assert not app.host.lifespans.in_use


async def test_a_lifespan_may_stop_the_server_before_it_has_begun() -> None:
    """SHD-04: without waiting for itself."""

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        await server.stop()
        await asyncio.sleep(3600)
        yield

    app = Server("hasty", lifespan=lifespan)
    await asyncio.wait_for(app.serve(Tcp(port=0)), WITHIN)
    assert not app.host.lifespans.in_use
