"""Long texts are decoded, and modules imported, without the garbage collector, which is on again afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from ferrule.budgets.collector import LONG, CollectorPaused, decode_long


def seen(text: bytes) -> bool:
    """Decode nothing; return whether the collector is on meanwhile."""
    return gc.isenabled()


def broken(text: bytes) -> bool:
    """Decode nothing, and fail."""
    raise ValueError(text[:1])


def test_only_a_long_text_is_decoded_without_the_collector():
    assert gc.isenabled()
    assert decode_long(seen, b"x" * LONG, LONG)
    assert not decode_long(seen, b"x" * (LONG + 1), LONG + 1)
    assert gc.isenabled()


def test_the_collector_is_on_again_after_a_failure():
    with pytest.raises(ValueError, match="x"):
        decode_long(broken, b"x" * (LONG + 1), LONG + 1)
    assert gc.isenabled()


def test_whoever_had_turned_the_collector_off_finds_it_off():
    gc.disable()
    try:
        with CollectorPaused(), CollectorPaused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


ROUNDS = """
import gc
{before}
rounds = []
gc.callbacks.append(lambda phase, facts: rounds.append(facts["collected"]) if phase == "stop" else None)
frozen = gc.get_freeze_count()
from ferrule import Server
gc.callbacks.clear()
young = gc.get_count()[0]
assert (gc.get_freeze_count() > 0) == (frozen > 0), gc.get_freeze_count()
print(len(rounds), young, gc.isenabled())
"""


def imported(before: str) -> tuple[int, int, bool]:
    """Import a server in a new process. Return the collector's rounds, what was young then, and if it is on."""
    words = subprocess.check_output([sys.executable, "-c", ROUNDS.format(before=before)], text=True).split()
    return int(words[0]), int(words[1]), words[2] == "True"


def test_a_server_is_imported_with_hardly_a_round_of_the_collector_and_none_is_due_for_it():
    rounds, young, on = imported("")
    assert rounds < 10, "some sixty where it is on"
    assert young < gc.get_threshold()[0]
    assert on


def test_what_others_froze_stays_frozen_by_an_import():
    rounds, _, on = imported("gc.freeze()")
    assert rounds > 10
    assert on


def test_a_collector_that_is_off_stays_off_by_an_import():
    rounds, _, on = imported("gc.disable()")
    assert rounds == 0
    assert not on
