"""Who does worse than the others is ejected for a while, never too many at once, and everybody is used in a panic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.ejection import Ejection, EjectionSettings, in_panic
from ferrule.errors import SetupError


def group(size: int, told: list[tuple[str, str, float]] | None = None) -> Ejection:
    """Return the ejection of a group of targets named t0, t1 … whose first interval starts at 0."""
    if told is None:
        told = []
    ejection = Ejection(on_ejection=lambda name, reason, until: told.append((name, reason, until)))
    for number in range(size):
        ejection.add(f"t{number}")
    ejection.sweep(0.0)
    return ejection


def fail(ejection: Ejection, name: str, now: float, times: int = 5) -> None:
    """Let a target fail several calls in a row."""
    for _ in range(times):
        ejection.failed(name, now)


def test_the_defaults_are_those_of_envoy() -> None:
    settings = EjectionSettings()
    assert (settings.interval, settings.failures, settings.deviations) == (10.0, 5, 1.9)
    assert (settings.least_targets, settings.least_calls) == (5, 100)
    assert (settings.base_time, settings.longest_time, settings.share, settings.panic) == (30.0, 300.0, 0.1, 0.5)


class TestFailuresInARow:
    def test_five_eject_for_thirty_seconds(self) -> None:
        told: list[tuple[str, str, float]] = []
        ejection = group(3, told)
        fail(ejection, "t1", 1.0, times=4)
        assert not ejection.is_ejected("t1")
        ejection.failed("t1", 2.0)
        assert ejection.ejected == ["t1"]
        assert told == [("t1", "5 failures in a row", 32.0)]
        ejection.sweep(31.0)
        assert ejection.is_ejected("t1")
        ejection.sweep(41.0)
        assert ejection.ejected == []

    def test_a_success_between_them_starts_the_count_over(self) -> None:
        ejection = group(3)
        for _ in range(10):
            fail(ejection, "t1", 1.0, times=4)
            ejection.ok("t1")
        assert ejection.ejected == []

    def test_each_time_in_a_row_lasts_longer_up_to_five_minutes(self) -> None:
        told: list[tuple[str, str, float]] = []
        ejection = group(3, told)
        now = 0.0
        lengths = []
        for _ in range(12):
            fail(ejection, "t0", now)
            lengths.append(told[-1][2] - now)
            now = told[-1][2] + 10.0
            ejection.sweep(now)
            assert not ejection.is_ejected("t0")
        assert lengths == [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]

    def test_one_that_is_taken_back_may_fail_four_calls_again(self) -> None:
        ejection = group(3)
        fail(ejection, "t0", 0.0)
        ejection.sweep(40.0)
        fail(ejection, "t0", 41.0, times=4)
        assert ejection.ejected == []
        ejection.failed("t0", 41.0)
        assert ejection.ejected == ["t0"]

    def test_every_interval_of_good_conduct_takes_one_away(self) -> None:
        told: list[tuple[str, str, float]] = []
        ejection = group(3, told)
        fail(ejection, "t0", 0.0)
        for now in (30.0, 40.0, 50.0):
            ejection.sweep(now)
        fail(ejection, "t0", 60.0)
        assert told[-1][2] == 90.0


class TestHowMany:
    @pytest.mark.parametrize("size", [1, 2])
    def test_a_group_of_one_or_two_ejects_nobody(self, size: int) -> None:
        ejection = group(size)
        fail(ejection, "t0", 1.0, times=50)
        assert ejection.ejected == []

    @pytest.mark.parametrize(("size", "most"), [(3, 1), (10, 1), (19, 1), (20, 2), (45, 4)])
    def test_a_tenth_and_at_least_one(self, size: int, most: int) -> None:
        ejection = group(size)
        for number in range(size):
            fail(ejection, f"t{number}", 1.0)
        assert len(ejection.ejected) == most == ejection.ejections

    def test_a_share_of_everything_still_leaves_one(self) -> None:
        ejection = Ejection(EjectionSettings(share=1.0))
        for number in range(4):
            ejection.add(f"t{number}")
        for number in range(4):
            fail(ejection, f"t{number}", 1.0)
        assert ejection.ejected == ["t0", "t1", "t2"]

    def test_a_removed_one_makes_room(self) -> None:
        ejection = group(4)
        fail(ejection, "t0", 1.0)
        fail(ejection, "t1", 1.0)
        assert ejection.ejected == ["t0"]
        ejection.remove("t0")
        ejection.remove("t0")
        ejection.failed("t1", 1.0)
        assert ejection.ejected == ["t1"]

    def test_one_that_is_taken_back_makes_one_place(self) -> None:
        ejection = group(20)
        for name in ("t0", "t1"):
            fail(ejection, name, 0.0)
        ejection.sweep(40.0)
        assert ejection.ejected == []
        for name in ("t2", "t3", "t4"):
            fail(ejection, name, 41.0)
        assert ejection.ejected == ["t2", "t3"]

    def test_removing_one_that_is_not_ejected_makes_no_place(self) -> None:
        ejection = group(6)
        fail(ejection, "t0", 1.0)
        ejection.remove("t1")
        fail(ejection, "t2", 1.0)
        assert ejection.ejected == ["t0"]

    @given(st.lists(st.tuples(st.integers(0, 29), st.booleans(), st.floats(0, 3)), max_size=300))
    def test_never_more_than_allowed_whatever_happens(self, steps: list[tuple[int, bool, float]]) -> None:
        ejection = Ejection(EjectionSettings(failures=1))
        for number in range(30):
            ejection.add(f"t{number}")
        now = 0.0
        for number, good, pause in steps:
            now += pause
            ejection.sweep(now)
            if good:
                ejection.ok(f"t{number}")
            else:
                ejection.failed(f"t{number}", now)
            assert len(ejection.ejected) <= 3


class TestSuccessRate:
    def calls(self, ejection: Ejection, name: str, good: int, bad: int) -> None:
        """Make calls of a target, never five failures in a row."""
        for _ in range(bad):
            ejection.failed(name, 1.0)
            ejection.ok(name)
        for _ in range(good - bad):
            ejection.ok(name)

    def test_five_with_enough_calls_are_compared_and_four_are_not(self) -> None:
        for size, ejected in ((5, ["t0"]), (4, [])):
            ejection = Ejection(EjectionSettings(deviations=1.0))
            for number in range(size):
                ejection.add(f"t{number}")
            ejection.sweep(0.0)
            for number in range(size):
                self.calls(ejection, f"t{number}", good=90, bad=40 if number == 0 else 0)
                self.calls(ejection, f"t{number}", good=10, bad=0)
            ejection.sweep(10.0)
            assert ejection.ejected == ejected

    def test_one_far_below_the_others_is_ejected_at_the_sweep(self) -> None:
        told: list[tuple[str, str, float]] = []
        ejection = group(6, told)
        for number in range(5):
            self.calls(ejection, f"t{number}", 198, 2)
        self.calls(ejection, "t5", 120, 80)
        assert ejection.ejected == []
        ejection.sweep(10.0)
        assert ejection.ejected == ["t5"]
        # Mean 92.5 %, standard deviation 14.53 %.
        assert told == [("t5", "success rate 60%, below 64.9%", 40.0)]

    @pytest.mark.parametrize(("targets", "calls"), [(4, 200), (6, 99)])
    def test_of_too_few_targets_or_calls_nothing_is_concluded(self, targets: int, calls: int) -> None:
        ejection = group(targets)
        for number in range(targets - 1):
            self.calls(ejection, f"t{number}", calls, 0)
        self.calls(ejection, f"t{targets - 1}", calls - calls // 3, calls // 3)
        ejection.sweep(10.0)
        assert ejection.ejected == []

    def test_equals_are_left_alone_however_bad(self) -> None:
        ejection = group(6)
        for number in range(6):
            self.calls(ejection, f"t{number}", 100, 100)
        ejection.sweep(10.0)
        assert ejection.ejected == []

    def test_only_the_calls_of_the_interval_count(self) -> None:
        ejection = group(6)
        for number in range(6):
            self.calls(ejection, f"t{number}", 60, 0)
        ejection.sweep(10.0)
        for number in range(5):
            self.calls(ejection, f"t{number}", 60, 0)
        self.calls(ejection, "t5", 30, 30)
        ejection.sweep(20.0)
        assert ejection.ejected == []

    def test_between_two_sweeps_nothing_is_compared(self) -> None:
        ejection = group(6)
        for number in range(5):
            self.calls(ejection, f"t{number}", 200, 0)
        self.calls(ejection, "t5", 120, 80)
        ejection.sweep(9.9)
        assert ejection.ejected == []


class TestPanic:
    @pytest.mark.parametrize(
        ("usable", "total", "panic"), [(0, 3, True), (1, 3, True), (2, 3, False), (1, 2, False), (0, 0, False)]
    )
    def test_it_is_a_panic_when_less_than_half_can_be_used(self, usable: int, total: int, panic: bool) -> None:
        assert in_panic(usable, total) is panic


def test_an_unknown_target_is_not_ejected() -> None:
    """A removed one may still have calls that end."""
    ejection = group(3)
    ejection.ok("x")
    fail(ejection, "x", 1.0)
    assert not ejection.is_ejected("x")


@pytest.mark.parametrize(
    "options",
    [
        {"failures": 0},
        {"interval": 0},
        {"share": 1.5},
        {"panic": -0.1},
        {"least_group": 1},
        {"longest_time": 10.0},
        {"deviations": -1},
    ],
)
def test_settings_that_could_not_work_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(SetupError, match=next(iter(options))):
        EjectionSettings(**options)  # type: ignore[arg-type]


def test_the_longest_time_may_be_the_first_one() -> None:
    assert EjectionSettings(base_time=40.0, longest_time=40.0).longest_time == 40.0
    with pytest.raises(SetupError, match="longest_time must be at least base_time, 40 s"):
        EjectionSettings(base_time=40.0, longest_time=39.0)
