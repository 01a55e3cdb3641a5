"""How a client comes back after a loss: the options, and what its owner is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ferrule.errors import SetupError
from ferrule.settings.option import Fraction, PositiveInt, Seconds, check
from ferrule.supervision.backoff import Backoff

Replay = Literal["safe", "none"]
Meanwhile = Literal["wait", "fail"]


class Reconnect(Struct, frozen=True, kw_only=True):
    """When a client comes back after a loss, and what it does then; times are seconds."""

    first_delay: Seconds = 1.0
    """How long to wait before the first attempt."""
    factor: Annotated[float, Meta(ge=1)] = 2.0
    """By how much each wait is longer than the one before."""
    longest_delay: Seconds = 30.0
    """The longest wait."""
    jitter: Fraction = 0.5
    """How much of each wait chance may take away, so that not all clients come at once: 0 none, 1 all."""
    max_attempts: PositiveInt | None = None
    """How often in a row to try in vain before giving up; None: for ever."""
    resubscribe: bool = False
    """Subscribe again to what was subscribed to; else subscriptions end with the link."""
    replay: Replay = "safe"
    """Ask again what was in flight and cannot do harm twice, or nothing."""
    meanwhile: Meanwhile = "wait"
    """Whether calls made while there is no link wait for one, within their time-out, or fail at once."""
    chance: Callable[[], float] = random.random
    """Where jitter comes from: gives numbers from 0 to 1."""
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    """How to wait: for tests."""

    def __post_init__(self) -> None:
        if self.max_attempts == 0:
            raise SetupError("Reconnect: max_attempts must be at least 1 or None, not 0; use reconnect=False")
        check(self, "Reconnect: ")
        if self.longest_delay < self.first_delay:
            least = f"at least first_delay, {self.first_delay:g} seconds"
            raise SetupError(f"Reconnect: longest_delay must be {least}, not {self.longest_delay!r}")

    def delay(self, number: int) -> float:
        """Return the wait before the attempt of a number, counted from 1."""
        return Backoff(self.first_delay, self.factor, self.longest_delay, self.jitter).delay(number, self.chance)


class ConnectionNotice(Struct, frozen=True):
    """What happened to the way to the server, for its owner."""

    what: Literal["lost", "retrying", "restored", "gave_up"]
    reason: Exception | None = None
    """Why it was lost, or why the last attempt failed."""
    attempt: int = 0
    """Which attempt comes next, or was the last one."""
    delay: float | None = None
    """Seconds until the next attempt."""


def plan_for(asked: Reconnect | bool | None, *, usual: bool) -> Reconnect | None:
    """Return the plan an option asks for, None for none; what was not asked for is as usual."""
    if isinstance(asked, Reconnect):
        return asked
    if usual if asked is None else asked:
        return Reconnect()
    return None
