"""Those who wait for the same thing."""

from __future__ import annotations

import asyncio

from ferrule.testing import run_in_virtual_time
from ferrule.transports.backpressure import Waiters


def test_all_are_woken_together_and_who_comes_later_waits_for_the_next_time() -> None:
    async def main() -> None:
        waiters = Waiters()
        early = [asyncio.ensure_future(waiters.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        early[0].cancel()
        await asyncio.sleep(0)
        assert len(waiters) == 2, "whoever gave up waiting is still kept"
        waiters.wake()
        late = asyncio.ensure_future(waiters.wait())
        await asyncio.wait(early)
        assert [task.cancelled() for task in early] == [True, False, False]
        assert not late.done()
        waiters.wake()
        await late

    run_in_virtual_time(main())
