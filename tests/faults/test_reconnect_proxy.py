"""Clients behind a faulty proxy: they come back, every call ends once, and the server lets everything go."""

from __future__ import annotations

import asyncio
import gc
import operator
import os
import signal
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from pace import LONG
from proxy import Proxy
from tcp_workshop import Process

from ferrule import CallFailed, Client, Http, OutcomeUnknown, PeerError, Reconnect, Server, Tcp, TimedOut, WebSocket
from ferrule.client.features.subscription import Changes
from ferrule.protocol.session import Phase
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.transports.http.listener import Sse

PATIENCE = 120.0
QUICK = Reconnect(first_delay=0.02, longest_delay=0.2, jitter=0.0, resubscribe=True)
HTTP = {"retry_delay": 0.02, "max_retry_delay": 0.2}
URI = "notes://1"
CARRIERS = {
    "tcp": (lambda: Tcp(port=0), "tcp://127.0.0.1:{}"),
    "ws": (lambda: WebSocket(port=0), "ws://127.0.0.1:{}/mcp/ws"),
    "http": (lambda: Http(port=0), "http://127.0.0.1:{}/mcp"),
    "sse": (lambda: Sse(port=0, sse_grace=0.0), "sse+http://127.0.0.1:{}/sse"),
}
PLACES = [
    *(("tcp", "handshake"), ("tcp", "stateless"), ("ws", "handshake"), ("ws", "stateless")),
    *(("http", "handshake"), ("http", "stateless"), ("sse", "handshake")),
]
everywhere = pytest.mark.parametrize(("carrier", "era"), PLACES)
on_links = pytest.mark.parametrize(("carrier", "era"), [place for place in PLACES if place[0] != "http"])


class Scene(NamedTuple):
    """A server, a faulty way to it, and a client at the other end."""

    app: Server
    listener: Any
    proxy: Proxy
    client: Client
    ran: Counter[str]
    """How often each call was run that must not be run twice, and how often `look` was."""
    gate: asyncio.Event
    """Calls that were begun while it is closed end when it is opened."""


def make_app(ran: Counter[str], gate: asyncio.Event) -> Server:
    app = Server("faulty")

    @app.tool(annotations={"readOnlyHint": True})
    async def look() -> str:
        ran["look"] += 1
        await gate.wait()
        return "seen"

    @app.tool
    async def pay(bill: str) -> str:
        ran[bill] += 1
        await gate.wait()
        return bill

    @app.resource("notes://{number}")
    async def note(number: str) -> str:
        return number

    return app


@asynccontextmanager
async def scene(carrier: str, era: str, **options: Any) -> AsyncIterator[Scene]:
    """Set the scene; at its end nothing may be left of it."""
    ran: Counter[str] = Counter()
    gate = asyncio.Event()
    gate.set()
    app = make_app(ran, gate)
    make, url = CARRIERS[carrier]
    listener, ready = make(), asyncio.Event()
    tasks = asyncio.all_tasks()
    await app.enter()
    serving = asyncio.create_task(listener.serve(app.host, ready.set))
    await ready.wait()
    async with Proxy(listener.address[1]) as proxy:
        http = {"http": HTTP} if carrier in ("http", "sse") else {}
        client = Client(url.format(proxy.port), mode=era, **{"reconnect": QUICK, **http, **options})  # type: ignore[misc]
        async with client:
            await client.list_tools()
            yield Scene(app, listener, proxy, client, ran, gate)
    # A session over HTTP may outlive a client whose goodbye was lost, or who had none to say.
    await until(lambda: not app.host.links or carrier in ("http", "sse"))
    await listener.close(1.0)
    await serving
    assert not app.host.links
    await app.leave()
    await until(lambda: asyncio.all_tasks() <= tasks)


