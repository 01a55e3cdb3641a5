"""Places for calls, and the line before them."""

import asyncio

import pytest

from ferrule.errors import ToolBusy
from ferrule.server.calls.slots import Slots


async def held(places, order, name, release):
    async with places:
        order.append(name)
        await release.wait()


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_are_inside_and_the_line_is_served_in_order():
    places, order, release = Slots(2, 10), [], asyncio.Event()
    calls = [asyncio.ensure_future(held(places, order, name, release)) for name in "abcde"]
    await turns()
    assert (order, places.taken, places.waiting) == (["a", "b"], 2, 3)
    release.set()
    await asyncio.gather(*calls)
    assert order == list("abcde")
    assert (places.taken, places.waiting) == (0, 0)


async def test_whoever_finds_the_line_full_is_refused_as_busy():
    places, order, release = Slots(1, 1, "the tool t"), [], asyncio.Event()
    calls = [asyncio.ensure_future(held(places, order, name, release)) for name in "ab"]
    await turns()
    with pytest.raises(ToolBusy, match="the tool t has 1 calls running and 1 waiting") as caught:
        await held(places, order, "c", release)
    assert caught.value.data == {"retryAfter": 1}
    release.set()
    await asyncio.gather(*calls)
    await held(places, order, "d", release)
    assert order == ["a", "b", "d"]


async def test_whoever_leaves_the_line_makes_room_in_it():
    places, order, release = Slots(1, 1), [], asyncio.Event()
    first = asyncio.ensure_future(held(places, order, "a", release))
    gone = asyncio.ensure_future(held(places, order, "b", release))
    await turns()
    gone.cancel()
    await turns()
    last = asyncio.ensure_future(held(places, order, "c", release))
    await turns()
    release.set()
    await asyncio.gather(first, last)
    assert order == ["a", "c"]


async def test_what_fails_inside_gives_its_place_back():
    places = Slots(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with places:
                raise ZeroDivisionError
    assert places.taken == 0


async def test_a_turn_that_comes_as_its_holder_gives_up_goes_to_the_next():
    places, order, release = Slots(1), [], asyncio.Event()
    assert places.take()
    waiting = [asyncio.ensure_future(held(places, order, name, release)) for name in "ab"]
    await turns()
    places.leave()
    waiting[0].cancel()
    release.set()
    await waiting[1]
    assert order == ["b"]
    assert places.taken == 0
