"""Routers over real sockets, and servers in processes of their own that are killed, stopped, deaf and flapping."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import http_mcp
import pytest
from pace import LONG, prompt
from tcp_workshop import Process

from ferrule import Client, Http, Server, Tcp
from ferrule.balancing.breaker import BreakerSettings
from ferrule.balancing.bulkhead import BulkheadSettings
from ferrule.errors import ConnectionTimedOut, OutcomeUnknown
from ferrule.routing.client import RoutedClient
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
        self.seconds: list[float] = []
        """How long each call took."""
        self._router = router
        self._tool = tool
        self._arguments = arguments
        self._safe = safe
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float, rate: float = RATE) -> None:
        """Make the calls, and wait for all of them."""
        for _ in range(int(seconds * rate)):
            self._tasks.add(asyncio.ensure_future(self._one()))
            await asyncio.sleep(1 / rate)
        await asyncio.gather(*self._tasks)

    async def _one(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._router.call_tool(self._tool, self._arguments, safe=self._safe)
            self.ends.append(None)
        except Exception as error:
            self.ends.append(error)
        self.seconds.append(clock() - began)

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
            assert max(load.seconds) < prompt(1.0)
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


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Process]]:
    """Two servers for tests that only stop them for a while."""
    started = [Process({}, {}), Process({}, {})]
    yield started
    for process in started:
        kill(process)


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
def test_unsafe_calls_find_out_that_a_server_stands_still(mode: str, processes: list[Process]) -> None:
    """They fail, each once, until the breaker opens; the next are answered by the other."""

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

    asyncio.run(main())


def test_a_server_that_stands_still_is_left_alone_and_found_again(processes: list[Process]) -> None:
    """SIGSTOP: reads are answered by the other; the breaker opens, and closes again once it goes on."""

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

    asyncio.run(main())


@contextmanager
def full_accept_queue() -> Iterator[int]:
    """Listen without ever accepting, with no room left for those who connect; gives the port."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        port: int = deaf.getsockname()[1]
        waiting = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        try:
            yield port
        finally:
            for one in waiting:
                one.close()


def test_a_server_that_accepts_nobody_costs_no_call() -> None:
    """Its queue is full, so nothing is ever sent to it: no call is lost, be it safe or not."""
    process = Process({}, {})

    async def main(deaf: int) -> None:
        targets = [f"tcp://127.0.0.1:{deaf}", f"tcp://127.0.0.1:{process.port}"]
        options: dict[str, Any] = {"balance": "round_robin", "safe_tools": ["add"], "tcp": {"connect_timeout": 0.3}}
        async with Client(targets, **options) as client:
            assert isinstance(client, RoutedClient)
            for _ in range(6):
                assert (await client.call_tool("echo", {"text": "x"})).data == "x"
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            first = client.router.targets[0]
            assert (first.breaker.state, first.calls, first.errors) == ("open", 5, 5)
            began = asyncio.get_running_loop().time()
            for _ in range(20):
                await client.call_tool("echo", {"text": "x"})
            assert asyncio.get_running_loop().time() - began < prompt(1.0)
            assert (client.router.stats().errors, client.router.stats().retries) == (0, 5)

    try:
        with full_accept_queue() as port:
            asyncio.run(main(port))
    finally:
        kill(process)


FLAPPING = 60 if LONG else 8
"""Seconds for which a server comes and goes."""


def test_a_server_that_comes_and_goes_every_second_costs_no_safe_call() -> None:
    """Of unsafe ones only those in flight when it goes; its breaker does not flap with it."""
    steady, flapping = Process({}, {}), Process({}, {})
    port = flapping.port

    async def flap(seconds: float) -> None:
        nonlocal flapping
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(1.0)
            await asyncio.to_thread(kill, flapping)
            await asyncio.sleep(1.0)
            flapping = await asyncio.to_thread(Process, {"port": port}, {})

    async def main() -> None:
        loop = asyncio.get_running_loop()
        targets = {"steady": f"tcp://127.0.0.1:{steady.port}", "flapping": f"tcp://127.0.0.1:{port}"}
        async with Router(targets, balance="round_robin") as router:
            safe = Load(router, "wait", {"seconds": 0.02}, safe=True)
            unsafe = Load(router, "wait", {"seconds": 0.02}, safe=False)
            began = loop.time()
            await asyncio.gather(flap(FLAPPING), safe.run(FLAPPING, 50), unsafe.run(FLAPPING, 50))
            took = loop.time() - began
            assert safe.failed == []
            assert {type(error) for error in unsafe.failed} <= {OutcomeUnknown}
            transitions = router.targets[1].breaker.transitions
            assert transitions["closed>open"] >= 1
            assert sum(transitions.values()) <= took
            assert router.targets[0].breaker.transitions == {}
            while router.targets[1].breaker.state != "closed":
                await router.request("tools/list")
                await asyncio.sleep(0.05)

    try:
        asyncio.run(asyncio.wait_for(main(), 240))
    finally:
        for process in (steady, flapping):
            kill(process)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_server_that_routes_answers_an_overload_with_503_and_when_to_come_again(era: str) -> None:
    """Both refusals of a router: too many calls at once, and no target that may be used."""

    async def main() -> None:
        behind = Server("behind")
        free = asyncio.Event()

        @behind.tool
        async def wait() -> str:
            """Wait."""
            await free.wait()
            return "done"

        upstream = Client([behind], bulkhead=BulkheadSettings(in_flight=1, queue=0))
        assert isinstance(upstream, RoutedClient)
        front = Server("front")

        @front.tool
        async def forward() -> str:
            """Forward."""
            return (await upstream.call_tool("wait")).text

        async with upstream, http_mcp.served(front) as port, http_mcp.Client(port, era) as caller:
            first = asyncio.ensure_future(caller.call("forward"))
            await until(lambda: upstream.router.stats().in_flight == 1)
            refused = await caller.call("forward")
            assert refused.headers["retry-after"] == "1"
            [answer] = refused.messages
            assert answer["error"]["data"]["retryAfter"] == 1
            assert answer["error"]["message"] == "Overloaded: try again in 1 s"
            assert refused.status == 503
            free.set()
            assert (await first).messages[0]["result"]["content"][0]["text"] == "done"
            upstream.router.force_open("0")
            refused = await caller.call("forward")
            assert (refused.status, refused.headers["retry-after"]) == (503, "30")
            assert "the breaker is open" in refused.messages[0]["error"]["message"]

    asyncio.run(asyncio.wait_for(main(), 60))
