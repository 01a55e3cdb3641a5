"""What the connections of one engine have in common."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.transports.http.engine.state import EngineState, Starts, phrase
from ferrule.transports.http.settings import EngineSettings


def test_the_first_lines_have_the_status_the_date_and_who_serves() -> None:
    status, date, server, end = Starts("ferrule")[404].split(b"\r\n")
    assert (status, server, end) == (b"HTTP/1.1 404 Not Found", b"server: ferrule", b"")
    assert parsedate_to_datetime(date.decode().removeprefix("date: ")).tzinfo is not None


def test_the_first_lines_are_made_once_between_two_ticks() -> None:
    engine_state = EngineState(lambda request, responder: None, EngineSettings(), 100)
    assert engine_state.starts[200] is engine_state.starts[200]
    before = engine_state.starts[200]
    engine_state.tick(5.0)
    assert engine_state.starts[200] is not before


class Kept:
    """A connection that does nothing."""

    last = False
    traffic = (0, 0)

    def sweep(self, now: float) -> None: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...


async def test_the_end_of_the_last_connection_is_waited_for_also_after_others_have_come_and_gone() -> None:
    engine_state = EngineState(lambda request, responder: None, EngineSettings(), 100)
    await engine_state.wait_empty(60.0)
    first, last = Kept(), Kept()
    engine_state.admit(first)
    engine_state.forget(first)
    engine_state.admit(last)
    waiting = asyncio.ensure_future(engine_state.wait_empty(60.0))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    engine_state.forget(last)
    await waiting


def test_what_went_over_all_connections_is_their_sum_with_those_that_are_over() -> None:
    engine_state = EngineState(lambda request, responder: None, EngineSettings(), 100)
    for traffic in ((1, 10), (2, 20), (4, 40)):
        connection = Kept()
        connection.traffic = traffic
        engine_state.admit(connection)
        if traffic == (1, 10):
            engine_state.forget(connection)
    assert engine_state.traffic == (7, 70)


class Reading:
    """A connection whose requests are on an account."""

    def __init__(self, engine_state: EngineState) -> None:
        self.engine_state = engine_state
        self.held = 0

    def take(self, size: int) -> bool:
        taken = self.engine_state.debit(self, size)
        self.held += size if taken else 0
        return taken

    def shed(self) -> None:
        assert self.held, "it holds nothing that it could let go of"
        self.engine_state.credit(self, self.held)
        self.held = 0


def test_what_a_connection_has_given_back_does_not_count_when_the_largest_is_shed() -> None:
    engine_state = EngineState(lambda request, responder: None, EngineSettings(max_buffered=100), 100)
    before, largest, newest = Reading(engine_state), Reading(engine_state), Reading(engine_state)
    assert before.take(90)
    before.shed()
    assert largest.take(70)
    assert newest.take(40)
    assert (largest.held, newest.held) == (0, 40)
    assert not before.take(61)
    assert newest.held == 40


def test_a_status_of_nobodys_has_no_words() -> None:
    assert phrase(200) == b"OK"
    assert phrase(299) == b""


@given(st.text(min_size=1))
def test_htp_15_a_server_header_that_splits_the_answer_is_refused_at_construction(name: str) -> None:
    settings = EngineSettings(server_header=name)
    if all(" " <= character <= "~" or character == "\t" for character in name):
        assert EngineState(lambda request, responder: None, settings, 100).starts[200].count(b"\r\n") == 3
    else:
        with pytest.raises(SetupError):
            EngineState(lambda request, responder: None, settings, 100)
