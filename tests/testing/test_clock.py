"""Virtual time: it passes only when nobody has anything left to do."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from ferrule import Client, Server
from ferrule.errors import TimedOut
from ferrule.testing import VirtualClock, run_in_virtual_time


def test_an_hour_of_waiting_takes_no_time() -> None:
    async def wait() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    started = time.perf_counter()
    assert run_in_virtual_time(wait()) == pytest.approx(3600)
    assert time.perf_counter() - started < 60


def test_timers_fire_in_order_at_their_own_time() -> None:
    async def wait() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []
        for name, delay in (("late", 60.0), ("soon", 0.5), ("never", 90.0), ("middle", 7.0)):
            loop.call_later(delay, lambda name=name: seen.append((name, loop.time())))
        await asyncio.sleep(80)
        return seen

    seen = run_in_virtual_time(wait())
    assert [name for name, _ in seen] == ["soon", "middle", "late"]
    assert [at for _, at in seen] == pytest.approx([0.5, 7.0, 60.0])


def test_work_that_is_ready_comes_before_any_timer() -> None:
    async def work() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(work()) == 0


def test_what_comes_through_a_pipe_is_seen_before_time_jumps() -> None:
    async def listen() -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        heard: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(reading, lambda: heard.set_result(os.read(reading, 10)))
        os.write(writing, b"here")
        try:
            return await asyncio.wait_for(heard, 3600), loop.time()
        finally:
            loop.remove_reader(reading)
            os.close(reading)
            os.close(writing)

    assert run_in_virtual_time(listen()) == (b"here", 0)


def test_time_can_be_moved_by_hand() -> None:
    clock = VirtualClock()
    try:
        clock.advance(5)
        assert clock.time() == 5
        clock.run_until_complete(asyncio.sleep(2))
        assert clock.time() == pytest.approx(7)
    finally:
        clock.close()


def test_a_time_out_of_a_client_can_be_waited_for() -> None:
    app = Server("sleeper")

    @app.tool
    async def sleep() -> str:
        await asyncio.sleep(1_000_000)
        return "never"

    async def call() -> float:
        async with Client(app) as client:
            with pytest.raises(TimedOut):
                await client.call_tool("sleep", timeout=600)
            return asyncio.get_running_loop().time()

    assert run_in_virtual_time(call()) == pytest.approx(600, abs=10)


def test_what_fails_in_virtual_time_fails_outside() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        run_in_virtual_time(fail())
