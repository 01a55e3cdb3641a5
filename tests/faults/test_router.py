"""Routers over real sockets, and servers in processes of their own that are killed and stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pace import prompt
from tcp_workshop import Process

from ferrule import Http, Server, Tcp
from ferrule.balancing.breaker import BreakerSettings
from ferrule.errors import ConnectionTimedOut, OutcomeUnknown
from ferrule.routing.router import Router

RATE = 200
"""Calls a second."""


def kill(process: Process) -> None:
    """End a server at once, and wait for it."""
    process.process.kill()
    process.process.communicate()


async def until(condition: Callable[[], Any], within: float = 60.0) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def served(listener: Any, name: str) -> AsyncIterator[None]:
    """Serve in this process."""
    app = Server(name)

    @app.tool
    async def who() -> str:
        """Return the name of the server."""
        return name

    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    try:
        yield
    finally:
        await app.stop(0.0)
        await serving


@pytest.mark.parametrize("kind", ["tcp", "http"])
def test_a_router_finds_the_server_that_is_there_and_the_one_that_comes_back(kind: str) -> None:
    def listener(port: int = 0) -> Any:
        if kind == "tcp":
            return Tcp(host="127.0.0.1", port=port)
        return Http(host="127.0.0.1", port=port)

    def address(listening: Any) -> str:
        path = "" if kind == "tcp" else "/mcp"
        return f"{kind}://127.0.0.1:{listening.address[1]}{path}"

    async def main() -> None:
        first, second = listener(), listener()
        async with served(first, "first"):
            async with served(second, "second"):
                targets = {"first": address(first), "second": address(second)}
                router = Router(targets, balance="round_robin", safe_tools=["who"])
                await router.start()
                assert {(await router.call_tool("who")).data for _ in range(4)} == {"first", "second"}
                port = second.address[1]
            assert {(await router.call_tool("who")).data for _ in range(20)} == {"first"}
            await until(lambda: router.targets[1].breaker.state == "open")
            async with served(listener(port), "second"):
                await until(lambda: router.targets[1].breaker.state == "half_open")
                found = set()
                for _ in range(20):
                    found.add((await router.call_tool("who")).data)
                assert found == {"first", "second"}
                assert router.targets[1].breaker.state == "closed"
            await router.close()

    asyncio.run(main())


class Load:
    """Calls at a steady rate, and how each ended."""

    def __init__(self, router: Router, tool: str, arguments: dict[str, Any], *, safe: bool) -> None:
        self.ends: list[Any] = []
        self._router = router
        self._tool = tool
        self._arguments = arguments
        self._safe = safe
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        """Make the calls, and wait for all of them."""
        for _ in range(int(seconds * RATE)):
            self._tasks.add(asyncio.ensure_future(self._one()))
            await asyncio.sleep(1 / RATE)
        await asyncio.gather(*self._tasks)

    async def _one(self) -> None:
        try:
            await self._router.call_tool(self._tool, self._arguments, safe=self._safe)
            self.ends.append(None)
        except Exception as error:
            self.ends.append(error)

    @property
    def failed(self) -> list[Any]:
        """The errors."""
        return [end for end in self.ends if end is not None]


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "unsafe"])
def test_kill_9_of_one_of_two_replicas_loses_no_safe_call(safe: bool) -> None:
    """Of unsafe ones only those that were in flight, and each says that its outcome is unknown."""
    processes = [Process({}, {}), Process({}, {})]

    async def main() -> None:
        targets = {f"r{number}": f"tcp://127.0.0.1:{process.port}" for number, process in enumerate(processes)}
        async with Router(targets, balance="round_robin") as router:
            load = Load(router, "wait", {"seconds": 0.02}, safe=safe)
            running = asyncio.ensure_future(load.run(2.0))
            await until(lambda: len(load.ends) >= 50)
            in_flight = router.targets[0].in_flight
            processes[0].process.send_signal(signal.SIGKILL)
            await running
            assert len(load.ends) == 400
            if safe:
                assert load.failed == []
            else:
                assert {type(error) for error in load.failed} <= {OutcomeUnknown}
                assert len(load.failed) <= in_flight + 5
            assert router.stats().outcome_unknown == len(load.failed)
            assert router.targets[0].breaker.state == "open"

    try:
        asyncio.run(main())
    finally:
        for process in processes:
            kill(process)


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
def test_unsafe_calls_find_out_that_a_server_stands_still(mode: str) -> None:
    """They fail, each once, until the breaker opens; the next are answered by the other."""
    processes = [Process({}, {}), Process({}, {})]

    async def main() -> None:
        targets = {f"r{number}": f"tcp://127.0.0.1:{process.port}" for number, process in enumerate(processes)}
        breaker = BreakerSettings(failures=2)
        options: dict[str, Any] = {"mode": mode, "tool_timeout": 0.2, "ping_timeout": 0.2}
        async with Router(targets, balance="round_robin", breaker=breaker, **options) as router:
            processes[0].process.send_signal(signal.SIGSTOP)
            try:
                failed: list[Exception] = []
                while router.targets[0].breaker.state != "open":
                    try:
                        await router.call_tool("echo", {"text": "x"})
                    except Exception as error:
                        failed.append(error)
                assert {type(error) for error in failed} <= {ConnectionTimedOut, OutcomeUnknown}
                assert 1 <= len(failed) <= 2
                assert router.stats().retries <= 1  # of one that could not connect, so was not sent
                for _ in range(5):
                    assert (await router.call_tool("echo", {"text": "x"}, timeout=60)).data == "x"
            finally:
                processes[0].process.send_signal(signal.SIGCONT)

    try:
        asyncio.run(main())
    finally:
        for process in processes:
            kill(process)


def test_a_server_that_stands_still_is_left_alone_and_found_again() -> None:
    """SIGSTOP: reads are answered by the other; the breaker opens, and closes again once it goes on."""
    processes = [Process({}, {}), Process({}, {})]

    async def main() -> None:
        targets = {f"r{number}": f"tcp://127.0.0.1:{process.port}" for number, process in enumerate(processes)}
        breaker = BreakerSettings(call_timeout=0.3, failures=2)
        router = Router(targets, balance="round_robin", breaker=breaker, ping_timeout=0.3)
        async with router:
            processes[0].process.send_signal(signal.SIGSTOP)
            try:
                answers = []
                while router.targets[0].breaker.state != "open":
                    answers.append(await router.request("tools/list"))
                assert all(answer["tools"] for answer in answers)
                assert router.stats().errors == 0
            finally:
                processes[0].process.send_signal(signal.SIGCONT)
            loop = asyncio.get_running_loop()
            began = loop.time()
            while router.targets[0].breaker.state != "closed":
                await router.request("tools/list")
                await asyncio.sleep(0.01)
            assert loop.time() - began < prompt(2.0)

    try:
        asyncio.run(main())
    finally:
        for process in processes:
            kill(process)
