"""Listeners as children of a supervisor: bound again when they die, started and stopped by name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Http, Reconnect, Server, Stdio, Tcp, Unix, WebSocket
from ferrule.errors import CarrierError, SetupError, SupervisorFailed
from ferrule.server.hosting import listeners as hosting
from ferrule.supervision.restart import RestartPlan
from ferrule.testing import run_in_virtual_time
from ferrule.transports.contract import Acceptor

LISTENERS: dict[str, Callable[[Path], Any]] = {
    "tcp": lambda _: Tcp(port=0),
    "http": lambda _: Http(port=0),
    "ws": lambda _: WebSocket(port=0),
    "unix": lambda folder: Unix(folder / "s"),
}
COMES_BACK = Reconnect(first_delay=0.02, longest_delay=0.1, jitter=0.0)
WITHIN = 20.0
"""Seconds that a busy machine may take for what takes milliseconds."""


def greeter(**options: Any) -> Server:
    app = Server("greeter", **options)

    @app.tool
    async def greet() -> str:
        return "Hello"

    return app


@contextlib.asynccontextmanager
async def served(app: Server, *listeners: Any) -> AsyncIterator[asyncio.Future[None]]:
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(*listeners, ready=ready.set))
    await asyncio.wait({serving, asyncio.ensure_future(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield serving
    finally:
        await app.stop(1.0)
        with contextlib.suppress(SupervisorFailed):
            await serving


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN):
        while not true():
            await asyncio.sleep(0.005)


def kill_task(name: str) -> None:
    """Cancel the task that serves a listener, as nobody should."""
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == f"listener {name}"]
    task.cancel()


def kill_socket(listener: Any) -> None:
    """Let the system close a listening socket."""
    accepting = getattr(listener, "_accepting", None) or listener._engine._accepting
    accepting[0]._listening.shutdown(socket.SHUT_RDWR)


def states(app: Server) -> dict[str, Any]:
    """Return the states of the listeners by name."""
    assert app.supervisor is not None
    [listeners] = [child for child in app.supervisor.children if child.name == "listeners"]
    return {child.name: child for child in listeners.children}


class Fragile:
    """A listener that dies as soon as it is told to, or as often as it was told to at its start."""

    def __init__(self, failures: int = 0) -> None:
        self.starts = 0
        self.failures = failures
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        self.starts += 1
        self.end = asyncio.get_running_loop().create_future()
        await acceptor.enter()
        try:
            ready()
            if self.starts <= self.failures:
                raise OSError(f"failure {self.starts}")
            await self.end
        finally:
            await acceptor.leave()

    async def close(self, grace: float) -> None:
        if not self.end.done():
            self.end.set_result(None)


DEATHS = [*(("task", kind) for kind in LISTENERS), ("socket", "tcp"), ("socket", "http"), ("socket", "ws")]
"""A Unix socket that is shut down is bound again by its listener, without a restart: `test_unix.py`."""


@pytest.mark.parametrize(("death", "kind"), DEATHS)
async def test_a_listener_that_dies_is_bound_again_where_it_was_and_the_others_notice_nothing(
    death: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SUPV-01, SUPV-04: a port that was any free one is kept."""
    app = greeter()
    mortal, other = LISTENERS[kind](tmp_path), Tcp(port=0)
    async with served(app, mortal, other):
        url = mortal.url
        async with Client(other.url, reconnect=False) as stays, Client(url, reconnect=COMES_BACK) as returns:
            died = time.monotonic()
            if death == "task":
                kill_task(kind)
            else:
                kill_socket(mortal)
            await until(lambda: states(app)[kind].restarts == 1 and states(app)[kind].state == "running")
            assert time.monotonic() - died < 1.0
            assert mortal.url == url
            assert (await stays.call_tool("greet")).data == "Hello"
            assert (await returns.call_tool("greet")).data == "Hello"
            async with Client(url) as fresh:
                assert (await fresh.call_tool("greet")).data == "Hello"
    [warning] = [record for record in caplog.records if record.name == "ferrule.supervision"]
    assert warning.getMessage().startswith(f"app/listeners/{kind} failed (")
    assert warning.getMessage().endswith("restart 1 in 0 s")
    assert states(app)[kind].state == "ended"


