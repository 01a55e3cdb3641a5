"""What waits for peers that read slower than we write."""

from __future__ import annotations

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.transports.backpressure import Backlog, backlog


class Reader:
    """A connection whose peer reads slowly."""

    def __init__(self, counted: Backlog) -> None:
        self.counted = counted
        self.backlog = 0
        self.aborted = 0

    def wrote(self, size: int) -> bool:
        """Let more wait for the peer."""
        self.backlog += size
        return self.counted.grew(self, self.backlog)

    def abort(self) -> None:
        """Note that the connection was cut; the loss is noted too, as a real one does."""
        self.aborted += 1
        self.counted.drained(self)


def of_limit(limit: int, count: int) -> tuple[Backlog, list[Reader]]:
    """Make a backlog and several connections."""
    counted = Backlog(Account("answers", limit))
    return counted, [Reader(counted) for _ in range(count)]


def test_what_waits_is_counted_until_it_is_drained() -> None:
    counted, (one, other) = of_limit(1000, 2)
    assert one.wrote(300)
    assert other.wrote(400)
    assert one.wrote(100)
    assert (counted.account.held, counted.held(one), len(counted)) == (800, 400, 2)
    counted.drained(one)
    counted.drained(one)
    assert (counted.account.held, counted.held(one), len(counted)) == (400, 0, 1)
    counted.drained(other)
    assert (counted.account.held, len(counted), counted.cut) == (0, 0, 0)


def test_a_smaller_number_gives_the_rest_back() -> None:
    counted, (one,) = of_limit(1000, 1)
    assert one.wrote(800)
    assert counted.grew(one, 300)
    assert counted.account.held == 300
    assert counted.grew(one, 0)
    assert (counted.account.held, len(counted)) == (0, 0)


def test_over_the_limit_whoever_holds_most_is_cut() -> None:
    counted, (small, large, newest) = of_limit(1000, 3)
    assert small.wrote(100)
    assert large.wrote(800)
    assert newest.wrote(200)
    assert (small.aborted, large.aborted, newest.aborted) == (0, 1, 0)
    assert (counted.account.held, counted.cut) == (300, 1)


def test_the_one_that_grows_is_cut_where_it_holds_most_itself() -> None:
    counted, (small, large) = of_limit(1000, 2)
    assert small.wrote(300)
    assert large.wrote(600)
    assert not large.wrote(200)
    assert (small.aborted, large.aborted) == (0, 1)
    assert counted.account.held == 300
    newest = Reader(counted)
    assert not newest.wrote(5000)
    assert (small.aborted, newest.aborted, counted.account.held) == (0, 1, 300)


def test_nobody_is_cut_for_what_its_peer_took_meanwhile() -> None:
    counted, (fast, slow, newest) = of_limit(1000, 3)
    assert fast.wrote(600)
    fast.backlog = 10
    assert slow.wrote(300)
    assert newest.wrote(200)
    assert (fast.aborted, slow.aborted, newest.aborted) == (0, 0, 0)
    assert (counted.held(fast), counted.account.held) == (10, 510)


def test_a_single_message_over_the_limit_waits_alone() -> None:
    counted, (one, other) = of_limit(1000, 2)
    assert one.wrote(5000)
    assert other.wrote(10)
    assert (one.aborted, other.aborted, counted.account.held) == (1, 0, 10)


def test_a_message_over_the_limit_may_come_in_pieces() -> None:
    counted, (one, other) = of_limit(1000, 2)
    assert one.wrote(900)
    assert one.wrote(600)
    assert counted.account.held == 1500
    assert other.wrote(10)
    assert (one.aborted, other.aborted, counted.account.held) == (1, 0, 10)


def test_many_slow_readers_never_hold_more_than_the_limit() -> None:
    counted, readers = of_limit(10_000, 200)
    for size in (10, 50, 400):
        for reader in readers:
            if not reader.aborted:
                reader.wrote(size)
            assert counted.account.held <= 10_000
    assert counted.cut > 0
    assert counted.account.held == sum(counted.held(reader) for reader in readers if not reader.aborted)


def test_the_backlog_of_the_process_is_the_account_of_answers() -> None:
    assert backlog.account is process.answers
