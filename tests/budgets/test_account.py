"""Accounts: debited while something is held, credited when it is let go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.budgets.account import Account
from ferrule.errors import SetupError


def test_an_account_grants_up_to_its_limit_and_not_more():
    account = Account("things", 10)
    assert account.take(9)
    assert account.take(1)
    assert account.full
    assert not account.take(1)
    assert (account.held, account.most, account.refused) == (10, 10, 1)


def test_what_is_given_back_can_be_taken_again():
    account = Account("things", 10)
    assert account.take(10)
    account.give(4)
    assert not account.full
    assert account.take(4)
    assert account.most == 10


def test_an_amount_over_the_limit_is_granted_only_while_nothing_else_is_held():
    account = Account("bytes", 10)
    assert account.take(25)
    assert not account.take(1)
    account.give(25)
    assert account.take(1)
    assert not account.take(25)


def test_next_to_nothing_does_not_keep_a_large_amount_out():
    account = Account("bytes", 160)
    assert account.take(10)
    assert account.take(500)
    account.give(500)
    assert account.take(1)
    assert not account.take(500)


def test_small_amounts_may_overdraw_by_a_sixteenth():
    account = Account("bytes", 160)
    assert account.take(160)
    assert account.take_little(9)
    assert account.take_little(1)
    assert not account.take_little(1)
    assert (account.held, account.room, account.most, account.refused) == (170, -10, 170, 1)
    account.limit = 320
    assert account.spare == 20


def test_a_small_amount_overdraws_the_account_around_as_well_and_only_so_far():
    process = Account("process", 160)
    one, other = Account("one", 320, within=process), Account("other", 320, within=process)
    process.add(160)
    assert one.take_little(10)
    assert not other.take_little(1)
    assert (one.held, other.held, process.held) == (10, 0, 170)
    assert (other.refused, process.refused) == (1, 1)
    one.give(10)
    assert other.take_little(1)


def test_an_account_within_another_needs_room_in_both():
    process = Account("process", 10)
    one, other = Account("one", 8, within=process), Account("other", 8, within=process)
    assert one.take(8)
    assert not other.take(3)
    assert (other.held, process.held) == (0, 8)
    assert other.take(2)
    assert one.full
    assert other.full
    one.give(8)
    assert process.held == 2
    assert not other.full


def test_giving_back_more_than_is_held_is_a_mistake_that_shows():
    account = Account("things", 10)
    account.take(1)
    with pytest.raises(AssertionError, match="only 1 held"):
        account.give(2)


def test_a_small_amount_is_refused_by_the_account_that_is_full_and_not_by_those_around_it():
    process = Account("process", 1000)
    host = Account("host", 160, within=process)
    peer = Account("peer", 160, within=host)
    host.add(170)
    assert not peer.take_little(1)
    assert (peer.refused, host.refused, process.refused) == (1, 1, 0)
    assert (peer.held, host.held, process.held) == (0, 170, 170)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "10", None])
def test_a_limit_that_is_no_whole_number_of_at_least_one_is_refused(limit):
    with pytest.raises(SetupError, match="the limit of things must be a whole number"):
        Account("things", limit)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30))))
def test_whatever_is_taken_and_given_the_sums_agree(steps):
    process = Account("process", 40)
    accounts = [Account(str(n), 25, within=process) for n in range(3)]
    granted = [[], [], []]
    for which, amount in steps:
        if accounts[which].take(amount):
            granted[which].append(amount)
        elif granted[which]:
            accounts[which].give(granted[which].pop(0))
        assert [account.held for account in accounts] == [sum(each) for each in granted]
        assert process.held == sum(account.held for account in accounts)
        assert process.held <= 40 or max(max(each, default=0) for each in granted) > 25


def test_what_is_held_already_is_added_whether_there_is_room_or_not():
    around = Account("all", 10)
    account = Account("one", 5, within=around)
    account.add(7)
    assert (account.held, account.room, around.held, around.room) == (7, -2, 7, 3)
    assert account.full
    assert not account.take(1)
    account.give(7)
    assert (account.room, around.room) == (5, 10)


def test_the_room_follows_the_limit():
    account = Account("things", 10)
    account.take(4)
    account.limit = 3
    assert account.room == -1
    assert account.full
    account.limit = 20
    assert account.room == 16
