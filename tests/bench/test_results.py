"""Comparing two contestants window by window."""

from __future__ import annotations

from bench.results import Results


def results(ours: list[float], theirs: list[float]) -> Results:
    """Return the results of two contestants in one case."""
    found = Results()
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True), 1):
        found.add("call", "x1", "now", number, {"cpu_us": mine})
        found.add("call", "x1", "before", number, {"cpu_us": other})
    return found


def test_a_disturbance_of_both_windows_of_a_pair_does_not_count() -> None:
    """A machine that is three times slower for a while is so for both."""
    found = results([11, 33, 11, 11], [10, 30, 10, 10]).ratio("call", "x1", "now", "before")
    assert found is not None
    assert round(found.median, 3) == 1.1
    assert found.error < 0.001


def test_one_disturbed_window_does_not_move_the_median() -> None:
    """And the error says how far the pairs lie apart."""
    found = results([10, 90, 12, 10, 8], [10, 10, 10, 10, 10]).ratio("call", "x1", "now", "before")
    assert found is not None
    assert found.median == 1.0
    assert 0.1 < found.error < 0.3


def test_who_took_no_part_is_not_compared() -> None:
    """There is no ratio to somebody without windows."""
    assert results([10], [10]).ratio("call", "x1", "now", "another") is None
