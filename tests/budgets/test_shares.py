"""Shares: who holds most of what is limited for all together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.budgets.shares import Shares


def test_the_largest_holder_is_found():
    shares: Shares[str] = Shares()
    assert shares.largest() is None
    shares.take("small", 10)
    shares.take("large", 1000)
    shares.take("small", 10)
    assert shares.largest() == "large"
    assert (shares.held("small"), shares.held("nobody"), shares.total, len(shares)) == (20, 0, 1020, 2)


def test_whoever_gives_everything_back_is_forgotten():
    shares: Shares[str] = Shares()
    shares.take("one", 5)
    shares.give("one", 5)
    assert (len(shares), shares.total, shares.largest()) == (0, 0, None)
    shares.take("one", 7)
    assert shares.forget("one") == 7
    assert shares.forget("one") == 0
    assert (len(shares), shares.total, shares.largest()) == (0, 0, None)


def test_nobody_gives_back_more_than_it_holds():
    shares: Shares[str] = Shares()
    shares.take("one", 5)
    with pytest.raises(AssertionError, match="only 5 held"):
        shares.give("one", 6)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 5000))))
def test_the_largest_holds_at_least_half_of_the_most(steps):
    shares: Shares[str] = Shares()
    held: dict[str, int] = {}
    for n, (owner, amount) in enumerate(steps):
        if n % 3 == 2 and held.get(owner, 0) >= amount:
            shares.give(owner, amount)
            held[owner] -= amount
        else:
            shares.take(owner, amount)
            held[owner] = held.get(owner, 0) + amount
        assert shares.total == sum(held.values())
        largest = shares.largest()
        if shares.total:
            assert 2 * held[largest] >= max(held.values())
        else:
            assert largest is None
