"""The watch over the turns of a loop sees work, and nothing else."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop
from turns import Turns

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def longest(*work: object) -> float:
    turns = Turns()
    turns.start()
    loop = asyncio.get_running_loop()
    for each in work:
        await asyncio.sleep(0.02)
        loop.call_soon(each)
    await asyncio.sleep(0.02)
    turns.stop()
    return turns.longest


@pytest.mark.parametrize("loop", LOOPS)
def test_a_turn_that_works_is_seen(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        found = runner.run(longest(lambda: burn(0.05), lambda: burn(0.2), lambda: burn(0.05)))
    assert 0.15 < found < 0.3


@pytest.mark.parametrize("loop", LOOPS)
def test_a_turn_that_stands_still_is_the_machines_affair(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        found = runner.run(longest(lambda: time.sleep(0.2)))
    assert found < 0.1
