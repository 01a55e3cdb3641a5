"""Slots for calls, and the line before them."""

import asyncio

import pytest

from ferrule.errors import ToolBusy
from ferrule.server.calls.slots import Slots


async def held(slots, order, name, release):
    async with slots:
        order.append(name)
        await release.wait()


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_are_inside_and_the_line_is_served_in_order():
    slots, order, release = Slots(2, 10), [], asyncio.Event()
    calls = [asyncio.ensure_future(held(slots, order, name, release)) for name in "abcde"]
    await turns()
    assert (order, slots.taken, slots.waiting) == (["a", "b"], 2, 3)
    release.set()
    await asyncio.gather(*calls)
    assert order == list("abcde")
    assert (slots.taken, slots.waiting) == (0, 0)


async def test_whoever_finds_the_line_full_is_refused_as_busy():
    slots, order, release = Slots(1, 1, "the tool t"), [], asyncio.Event()
    calls = [asyncio.ensure_future(held(slots, order, name, release)) for name in "ab"]
    await turns()
    with pytest.raises(ToolBusy, match="the tool t has 1 calls running and 1 waiting") as caught:
        await held(slots, order, "c", release)
    assert caught.value.data == {"retryAfter": 1}
    release.set()
    await asyncio.gather(*calls)
    await held(slots, order, "d", release)
    assert order == ["a", "b", "d"]


async def test_whoever_leaves_the_line_makes_room_in_it():
    slots, order, release = Slots(1, 1), [], asyncio.Event()
    first = asyncio.ensure_future(held(slots, order, "a", release))
    gone = asyncio.ensure_future(held(slots, order, "b", release))
    await turns()
    gone.cancel()
    await turns()
    last = asyncio.ensure_future(held(slots, order, "c", release))
    await turns()
    release.set()
    await asyncio.gather(first, last)
    assert order == ["a", "c"]


async def test_what_fails_inside_gives_its_place_back():
    slots = Slots(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with slots:
                raise ZeroDivisionError
    assert slots.taken == 0


async def test_a_turn_that_comes_as_its_holder_gives_up_goes_to_the_next():
    slots, order, release = Slots(1), [], asyncio.Event()
    assert slots.take()
    waiting = [asyncio.ensure_future(held(slots, order, name, release)) for name in "ab"]
    await turns()
    slots.leave()
    waiting[0].cancel()
    release.set()
    await waiting[1]
    assert order == ["b"]
    assert slots.taken == 0