async def test_a_port_that_is_taken_while_its_listener_is_dead_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUPV-04: by the plan, five times."""
    monkeypatch.setattr(hosting, "LISTENER_PLAN", RestartPlan(first=0.05, delay=0.1, factor=1.0, jitter=0.0))
    app, tcp = greeter(), Tcp(port=0)
    async with served(app, tcp):
        address = tcp.address
        kill_socket(tcp)
        await until(lambda: states(app)["tcp"].state == "restarting")
        with socket.create_server(address):
            await until(lambda: states(app)["tcp"].restarts >= 3)
            assert "the port is in use" in states(app)["tcp"].error
        await until(lambda: states(app)["tcp"].state == "running")
        assert tcp.address == address
        async with Client(tcp.url) as client:
            assert (await client.call_tool("greet")).data == "Hello"


async def test_a_listener_that_ended_may_have_another_port_next_time() -> None:
    app, tcp = greeter(), Tcp(port=0)
    async with served(app, tcp):
        port = tcp.address[1]
    with socket.create_server(("127.0.0.1", port)):
        async with served(app, tcp):
            assert tcp.address[1] != port


def test_a_listener_that_dies_six_times_in_a_minute_fails_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """SUPV-06: after five restarts, those it has by the plan."""

    async def main() -> None:
        app, fragile, other = greeter(), Fragile(failures=100), Fragile()
        with pytest.raises(SupervisorFailed) as failed:
            await app.serve(other, fragile)
        assert str(failed.value) == (
            "app/listeners: gave up after 5 restarts within 60 s: child 'fragile-2' failed again: OSError: failure 6"
        )
        assert (fragile.starts, other.starts) == (6, 1)
        assert not app.host.lifespans.in_use

    run_in_virtual_time(main())
    lines = [record for record in caplog.records if record.name == "ferrule.supervision"]
    assert len(lines) == 6  # one for each restart, one for the end


MORTAL = """
import asyncio
from ferrule import Server, Tcp
from ferrule.server.hosting import listeners
from ferrule.supervision.restart import RestartPlan
from ferrule.transports.registry import TransportKind, register

listeners.LISTENER_PLAN = RestartPlan(delay=0.01, longest=0.01)


class Mortal(Tcp):
    async def serve(self, acceptor, ready):
        def die():
            ready()
            self._end.fail(OSError("unplugged"))

        await super().serve(acceptor, die)


register(TransportKind(name="mortal", listener=Mortal))
app = Server("mortal")
"""


@pytest.mark.parametrize("way", ["app.run('mortal', port=0)", "asyncio.run(app.run_async('mortal', port=0))"])
def test_a_program_whose_listener_dies_too_often_says_so_and_fails(tmp_path: Path, way: str) -> None:
    """SUPV-06: with an exit code."""
    program = tmp_path / "mortal.py"
    program.write_text(f"{MORTAL}{way}\n", encoding="utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    said = (
        "app/listeners: gave up after 5 restarts within 60 s: child 'mortal' failed again: "
        "CarrierError: the listening socket failed: unplugged"
    )
    assert said in done.stderr
    if way.startswith("app.run"):
        assert done.stderr.splitlines()[-1] == f"error: {said}"


async def test_a_start_that_fails_is_told_at_once_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is tried again, nothing is left, and nothing but the error is said."""
    app, other = greeter(), Tcp(port=0)
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(CarrierError, match="the port is in use") as failed:
        await app.serve(other, Tcp(port=taken.getsockname()[1]))
    assert failed.value.__context__ is failed.value.__cause__
    assert isinstance(failed.value.__cause__, OSError)
    with pytest.raises(SetupError, match="does not listen"):
        print(other.url)
    assert not app.host.lifespans.in_use
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("error", [ValueError("no database"), SystemExit("no database")])
async def test_a_lifespan_that_fails_is_told_as_what_it_is(error: BaseException) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise error
        yield

    app, tcp = greeter(lifespan=lifespan), Tcp(port=0)
    with pytest.raises(type(error)) as failed:
        await app.serve(tcp)
    assert failed.value is error


