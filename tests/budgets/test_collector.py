"""Long texts are decoded without the garbage collector, which is on again afterwards."""

from __future__ import annotations

import gc

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
