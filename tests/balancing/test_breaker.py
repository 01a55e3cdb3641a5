"""A breaker does what its table says on every path, and costs almost nothing while it is closed."""

from __future__ import annotations

import errno
import math
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import errors
from ferrule.balancing.breaker import Breaker, BreakerSettings, State, Verdict, verdict_of
from ferrule.errors import SetupError


def opened(breaker: Breaker, now: float = 0.0) -> Breaker:
    """Open a breaker by five failures."""
    for _ in range(5):
        assert breaker.allow(now)
        breaker.failed(now)
    assert breaker.state == "open"
    return breaker


def half_opened(breaker: Breaker) -> Breaker:
    """Bring a new breaker to the half-open state at time 60."""
    opened(breaker)
    assert breaker.would_allow(60.0)
    assert breaker.state == "half_open"
    return breaker


class TestClosed:
    def test_the_defaults_are_those_of_the_seeds(self) -> None:
        """ROUT-04"""
        settings = BreakerSettings()
        assert (settings.failures, settings.open_time, settings.trial_time, settings.successes) == (5, 60.0, 30.0, 2)
        assert (settings.window, settings.failure_rate, settings.call_timeout) == (10, 0.5, 5.0)

    def test_five_failures_in_a_row_open_it(self) -> None:
        """ROUT-04"""
        breaker = Breaker()
        for _ in range(4):
            breaker.failed(0.0)
        assert breaker.state == "closed"
        breaker.failed(0.0)
        assert breaker.state == "open"
        assert not breaker.allow(59.9)

    def test_four_failures_and_a_success_do_not(self) -> None:
        breaker = Breaker()
        breaker.ok(0.0)
        for _ in range(4):
            breaker.failed(0.0)
        breaker.ok(0.0)
        assert breaker.state == "closed"
        assert breaker.stats().consecutive_failures == 0

    def test_half_of_the_last_ten_open_it(self) -> None:
        """ROUT-04"""
        breaker = Breaker()
        for _ in range(5):
            breaker.ok(0.0)
        for _ in range(2):
            breaker.failed(0.0)
            breaker.failed(0.0)
            assert breaker.state == "closed"
            breaker.ok(0.0)
        assert breaker.state == "closed"  # 4 of the last 10
        breaker.failed(0.0)
        assert breaker.state == "open"  # 5 of the last 10

    def test_half_of_fewer_than_ten_do_not(self) -> None:
        breaker = Breaker()
        for _ in range(4):
            breaker.failed(0.0)
            breaker.ok(0.0)
        breaker.failed(0.0)
        assert (breaker.state, breaker.stats().failure_rate) == ("closed", 5 / 9)

    def test_failures_leave_the_window(self) -> None:
        breaker = Breaker()
        for _ in range(4):
            breaker.failed(0.0)
        for _ in range(10):
            breaker.ok(0.0)
        for _ in range(4):
            breaker.failed(0.0)
        assert breaker.state == "closed"

    def test_the_eleventh_call_is_no_longer_in_the_window(self) -> None:
        breaker = Breaker()
        for failed in (True, False, False, False, True, False, True, False, True, False, True):
            if failed:
                breaker.failed(0.0)
            else:
                breaker.ok(0.0)
        assert (breaker.state, breaker.stats().failure_rate) == ("closed", 0.4)
        breaker.failed(0.0)
        assert breaker.state == "open"

    def test_faults_of_this_machine_are_counted_apart_and_open_nothing(self) -> None:
        breaker = Breaker()
        for _ in range(100):
            assert breaker.allow(0.0)
            breaker.local_fault()
        assert breaker.state == "closed"
        assert (breaker.stats().local_faults, breaker.stats().failures) == (100, 0)

    def test_a_million_checks_take_less_than_a_second_of_cpu(self) -> None:
        breaker = Breaker()
        allow = breaker.allow
        best = math.inf
        for _ in range(5):
            started = time.process_time()
            for _ in range(100_000):
                allow(1.0)
            best = min(best, time.process_time() - started)
        assert best < 0.1