async def test_a_stop_does_not_wait_for_the_restart_of_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """SHUT-05: what is dead stays so, and the rest ends in order."""
    monkeypatch.setattr(hosting, "LISTENER_PLAN", RestartPlan(first=3600.0, longest=3600.0))
    app, fragile, other = greeter(), Fragile(failures=1), Tcp(port=0)
    serving = asyncio.ensure_future(app.serve(fragile, other))
    await until(lambda: app.supervisor is not None and states(app)["fragile"].state == "restarting")
    await app.stop()
    await asyncio.wait_for(serving, WITHIN)
    assert fragile.starts == 1
    assert not app.host.lifespans.in_use


async def test_a_server_ends_with_its_last_listener_also_where_another_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "LISTENER_PLAN", RestartPlan(first=3600.0, longest=3600.0))
    app, fragile, other = greeter(), Fragile(failures=1), Tcp(port=0)
    serving = asyncio.ensure_future(app.serve(fragile, other))
    await until(lambda: app.supervisor is not None and states(app)["fragile"].state == "restarting")
    await other.close(1.0)
    assert not serving.done()
    await app.listeners.stop("fragile")
    await asyncio.wait_for(serving, WITHIN)


async def test_a_peer_that_reads_no_more_is_not_served_again_and_the_others_are_served_on() -> None:
    """SUPV-01: stdio has one peer. That it was lost is told at the end."""
    app, tcp = greeter(), Tcp(port=0)
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(Stdio(read_fd=read_in, write_fd=write_out), tcp, ready=ready.set))
    try:
        await ready.wait()
        os.close(read_out)
        await until(lambda: states(app)["stdio"].state == "ended")
        assert "can no longer be reached over stdio" in states(app)["stdio"].error
        async with Client(tcp.url) as client:
            assert (await client.call_tool("greet")).data == "Hello"
        await app.stop()
        with pytest.raises(CarrierError, match="can no longer be reached over stdio"):
            await serving
    finally:
        for fd in (read_in, write_in, write_out):
            os.close(fd)


@pytest.mark.parametrize("kind", LISTENERS)
async def test_listeners_are_started_by_type_and_name_and_stopped_by_name(kind: str, tmp_path: Path) -> None:
    """TBEH-06, SUPV-04: beside those that serve already."""
    app = greeter()
    options: dict[str, Any] = {"path": str(tmp_path / "s")} if kind == "unix" else {"port": 0}
    async with served(app, Tcp(port=0)) as serving:
        started = await app.listeners.start(kind, "second", **options)
        assert list(app.listeners) == ["tcp", "second"]
        assert app.listeners["second"] is started
        assert states(app)["second"].state == "running"
        url = started.url
        async with Client(url, reconnect=False) as client:
            assert (await client.call_tool("greet")).data == "Hello"
            await app.listeners.stop("second")
        with pytest.raises(CarrierError):
            await Client(url, reconnect=False).connect()
        assert list(app.listeners) == ["tcp"]
        assert list(states(app)) == ["tcp"]
        assert not serving.done()
        await app.listeners.start(kind, "second", **options)
        kill_task("second")
        await until(lambda: states(app)["second"].restarts == 1 and states(app)["second"].state == "running")
        await app.listeners.stop("tcp")
        assert not serving.done()
        await app.listeners.stop("second")
        await asyncio.wait_for(serving, WITHIN)