async def until(condition: Callable[[], Any], within: float = 60.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


async def in_flight(on: Scene, number: int) -> list[asyncio.Task[Any]]:
    """Start calls, half of which may be done twice, and wait until all are running, and go on doing so."""
    on.gate.clear()
    on.ran.clear()
    calls = []
    for bill in range(number):
        calls.append(asyncio.create_task(on.client.call_tool("look")))
        calls.append(asyncio.create_task(on.client.call_tool("pay", {"bill": str(bill)})))
    await until(lambda: on.ran.total() == 2 * number)
    return calls


async def works(on: Scene) -> None:
    """The client can call again, as it could before."""
    end = time.monotonic() + 60
    while True:
        try:
            assert (await on.client.call_tool("look")).text == "seen"
            break
        except (CallFailed, PeerError):
            assert time.monotonic() < end, "the client does not recover"
    assert on.client.phase is Phase.INITIALIZED


def ended_once(on: Scene, results: list[Any]) -> None:
    """Every call has an answer or an error of its own, and what may not run twice did not."""
    for number, result in enumerate(results):
        if isinstance(result, BaseException):
            assert isinstance(result, CallFailed), result
        else:
            assert result.text == ("seen" if number % 2 == 0 else str(number // 2))
    assert all(times == 1 for bill, times in on.ran.items() if bill != "look"), on.ran


# Cut and reset


@everywhere
@pytest.mark.parametrize("fault", ["cut", "reset"])
def test_a_line_that_breaks_costs_no_more_than_what_was_in_flight(carrier: str, era: str, fault: str) -> None:
    """TCPT-24, TCPT-16, SHUT-10, WEBS-22, RES-07, CORR-10: by FIN, by RST; what reads is asked again."""

    async def test() -> None:
        async with scene(carrier, era) as on:
            for _ in range(2):
                calls = await in_flight(on, 5)
                getattr(on.proxy, fault)()
                on.gate.set()
                results = await asyncio.gather(*calls, return_exceptions=True)
                ended_once(on, results)
                assert [result.text for result in results[::2]] == ["seen"] * 5
                if carrier in ("tcp", "ws", "sse") or era == "stateless":
                    assert [type(result) for result in results[1::2]] == [OutcomeUnknown] * 5
                await works(on)

    run(test())


@on_links
def test_a_client_hears_of_changes_again_after_a_line_broke(carrier: str, era: str) -> None:
    """SUBS-12, SUB-11"""
    run(hears_again(carrier, era))


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_over_http_a_client_hears_of_changes_again_too(era: str) -> None:
    """SUBS-12, SUB-9: the stream is resumed by the transport, or subscribed to anew."""
    run(hears_again("http", era))


async def hears_again(carrier: str, era: str) -> None:
    async with scene(carrier, era) as on, on.client.subscribe(URI) as changes:
        for _ in range(3):
            on.proxy.reset()
            heard = asyncio.create_task(anext(changes))
            while not heard.done():
                on.app.notify_resource_updated(URI)
                await asyncio.wait([heard], timeout=0.1)
            assert heard.result() == URI
        await works(on)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_shd_06_over_http_a_server_that_was_replaced_is_subscribed_to_anew(era: str) -> None:
    """SUBS-12, SESS-13, RES-06, SHD-06: it knows neither session nor subscription, and the client was idle."""

    async def test() -> None:
        gate, ready, listener = asyncio.Event(), asyncio.Event(), Http(port=0)
        gate.set()
        other = make_app(Counter(), gate)
        serving = asyncio.create_task(listener.serve(other.host, ready.set))
        await ready.wait()
        async with scene("http", era) as on:
            notices: list[str] = []
            on.client.on_connection(lambda notice: notices.append(notice.what))
            async with on.client.subscribe(URI) as changes:
                on.proxy.target = listener.address[1]
                on.proxy.reset()
                assert await anext(changes) == URI, "what may have been missed is told"
                other.notify_resource_updated(URI)
                assert await anext(changes) == URI
                assert notices == (["restored"] if era == "handshake" else [])
                await works(on)
            await on.client.close()
        await listener.close(1.0)
        await serving

    run(test())


@everywhere
def test_a_server_out_of_reach_for_a_while_is_found_again(carrier: str, era: str) -> None:
    """RES-05: what is asked meanwhile waits."""

    async def test() -> None:
        async with scene(carrier, era) as on:
            before = on.proxy.accepted
            on.proxy.refusing = True
            on.proxy.reset()
            call = asyncio.create_task(on.client.call_tool("look", timeout=60))
            await until(lambda: on.proxy.accepted >= before + 2)
            on.proxy.refusing = False
            await asyncio.wait([call])
            if not isinstance(call.exception(), CallFailed):
                assert call.result().text == "seen"
            await works(on)

    run(test())


@on_links
def test_a_server_that_stays_away_is_given_up(carrier: str, era: str) -> None:
    """SESS-11, RES-05, TCPT-14"""

    async def test() -> None:
        plan = Reconnect(first_delay=0.01, longest_delay=0.02, max_attempts=3)
        async with scene(carrier, era, reconnect=plan) as on:
            on.proxy.refusing = True
            on.proxy.cut()
            with pytest.raises(CallFailed, match="not restored in 3 attempts"):
                await on.client.call_tool("look")
            assert on.client.phase is Phase.CLOSED

    run(test())


# Silence


@everywhere
@pytest.mark.parametrize("ways", [("to_server",), ("to_client",)])
def test_a_half_open_line_is_noticed_by_who_waits(carrier: str, era: str, ways: tuple[Any, ...]) -> None:
    """SESS-31, RES-07: neither the call nor the ping behind it is answered, so there is a new link."""

    async def test() -> None:
        async with scene(carrier, era, tool_timeout=0.5, ping_timeout=0.5) as on:
            on.proxy.half_open(*ways)
            calls = [on.client.call_tool("pay", {"bill": str(number)}) for number in range(5)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(times == 1 for times in on.ran.values())
            assert all(isinstance(result, CallFailed) for result in results if isinstance(result, Exception))
            await works(on)

    run(test())


@everywhere
def test_a_line_that_stalls_for_a_while_loses_nothing(carrier: str, era: str) -> None:
    async def test() -> None:
        async with scene(carrier, era) as on:
            calls = await in_flight(on, 5)
            on.proxy.stall()
            on.gate.set()
            done, _ = await asyncio.wait(calls, timeout=0.2)
            assert not done
            assert not on.client.reconnecting
            on.proxy.flow()
            results = await asyncio.gather(*calls)
            ended_once(on, results)

    run(test())


@on_links
def test_a_line_that_stalls_for_too_long_is_replaced(carrier: str, era: str) -> None:
    """SESS-31"""

    async def test() -> None:
        async with scene(carrier, era, tool_timeout=0.5, ping_timeout=0.5) as on:
            on.proxy.stall("to_client")
            with pytest.raises(TimedOut):
                await on.client.call_tool("look")
            await until(lambda: on.client.reconnecting)
            on.proxy.flow()
            await works(on)

    run(test())


# Slow, in pieces, out of order


@everywhere
def test_a_slow_line_of_tiny_pieces_changes_nothing(carrier: str, era: str) -> None:
    async def test() -> None:
        async with scene(carrier, era) as on:
            on.proxy.delay, on.proxy.piece = 0.01, 7
            calls = await in_flight(on, 5)
            on.gate.set()
            results = await asyncio.gather(*calls)
            ended_once(on, results)
            assert len(on.ran) == 6

    run(test())


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_answers_that_come_in_the_wrong_order_reach_the_right_callers(era: str) -> None:
    """Each POST has a connection of its own; the last answered comes first."""

    async def test() -> None:
        async with scene("http", era) as on:
            for turn in range(3):
                on.proxy.shuffle(6)
                bills = [f"{turn}-{number}" for number in range(6)]
                on.gate.clear()
                calls = [asyncio.create_task(on.client.call_tool("pay", {"bill": bill})) for bill in bills]
                await until(partial(set(bills).issubset, on.ran))
                on.gate.set()
                assert [result.text for result in await asyncio.gather(*calls)] == bills
            assert set(on.ran.values()) == {1}

    run(test())


def test_clients_on_lines_of_different_speed_do_not_mix() -> None:
    async def test() -> None:
        async with scene("tcp", "handshake") as on:
            target = f"tcp://127.0.0.1:{on.proxy.port}"
            async with Client(target, reconnect=QUICK) as one, Client(target, reconnect=QUICK) as two:
                on.proxy.shuffle(3)
                calls = [each.call_tool("pay", {"bill": str(n)}) for n, each in enumerate((on.client, one, two))]
                assert [result.text for result in await asyncio.gather(*calls)] == ["0", "1", "2"]

    run(test())


# Again and again


def holds(app: Server) -> tuple[int, int, int]:
    """Count tasks, descriptors and links."""
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), len(list(app.host.links))


LEAK = 512 if LONG else 2048
"""Bytes a reconnect may leave behind, on both sides together; in a short run caches still fill."""


@contextmanager
def nothing_warned() -> Iterator[None]:
    """Fail if Python warns of anything that was not closed, or asyncio tells of a task that was destroyed."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context)))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [*map(str, warned), *told] == []


@pytest.mark.parametrize("carrier", ["tcp", "ws"])
def test_a_client_that_comes_back_again_and_again_leaves_nothing_behind(carrier: str) -> None:
    """SOK-03, SHUT-05, SHUT-06: 100 losses, 10,000 with FERRULE_LONG."""
    losses = 10_000 if LONG else 100
    sizes: list[int] = []

    async def test() -> None:
        with nothing_warned():
            await lose()

    async def lose() -> None:
        plan = Reconnect(first_delay=0.0, longest_delay=0.0, resubscribe=True)
        async with scene(carrier, "handshake", reconnect=plan) as on, on.client.subscribe(URI) as changes:
            held: list[tuple[int, int, int]] = []
            restored: Counter[str] = Counter()
            on.client.on_connection(lambda notice: restored.update((notice.what,)))
            reading = asyncio.ensure_future(read(changes))
            for number in range(losses):
                (on.proxy.cut if number % 2 else on.proxy.reset)()
                await until(lambda number=number: restored["restored"] > number)  # type: ignore[misc]
                assert (await on.client.call_tool("look")).text == "seen"
                if number % 50 in (9, 49):
                    await until(lambda: len(list(on.app.host.links)) == 1 and len(on.proxy.connections) == 1)
                    gc.collect()
                    # What is on its way out has a while to go.
                    await until(lambda: not held or all(map(operator.le, holds(on.app), held[0])))
                    held.append(holds(on.app))
                    sizes.append(tracemalloc.get_traced_memory()[0])
            assert on.client.subscriptions == {URI}
            reading.cancel()

    async def read(changes: Changes) -> None:
        async for _ in changes:
            pass

    tracemalloc.start()
    try:
        asyncio.run(asyncio.wait_for(test(), 3600 if LONG else PATIENCE))
    finally:
        tracemalloc.stop()
    # There are two looks in 50 losses; what is made once has been made by the second.
    assert sizes[-1] - sizes[1] < LEAK * (losses - 50)


def test_a_session_of_the_pair_whose_stream_was_cut_is_let_go_by_the_server() -> None:
    async def test() -> None:
        async with scene("sse", "handshake") as on:
            on.proxy.reset()
            await works(on)
            await until(lambda: sum(not isinstance(link, SessionlessLink) for link in on.app.host.links) == 1)

    run(test())


# A server that dies


def test_a_server_that_is_killed_and_started_again_is_found_again() -> None:
    """TCPT-16, CRA-05: another process, behind the same address."""

    async def test() -> None:
        first = Process({}, {})
        second: Process | None = None
        async with (
            Proxy(first.port) as proxy,
            Client(f"tcp://127.0.0.1:{proxy.port}", reconnect=QUICK) as client,
        ):
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            os.kill(first.pid, signal.SIGKILL)
            first.process.communicate()
            await until(lambda: client.reconnecting)
            second = await asyncio.to_thread(Process, {}, {})
            proxy.target = second.port
            assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
        said = await asyncio.to_thread(second.stop)
        assert "Traceback" not in said

    run(test())
