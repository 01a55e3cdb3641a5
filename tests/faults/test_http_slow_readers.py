"""Readers over real sockets that stop, crawl or never come back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from http_mcp import Answer, Bystander, Client, Process, serving
from pace import LONG, TURN

from ferrule.transports.http.settings import EngineSettings

PATIENCE = 120.0
SMALL = 4096
"""A receive buffer that fills at once."""


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*args), PATIENCE))


async def stalled(client: Client, name: str, count: int, size: int) -> Answer:
    """Begin a flood and read its first message only."""
    answer = await client.begin_call("flood", receive_buffer=SMALL, name=name, count=count, size=size)
    return await (await answer.head()).until(1)


@pytest.mark.parametrize("readers", [1, 20] if LONG else [20])
def test_slo_01_a_stalled_reader_holds_its_producer_within_bounded_memory(era: str, readers: int) -> None:
    """always:SLO-01: 200,000 messages of 1 KiB to 20 readers that stop; the long run has one alone as well."""

    async def stall(server: Process) -> None:
        async with contextlib.AsyncExitStack() as stack:
            watching = await stack.enter_async_context(Client(server.port))
            bystander = await stack.enter_async_context(Bystander(server.port, era))
            await asyncio.sleep(0.3)
            before = server.rss()
            for number in range(readers):
                client = await stack.enter_async_context(Client(server.port, era))
                await stalled(client, f"flood {number}", 200_000, 1024)
            floods = [f"flood {number}" for number in range(readers)]
            first, second = {}, await watching.stats()
            while [second[flood] for flood in floods] != [first.get(flood) for flood in floods]:
                await asyncio.sleep(0.5)
                first, second = second, await watching.stats()
            grown = server.rss() - before
            assert max(second[flood] for flood in floods) < 20_000
            assert not [name for name in second if name.endswith("cancelled")]
            assert grown < 64
            assert await bystander.longest_turn() < 3 * TURN
        async with Client(server.port, era) as client:
            assert (await client.call("echo", text="next")).text == "next"

    with serving() as server:
        run(stall, server)


def test_slo_02_a_reader_of_a_session_that_never_returns_is_cut_and_its_stream_can_be_resumed() -> None:
    assert EngineSettings().write_timeout == 10.0

    async def vanish(server: Process) -> None:
        async with Client(server.port) as client:
            answer = await stalled(client, "a", 3000, 2048)
            held = (await client.stats())["a"]
            assert held < 3000
            await _until_more(client, "a", 3000)
            resumed = await (await client.get(answer.last_id)).whole()
            heard = [message["params"]["data"]["n"] for message in (answer.messages + resumed.messages)[:-1]]
            assert heard == list(range(3000))
            assert resumed.text == "a"

    with serving({"write_timeout": 2.0, "max_events": 10_000, "max_event_bytes": 32 * 1024 * 1024}) as server:
        run(vanish, server)


def test_slo_02_a_reader_without_a_session_that_never_returns_is_cut_and_its_call_is_told() -> None:
    async def vanish(server: Process) -> None:
        async with Client(server.port, "stateless") as client:
            await stalled(client, "a", 200_000, 1024)
            await _until_more(client, "a cancelled", 1)
            assert (await client.call("echo", text="next")).text == "next"

    with serving({"write_timeout": 0.5}) as server:
        run(vanish, server)


async def _until_more(client: Client, name: str, count: int, within: float = 60.0) -> None:
    until = time.monotonic() + within
    while (await client.stats()).get(name, 0) < count:
        assert time.monotonic() < until, await client.stats()
        await asyncio.sleep(0.05)


def test_slo_03_a_slow_but_moving_reader_stays_alive(era: str) -> None:
    """It takes twice the write timeout to read it all, a little at a time."""

    async def crawl(server: Process) -> None:
        async with Client(server.port, era) as client, Bystander(server.port) as bystander:
            begun = await client.begin_call("flood", receive_buffer=SMALL, name="a", count=400, size=2048)
            answer = await begun.head()
            began = time.monotonic()
            while not answer.over:
                for _ in range(10):
                    if not answer.over:
                        await answer.part()
                await asyncio.sleep(0.1)
            assert time.monotonic() - began > 3
            assert [message["params"]["data"]["n"] for message in answer.messages[:-1]] == list(range(400))
            assert answer.text == "a"
            assert await bystander.longest_turn() < 3 * TURN

    with serving({"write_timeout": 1.5}) as server:
        run(crawl, server)


def test_slo_04_an_unread_standing_stream_is_bounded_and_loses_no_response(era: str) -> None:
    """SSEV-12, seed:HTTP-23: 10,000 notices to somebody who does not read: the stream is cut, calls are answered."""

    async def ignore(server: Process) -> None:
        async with Client(server.port, era) as client, Client(server.port) as other:
            stream = await client.listen("note://one", receive_buffer=SMALL)
            await stream.part()
            await other.call("change", count=10)
            before = server.rss()
            changing = asyncio.ensure_future(other.call("change", count=10_000, size=1024))
            for number in range(20):
                assert (await client.call("echo", text=str(number))).text == str(number)
            assert (await changing).text == "changed"
            assert server.rss() - before < 24
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await stream.whole()
            if era == "handshake":
                kept = await client.get()
                assert kept.status == 200
            assert (await client.call("echo", text="next")).text == "next"

    with serving({"write_timeout": 1.0}) as server:
        run(ignore, server)


def test_a_reader_that_comes_and_goes_costs_nothing_that_stays() -> None:
    async def flap(server: Process) -> None:
        async with Client(server.port) as client:
            for turn in range(300 if LONG else 60):
                if turn == 20:
                    before = server.rss()
                answer = await stalled(client, "a", 50, 1024)
                answer.way.reset()
                client.ways.remove(answer.way)
            await _until_more(client, "a", 50 * turn)
            assert server.rss() - before < 8

    with serving() as server:
        run(flap, server)
