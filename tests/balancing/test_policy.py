"""Each policy spreads calls as it promises, by the chi-square test over 100,000 picks with a fixed seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from chi_square import p_value
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.policy import (
    BOUND,
    POLICIES,
    SPACE,
    Adaptive,
    LeastLoaded,
    Policy,
    Ring,
    RoundRobin,
    Target,
    Weighted,
    place_of,
    policy_named,
)
from ferrule.errors import SetupError

PICKS = 100_000


def group(*weights: float) -> list[Target]:
    """Return targets of some weights, named a, b, c …"""
    return [Target(chr(ord("a") + index), weight) for index, weight in enumerate(weights)]


def picks(policy: Policy, targets: Sequence[Target], count: int = PICKS, seed: int = 11) -> Counter[str]:
    """Count who is picked, with a new key each time."""
    chance = random.Random(seed)
    counted: Counter[str] = Counter()
    for number in range(count):
        picked = policy.pick(targets, f"key {number}", chance.random)
        assert picked is not None
        counted[picked.name] += 1
    return counted


def shares(targets: Sequence[Target]) -> dict[str, float]:
    """Return the weight of each target."""
    return {target.name: target.weight for target in targets}


def name_of(policy: Policy, targets: Sequence[Target], key: str | None = None, chance: float = 0.0) -> str:
    """Return the name of the one that is picked."""
    picked = policy.pick(targets, key, lambda: chance)
    assert picked is not None
    return picked.name


@pytest.mark.parametrize("name", POLICIES)
class TestEveryPolicy:
    def test_nobody_is_picked_where_nobody_is_admitted(self, name: str) -> None:
        targets = group(1, 1)
        for target in targets:
            target.admitted = False
        policy = policy_named(name)
        assert policy.pick([], "k", random.random) is None
        assert policy.pick(targets, "k", random.random) is None

    def test_the_only_one_is_picked(self, name: str) -> None:
        targets = group(1, 1)
        targets[0].admitted = False
        assert picks(policy_named(name), targets, 50) == {"b": 50}
        assert picks(policy_named(name), targets[1:], 50) == {"b": 50}

    def test_only_the_admitted_are_picked(self, name: str) -> None:
        targets = group(1, 2, 1, 1, 1)
        targets[1].admitted = False
        targets[3].admitted = False
        counted = picks(policy_named(name), targets, 2000)
        assert counted.keys() == {"a", "c", "e"}

    def test_one_that_comes_back_is_picked_again(self, name: str) -> None:
        targets = group(1, 1, 1, 1)
        policy = policy_named(name)
        targets[0].admitted = False
        assert "a" not in picks(policy, targets, 500)
        targets[0].admitted = True
        assert picks(policy, targets, 500)["a"] > 50

    def test_a_removed_one_is_forgotten_and_may_come_again(self, name: str) -> None:
        targets = group(1, 1, 1)
        policy = policy_named(name)
        picks(policy, targets, 100)
        policy.refresh(targets)
        policy.forget("b")
        policy.forget("b")
        assert picks(policy, [targets[0], targets[2]], 500).keys() == {"a", "c"}
        assert picks(policy, targets, 500).keys() == {"a", "b", "c"}

    @pytest.mark.parametrize("size", [2, 3, 4, 10])
    def test_equals_are_picked_equally_often(self, name: str, size: int) -> None:
        """ROUT-02"""
        targets = group(*[1.0] * size)
        if name == "hash":
            # The arcs of a ring are not equal; how far they are from it is below.
            assert spread_of_hash(targets) > 0.01
        else:
            assert p_value(picks(policy_named(name), targets), shares(targets)) > 0.01


def arcs(targets: Sequence[Target]) -> dict[str, float]:
    """Return how much of the ring belongs to each target."""
    points = []
    for target in targets:
        for number in range(round(160 * target.weight)):
            points.append((place_of(f"{target.name}#{number}"), target.name))
    points.sort()
    found = dict.fromkeys((target.name for target in targets), 0.0)
    before = points[-1][0] - SPACE
    for place, name in points:
        found[name] += place - before
        before = place
    return found


def spread_of_hash(targets: Sequence[Target]) -> float:
    """Return how likely the p-values of 20 sets of keys are if each key falls anywhere on the ring."""
    expected = arcs(targets)
    policy = Ring()
    quarters: Counter[str] = Counter()
    for number in range(20):
        counted: Counter[str] = Counter()
        for key in range(PICKS // 20):
            counted[name_of(policy, targets, f"set {number} key {key}")] += 1
        quarters[str(int(p_value(counted, expected) * 4))] += 1
    return p_value(quarters, dict.fromkeys("0123", 1.0))


class TestRoundRobin:
    def test_each_comes_in_turn(self) -> None:
        """ROUT-02"""
        policy, targets = RoundRobin(), group(1, 1, 1)
        assert "".join(name_of(policy, targets) for _ in range(7)) == "abcabca"

    def test_weights_are_spread_smoothly_as_nginx_does(self) -> None:
        """ROUT-03"""
        policy, targets = RoundRobin(), group(5, 1, 1)
        assert "".join(name_of(policy, targets) for _ in range(14)) == "aabacaa" * 2

    def test_weights_are_kept_over_many_picks(self) -> None:
        """ROUT-03"""
        targets = group(1, 2, 3, 4)
        assert p_value(picks(RoundRobin(), targets), shares(targets)) > 0.01

    @given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    def test_a_full_round_gives_each_exactly_its_weight(self, weights: list[int]) -> None:
        targets = group(*weights)
        counted = picks(RoundRobin(), targets, sum(weights))
        assert counted == {target.name: target.weight for target in targets}


class TestLeastLoaded:
    def test_the_one_with_the_fewest_calls_for_its_weight_is_picked(self) -> None:
        """ROUT-02, ROUT-03"""
        policy, targets = LeastLoaded(), group(1, 1, 4)
        targets[0].in_flight = 2
        targets[1].in_flight = 1
        targets[2].in_flight = 3
        assert name_of(policy, targets) == "c"
        targets[2].in_flight = 5
        assert name_of(policy, targets) == "b"

    def test_of_equals_the_faster_is_picked(self) -> None:
        targets = group(1, 1)
        targets[0].latency = 0.2
        targets[1].latency = 0.1
        assert {name_of(LeastLoaded(), targets, chance=chance / 10) for chance in range(10)} == {"b"}

    def test_the_worst_of_many_is_never_picked(self) -> None:
        targets = group(*[1.0] * 10)
        targets[4].in_flight = 1
        assert "e" not in picks(LeastLoaded(), targets, 5000)

    def test_of_many_the_best_is_picked_as_often_as_it_is_drawn(self) -> None:
        """Two choices, not the full minimum: callers with old figures do not all run to the same target."""
        targets = group(*[1.0] * 10)
        for target in targets[1:]:
            target.in_flight = 1
        counted = picks(LeastLoaded(), targets)
        drawn = {"a": counted["a"], "others": PICKS - counted["a"]}
        assert p_value(drawn, {"a": 2 / 10, "others": 8 / 10}) > 0.01

    def test_loads_stay_close_together(self) -> None:
        """ROUT-02: chance alone would leave a gap of about 60."""
        targets, chance = group(*[1.0] * 20), random.Random(5)
        policy = LeastLoaded()
        for _ in range(10_000):
            picked = policy.pick(targets, None, chance.random)
            assert picked is not None
            picked.started()
        loads = [target.in_flight for target in targets]
        assert max(loads) - min(loads) <= 8


class TestRandom:
    def test_weights_are_kept(self) -> None:
        """ROUT-02, ROUT-03"""
        targets = group(1, 2.5, 3, 4)
        assert p_value(picks(Weighted(), targets), shares(targets)) > 0.01

    def test_it_is_not_in_turn(self) -> None:
        targets, chance = group(1, 1), random.Random(3)
        pairs: Counter[str] = Counter()
        policy = Weighted()
        for _ in range(20_000):
            first = policy.pick(targets, None, chance.random)
            second = policy.pick(targets, None, chance.random)
            assert first is not None
            assert second is not None
            pairs[first.name + second.name] += 1
        assert p_value(pairs, dict.fromkeys(["aa", "ab", "ba", "bb"], 1.0)) > 0.01


class TestHash:
    def test_the_same_key_goes_to_the_same_target(self) -> None:
        targets = group(1, 1, 1, 1)
        first, second = Ring(), Ring()
        for number in range(200):
            assert name_of(first, targets, f"k{number}") == name_of(second, targets[::-1], f"k{number}")

    def test_shares_follow_the_weights_roughly(self) -> None:
        targets = group(1, 1, 2, 4)
        counted = picks(Ring(), targets)
        for target in targets:
            assert counted[target.name] / PICKS == pytest.approx(target.weight / 8, rel=0.25)

    def test_picks_are_in_proportion_to_the_arcs_of_the_ring(self) -> None:
        targets = group(1, 2, 3)
        assert p_value(picks(Ring(), targets), arcs(targets)) > 0.01

    @pytest.mark.parametrize("lost_by", ["not admitted", "not given", "removed"])
    @pytest.mark.parametrize("size", [3, 5, 10])
    def test_the_loss_of_one_of_n_moves_only_its_own_keys_about_a_nth(self, size: int, lost_by: str) -> None:
        targets, policy = group(*[1.0] * size), Ring()
        keys = [f"session {number}" for number in range(10_000)]
        before = {key: name_of(policy, targets, key) for key in keys}
        if lost_by == "not admitted":
            targets[1].admitted = False
        else:
            targets = [target for target in targets if target.name != "b"]
        if lost_by == "removed":
            policy.forget("b")
        after = {key: name_of(policy, targets, key) for key in keys}
        moved = [key for key in keys if before[key] != after[key]]
        assert {before[key] for key in moved} == {"b"}
        assert len(moved) / len(keys) == pytest.approx(1 / size, rel=0.25)
        assert len({after[key] for key in moved}) == size - 1

    def test_each_unit_of_weight_has_160_points(self) -> None:
        policy = Ring()
        policy.pick(group(1, 2.5, 0.001), "k", random.random)
        assert Counter(name for _, name in policy._points) == {"a": 160, "b": 400, "c": 1}
        assert policy._points == sorted(policy._points)

    def test_a_new_weight_moves_keys(self) -> None:
        targets, policy = group(1, 1), Ring()
        before = picks(policy, targets, 5000)["a"]
        targets[0].weight = 3.0
        assert picks(policy, targets, 5000)["a"] > before * 1.2

    @given(st.integers(1, 8), st.integers(0, 300), st.randoms(use_true_random=False))
    def test_nobody_gets_more_than_its_bound(self, size: int, calls: int, chance: random.Random) -> None:
        targets, policy = group(*[1.0 + index % 3 for index in range(size)]), Ring()
        weights = sum(target.weight for target in targets)
        for number in range(calls):
            picked = policy.pick(targets, "one hot key", chance.random)
            assert picked is not None
            picked.started()
            assert picked.in_flight <= BOUND * (number + 1) * picked.weight / weights + 1

    def test_without_a_key_any_place_of_the_ring_will_do(self) -> None:
        targets, policy, chance = group(1, 1, 1), Ring(), random.Random(2)
        counted: Counter[str] = Counter()
        for _ in range(PICKS):
            picked = policy.pick(targets, None, chance.random)
            assert picked is not None
            counted[picked.name] += 1
        assert p_value(counted, arcs(targets)) > 0.01

    @pytest.mark.parametrize("key", ["", "\udc80", "ключ"])
    def test_any_text_is_a_key(self, key: str) -> None:
        assert 0 <= place_of(key) < SPACE


class TestAdaptive:
    def test_the_score_is_half_queue_three_tenths_errors_two_tenths_latency(self) -> None:
        """ROUT-03"""
        policy, targets = Adaptive(), group(1, 1, 1, 1)
        queue, errors, latency, _ = targets
        queue.in_flight = 10
        errors.in_flight = errors.calls = errors.errors = 5
        latency.calls = 1
        latency.latency = 2.0
        errors.latency = 1.0
        policy.refresh(targets)
        assert policy.score("a") == pytest.approx(0.5)
        assert policy.score("b") == pytest.approx(0.5 * 0.5 + 0.3 + 0.2 * 0.5)
        assert policy.score("c") == pytest.approx(0.2)
        assert policy.score("d") == 0.0
        assert policy.score("unknown") == 0.0

    def test_the_figures_of_one_without_calls_are_halved_each_second(self) -> None:
        policy, targets = Adaptive(), group(1, 1)
        idle, busy = targets
        idle.calls = idle.errors = 2
        idle.latency = 4.0
        for number in range(1, 4):
            busy.calls = number
            busy.latency = 2.0
            policy.refresh(targets)
        # Errors 0.5, 0.25, 0.125 of the worst, which is itself; latency 4, 2, 1 of the other's 2.
        assert policy.score("a") == pytest.approx(0.3 + 0.2 * 0.5)
        assert policy.score("b") == pytest.approx(0.2)

    def test_of_two_with_the_same_score_the_first_taken_is_picked(self) -> None:
        policy, targets = Adaptive(), group(1, 1)
        policy.refresh(targets)
        assert (name_of(policy, targets, chance=0.0), name_of(policy, targets, chance=0.6)) == ("a", "b")

    def test_it_is_read_once_a_second_not_at_every_pick(self) -> None:
        """ROUT-03"""
        policy, targets = Adaptive(), group(1, 1)
        policy.refresh(targets)
        targets[0].in_flight = 100
        assert {name_of(policy, targets, chance=chance) for chance in (0.0, 0.6)} == {"a", "b"}
        policy.refresh(targets)
        assert {name_of(policy, targets, chance=chance) for chance in (0.0, 0.6)} == {"b"}

    def test_the_better_of_two_is_picked_so_shares_follow_the_ranks(self) -> None:
        """ROUT-03: of four, the best wins 3 of 6 pairs, the next 2, then 1, then none."""
        policy, targets = Adaptive(), group(1, 1, 1, 1)
        for rank, target in enumerate(targets):
            target.in_flight = rank
        policy.refresh(targets)
        counted = picks(policy, targets)
        assert counted["d"] == 0
        assert p_value(counted, {"a": 3, "b": 2, "c": 1}) > 0.01

    def test_the_error_rate_is_that_of_the_last_seconds_the_newest_counting_half(self) -> None:
        policy, targets = Adaptive(), group(1, 1)
        good, bad = targets
        bad.calls = bad.errors = 2
        good.calls = 4
        good.errors = 1
        policy.refresh(targets)
        assert policy.score("a") == pytest.approx(0.3 * (1 / 4) / (2 / 2))
        bad.calls = bad.errors = 4
        good.calls = 14
        good.errors = 6
        policy.refresh(targets)
        assert policy.score("a") == pytest.approx(0.3 * (0.125 + 0.5) / 2 / 0.75)
        assert policy.score("b") == pytest.approx(0.3)

    def test_one_that_failed_and_gets_no_calls_is_tried_again(self) -> None:
        policy, targets = Adaptive(), group(1, 1)
        bad, good = targets
        bad.calls = bad.errors = 10
        good.calls = 10
        policy.refresh(targets)
        assert picks(policy, targets, 100) == {"b": 100}
        for _ in range(30):
            good.calls += 10
            good.errors += 1
            policy.refresh(targets)
        assert picks(policy, targets, 100)["a"] > 0


class TestTarget:
    def test_calls_are_counted_and_latency_is_averaged(self) -> None:
        """ROUT-07"""
        target = Target("a", 2.0)
        target.started()
        target.started()
        assert (target.in_flight, target.load) == (2, 1.0)
        target.answered(0.5)
        assert target.latency == 0.5
        target.failed(1.5)
        assert target.latency == pytest.approx(0.6)
        assert (target.in_flight, target.calls, target.errors) == (0, 2, 1)

    def test_a_call_that_says_nothing_about_the_target_leaves_its_figures(self) -> None:
        target = Target("a")
        target.started()
        target.released()
        assert (target.in_flight, target.calls, target.latency) == (0, 0, 0.0)

    @pytest.mark.parametrize("weight", [0, -1, 1001, float("nan"), True, "1"])
    def test_a_weight_that_could_not_work_is_refused(self, weight: float) -> None:
        with pytest.raises(SetupError, match="weight of 'a'"):
            Target("a", weight)


def test_a_policy_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(SetupError, match="no policy 'fastest': it is one of round_robin, least_loaded, random"):
        policy_named("fastest")


def test_nothing_is_left_on_the_ring_of_one_that_was_removed() -> None:
    ring, targets = Ring(), group(1, 2)
    ring.pick(targets, "key", lambda: 0.0)
    assert len(ring._points) == 3 * 160
    ring.forget("a")
    assert {name for _, name in ring._points} == {"b"}
    ring.forget("a")
    assert len(ring._points) == 2 * 160


def test_of_three_the_least_loaded_is_picked_and_of_four_the_less_loaded_of_two() -> None:
    """ROUT-02"""
    for size, picked in ((3, "a"), (4, "c")):
        targets = group(*[1] * size)
        for target in targets[1:]:
            target.in_flight = 2
        targets[2].in_flight = 1
        # Of four, 0.4 and 0.6 take the second and the third.
        found = LeastLoaded().pick(targets, None, iter([0.4, 0.6]).__next__)
        assert found is not None
        assert found.name == picked


def test_the_score_of_one_that_was_removed_is_forgotten() -> None:
    policy, targets = Adaptive(), group(1, 1)
    targets[0].in_flight = 5
    policy.refresh(targets)
    assert policy.score("a") == pytest.approx(0.5)
    policy.forget("a")
    policy.forget("a")
    assert policy.score("a") == 0.0
