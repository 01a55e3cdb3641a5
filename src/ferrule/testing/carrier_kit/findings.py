"""How a rule says what it found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Broken(AssertionError):
    """A rule does not hold, and why."""


class NotApplicable(Exception):
    """A rule says nothing about this carrier, and why."""


def demand(holds: object, why: str) -> None:
    """Raise Broken unless something holds."""
    if not holds:
        raise Broken(why)


def given(what: T | None, why: str) -> T:
    """Return what a stand has, or find the rule not applicable."""
    if what is None:
        raise NotApplicable(why)
    return what


async def soon(work: Awaitable[T], within: float, why: str) -> T:
    """Wait for something; raises Broken with the reason when it takes too long."""
    try:
        return await asyncio.wait_for(work, within)
    except TimeoutError:
        raise Broken(f"{why} within {within:g} s") from None


async def settled(futures: Sequence[asyncio.Future[Any]], within: float, why: str) -> None:
    """Wait until all have an answer or have failed; raises Broken with the reason and how many did not."""
    if futures:
        _, waiting = await asyncio.wait(futures, timeout=within)
        demand(not waiting, f"{why}: {len(waiting)} of {len(futures)} still wait after {within:g} s")