async def test_a_listener_that_cannot_be_started_harms_nobody() -> None:
    """TBEH-06"""
    app = greeter()
    with pytest.raises(SetupError, match="the server 'greeter' does not serve"):
        await app.listeners.start("tcp", port=0)
    async with served(app, Tcp(port=0)) as serving:
        taken = socket.create_server(("127.0.0.1", 0))
        with taken, pytest.raises(CarrierError, match="the port is in use"):
            await app.listeners.start("tcp", port=taken.getsockname()[1])
        with pytest.raises(SetupError, match="unknown transport 'pigeon'"):
            await app.listeners.start("pigeon")
        with pytest.raises(SetupError, match="there is a listener 'tcp' already"):
            await app.listeners.start("tcp", "tcp", port=0)
        with pytest.raises(SetupError, match="has no listener 'pigeon' now: it has tcp"):
            await app.listeners.stop("pigeon")
        assert list(app.listeners) == list(states(app)) == ["tcp"]
        await app.listeners.start("tcp", port=0)
        assert list(app.listeners) == ["tcp", "tcp-2"]
        assert len(app.listeners) == 2
        assert not serving.done()


async def test_a_stop_while_a_listener_is_started_is_told_to_who_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """TBEH-06: nobody waits for ever."""

    class Slow(Fragile):
        async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
            await asyncio.sleep(3600)

    monkeypatch.setattr(hosting, "new_listener", lambda transport, options: Slow())
    app = greeter()
    serving = asyncio.ensure_future(app.serve(Fragile()))
    await until(lambda: app.supervisor is not None and states(app)["fragile"].state == "running")
    starting = asyncio.ensure_future(app.listeners.start("tcp", "slow"))
    await until(lambda: "slow" in states(app))
    serving.cancel()
    with pytest.raises(SetupError, match="the server has stopped while its listener 'slow' was started"):
        await asyncio.wait_for(starting, WITHIN)
    await asyncio.wait({serving})


async def test_a_server_may_be_served_twice_at_once() -> None:
    app, one, other = greeter(), Tcp(port=0), Tcp(port=0)
    async with served(app, one), served(app, other):
        assert list(app.listeners) == ["tcp", "tcp-2"]
        async with Client(one.url) as first, Client(other.url) as second:
            assert (await first.call_tool("greet")).data == (await second.call_tool("greet")).data
        await one.close(1.0)
        await until(lambda: list(app.listeners) == ["tcp-2"])
        assert app.host.lifespans.in_use
    assert not app.host.lifespans.in_use


async def test_handlers_see_the_context_of_the_lifespan() -> None:
    """Also behind a listener that was bound again."""
    database: ContextVar[str] = ContextVar("database", default="none")

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        database.set("open")
        yield

    app, tcp = greeter(lifespan=lifespan), Tcp(port=0)

    @app.tool
    async def seen() -> str:
        return database.get()

    async with served(app, tcp):
        async with Client(tcp.url) as client:
            assert (await client.call_tool("seen")).data == "open"
        kill_task("tcp")
        await until(lambda: states(app)["tcp"].restarts == 1 and states(app)["tcp"].state == "running")
        async with Client(tcp.url) as client:
            assert (await client.call_tool("seen")).data == "open"


async def test_a_listener_that_is_killed_a_hundred_times_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """SHUT-05: tasks, descriptors and entrances are as before."""
    monkeypatch.setattr(hosting, "LISTENER_PLAN", RestartPlan(intensity=1000, delay=0.0, longest=0.0))
    app, tcp = greeter(), Tcp(port=0)
    async with served(app, tcp, Tcp(port=0)):
        tasks, files = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        for number in range(1, 101):
            if number % 2:
                kill_task("tcp")
            else:
                kill_socket(tcp)
            await until(lambda n=number: states(app)["tcp"].restarts == n and states(app)["tcp"].state == "running")
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == tasks
        assert len(os.listdir("/proc/self/fd")) == files
        assert len(app.host.links) == 0