class TestOpen:
    def test_it_is_half_open_after_sixty_seconds(self) -> None:
        """ROUT-04"""
        breaker = opened(Breaker(), 100.0)
        assert breaker.stats().half_opens_at == 160.0
        assert not breaker.allow(159.9)
        assert breaker.allow(160.0)
        assert breaker.state == "half_open"
        assert breaker.stats().refused == 1

    def test_it_is_probed_after_1_1_2_4_8_16_30_30_seconds(self) -> None:
        breaker = opened(Breaker(BreakerSettings(open_time=1000.0, longest_open_time=1000.0)))
        now = 0.0
        pauses = []
        while len(pauses) < 8:
            pause = breaker.next_probe - now
            now = breaker.next_probe
            assert not breaker.probe_due(now - 0.01)
            assert breaker.probe_due(now)
            breaker.probed(now, ok=False)
            pauses.append(pause)
        assert pauses == [1, 1, 2, 4, 8, 16, 30, 30]

    def test_the_pauses_start_over_when_it_has_been_closed(self) -> None:
        breaker = opened(Breaker())
        for now in (1.0, 2.0, 4.0):
            breaker.probed(now, ok=False)
        breaker.reset(5.0)
        opened(breaker, 10.0)
        pauses = []
        now = 10.0
        for _ in range(3):
            pauses.append(breaker.next_probe - now)
            now = breaker.next_probe
            breaker.probed(now, ok=False)
        assert pauses == [1, 1, 2]

    def test_a_probe_that_succeeds_makes_it_half_open_at_once(self) -> None:
        breaker = opened(Breaker())
        breaker.probed(1.0, ok=True)
        assert breaker.state == "half_open"
        assert not breaker.probe_due(1e9)
        assert breaker.allow(1.0)

    def test_a_target_that_answers_probes_and_fails_calls_is_probed_less_and_less(self) -> None:
        breaker = opened(Breaker())
        now = 0.0
        pauses = []
        for _ in range(8):
            pauses.append(breaker.next_probe - now)
            now = breaker.next_probe
            breaker.probed(now, ok=True)
            assert breaker.allow(now)
            breaker.failed(now)
        assert pauses == [1, 1, 2, 4, 8, 16, 30, 30]

    def test_a_probe_of_a_closed_breaker_changes_nothing(self) -> None:
        breaker = Breaker()
        breaker.probed(1.0, ok=False)
        breaker.probed(1.0, ok=True)
        assert breaker.state == "closed"
        assert breaker.next_probe == math.inf

    def test_verdicts_on_calls_from_before_change_nothing(self) -> None:
        breaker = opened(Breaker())
        for _ in range(20):
            breaker.ok(1.0)
            breaker.failed(1.0)
        assert breaker.state == "open"
        assert breaker.stats().half_opens_at == 60.0


