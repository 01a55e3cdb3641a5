"""Dead letters are few, not old, and without contents unless asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.routing.decisions import DeadLetter, DeadLetters


def test_the_last_thousand_are_kept() -> None:
    """ROUT-05"""
    letters = DeadLetters()
    for number in range(2500):
        letters.add(0.0, f"m{number}", "a", "lost")
    kept = letters.letters(0.0)
    assert (len(kept), kept[0].method, kept[-1].method) == (1000, "m1500", "m2499")
    assert letters.total == 2500


def test_one_is_kept_for_an_hour() -> None:
    """ROUT-05"""
    letters = DeadLetters()
    letters.add(100.0, "notifications/progress", "a", "the breaker is open")
    assert letters.letters(3699.9) == [DeadLetter(100.0, "notifications/progress", "a", "the breaker is open")]
    assert letters.letters(3700.0) == []


def test_payloads_are_kept_only_if_asked_for() -> None:
    plain, full = DeadLetters(), DeadLetters(keep_payload=True)
    for letters in (plain, full):
        letters.add(0.0, "m", "a", "lost", {"secret": 1})
    assert [letter.payload for letter in plain.letters(0.0)] == [None]
    assert [letter.payload for letter in full.letters(0.0)] == [{"secret": 1}]


def test_taken_letters_are_gone() -> None:
    letters = DeadLetters()
    letters.add(0.0, "m", "a", "lost")
    assert len(letters.take(1.0)) == 1
    assert letters.letters(1.0) == []


@given(st.lists(st.floats(0, 2000), max_size=50), st.integers(1, 10))
def test_what_is_kept_is_the_newest_and_not_too_old(pauses: list[float], size: int) -> None:
    letters, times, now = DeadLetters(size=size), [], 0.0
    for pause in pauses:
        now += pause
        times.append(now)
        letters.add(now, "m", "a", "lost")
        assert [letter.at for letter in letters.letters(now)] == [at for at in times[-size:] if at > now - 3600]


@pytest.mark.parametrize("options", [{"size": 0}, {"age": 0}])
def test_options_that_could_not_work_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(SetupError, match=next(iter(options))):
        DeadLetters(**options)  # type: ignore[arg-type]
