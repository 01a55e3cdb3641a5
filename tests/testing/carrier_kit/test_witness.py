"""What a witness remembers, and what it finds fault with."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule.testing.carrier_kit.witness import LONGEST_KEPT, Witness

CHANNEL: Any = object()


def opened() -> Witness:
    witness = Witness()
    witness.channel_opened(CHANNEL)
    return witness


def test_it_remembers_what_it_was_told() -> None:
    """TBEH-03."""
    witness = opened()
    witness.frame_received(b'{"method":"a","params":{"n":1}}', CHANNEL)
    witness.frame_received(b"x" * (LONGEST_KEPT + 1), CHANNEL)
    witness.frame_refused(10, CHANNEL)
    witness.request_failed(1, ValueError(), CHANNEL)
    witness.end_received(CHANNEL)
    witness.channel_lost(CHANNEL, None)
    assert witness.told("a") == [{"n": 1}]
    assert (witness.received, len(witness.frames)) == (2, 1)
    assert (witness.refused, witness.ended, witness.ends_of(CHANNEL)) == ([10], [CHANNEL], 1)
    assert witness.faults == []


def test_it_finds_fault_with_what_no_carrier_may_do() -> None:
    early = Witness()
    early.frame_received(b"{}", CHANNEL)
    late = opened()
    late.channel_lost(CHANNEL, None)
    late.frame_received(b"{}", CHANNEL)
    late.channel_lost(CHANNEL, None)
    again = opened()
    again.channel_opened(CHANNEL)
    again.frame_received(b"{\n}", CHANNEL)
    assert [len(each.faults) for each in (early, late, again)] == [1, 2, 2]


def test_who_waits_looks_again_whenever_something_is_told() -> None:
    async def test() -> None:
        witness = opened()
        waiting = asyncio.ensure_future(witness.until(lambda: witness.received == 2))
        for _ in range(2):
            await asyncio.sleep(0)
            assert not waiting.done()
            witness.frame_received(b"{}", CHANNEL)
        await waiting

    asyncio.run(asyncio.wait_for(test(), 60))
