"""What a process holds is seen, and what it let go of is not."""

from __future__ import annotations

import asyncio
import os
import threading

from ferrule.testing.carrier_kit.holdings import holdings, left_over


def test_tasks_timers_threads_and_descriptors_are_seen_until_they_are_let_go_of() -> None:
    async def test() -> None:
        before = holdings()
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait, name="held")
        thread.start()
        task = asyncio.ensure_future(asyncio.Event().wait())
        timer = asyncio.get_running_loop().call_later(1000, print)
        descriptor = os.open(os.devnull, os.O_RDONLY)
        left = await left_over(before, 0.0)
        assert [each.split(" ")[0] for each in left] == ["descriptor", "task", "thread", "timer"]
        stop.set()
        task.cancel()
        timer.cancel()
        os.close(descriptor)
        assert await left_over(before, 10.0) == []
        thread.join()

    asyncio.run(asyncio.wait_for(test(), 20))


def test_what_is_let_go_of_a_moment_later_is_waited_for() -> None:
    async def test() -> None:
        before = holdings()
        descriptor = os.open(os.devnull, os.O_RDONLY)
        asyncio.get_running_loop().call_later(0.05, os.close, descriptor)
        assert await left_over(before, 10.0) == []

    asyncio.run(asyncio.wait_for(test(), 20))
