"""A crash stays where it happens: in one session, in one child process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ferrule import CallFailed, Client, Http, HttpFailed, Observer, Reconnect, Server, Tcp, WebSocket
from ferrule.client.link.reconnect import ConnectionNotice
from ferrule.supervision.child import Child
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.supervisor import Supervisor
from ferrule.telemetry.observer import ObservedChild
from ferrule.transports.http.listener import Sse

LISTENERS: dict[str, Callable[[], Any]] = {
    "tcp": lambda: Tcp(port=0),
    "http": lambda: Http(port=0),
    "ws": lambda: WebSocket(port=0),
    "sse": lambda: Sse(port=0),
}
WITHIN = 30.0
CRASHES = 100


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**arguments), 2 * WITHIN))

    return run


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN):
        while not true():
            await asyncio.sleep(0.001)


# One session


class Bomb:
    """In the place of a link's dispatcher: whatever is asked of it, it fails as a bug of ours would."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("a bug in the session")


@contextlib.asynccontextmanager
async def served(app: Server, listener: Any) -> AsyncIterator[None]:
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    try:
        yield
    finally:
        await app.stop(1.0)
        await serving


@pytest.mark.parametrize("kind", LISTENERS)
@in_a_loop
async def test_cra_06_a_crash_inside_one_session_ends_that_session_only(kind: str) -> None:
    """CRA-06: the call that runs in another session beside it is answered."""
    app, listener, release = Server("many"), LISTENERS[kind](), asyncio.Event()

    @app.tool
    async def wait() -> str:
        await release.wait()
        return "waited"

    async with served(app, listener):
        url = listener.url
        if kind == "sse":
            url = f"sse+{url}"
        plain: dict[str, Any] = {"mode": "handshake", "reconnect": False}
        async with Client(url, **plain) as other, Client(url, **plain) as mortal:
            waiting = asyncio.ensure_future(other.call_tool("wait"))
            await until(lambda: any(link.session.running for link in app.host.links))
            [hit] = [link for link in app.host.links if link.session.peer_ready and not link.session.running]
            hit.dispatcher = Bomb()  # type: ignore[assignment]
            with pytest.raises((CallFailed, HttpFailed)):
                await mortal.call_tool("wait", timeout=10)
            await until(lambda: hit not in app.host.links)
            assert not waiting.done()
            release.set()
            assert (await waiting).data == "waited"
            assert (await other.call_tool("wait")).data == "waited"
        async with Client(url, **plain) as fresh:
            assert (await fresh.call_tool("wait")).data == "waited"


@in_a_loop
async def test_cra_06_over_http_the_next_request_of_a_crashed_session_is_told_404() -> None:
    """CRA-06: so that its client opens a new one, which it does by itself."""
    app, http, calls = Server("many"), Http(port=0), []

    @app.tool
    async def count() -> int:
        calls.append(1)
        return len(calls)

    async with served(app, http), Client(http.url, mode="handshake") as client:
        assert (await client.call_tool("count")).data == 1
        [hit] = [link for link in app.host.links if link.session.peer_ready]
        hit.dispatcher = Bomb()  # type: ignore[assignment]
        with pytest.raises(HttpFailed, match="500"):
            await client.call_tool("count")
        assert [tool.name for tool in await client.list_tools()] == ["count"]
        assert (await client.call_tool("count")).data == 2
        assert hit not in app.host.links


# A child process that is killed again and again

LONGEST = RestartPlan().longest
"""Seconds between two attempts where nobody is in a hurry to see a hundred of them."""


def hurried() -> Reconnect:
    """Return the usual plan in a thousandth of the time."""
    return Reconnect(jitter=0.0, sleep=lambda seconds: asyncio.sleep(seconds / 1000))


SERVER = r"""
read -r hello
id=${hello#*\"id\":}
id=${id%%[,\}]*}
info='{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"sh","version":"1"}}'
printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$info"
while read -r line; do :; done
"""


