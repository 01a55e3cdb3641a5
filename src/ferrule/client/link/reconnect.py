"""How a client comes back after a loss: the options, and what its owner is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.supervision.backoff import Backoff
from ferrule.transports.options import require_types

Replay = Literal["safe", "none"]
Meanwhile = Literal["wait", "fail"]


class Reconnect(Struct, frozen=True, kw_only=True):
    """When a client comes back after a loss, and what it does then; times are seconds."""

    first_delay: float = 1.0
    factor: float = 2.0
    longest_delay: float = 30.0
    jitter: float = 0.5
    """How much of each wait chance may take away, so that not all clients come at once: 0 none, 1 all."""
    max_attempts: int | None = None
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

    def __post_init__(self) -> None:
        require_types(self)
        for name, words in (("replay", get_args(Replay)), ("meanwhile", get_args(Meanwhile))):
            if getattr(self, name) not in words:
                raise SetupError(f"reconnect: {name} is one of {', '.join(words)}, not {getattr(self, name)!r}")
        if self.first_delay < 0 or self.longest_delay < self.first_delay or self.factor < 1:
            raise SetupError(
                "reconnect: delays start at 0 or more and never shrink; the longest is not below the first"
            )
        if not 0 <= self.jitter <= 1:
            raise SetupError(f"reconnect: jitter is from 0 to 1, not {self.jitter!r}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise SetupError(f"reconnect: max_attempts is at least 1, not {self.max_attempts}; use reconnect=False")

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
