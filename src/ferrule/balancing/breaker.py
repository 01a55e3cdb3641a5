"""The circuit breaker of one target: whether a call may be sent to it.

| state | event | next state |
|---|---|---|
| closed | `failures` failed calls in a row, or `failure_rate` of the last `window` | open |
| open | `open_time` passed, or a probe succeeded | half_open |
| half_open | `successes` successful calls | closed |
| half_open | a failed call, or `trial_time` without a verdict on a call | open, with twice the `open_time` |
| any | `force_open()` | open, without a timer and without probes |
| any | `reset()`, `force_close()` | closed |

The time is an argument of every method. What depends on it happens when the breaker is next asked. The `trial_time`
counts from the admission of a call: a half-open target that nobody calls stays half-open, because nothing speaks
against it.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from ferrule.errors import (
    CarrierError,
    ConnectionTimedOut,
    HttpFailed,
    InvalidAnswer,
    LinkLost,
    PeerError,
    SetupError,
    ToolError,
)
from ferrule.settings.option import FiniteSeconds, check

State = Literal["closed", "open", "half_open"]
Verdict = Literal["ok", "failed", "local", "none"]
OnTransition = Callable[[State, State, float], None]

FAILED_STATUSES = frozenset({500, 502, 503, 504})
"""HTTP statuses by which a target, or a proxy in front of it, says that it does not work."""


Count = Annotated[int, Meta(ge=1, le=1_000_000)]
"""How many calls."""
Rate = Annotated[float, Meta(gt=0, le=1)]
"""A share of calls; at 0 every window would open the breaker."""


class BreakerSettings(Struct, frozen=True, kw_only=True):
    """When a breaker opens, and how it closes again; times are seconds."""

    failures: Count = 5
    """Failed calls in a row that open it."""
    window: Count = 10
    """Calls the failure rate is taken of; fewer never open it by their rate."""
    failure_rate: Rate = 0.5
    """Of the calls in the window; as many failed ones open it."""
    open_time: FiniteSeconds = 60.0
    """How long it stays open, unless a probe succeeds."""
    longest_open_time: FiniteSeconds = 300.0
    """What `open_time` grows to, doubled each time a trial fails."""
    trial_time: FiniteSeconds = 30.0
    """How long a call may take in the half-open state before it counts as failed."""
    successes: Count = 2
    """Successful calls in the half-open state that close it."""
    call_timeout: FiniteSeconds = 5.0
    """How long a call may take that is made through `Circuit.call`."""
    first_probe: FiniteSeconds = 1.0
    """The pause before the first probe of an open target."""
    longest_probe: FiniteSeconds = 30.0
    """The longest pause between two probes of an open target."""

    def __post_init__(self) -> None:
        check(self)
        if self.longest_open_time < self.open_time:
            raise SetupError(f"longest_open_time must be at least open_time, {self.open_time:g} s")
        if self.longest_probe < self.first_probe:
            raise SetupError(f"longest_probe must be at least first_probe, {self.first_probe:g} s")


DEFAULTS = BreakerSettings()


class BreakerStats(Struct, frozen=True, kw_only=True):
    """What a breaker has seen, and how it stands."""

    state: State
    forced: bool
    successes: int
    failures: int
    local_faults: int
    refused: int
    consecutive_failures: int
    failure_rate: float
    """Of the calls in the window."""
    open_time: float
    """How long it stays open the next time, or stays open now."""
    half_opens_at: float
    """When an open breaker becomes half-open by itself; infinite if it does not."""
    transitions: dict[str, int]
    """How often each transition happened, by `from>to`."""


class Breaker:
    """Refuses calls to a target that fails, until it works again."""

    __slots__ = (
        "_before_window",
        "_bits",
        "_clean",
        "_consecutive",
        "_forced",
        "_half_open_at",
        "_mask",
        "_on_transition",
        "_open_time",
        "_probes",
        "_trial_at",
        "_trial_successes",
        "_trials",
        "closed",
        "failures",
        "local_faults",
        "next_probe",
        "refused",
        "settings",
        "state",
        "successes",
        "transitions",
    )

    def __init__(self, settings: BreakerSettings = DEFAULTS, *, on_transition: OnTransition | None = None) -> None:
        self.settings = settings
        self.state: State = "closed"
        self.closed = True
        """Whether the state is closed: all that `allow` looks at on the way of most calls."""
        self.successes = 0
        self.failures = 0
        self.local_faults = 0
        self.refused = 0
        self.next_probe = math.inf
        """When an open target shall be probed; infinite while none is due."""
        self.transitions: dict[str, int] = {}
        self._on_transition = on_transition
        self._mask = (1 << settings.window) - 1
        self._half_open_at = math.inf
        self._trials = 0
        self._trial_at = math.inf
        self._trial_successes = 0
        self._forced = False
        self._clean = True
        """Whether it is closed and no call of the window failed: a success then changes nothing."""
        self._consecutive = 0
        self._bits = 0
        """Whether each call of the window failed, the newest in the lowest bit."""
        self._before_window = 0
        """Calls before those of the window."""
        self._open_time = settings.open_time
        self._probes = 0

    def allow(self, now: float, *, limited: bool = True) -> bool:
        """Whether a call may be sent now; True admits it, and wants its verdict.

        In the half-open state one call at a time is admitted; with `limited` False, as many as come.
        """
        if self.closed:
            return True
        if not self.would_allow(now, limited=limited):
            self.refused += 1
            return False
        if not self._trials:
            self._trial_at = now
        self._trials += 1
        return True

    def would_allow(self, now: float, *, limited: bool = True) -> bool:
        """Whether `allow` would admit a call now; admits none."""
        if self.closed:
            return True
        self._advance(now)
        if self.state == "open":
            return False
        return not limited or not self._trials

    def ok(self, now: float) -> None:
        """Called when the target has answered a call that was admitted."""
        self.successes += 1
        if not self._clean:
            self._succeeded(now)

    def failed(self, now: float) -> None:
        """Called when the target has failed a call that was admitted."""
        self.failures += 1
        if self.closed:
            self._count_failure(now)
        elif self._ended_trial():
            self._open_again(now)

    def local_fault(self) -> None:
        """Called when an admitted call failed on our side, for example without a free descriptor: no verdict."""
        self.local_faults += 1
        self.released()

    def released(self) -> None:
        """Called when an admitted call ended without a verdict, for example because we cancelled it."""
        if not self.closed:
            self._ended_trial()

    def probed(self, now: float, *, ok: bool) -> None:
        """Called with the outcome of a probe of the open target."""
        self._advance(now)
        if self.state != "open" or self._forced:
            return
        if ok:
            self._half_open(now)
        else:
            self._plan_probe(now)

    def probe_due(self, now: float) -> bool:
        """Whether the target is open and shall be probed now."""
        return now >= self.next_probe

    def reset(self, now: float) -> None:
        """Close it and forget all it has seen."""
        self.successes = 0
        self.failures = 0
        self.local_faults = 0
        self.refused = 0
        self._close(now)

    def force_close(self, now: float) -> None:
        """Close it whatever has failed; failures are counted from here on."""
        self._close(now)

    def force_open(self, now: float) -> None:
        """Open it until `reset` or `force_close`: no timer, no probe."""
        self._forced = True
        self._half_open_at = math.inf
        self.next_probe = math.inf
        self._move("open", now)

    def stats(self) -> BreakerStats:
        """Return what it has seen, and how it stands."""
        return BreakerStats(
            state=self.state,
            forced=self._forced,
            successes=self.successes,
            failures=self.failures,
            local_faults=self.local_faults,
            refused=self.refused,
            consecutive_failures=self._consecutive,
            failure_rate=self._bits.bit_count() / max(self._seen(), 1),
            open_time=self._open_time,
            half_opens_at=self._half_open_at,
            transitions=dict(self.transitions),
        )

    def _succeeded(self, now: float) -> None:
        """Handle a success while there are failures in the window, or while it is not closed."""
        if self.closed:
            self._consecutive = 0
            self._bits = (self._bits << 1) & self._mask
            self._clean = not self._bits
            self._judge(now)
            return
        if self._ended_trial():
            self._trial_successes += 1
            if self._trial_successes >= self.settings.successes:
                self._close(now)

    def _count_failure(self, now: float) -> None:
        self._clean = False
        self._consecutive += 1
        self._bits = ((self._bits << 1) | 1) & self._mask
        self._judge(now)

    def _judge(self, now: float) -> None:
        """Open it if too many calls failed."""
        window = self.settings.window
        too_many = self._seen() >= window and self._bits.bit_count() >= self.settings.failure_rate * window
        if too_many or self._consecutive >= self.settings.failures:
            self._open(now)

    def _seen(self) -> int:
        """Return how many calls of the window have been seen since it was last empty."""
        return min(self.successes + self.failures - self._before_window, self.settings.window)

    def _ended_trial(self) -> bool:
        """End a trial call; False for a late verdict on a call that was admitted before."""
        if self.state != "half_open" or not self._trials:
            return False
        self._trials -= 1
        return True

    def _advance(self, now: float) -> None:
        """Do what is due by time alone."""
        if self.state == "open" and now >= self._half_open_at:
            self._half_open(now)
        elif self.state == "half_open" and self._trials and now - self._trial_at >= self.settings.trial_time:
            self._open_again(now)

    def _open(self, now: float) -> None:
        self._clean = False
        self._half_open_at = now + self._open_time
        self._plan_probe(now)
        self._move("open", now)

    def _open_again(self, now: float) -> None:
        self._open_time = min(self._open_time * 2, self.settings.longest_open_time)
        self._open(now)

    def _half_open(self, now: float) -> None:
        self.next_probe = math.inf
        self._half_open_at = math.inf
        self._trials = 0
        self._trial_successes = 0
        self._move("half_open", now)

    def _close(self, now: float) -> None:
        self._forget_failures()
        self.next_probe = math.inf
        self._half_open_at = math.inf
        self._move("closed", now)

    def _forget_failures(self) -> None:
        self._forced = False
        self._consecutive = 0
        self._bits = 0
        self._before_window = self.successes + self.failures
        self._open_time = self.settings.open_time
        self._probes = 0

    def _plan_probe(self, now: float) -> None:
        """Set the time of the next probe: after 1, 1, 2, 4, 8 … 30 s.

        The pauses start over when the breaker closes, not when a trial fails: a target that answers probes and fails
        calls is tried less and less often.
        """
        pause = self.settings.first_probe * 2.0 ** min(max(self._probes - 1, 0), 64)
        self._probes += 1
        self.next_probe = now + min(pause, self.settings.longest_probe)

    def _move(self, state: State, now: float) -> None:
        before = self.state
        self.state = state
        self.closed = state == "closed"
        if before == state:
            return
        name = f"{before}>{state}"
        self.transitions[name] = self.transitions.get(name, 0) + 1
        if self._on_transition is not None:
            self._on_transition(before, state, now)


def verdict_of(error: BaseException | None) -> Verdict:
    """Return what the end of a call says about its target: None is a result.

    An error of JSON-RPC, a failed tool, and an HTTP status that blames the request are answers: the target works. Our
    own cancels, time-outs of a peer that answers pings, and messages that cannot be written say nothing. Faults of this
    machine (no free descriptor, no name resolution) say nothing about one target.
    """
    if error is None or isinstance(error, PeerError | ToolError):
        return "ok"
    if isinstance(error, HttpFailed):
        return "failed" if error.status in FAILED_STATUSES else "ok"
    if isinstance(error, LinkLost | ConnectionTimedOut | InvalidAnswer | CarrierError):
        return "local" if is_local(error) else "failed"
    return "none"


LOCAL_ERRNOS = frozenset({errno.ENOMEM, errno.ENFILE, errno.EMFILE, errno.ENOBUFS})
"""This machine is short of memory, descriptors or buffers."""


def is_local(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a fault of this machine and not of the peer."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and (seen.errno in LOCAL_ERRNOS or type(seen).__name__ == "gaierror"):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
