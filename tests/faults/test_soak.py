"""Load for a while with a fault now and then: children killed, connections cut, upstreams stopped, listeners killed.

Ten minutes with three faults a minute in `make soak`, a minute in `make faults`, a few seconds by default. Every way in
answers again after every fault, and in the end nothing is left: memory, sockets, tasks, descriptors and children are
back where they were.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pace import LONG
from proxy import Proxy

from ferrule import Client, Http, Reconnect
from ferrule.errors import FerruleError
from ferrule.routing.router import Router
from ferrule.supervision.child import Child, Ready
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.supervisor import Supervisor
from patience import PATIENT

SOAK = float(os.environ.get("FERRULE_SOAK", "0"))
SERVER = str(Path(__file__).resolve().parent / "soak_server.py")
PAGE = os.sysconf("SC_PAGE_SIZE")
if SOAK:
    SECONDS, GAP, MOST_GROWTH = min(SOAK, 600.0), 20.0, 8 * 2**20
elif LONG:
    SECONDS, GAP, MOST_GROWTH = 60.0, 10.0, 8 * 2**20
else:
    SECONDS, GAP, MOST_GROWTH = 3.0, 0.6, 16 * 2**20
RECOVERY = 30.0
"""Seconds within which every way answers again after a fault, on a machine that others use too."""
SLACK = 2
"""By how many a count may differ: an answer or a timer may be under way when it is taken."""
PLAN = RestartPlan(intensity=1000, period=60.0, delay=0.05)
AGAIN = Reconnect(first_delay=0.05, longest_delay=0.5)


@dataclass
class Sample:
    """What this process holds at one moment."""

    resident: int
    descriptors: int
    sockets: int
    threads: int
    tasks: int
    children: int

    @classmethod
    def now(cls) -> Sample:
        """Count."""
        gc.collect()
        opened = []
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                opened.append(os.readlink(f"/proc/self/fd/{name}"))
        children = 0
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                children += len((thread / "children").read_text().split())
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
        sockets = sum(1 for each in opened if each.startswith("socket:"))
        return cls(resident, len(opened), sockets, threading.active_count(), len(asyncio.all_tasks()), children)

    def over(self, baseline: Sample) -> dict[str, int]:
        """Return of what there is more than there was."""
        more = {}
        for name in ("descriptors", "sockets", "threads", "tasks", "children"):
            if getattr(self, name) > getattr(baseline, name) + SLACK:
                more[name] = getattr(self, name) - getattr(baseline, name)
        return more


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Upstream:
    """A server in a process of its own, which a supervisor starts again when it dies."""

    def __init__(self) -> None:
        self.port = free_port()
        self.pid = 0

    async def run(self, ready: Ready) -> None:
        """Run the process until it ends."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, SERVER, str(self.port), stderr=asyncio.subprocess.DEVNULL
        )
        self.pid = process.pid
        try:
            while process.returncode is None and not await self._listens():
                await asyncio.sleep(0.05)
            ready()
            await process.wait()
            raise RuntimeError("the upstream has died")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


class OwnListener:
    """A listener of this process, which dies when it is told to and is bound again by a supervisor."""

    def __init__(self) -> None:
        self.port = free_port()
        self._killed = asyncio.Event()

    def kill(self) -> None:
        """Let it die."""
        self._killed.set()

    async def run(self, ready: Ready) -> None:
        """Serve until killed."""
        from soak_server import app

        self._killed.clear()
        serving = asyncio.ensure_future(app.serve(Http(port=self.port), ready=ready))
        killed = asyncio.ensure_future(self._killed.wait())
        try:
            await asyncio.wait([serving, killed], return_when=asyncio.FIRST_COMPLETED)
            raise RuntimeError("the listener has died")
        finally:
            killed.cancel()
            serving.cancel()
            await asyncio.wait([serving, killed])