class TestHalfOpen:
    def test_two_successes_close_it(self) -> None:
        """ROUT-04"""
        breaker = half_opened(Breaker())
        assert breaker.allow(60.0)
        breaker.ok(60.5)
        assert breaker.state == "half_open"
        assert breaker.allow(61.0)
        breaker.ok(61.5)
        assert breaker.state == "closed"

    def test_a_success_before_a_failure_counts_no_more(self) -> None:
        breaker = half_opened(Breaker())
        assert breaker.allow(60.0)
        breaker.ok(60.0)
        assert breaker.allow(60.0)
        breaker.failed(60.0)
        assert breaker.allow(180.0)
        breaker.ok(180.0)
        assert breaker.state == "half_open"

    def test_one_call_at_a_time_is_admitted(self) -> None:
        breaker = half_opened(Breaker())
        assert breaker.allow(60.0)
        assert not breaker.would_allow(60.0)
        assert not breaker.allow(60.0)
        breaker.ok(60.0)
        assert breaker.allow(60.0)

    def test_in_a_panic_as_many_as_come_are_admitted(self) -> None:
        breaker = half_opened(Breaker())
        assert breaker.allow(60.0)
        assert breaker.allow(60.0, limited=False)
        assert not opened(Breaker()).allow(1.0, limited=False)

    def test_a_failure_opens_it_for_twice_the_time_up_to_five_minutes(self) -> None:
        """ROUT-04"""
        breaker = opened(Breaker())
        now = 0.0
        times = []
        for _ in range(5):
            times.append(breaker.stats().half_opens_at - now)
            now = breaker.stats().half_opens_at
            assert breaker.allow(now)
            breaker.failed(now)
            assert breaker.state == "open"
        assert times == [60, 120, 240, 300, 300]

    def test_closing_makes_the_open_time_short_again(self) -> None:
        breaker = half_opened(Breaker())
        assert breaker.allow(60.0)
        breaker.failed(60.0)
        for _ in range(2):
            assert breaker.allow(180.0)
            breaker.ok(180.0)
        opened(breaker, 200.0)
        assert breaker.stats().half_opens_at == 260.0

    def test_thirty_seconds_without_a_verdict_open_it(self) -> None:
        """ROUT-04"""
        breaker = half_opened(Breaker())
        assert breaker.allow(70.0)
        assert not breaker.would_allow(99.9)
        assert breaker.state == "half_open"
        assert not breaker.would_allow(100.0)
        assert (breaker.state, breaker.stats().half_opens_at) == ("open", 220.0)

    def test_without_calls_it_stays_half_open(self) -> None:
        breaker = half_opened(Breaker())
        assert breaker.allow(10_000.0)
        assert breaker.state == "half_open"

    def test_a_cancelled_trial_makes_room_for_the_next(self) -> None:
        breaker = half_opened(Breaker())
        assert breaker.allow(60.0)
        breaker.released()
        assert breaker.state == "half_open"
        assert breaker.allow(60.0)
        breaker.local_fault()
        assert breaker.allow(60.0)

    def test_a_verdict_on_a_call_from_before_is_no_trial(self) -> None:
        breaker = half_opened(Breaker())
        breaker.ok(60.0)
        breaker.ok(60.0)
        breaker.failed(60.0)
        assert breaker.state == "half_open"


class TestByHand:
    def test_forced_open_it_stays_so(self) -> None:
        """ROUT-04"""
        breaker = Breaker()
        breaker.force_open(5.0)
        breaker.probed(6.0, ok=True)
        assert not breaker.allow(1e9)
        assert not breaker.probe_due(1e9)
        assert breaker.stats().forced

    @pytest.mark.parametrize("how", ["reset", "force_close"])
    def test_it_can_be_closed(self, how: str) -> None:
        """ROUT-04"""
        for breaker in (opened(Breaker()), half_opened(Breaker())):
            getattr(breaker, how)(70.0)
            assert breaker.allow(70.0)
            assert breaker.allow(70.0)
            for _ in range(4):
                breaker.failed(71.0)
            assert breaker.state == "closed"

    def test_a_reset_forgets_what_was_counted(self) -> None:
        breaker = opened(Breaker())
        assert breaker.stats().failures == 5
        breaker.reset(1.0)
        stats = breaker.stats()
        assert (stats.failures, stats.successes, stats.refused, stats.failure_rate) == (0, 0, 0, 0.0)

    def test_every_transition_is_told_and_counted(self) -> None:
        """ROUT-07"""
        told: list[tuple[State, State, float]] = []
        breaker = opened(Breaker(on_transition=lambda before, after, now: told.append((before, after, now))), 1.0)
        breaker.probed(2.0, ok=True)
        for _ in range(2):
            assert breaker.allow(3.0)
            breaker.ok(3.0)
        breaker.force_open(4.0)
        breaker.force_open(5.0)
        breaker.reset(6.0)
        assert told == [
            ("closed", "open", 1.0),
            ("open", "half_open", 2.0),
            ("half_open", "closed", 3.0),
            ("closed", "open", 4.0),
            ("open", "closed", 6.0),
        ]
        assert breaker.transitions == {"closed>open": 2, "open>half_open": 1, "half_open>closed": 1, "open>closed": 1}


