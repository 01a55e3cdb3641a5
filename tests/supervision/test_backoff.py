"""How long to wait before trying again."""

from __future__ import annotations

from ferrule.supervision.backoff import Backoff


def test_tcpt_13_a_tcp_client_waits_half_as_long_again_each_time() -> None:
    """TCPT-13."""
    backoff = Backoff(1.0, 1.5, 60.0, jitter=0.0)
    assert [backoff.delay(attempt, lambda: 1.0) for attempt in range(1, 5)] == [1.0, 1.5, 2.25, 3.375]
    assert [backoff.delay(attempt, lambda: 1.0) for attempt in (11, 12, 1000)] == [57.6650390625, 60.0, 60.0]


def test_chance_makes_a_pause_shorter_and_never_longer() -> None:
    backoff = Backoff(8.0, jitter=0.5)
    assert [backoff.delay(1, lambda c=chance: c) for chance in (0.0, 0.5, 1.0)] == [8, 6, 4]


def test_waits_double_from_a_second_to_a_minute_and_chance_takes_up_to_half() -> None:
    waits = [Backoff().delay(attempt, lambda: 0.0) for attempt in range(1, 9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert Backoff().delay(10**6, lambda: 1.0) == 30
    assert Backoff(1.0, longest=1e30).delay(10**6, lambda: 0.0) == 2.0**64
