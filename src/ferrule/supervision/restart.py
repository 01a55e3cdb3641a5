"""RestartPlan: how often and how soon a child that died is started again. Pure: time and chance are arguments.

Rule 1: at a crash, `intensity` restarts within the last `period` seconds are enough: the next one is too many. So no
window of `period` seconds ever holds more than `intensity` restarts.
Rule 2: too many restarts have one of two endings. `give_up=True`: the supervisor fails. `give_up=False`: the child is
failed and is tried again every `longest` seconds, for ever, until it has lived for `calm` seconds.
Rule 3: the delays are `first`, `delay`, `delay * factor`, … up to `longest`, each shortened at random by up to `jitter`
of itself. After `calm` seconds alive they begin again at `first`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.supervision.backoff import Backoff


class RestartPlan(Struct, frozen=True, kw_only=True):
    """How often and how soon a child is restarted; all times are in seconds."""

    intensity: int = 5
    """How many restarts are allowed within `period`."""
    period: float = 60.0
    first: float = 0.0
    """The delay before the first restart."""
    delay: float = 1.0
    """The delay before the second restart."""
    factor: float = 2.0
    """How much longer each further delay is than the one before."""
    longest: float = 30.0
    """The longest delay, and the pause between two attempts of a failed child."""
    jitter: float = 0.5
    """How much of a delay chance may take away: 0 none, 1 all."""
    calm: float = 60.0
    """How long a child must live for its delays to begin again."""
    give_up: bool = True
    """Whether too many restarts fail the supervisor; False for what lies outside, such as an upstream server."""

    def __post_init__(self) -> None:
        for name in ("intensity", "first", "delay", "longest", "calm"):
            if not getattr(self, name) >= 0:
                raise SetupError(f"RestartPlan: {name} must be 0 or more, not {getattr(self, name)!r}")
        if not self.period > 0:
            raise SetupError(f"RestartPlan: period must be more than 0 seconds, not {self.period!r}")
        if not self.factor >= 1:
            raise SetupError(f"RestartPlan: factor must be 1 or more, not {self.factor!r}")
        if not 0 <= self.jitter <= 1:
            raise SetupError(f"RestartPlan: jitter must be from 0 to 1, not {self.jitter!r}")
        if not self.give_up and not self.longest > 0:
            raise SetupError("RestartPlan: longest must be more than 0 seconds where give_up is False")

    def delay_before(self, number: int, chance: Callable[[], float]) -> float:
        """Return the delay before restart `number` in a row; the first is 1."""
        if number == 1:
            backoff = Backoff(self.first, self.factor, self.longest, self.jitter)
            return backoff.delay(1, chance)
        backoff = Backoff(self.delay, self.factor, self.longest, self.jitter)
        return backoff.delay(number - 1, chance)


class RestartWindow:
    """When restarts took place, as far as the last `period` seconds."""

    __slots__ = ("_plan", "_times")

    def __init__(self, plan: RestartPlan) -> None:
        self._plan = plan
        self._times: list[float] = []
        """In order; some may lie ahead, where a child waits for its restart."""

    def is_full(self, now: float) -> bool:
        """Whether one more restart would be too many."""
        over = bisect_right(self._times, now - self._plan.period)
        del self._times[:over]
        return len(self._times) >= self._plan.intensity

    def record(self, when: float) -> None:
        """Count a restart."""
        insort(self._times, when)

    def clear(self) -> None:
        """Forget every restart."""
        self._times.clear()


class RestartHistory:
    """The restarts of one child, or of children that are restarted together."""

    __slots__ = ("_own_window", "_plan", "_row", "_window", "failed")

    def __init__(self, plan: RestartPlan, window: RestartWindow | None = None) -> None:
        self._plan = plan
        self._own_window = window is None
        """Whether no other history counts in the same window."""
        self._window = RestartWindow(plan) if window is None else window
        self._row = 0
        """How many restarts there were since the child was last calm."""
        self.failed = False
        """Whether there were too many restarts, and the child is tried again every `longest` seconds."""

    @property
    def in_a_row(self) -> int:
        """How many restarts there were since the child was last calm."""
        return self._row

    def next_delay(self, now: float, alive: float, chance: Callable[[], float]) -> float | None:
        """Count a restart of a child that lived for `alive` seconds, and return the delay before it.

        Return None, and count nothing, when it is one too many and the plan gives up.
        """
        if alive >= self._plan.calm:
            self._row = 0
            self.failed = False
        if not self.failed and self._window.is_full(now):
            if self._plan.give_up:
                return None
            self.failed = True
        self._row += 1
        if self.failed:
            return self._plan.longest
        delay = self._plan.delay_before(self._row, chance)
        self._window.record(now + delay)
        return delay

    def clear(self) -> None:
        """Begin again, as after a restart by hand."""
        self._row = 0
        self.failed = False
        if self._own_window:
            self._window.clear()
