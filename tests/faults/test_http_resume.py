"""Streams over real sockets that are cut, and read on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from http_mcp import Answer, Client, served
from http_workshop import Workshop
from pace import LONG

from ferrule import Context

PATIENCE = 120.0


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*args), PATIENCE))


async def come_back(client: Client, last: str) -> Answer:
    """Resume as a client does: again a little later, while the server does not know that the old way is gone."""
    for _ in range(200):
        answer = await client.get(last)
        if answer.status != 409:
            return answer
        await asyncio.sleep(0.01)
    raise AssertionError("the old reader is never given up")


async def read_with_cuts(client: Client, answer: Answer, cuts: list[int]) -> list[Any]:
    """Read a stream to its end, and cut it whenever so many more messages have come."""
    heard: list[Any] = []
    await answer.part()
    last = answer.last_id
    assert last
    for cut in cuts:
        await answer.until(cut)
        if answer.over:
            break
        heard += answer.messages
        last = answer.last_id or last
        answer.way.reset()
        answer = await come_back(client, last)
        assert answer.status == 200
    return heard + (await answer.whole()).messages


@pytest.mark.parametrize("seed", range(10) if LONG else [1])
def test_res_01_streams_cut_at_random_lose_double_and_mix_nothing(seed: int) -> None:
    """always:RES-01: the long run only tries more seeds."""

    async def cut() -> None:
        chance = random.Random(seed)
        async with served(Workshop()) as port, Client(port) as client:

            async def one(name: str) -> None:
                cuts = [chance.randint(0, 8) for _ in range(chance.randint(1, 4))]
                begun = await client.begin_call("tell", token=name, name=name, to=30, pause=0.005)
                heard = await read_with_cuts(client, await begun.head(), cuts)
                *told, last = heard
                assert [message["params"]["progress"] for message in told] == list(range(1, 31))
                assert {message["params"]["message"] for message in told} == {name}
                assert last["result"]["content"][0]["text"] == name

            await asyncio.gather(*(one(f"stream {number}") for number in range(15)))
            assert (await client.call("echo", text="next")).text == "next"

    run(cut)


def test_res_02_a_stream_that_was_cut_before_its_first_event_is_read_from_the_start() -> None:
    async def cut() -> None:
        async with served(Workshop(), quiet=0.1) as port, Client(port) as client:
            answer = await (await client.begin_call("tell", token=1, name="x", to=3, pause=0.3)).head()
            await answer.part()
            assert answer.messages == [] or len(answer.messages) == 1
            answer.way.reset()
            resumed = await (await come_back(client, answer.events[0].id)).whole()
            assert [m["params"]["progress"] for m in resumed.messages[:-1]] == [1, 2, 3]

    run(cut)


def test_res_03_resumes_that_come_late_or_twice_have_clear_answers() -> None:
    async def resume() -> None:
        async with served(Workshop(), event_age=2.0, quiet=0.1) as port, Client(port) as client:
            done = await client.call("tell", token=1, name="x", to=3)
            complete = await (await client.get(done.events[0].id)).whole()
            assert complete.messages == done.messages
            running = await (await client.begin_call("tell", token=1, name="y", to=2, pause=0.3)).head()
            await running.part()
            twice = await client.get(running.last_id)
            assert twice.status == 409
            assert (await running.whole()).text == "y"
            while (late := await client.get(done.events[0].id)).status == 200:
                await late.whole()
                await asyncio.sleep(0.2)
            assert late.status == 404
            assert b"no longer kept" in late.body
            assert (await client.call("echo", text="next")).text == "next"

    run(resume)


def test_res_08_wrong_clocks_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, events and streams are timed by a clock that only goes forward."""

    async def jump() -> None:
        real = time.time
        async with served(Workshop(), quiet=0.1, event_age=60, session_idle_timeout=60) as port, Client(port) as client:
            answer = await (await client.begin_call("tell", token=1, name="x", to=30, pause=0.05)).head()
            await answer.until(2)
            for hours in (-1, 1, 24):
                monkeypatch.setattr(time, "time", lambda hours=hours: real() + 3600 * hours)
                await asyncio.sleep(0.25)
                answer.way.reset()
                answer = await come_back(client, answer.last_id)
                assert answer.status == 200
                await answer.until(1)
                assert (await client.call("echo", text="here")).text == "here"
            assert (await answer.whole()).text == "x"

    run(jump)


def test_a_client_that_polls_hears_everything_once() -> None:
    """HTL-21, SSEV-07: sent away at once, it comes back after the pause it was told."""

    class Polled(Workshop):
        def __init__(self) -> None:
            super().__init__()
            self.add_tool(self.work)

        async def work(self, ctx: Context, to: int) -> str:
            for number in range(1, to + 1):
                await ctx.report_progress(number)
                await ctx.close_stream()
                await asyncio.sleep(0.1)
            return "worked"

    async def poll() -> None:
        async with served(Polled(), retry=0.15) as port, Client(port) as client:
            answer = await client.call("work", token=1, to=5)
            heard, turns = answer.messages, 0
            while not heard or "result" not in heard[-1]:
                assert answer.parser.retry == 150
                await asyncio.sleep(0.15)
                answer = await (await client.get(answer.last_id)).whole()
                assert answer.status == 200
                heard += answer.messages
                turns += 1
            assert [message["params"]["progress"] for message in heard[:-1]] == [1, 2, 3, 4, 5]
            assert turns >= 2

    run(poll)