class Children(Observer):
    """Knows the process that was started last."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.exit_codes: list[int | None] = []

    def child_started(self, child: ObservedChild) -> None:
        self.started.append(child.pid)

    def child_exited(self, child: ObservedChild) -> None:
        self.exit_codes.append(child.exit_code)


def own_cpu() -> float:
    """Return the seconds of CPU this process has used, without its children."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@in_a_loop
async def test_a_child_process_that_is_killed_a_hundred_times_is_failed_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CRA-05: it costs less than 1 % of a CPU and a line in the log an attempt, and the client works in the end."""
    program = tmp_path / "server.sh"
    program.write_text(SERVER)
    children, notices = Children(), list[ConnectionNotice]()
    client = Client(["/bin/sh", str(program)], mode="handshake", reconnect=hurried(), observer=children)
    caplog.set_level(logging.INFO)
    async with client:
        client.on_connection(notices.append)
        cpu, files = own_cpu(), len(os.listdir("/proc/self/fd"))
        for number in range(1, CRASHES + 1):
            os.kill(children.started[-1], signal.SIGKILL)
            await until(lambda n=number: len(children.started) > n and not client.reconnecting)
        spent = (own_cpu() - cpu) / CRASHES
        assert len(os.listdir("/proc/self/fd")) == files
        assert client.link_state.state == "running"
        assert client.link_state.restarts == CRASHES
    retries = [notice for notice in notices if notice.what == "retrying"]
    assert [notice.failed for notice in retries] == [False] * 5 + [True] * (CRASHES - 5)
    assert retries[-1].delay == LONGEST
    assert set(children.exit_codes[:-1]) == {-signal.SIGKILL}
    lines = [record for record in caplog.records if record.name.startswith("ferrule")]
    assert len(lines) <= CRASHES
    assert spent / LONGEST < 0.01


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@in_a_loop
async def test_a_supervised_process_that_is_killed_a_hundred_times_is_failed_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CRA-05: the same of a child of a supervisor."""
    pids: list[int] = []

    async def run(ready: Callable[[], None]) -> None:
        process = await asyncio.create_subprocess_exec("sleep", "1000")
        pids.append(process.pid)
        ready()
        try:
            code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        raise OSError(f"exit code {code}")

    plan = RestartPlan(delay=0.005, longest=0.02, jitter=0.0, give_up=False)
    async with Supervisor("app", Child("sleeper", run), plan=plan) as tree:
        cpu = own_cpu()
        for number in range(1, CRASHES + 1):
            os.kill(pids[-1], signal.SIGKILL)
            await until(lambda n=number: len(pids) > n and tree.children[0].state == "running")
        spent = (own_cpu() - cpu) / CRASHES
        os.kill(pids[-1], signal.SIGKILL)
        await until(lambda: tree.children[0].state == "failed")
        assert tree.children[0].error == "OSError: exit code -9"
        await until(lambda: tree.children[0].state == "running")
    lines = [record for record in caplog.records if record.name == "ferrule.supervision"]
    assert len(lines) == CRASHES + 1
    assert spent / LONGEST < 0.01
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@in_a_loop
async def test_an_attempt_to_start_a_program_that_is_gone_costs_a_line_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CRA-05: it is failed, and back within the longest delay after the program is."""
    program, children = tmp_path / "server.sh", Children()
    program.write_text(SERVER)
    caplog.set_level(logging.INFO)
    async with Client(["/bin/sh", str(program)], mode="handshake", reconnect=hurried(), observer=children) as client:
        program.unlink()
        os.kill(children.started[-1], signal.SIGKILL)
        await until(lambda: client.link_state.state == "failed")
        assert "server.sh" in client.link_state.error
        program.write_text(SERVER)
        back = time.monotonic()
        await until(lambda: client.link_state.state == "running")
        assert time.monotonic() - back < 2.0
    attempts = [record for record in caplog.records if "to reconnect failed" in record.getMessage()]
    assert 5 <= len(attempts) == len([record for record in caplog.records if record.name == "ferrule.client"])