class Model:
    """The table of states, written for clarity: keeps every outcome, and looks at all of them each time."""

    def __init__(self) -> None:
        self.close()

    def close(self) -> None:
        self.state = "closed"
        self.outcomes: list[bool] = []
        self.open_time = 60.0
        self.since = 0.0
        self.trial: float | None = None
        self.good = 0
        self.failed_probes = 0
        self.probe_at = math.inf

    def tick(self, now: float) -> None:
        if self.state == "open" and now >= self.since + self.open_time:
            self.half_open()
        elif self.state == "half_open" and self.trial is not None and now >= self.trial + 30:
            self.open(now, again=True)

    def half_open(self) -> None:
        self.state = "half_open"
        self.trial = None
        self.good = 0

    def open(self, now: float, *, again: bool) -> None:
        if again:
            self.open_time = min(300.0, self.open_time * 2)
        self.state = "open"
        self.since = now
        self.plan(now)

    def plan(self, now: float) -> None:
        self.probe_at = now + [1, 1, 2, 4, 8, 16, 30][min(self.failed_probes, 6)]
        self.failed_probes += 1

    def allow(self, now: float) -> bool:
        if self.state == "closed":
            return True
        self.tick(now)
        if self.state == "open" or self.trial is not None:
            return False
        self.trial = now
        return True

    def verdict(self, now: float, *, good: bool) -> None:
        if self.state == "closed":
            self.outcomes.append(good)
            last = self.outcomes[-10:]
            in_a_row = len(self.outcomes) >= 5 and not any(self.outcomes[-5:])
            if in_a_row or (len(last) == 10 and last.count(False) >= 5):
                self.open(now, again=False)
        elif self.state == "half_open" and self.trial is not None:
            self.trial = None
            if not good:
                self.open(now, again=True)
                return
            self.good += 1
            if self.good == 2:
                self.close()

    def probed(self, now: float, *, ok: bool) -> None:
        self.tick(now)
        if self.state == "open":
            if ok:
                self.half_open()
            else:
                self.plan(now)


STEPS = st.tuples(
    st.sampled_from(["call_ok", "call_ok", "call_failed", "call_failed", "call_silent", "late", "probe", "no_probe"]),
    st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 5.0, 29.9, 30.0, 60.0, 120.0, 400.0]),
)


@given(st.lists(STEPS, max_size=120))
def test_every_path_is_that_of_the_model(steps: list[tuple[str, float]]) -> None:
    """ROUT-04"""
    breaker, model, now = Breaker(), Model(), 0.0
    for what, pause in steps:
        now += pause
        if what == "probe":
            breaker.probed(now, ok=True)
            model.probed(now, ok=True)
        elif what == "no_probe":
            breaker.probed(now, ok=False)
            model.probed(now, ok=False)
        elif what == "late":
            breaker.failed(now)
            model.verdict(now, good=False)
        else:
            admitted = breaker.allow(now)
            assert admitted == model.allow(now)
            if admitted and what == "call_ok":
                breaker.ok(now)
                model.verdict(now, good=True)
            elif admitted and what == "call_failed":
                breaker.failed(now)
                model.verdict(now, good=False)
        assert breaker.state == model.state
        if model.state == "open":
            assert breaker.stats().half_opens_at == model.since + model.open_time
            assert breaker.next_probe == model.probe_at


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 50)), max_size=200))
def test_while_it_is_open_nothing_is_admitted_before_its_time(steps: list[tuple[bool, float]]) -> None:
    breaker, now = Breaker(), 0.0
    for good, pause in steps:
        now += pause
        before = breaker.stats()
        admitted = breaker.allow(now)
        if before.state == "open" and now < before.half_opens_at:
            assert not admitted
        if admitted and good:
            breaker.ok(now)
        elif admitted:
            breaker.failed(now)


