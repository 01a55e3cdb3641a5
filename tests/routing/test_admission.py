"""Admission: calls run, wait for their turn, or are refused."""

from __future__ import annotations

import asyncio

import pytest

from ferrule.balancing.bulkhead import BulkheadSettings
from ferrule.errors import Overloaded
from ferrule.routing.admission import Admission

pytestmark = pytest.mark.virtual_time


def admission(reasons: list[str], in_flight: int = 1, queue: int = 1) -> Admission:
    """Return an admission that writes down why it refuses."""
    return Admission(BulkheadSettings(in_flight=in_flight, queue=queue, queue_time=5.0), reasons.append)


async def test_who_waits_runs_when_another_leaves() -> None:
    entrance = admission([])
    loop = asyncio.get_running_loop()
    first = await entrance.enter(None, loop.time(), 100.0)
    waiting = asyncio.ensure_future(entrance.enter(None, loop.time(), 100.0))
    await asyncio.sleep(1.0)
    assert not waiting.done()
    entrance.leave(first, 0.0, loop.time())
    second = await waiting
    assert second.admitted
    assert (entrance.bulkhead.in_flight, entrance.bulkhead.waiting) == (1, 0)
    entrance.leave(second, 0.0, loop.time())
    assert entrance.bulkhead.in_flight == 0


async def test_who_finds_the_queue_full_is_refused_with_the_reason() -> None:
    reasons: list[str] = []
    entrance = admission(reasons, queue=0)
    ticket = await entrance.enter(None, 0.0, 100.0)
    with pytest.raises(Overloaded) as refused:
        await entrance.enter(None, 0.0, 100.0)
    assert refused.value.retry_after == 1
    assert reasons == ["queue_full"]
    entrance.leave(ticket, 0.0, 0.0)


async def test_who_waited_too_long_is_refused() -> None:
    reasons: list[str] = []
    entrance = admission(reasons)
    loop = asyncio.get_running_loop()
    await entrance.enter(None, loop.time(), 100.0)
    began = loop.time()
    with pytest.raises(Overloaded):
        await entrance.enter(None, began, began + 2.0)
    assert loop.time() - began == pytest.approx(2.0)
    assert reasons == ["waited too long"]
    assert entrance._waiting == {}
    assert (entrance.bulkhead.in_flight, entrance.bulkhead.waiting) == (1, 0)


async def test_one_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    entrance = admission([])
    await entrance.enter(None, 0.0, 100.0)
    waiting = asyncio.ensure_future(entrance.enter(None, 0.0, 100.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert entrance.bulkhead.waiting == 0
