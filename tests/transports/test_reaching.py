"""Reaching a peer within a time."""

from __future__ import annotations

import asyncio

import pytest

from ferrule.errors import ConnectFailed
from ferrule.testing import run_in_virtual_time
from ferrule.transports.reaching import reaching


def test_an_attempt_that_takes_too_long_names_the_peer_and_the_time() -> None:
    async def main() -> None:
        async with reaching("tcp://nowhere:1", 2.5):
            await asyncio.sleep(100)

    with pytest.raises(ConnectFailed, match=r"cannot reach tcp://nowhere:1: no connection within 2\.5 s"):
        run_in_virtual_time(main())


def test_what_the_system_says_is_put_in_the_words_of_the_one_who_asks() -> None:
    async def main() -> None:
        async with reaching("unix:/run/x", 1.0, reason=lambda error: f"no socket ({error})"):
            raise FileNotFoundError("gone")

    with pytest.raises(ConnectFailed, match=r"cannot reach unix:/run/x: no socket \(gone\)"):
        run_in_virtual_time(main())


def test_other_failures_pass_as_they_are() -> None:
    async def main() -> None:
        async with reaching("ws://x", 1.0, wanted="WebSocket"):
            raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        run_in_virtual_time(main())
