"""How channels end, whatever carries them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ferrule.testing import run_in_virtual_time
from ferrule.transports.shutdown import LAST_GRACE, end_within, left_of_grace, tell_lost


class Ending:
    """A channel that takes its time to close, and none to be cut."""

    def __init__(self, takes: float) -> None:
        self.takes = takes
        self.told: list[str] = []
        self.gone = asyncio.Event()

    def close(self, reason: str = "") -> None:
        self.told.append("close")
        asyncio.get_running_loop().call_later(self.takes, self.gone.set)

    def abort(self) -> None:
        self.told.append("abort")
        self.gone.set()

    async def wait_lost(self) -> None:
        await self.gone.wait()


@pytest.mark.parametrize(("takes", "told"), [(1.0, ["close"]), (5.0, ["close", "abort"])])
def test_a_channel_is_cut_only_where_it_does_not_end_within_the_grace(takes: float, told: list[str]) -> None:
    async def main() -> Ending:
        channel = Ending(takes)
        await end_within(channel, 2.0)
        return channel

    channel = run_in_virtual_time(main())
    assert channel.told == told
    assert channel.gone.is_set()


def test_a_receiver_that_fails_when_it_is_told_of_a_loss_does_not_disturb_the_carrier(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        def channel_lost(self, channel: Any, error: Exception | None) -> None:
            raise ValueError("cannot bear it")

    with caplog.at_level(logging.ERROR, logger="ferrule.transports"):
        tell_lost(Failing(), object(), None)  # type: ignore[arg-type]
    assert "told that its channel is lost" in caplog.text


def test_there_is_always_a_moment_left_for_the_last_answers() -> None:
    async def main() -> tuple[float, float]:
        now = asyncio.get_running_loop().time()
        return left_of_grace(now + 3), left_of_grace(now - 3)

    assert run_in_virtual_time(main()) == (3, LAST_GRACE)