@pytest.mark.parametrize(
    "options",
    [
        {"failures": 0},
        {"failures": 1.5},
        {"failures": True},
        {"window": 0},
        {"failure_rate": 0},
        {"failure_rate": 1.1},
        {"failure_rate": math.nan},
        {"open_time": 0},
        {"open_time": 301.0},
        {"open_time": "60"},
        {"trial_time": -1},
        {"successes": 0},
        {"first_probe": 31.0},
    ],
)
def test_settings_that_could_not_work_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(SetupError, match=next(iter(options))):
        BreakerSettings(**options)  # type: ignore[arg-type]


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return an error with its cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (None, "ok"),
        (errors.PeerError(-32603, "no"), "ok"),
        (errors.ToolError("no"), "ok"),
        (errors.HttpFailed("no", 404), "ok"),
        (errors.HttpFailed("no", 429), "ok"),
        (errors.HttpFailed("no", 500), "failed"),
        (errors.HttpFailed("no", 502), "failed"),
        (errors.HttpFailed("no", 503), "failed"),
        (errors.HttpFailed("no", 504), "failed"),
        (errors.ConnectFailed("no"), "failed"),
        (errors.ChildFailed("no"), "failed"),
        (errors.InitializeTimedOut("no"), "failed"),
        (errors.LinkLost("no"), "failed"),
        (errors.OutcomeUnknown("no"), "failed"),
        (errors.InvalidAnswer("no"), "failed"),
        (errors.ConnectionTimedOut("no"), "failed"),
        (errors.TimedOut("the peer answers pings"), "none"),
        (errors.Cancelled("we did"), "none"),
        (errors.EncodeError("ours"), "none"),
        (errors.Declined("decline"), "none"),
        (ValueError("ours"), "none"),
        (caused(errors.ConnectFailed("no"), OSError(errno.EMFILE, "too many open files")), "local"),
        (caused(errors.ConnectFailed("no"), socket.gaierror(-2, "unknown name")), "local"),
        (caused(errors.ConnectFailed("no"), OSError(errno.ECONNREFUSED, "refused")), "failed"),
    ],
    ids=str,
)
def test_what_counts_as_a_failure_of_the_target(error: BaseException | None, verdict: Verdict) -> None:
    assert verdict_of(error) == verdict


def test_the_longest_times_may_be_the_first_ones() -> None:
    settings = BreakerSettings(open_time=7.0, longest_open_time=7.0, first_probe=3.0, longest_probe=3.0)
    assert (settings.longest_open_time, settings.longest_probe) == (7.0, 3.0)
    with pytest.raises(SetupError, match="longest_open_time must be at least open_time, 8 s"):
        BreakerSettings(open_time=8.0, longest_open_time=7.0)
    with pytest.raises(SetupError, match="longest_probe must be at least first_probe, 4 s"):
        BreakerSettings(first_probe=4.0, longest_probe=3.0)


def test_one_call_may_be_enough() -> None:
    breaker = Breaker(BreakerSettings(failures=1, window=1, successes=1))
    breaker.failed(0.0)
    assert breaker.state == "open"
    breaker.probed(1.0, ok=True)
    assert breaker.allow(1.0)
    breaker.ok(1.0)
    assert breaker.state == "closed"


def test_while_a_trial_runs_no_other_call_would_be_admitted() -> None:
    breaker = opened(Breaker())
    breaker.probed(1.0, ok=True)
    assert breaker.would_allow(1.0)
    assert breaker.allow(1.0)
    assert not breaker.would_allow(1.0)
    assert breaker.would_allow(1.0, limited=False)