class Load:
    """Calls by one way, all the time."""

    def __init__(self, name: str, call: Callable[[], Awaitable[Any]]) -> None:
        self.name = name
        self.call = call
        self.answered = self.failed = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self.call()
                self.answered += 1
            except FerruleError:
                self.failed += 1
            await asyncio.sleep(0.005)

    async def answers_again(self) -> None:
        """Wait until one more call was answered."""
        seen = self.answered
        async with asyncio.timeout(RECOVERY):
            while self.answered == seen:
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Call no more."""
        self._task.cancel()
        await asyncio.wait([self._task])


class Workshop:
    """Everything that is used, and the faults that befall it."""

    def __init__(self) -> None:
        self.upstreams = [Upstream(), Upstream()]
        self.listener = OwnListener()
        self.proxy: Proxy
        self.child: Client
        self.loads: list[Load] = []

    async def open(self, stack: AsyncExitStack) -> None:
        """Start everything."""
        children = [Child("listener", self.listener.run, plan=PLAN)]
        for number, upstream in enumerate(self.upstreams):
            children.append(Child(f"upstream-{number}", upstream.run, plan=PLAN))
        await stack.enter_async_context(Supervisor("soak", *children))
        self.proxy = await stack.enter_async_context(Proxy(self.listener.port))
        urls = [f"http://127.0.0.1:{upstream.port}/mcp" for upstream in self.upstreams]
        router = await stack.enter_async_context(Router(urls, safe_tools=["echo"]))
        url = f"http://127.0.0.1:{self.proxy.port}/mcp"
        web = await stack.enter_async_context(Client(url, reconnect=AGAIN, tool_timeout=5.0))
        self.child = await stack.enter_async_context(
            Client([sys.executable, SERVER], reconnect=AGAIN, tool_timeout=5.0, **PATIENT)
        )
        text = {"text": "x"}
        self.loads = [
            Load("router", lambda: router.call_tool("echo", text)),
            Load("http", lambda: web.call_tool("echo", text)),
            Load("stdio", lambda: self.child.call_tool("echo", text)),
        ]

    async def kill_child(self) -> None:
        """Kill the process of a stdio client."""
        with suppress(FerruleError):
            os.kill((await self.child.call_tool("pid")).data, signal.SIGKILL)

    async def cut_connections(self) -> None:
        """Reset every connection to our listener."""
        self.proxy.reset()

    async def stop_upstream(self) -> None:
        """Stop one upstream for a while: it neither answers nor ends."""
        stopped = self.upstreams[0].pid
        os.kill(stopped, signal.SIGSTOP)
        await asyncio.sleep(GAP / 4)
        os.kill(stopped, signal.SIGCONT)

    async def kill_listener(self) -> None:
        """Let our listener die."""
        self.listener.kill()

    async def kill_upstream(self) -> None:
        """Kill one upstream."""
        os.kill(self.upstreams[1].pid, signal.SIGKILL)

    @property
    def faults(self) -> list[Callable[[], Awaitable[None]]]:
        """What may befall it."""
        return [self.kill_child, self.cut_connections, self.stop_upstream, self.kill_listener, self.kill_upstream]


async def settled(baseline: Sample) -> Sample:
    """Return what is held when that is no more than it was, or when some seconds have not brought it there."""
    for _ in range(100):
        found = Sample.now()
        if not found.over(baseline):
            break
        await asyncio.sleep(0.1)
    return found


async def soak() -> tuple[int, dict[str, tuple[int, int]]]:
    """Run it; return how many faults there were, and how many calls of each way were answered and failed."""
    loop = asyncio.get_running_loop()
    before = Sample.now()
    faults = 0
    async with AsyncExitStack() as stack:
        workshop = Workshop()
        await workshop.open(stack)
        for load in workshop.loads:
            await load.answers_again()
        await asyncio.sleep(min(GAP, 2.0))
        baseline = Sample.now()
        until = loop.time() + SECONDS
        for fault in itertools.cycle(workshop.faults):
            if loop.time() >= until and faults >= len(workshop.faults):
                break
            next_at = loop.time() + GAP
            await fault()
            faults += 1
            for load in workshop.loads:
                await load.answers_again()
            await asyncio.sleep(max(0.0, next_at - loop.time()))
        late = await settled(baseline)
        assert late.over(baseline) == {}
        assert late.resident - baseline.resident <= MOST_GROWTH
        for load in workshop.loads:
            await load.stop()
        counts = {load.name: (load.answered, load.failed) for load in workshop.loads}
    after = await settled(before)
    assert after.over(before) == {}
    return faults, counts


def test_faults_under_load_leave_nothing_behind() -> None:
    faults, counts = asyncio.run(soak())
    print(f"{faults} faults in {SECONDS:.0f} s: {counts}")
    assert faults >= max(5, SECONDS // (2 * GAP))
    for answered, failed in counts.values():
        assert answered > failed


def test_what_is_left_behind_is_found() -> None:
    async def scene() -> dict[str, int]:
        before = Sample.now()
        sockets = [socket.socket() for _ in range(4)]
        tasks = [asyncio.ensure_future(asyncio.sleep(60)) for _ in range(4)]
        ended = threading.Event()
        threads = [threading.Thread(target=ended.wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        children = [await asyncio.create_subprocess_exec("sleep", "60") for _ in range(4)]
        found = Sample.now().over(before)
        ended.set()
        for each in sockets:
            each.close()
        for child in children:
            child.kill()
            await child.wait()
        for task in tasks:
            task.cancel()
        return found

    found = asyncio.run(scene())
    assert found.keys() == {"sockets", "descriptors", "tasks", "threads", "children"}
