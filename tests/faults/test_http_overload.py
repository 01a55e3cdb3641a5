"""More than a server over HTTP can do at once: what it cannot do it says, and what it does stays quick."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from http_mcp import MIB, Answer, Bystander, Client, Process, serving
from pace import LONG, TURN, prompt

PATIENCE = 120.0
SMALL = 4096


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*args), PATIENCE))


def test_ovl_01_many_sessions_at_once_are_served_and_soon_forgotten(era: str) -> None:
    """Sessions of 4 calls each, all at once: none is reset, nobody waits twice as long as alone."""
    sessions, ms = (500, 500) if LONG else (150, 400)

    async def crowd(server: Process) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(server.port, era)) for _ in range(sessions)]
            for client in clients:
                client.ways += [await client.way() for _ in range(4 - len(client.ways))]
                for way in client.ways:
                    way.free = True
            waits: list[float] = []

            async def one(client: Client) -> None:
                began = time.perf_counter()
                answer = await client.call("sleep", ms=ms)
                assert answer.text == "slept"
                waits.append(time.perf_counter() - began)

            await asyncio.gather(*(one(client) for client in clients for _ in range(4)))
            assert len(waits) == 4 * sessions
            assert sorted(waits)[int(len(waits) * 0.99) - 1] < prompt(2 * ms / 1000)
        async with Client(server.port, era) as client:
            began = time.perf_counter()
            assert (await client.call("echo", text="next")).text == "next"
            assert time.perf_counter() - began < prompt(1)

    with serving() as server:
        run(crowd, server)


def test_ovl_02_calls_beyond_the_bounds_of_one_session_queue_and_then_are_told_busy() -> None:
    async def flood(server: Process) -> None:
        async with Client(server.port) as client, Bystander(server.port) as bystander:
            ways = [await client.way() for _ in range(600)]
            for way in ways:
                way.free = True
            before = server.rss()
            calls = [await client.begin_call("sleep", ms=1000) for _ in ways]
            answers: list[Answer] = await asyncio.gather(*(finish(call) for call in calls))
            codes = [answer.messages[0].get("error", {}).get("code") for answer in answers]
            assert set(codes) == {None, -32000}
            assert codes.count(None) >= 64 + 200
            assert codes.count(-32000) > 50
            assert (await client.stats())["most"] == 64
            assert server.rss() - before < 32
            assert await bystander.longest_turn() < TURN
            assert (await client.call("echo", text="next")).text == "next"

    with serving(max_concurrent_per_session=64, max_waiting_per_session=200) as server:
        run(flood, server)


async def finish(call: Answer) -> Answer:
    return await (await call.head()).whole()


def test_ovl_04_twice_the_capacity_does_not_collapse_goodput() -> None:
    """20 calls at a time of 100 ms each are 200 a second; 400 a second are asked for."""
    seconds = 20.0 if LONG else 2.0

    async def load(server: Process) -> None:
        async with Client(server.port, "stateless") as client:
            waits: list[float] = []
            shed = 0

            async def one() -> None:
                nonlocal shed
                began = time.perf_counter()
                answer = await client.call("sleep", ms=100)
                if "result" in answer.messages[-1]:
                    waits.append(time.perf_counter() - began)
                else:
                    assert "Busy" in answer.messages[-1]["error"]["message"]
                    shed += 1

            async def worker(until: float) -> None:
                while time.perf_counter() < until:
                    await one()

            began = time.perf_counter()
            await asyncio.gather(*(worker(began + 1) for _ in range(20)))
            peak = len(waits) / (time.perf_counter() - began)
            assert shed == 0

            waits.clear()
            began = time.perf_counter()
            asked = []
            for number in range(int(400 * seconds)):
                await asyncio.sleep(max(0.0, began + number / 400 - time.perf_counter()))
                asked.append(asyncio.ensure_future(one()))
            await asyncio.gather(*asked)
            goodput = len(waits) / (time.perf_counter() - began)
            assert shed > 0
            assert goodput >= (0.8 if LONG else 0.2) * peak
            assert max(waits) < prompt(1.1)
            assert (await client.call("echo", text="next")).text == "next"

    with serving(max_concurrent=20, max_waiting=20) as server:
        run(load, server)


def test_ovl_07_a_list_of_10000_tools_is_paged_and_delays_nobody() -> None:
    """One process for both eras, since reading in so many tools takes its time."""

    async def loop(server: Process, era: str) -> None:
        async with Bystander(server.port, era) as bystander, contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(server.port, era)) for _ in range(20)]
            for _ in range(3):
                for page in await asyncio.gather(*(client.ask("tools/list") for client in clients)):
                    assert page.body.count(b'"name":"tool_') == 1000
                    assert b'"nextCursor"' in page.body
            names, cursor = 0, {}
            while cursor is not None:
                found = (await clients[0].ask("tools/list", cursor)).messages[0]["result"]
                names += len(found["tools"])
                cursor = {"cursor": found["nextCursor"]} if "nextCursor" in found else None
            assert names == 10_013
            assert await bystander.longest_turn() < TURN

    with serving(more_tools=10_000) as server:
        for era in ("handshake", "stateless"):
            run(loop, server, era)


def test_ovl_08_updates_to_many_subscribers_are_merged_and_slow_ones_cut(era: str) -> None:
    """100 updates a second, told at most 50 times a second; who does not read is cut, everyone else hears the last."""
    subscribers, slow = (1000, 20) if LONG else (120, 4)

    async def fan_out(server: Process) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(server.port, era)) for _ in range(subscribers)]
            stuck = [await c.listen("note://one", "note://two", receive_buffer=SMALL) for c in clients[:slow]]
            streams = [await c.listen("note://one") for c in clients[slow:]]
            bystander = await stack.enter_async_context(Bystander(server.port))
            telling = await stack.enter_async_context(Client(server.port))
            reading = [asyncio.ensure_future(hear_last(stream, 299)) for stream in streams]
            began = time.monotonic()
            huge = asyncio.ensure_future(telling.call("change", count=300, pause=0.01, size=65536, uri="note://two"))
            await telling.call("change", count=300, pause=0.01)
            counts = await asyncio.gather(*reading)
            assert max(counts) <= (time.monotonic() - began) / 0.02 + 2
            assert max(counts) < 300
            assert min(counts) >= 10
            assert await bystander.longest_turn() < TURN
            await huge
            for stream in stuck:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await asyncio.wait_for(stream.whole(), 60)

    with serving({"max_stream_backlog": 65536, "write_timeout": 1.0}, update_interval=0.02) as server:
        run(fan_out, server)


async def hear_last(stream: Answer, number: int) -> int:
    """Read until the notice of this number; gives how many were heard."""
    heard, last = 0, b'"n":%d,' % number
    while True:
        for event in await stream.part():
            heard += b"resources/updated" in event.data
            if last in event.data:
                return heard


@pytest.mark.parametrize(
    ("shape", "count"),
    [("empty objects", 250_000), ("unique keys", 390_000), ("long list", 100_000)],
)
def test_frm_13_huge_numbers_of_tiny_values_stay_within_bounds(shape: str, count: int, era: str) -> None:
    """What they take is a bounded multiple of the body and is given back, and others hardly notice."""
    values: Any = {"empty objects": [{}] * count, "long list": list(range(count))}.get(shape)
    if values is None:
        values = {f"k{number}": 0 for number in range(count)}
    size = len(json.dumps(values, separators=(",", ":"))) / MIB

    async def post(server: Process) -> None:
        async with Client(server.port, era) as client, Bystander(server.port, era) as other:
            assert (await client.call("echo", text="warm")).text == "warm"
            before = server.rss()
            most = before
            answering = asyncio.ensure_future(client.call("count", values=values))
            while not answering.done():
                most = max(most, server.rss())
                await asyncio.sleep(0.005)
            assert (await answering).text == str(count)
            # An empty object of Python's alone is twenty times what it takes in JSON.
            assert most - before < 40 * size + 16, f"{most - before:.0f} MiB for {size:.1f}"
            for _ in range(3):
                assert (await client.call("count", values=values)).text == str(count)
            assert server.rss() - before < 40 * size + 32, "what was needed once is used again"
            assert await other.longest_turn() < 3 * TURN
            assert (await client.call("echo", text="next")).text == "next"

    with serving() as server:
        run(post, server)
