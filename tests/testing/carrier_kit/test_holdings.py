"""What a process holds is seen, and what it let go of is not."""

from __future__ import annotations

import asyncio
import os
import threading

from ferrule.testing.carrier_kit.life import holdings, left_over


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
        assert {"descriptor of null", "thread held", "timer print"} < set(left)
        assert any(each.startswith("task <coroutine object Event.wait") for each in left)
        stop.set()
        task.cancel()
        timer.cancel()
        os.close(descriptor)
        assert not await left_over(before, 60.0)
        thread.join()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_what_is_let_go_of_a_moment_later_is_waited_for() -> None:
    async def test() -> None:
        before = holdings()
        descriptor = os.open(os.devnull, os.O_RDONLY)
        asyncio.get_running_loop().call_later(0.05, os.close, descriptor)
        assert not await left_over(before, 60.0)

    asyncio.run(asyncio.wait_for(test(), 60))


def test_the_next_of_a_kind_is_called_the_same() -> None:
    async def test() -> None:
        stop, named = threading.Event(), []
        for _ in range(2):
            before = holdings()
            thread = threading.Thread(target=stop.wait)
            thread.start()
            named.append(set(await left_over(before, 0.0)))
        stop.set()
        thread.join()
        assert named[0] & named[1]

    asyncio.run(asyncio.wait_for(test(), 60))
