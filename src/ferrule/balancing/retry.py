"""Retries: whether a call may be sent again, and how many calls may.

Rule: what may have run is sent again only if running it twice does no harm. A budget keeps retries from turning the
trouble of a few calls into twice the load.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Annotated

from msgspec import Meta, Struct

from ferrule.errors import CarrierError, ConnectFailed, HttpFailed, LinkLost, NotConnected, OutcomeUnknown
from ferrule.settings.option import FiniteSeconds, Fraction, NonNegativeInt, check

SLICES = 10
"""A window is counted in so many slices."""


class RetrySettings(Struct, frozen=True, kw_only=True):
    """How many calls are sent again; times are seconds."""

    budget: Fraction = 0.2
    """Retries as a share of the calls in the window."""
    least: NonNegativeInt = 3
    """Retries that are allowed in a window however few calls there were."""
    most: Annotated[int, Meta(ge=0, le=10)] = 1
    """How often one call is sent again."""
    window: FiniteSeconds = 10.0
    """Over how long calls and retries are counted."""

    def __post_init__(self) -> None:
        check(self)


class Budget:
    """Allows extra calls up to a share of all calls in a sliding window, or a small number.

    Calls are counted in slices of the window. One that lies partly outside is left out, so the true share is never
    exceeded.
    """

    __slots__ = ("_calls", "_extra", "_slice", "_slice_end", "_slices", "_width", "least", "share", "window")

    def __init__(self, share: float, least: int, window: float) -> None:
        self.share = share
        self.least = least
        self.window = window
        self._width = window / SLICES
        self._slices: deque[tuple[int, int]] = deque()
        """Number and calls of each full slice, oldest first."""
        self._slice = 0
        self._slice_end = self._width
        """When the current slice is over."""
        self._calls = 0
        """Calls of the current slice."""
        self._extra: deque[float] = deque()
        """When each extra call was allowed."""

    def called(self, now: float) -> None:
        """Count a call, of which some share may be sent again."""
        if now >= self._slice_end:
            self._turn(now)
        self._calls += 1

    def take(self, now: float) -> bool:
        """Whether one extra call may be made now; True counts it."""
        self._forget(now)
        if len(self._extra) + 1 > max(self.least, self.share * self._recent()):
            return False
        self._extra.append(now)
        return True

    def _turn(self, now: float) -> None:
        """Begin the slice of a time."""
        number = math.floor(now / self._width)
        if self._calls:
            self._slices.append((self._slice, self._calls))
        self._slice = number
        self._slice_end = (number + 1) * self._width
        self._calls = 0
        while self._slices and self._slices[0][0] <= number - SLICES:
            self._slices.popleft()

    def _forget(self, now: float) -> None:
        """Drop what is older than the window."""
        if now >= self._slice_end:
            self._turn(now)
        while self._extra and self._extra[0] <= now - self.window:
            self._extra.popleft()

    def _recent(self) -> int:
        calls = self._calls
        for _, counted in self._slices:
            calls += counted
        return calls


def retry_budget(settings: RetrySettings) -> Budget:
    """Return the budget of some settings."""
    return Budget(settings.budget, settings.least, settings.window)


def was_sent(error: BaseException) -> bool:
    """Whether a call that ended so may have reached its target."""
    if isinstance(error, OutcomeUnknown | HttpFailed):
        return True
    if isinstance(error, LinkLost):
        # Over HTTP a request that found nobody to connect to is lost with this as its cause.
        return error.sent and not isinstance(error.__cause__, ConnectFailed)
    return not isinstance(error, NotConnected | CarrierError)


def may_repeat(error: BaseException, *, safe: bool) -> bool:
    """Whether a call that ended so may be sent again: it was never sent, or running it twice does no harm."""
    return safe or not was_sent(error)
