"""One connection, driven by hand: the transport only writes down what it is told."""

from __future__ import annotations

import asyncio
import errno
import gc
import re
import socket
import time
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.transports.backpressure import Backlog
from ferrule.transports.http.engine import answer as engine_answer
from ferrule.transports.http.engine import connection as engine_connection
from ferrule.transports.http.engine import head_parser
from ferrule.transports.http.engine.answer import LARGE, Answer
from ferrule.transports.http.engine.connection import (
    BURST,
    LINGER_BYTES,
    MAX_WAITING,
    MOST_TRANSFERS,
    UNCOUNTED,
    Connection,
)
from ferrule.transports.http.engine.connection_state import CLOSED, EVENTS, NEW, STATES, Event
from ferrule.transports.http.engine.request_reader import MAX_KEPT_HEAD
from ferrule.transports.http.engine.state import EngineState
from ferrule.transports.http.message import Handle, HttpRequest, Responder, Transfer
from ferrule.transports.http.settings import EngineSettings

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
POST_OF_A_CALLER = b"POST /p HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nContent-Length: 4\r\n\r\n"
"""A head that is not remembered for other connections."""


@pytest.fixture(autouse=True)
def own_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin with empty accounts: benches are left as they are, and nobody tells them of their end."""
    monkeypatch.setattr(process, "requests", Account("requests", process.requests.limit))
    monkeypatch.setattr(process, "answers", Account("answers", process.answers.limit))
    monkeypatch.setattr("ferrule.transports.http.engine.connection.unread", Backlog(process.answers))


@pytest.fixture(autouse=True)
def no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections be given away that have no descriptor."""
    monkeypatch.setattr(socket, "dup", lambda number: number)


class NoSocket:
    """As much of a socket as a connection touches."""

    def setsockopt(self, *option: object) -> None: ...

    def fileno(self) -> int:
        return -1


class Wire(asyncio.Transport):
    """Writes down what a connection does."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.writes = self.backlog = 0
        self.reading, self.ended, self.closed, self.aborted = True, False, False, False
        self._extra = {"socket": NoSocket()}

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        self.writes += 1

    def get_write_buffer_size(self) -> int:
        return self.backlog

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Turns:
    """As much of a loop as a connection uses: what it does later is done when told."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.later.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Turns:
        self.timers.append((delay, callback))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def run(self) -> int:
        turns = 0
        while self.later:
            turns += 1
            self.later.pop(0)()
        return turns


class Bench:
    """A connection, what it got and what it is given."""

    def __init__(self, handle: Handle | None = None, max_body_size: int = 100_000, **options: float) -> None:
        self.requests: list[HttpRequest] = []
        self.answers: list[Responder] = []
        self.engine_state = EngineState(handle or self.answer_now, EngineSettings(**options), max_body_size)
        self.engine_state.tick(100.0)
        self.turns = Turns()
        self.wire = Wire()
        self.connection = Connection(self.engine_state, self.turns)  # type: ignore[arg-type]
        self.connection.connection_made(self.wire)
        self.feed = self.connection.data_received

    def answer_now(self, request: HttpRequest, responder: Responder) -> None:
        self.requests.append(request)
        responder.reply(200, b"", b"ok")

    def keep(self, request: HttpRequest, responder: Responder) -> None:
        self.requests.append(request)
        self.answers.append(responder)

    def pass_time(self, now: float) -> None:
        self.engine_state.tick(now)
        self.connection.sweep(now)


def keeping(**options: float) -> Bench:
    bench = Bench(**options)
    bench.engine_state.handle = bench.keep
    return bench


BODIES = st.binary(max_size=80)
REQUESTS = st.lists(
    st.one_of(
        st.sampled_from([GET, b"GET /b?c HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n", b"\r\n" + GET]),
        BODIES.map(lambda body: b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)),
        BODIES.filter(bool).map(
            lambda body: (
                b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x;e\r\n%b\r\n0\r\nT: t\r\n\r\n"
                % (len(body), body)
            )
        ),
    ),
    min_size=1,
    max_size=6,
)


def seen(bench: Bench) -> list[tuple[str, str, str, bytes, dict[bytes, bytes]]]:
    return [(each.method, each.path, each.query, each.body, each.headers) for each in bench.requests]


def undated(sent: bytes) -> bytes:
    """Return what was sent without the time of it: a second may pass between two answers."""
    return re.sub(rb"(?i)\r\ndate: [^\r]*", b"", sent)


@given(REQUESTS, st.lists(st.integers(0, 900), max_size=12), st.booleans())
def test_requests_are_the_same_however_their_bytes_are_cut(requests: list[bytes], cuts: list[int], later: bool) -> None:
    data = b"".join(requests)
    one_by_one = Bench()
    for request in requests:
        one_by_one.feed(request)
    bench = keeping() if later else Bench()
    bench.engine_state.starts = one_by_one.engine_state.starts  # a second may pass, and every answer says the date
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        bench.feed(data[start:end])
        # At most one request is in hand, whatever waits behind it.
        assert len(bench.requests) - bench.wire.sent.count(b"HTTP/1.1 200") <= 1
    for answer in bench.answers:
        answer.reply(200, b"", b"ok")
    assert len(seen(one_by_one)) == len(requests)
    assert seen(bench) == seen(one_by_one)
    assert undated(bench.wire.sent) == undated(one_by_one.wire.sent)
    assert bench.engine_state.requests.held == 0
    assert bench.wire.reading


def test_what_was_decided_about_a_head_takes_the_next_request_with_it_and_no_other() -> None:
    bench = Bench()
    decided: list[HttpRequest] = []

    def decide(request: HttpRequest, responder: Responder) -> None:
        decided.append(request)
        responder.reply(204, b"")

    first = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
    bench.feed(first + b"ab")
    assert bench.requests[0].decision is not None
    bench.requests[0].decision.take = decide
    bench.feed(first + b"cd")
    bench.feed(first.replace(b"2", b"3") + b"efg")
    bench.feed(first.replace(b"/p", b"/q") + b"hi")
    assert [request.body for request in decided] == [b"cd", b"efg"]
    assert [request.body for request in bench.requests] == [b"ab", b"hi"]


@given(
    REQUESTS,
    st.sampled_from([b"", b"POST /s HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]),
)
def test_requests_are_the_same_when_another_connection_has_sent_them_before(requests: list[bytes], last: bytes) -> None:
    first = Bench()
    second = Bench()
    second.engine_state = first.engine_state
    second.connection = Connection(first.engine_state, second.turns)  # type: ignore[arg-type]
    second.connection.connection_made(second.wire)
    for bench in (first, second):
        first.engine_state.handle = bench.answer_now
        for request in (*requests, last):
            if request:
                bench.connection.data_received(request)
    assert seen(second) == seen(first)
    assert undated(second.wire.sent) == undated(first.wire.sent)
    assert second.wire.closed == first.wire.closed
    assert second.connection.traffic == first.connection.traffic


def test_a_head_that_is_known_lets_no_longer_body_in_than_one_that_is_not() -> None:
    bench = Bench(max_body_size=3)
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd"
    head = request.removesuffix(b"abcd")
    bench.engine_state.heads.parse(head)
    bench.feed(request)
    assert bench.wire.sent.startswith(b"HTTP/1.1 413")
    # Nor is a request taken for whole that is not.
    bench = Bench()
    bench.engine_state.heads.parse(head)
    bench.feed(request[:-1])
    assert bench.requests == []
    bench.feed(request[-1:])
    assert [each.body for each in bench.requests] == [b"abcd"]


PIECES = st.sampled_from(
    b"GET / HTTP/1.1\r\n|POST /x HTTP/1.0\r\n|Host: a\r\n|Content-Length: 3\r\n|Transfer-Encoding: chunked\r\n|X: y\r\n"
    b"|Connection: close\r\n|\r\n|\r|\n| |3\r\n|abc|abc\r\n|0\r\n\r\n|GET|1|:|\x00|\xff".split(b"|")
)


@given(st.lists(PIECES, min_size=1, max_size=10).map(b"".join), st.lists(st.integers(0, 200), max_size=6))
@example(b"\n", [])
@example(b"\r\n\n", [1, 2])
def test_rubbish_is_refused_alike_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    found = []
    for places in ([], cuts):
        bench = Bench()
        ends = sorted({min(cut, len(data)) for cut in places} | {0, len(data)})
        for start, end in pairwise(ends):
            bench.feed(data[start:end])
        assert all(request.method for request in bench.requests)
        statuses = [line[9:12] for line in bench.wire.sent.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
        found.append((seen(bench), statuses, bench.wire.ended or bench.wire.closed))
    assert found[0] == found[1]


def cost_of_reads(size: int) -> float:
    """Return the CPU time of a head of which each read brings one byte: the least of three attempts."""
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * size
    costs = []
    for _ in range(3):
        bench = Bench()
        before = time.process_time()
        for at in range(len(head)):
            bench.feed(head[at : at + 1])
        costs.append(time.process_time() - before)
        bench.feed(b"\r\n\r\n")
        assert len(bench.requests) == 1
    return min(costs)


def test_a_head_that_comes_byte_by_byte_costs_in_proportion() -> None:
    assert cost_of_reads(15_000) < 15 * cost_of_reads(2000)


@pytest.mark.parametrize("size", [10, 1000, 1100, 5000])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_end_of_a_head_is_found_wherever_it_is_cut(size: int, cut: int) -> None:
    bench = Bench()
    bench.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * size + b"\r\n\r\n"[:cut])
    assert not bench.requests
    bench.feed(b"\r\n\r\n"[cut:] + GET)
    assert len(bench.requests) == 2


def test_a_request_after_a_repeated_head_that_came_byte_by_byte_is_found() -> None:
    bench = Bench()
    long = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 300 + b"\r\n\r\n"
    for at in range(2 * len(long)):
        bench.feed((long + long)[at : at + 1])
    assert len(bench.requests) == 2
    bench.feed(GET)
    assert len(bench.requests) == 3


def test_a_long_head_that_goes_wrong_is_refused_before_its_end() -> None:
    bench = Bench()
    bench.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 2000)
    for _ in range(2000):
        bench.feed(b"\n")
    assert bench.wire.sent.startswith(b"HTTP/1.1 400 ")


def test_a_whole_answer_is_one_write() -> None:
    bench = Bench()
    for count in range(1, 4):
        bench.feed(GET)
        assert bench.wire.writes == count


def test_a_request_is_answered_once() -> None:
    bench = keeping()
    bench.feed(GET)
    for body in (b"one", b"two"):
        bench.answers[0].reply(200, b"", body)
    assert bench.wire.sent.count(b"HTTP/1.1 200") == 1
    assert bench.wire.sent.endswith(b"one")


def test_a_repeated_head_is_read_once_and_its_bodies_are_told_apart() -> None:
    bench = Bench()
    for body in (b"one", b"two", b"three", b"", b"four" * 100):
        bench.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    assert [each.body for each in bench.requests] == [b"one", b"two", b"three", b"", b"four" * 100]
    assert [each.headers[b"content-length"] for each in bench.requests] == [b"3", b"3", b"5", b"0", b"400"]
    assert bench.requests[0].headers is bench.requests[1].headers


@pytest.mark.parametrize("whole", [GET, POST_OF_A_CALLER + b"body"])
def test_a_request_that_came_whole_with_a_new_head_needs_no_buffer(
    whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    monkeypatch.setattr(Connection, "_advance", lambda _: pytest.fail("it was read piece by piece"))
    bench.feed(whole)
    assert [each.body for each in bench.requests] == [whole.partition(b"\r\n\r\n")[2]]


@pytest.mark.parametrize("pieces", [[b"body"], [b"", b"body"], [b"bo", b"dy"]])
@pytest.mark.parametrize(
    "head",
    [
        POST_OF_A_CALLER,
        POST_OF_A_CALLER.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * MAX_KEPT_HEAD + b"\r\n\r\n"),
        POST_OF_A_CALLER.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),
        POST_OF_A_CALLER.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked"),
    ],
    ids=["short", "long", "expects", "chunked"],
)
def test_a_new_head_is_parsed_once_whether_its_body_comes_with_it_or_later(
    head: bytes, pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []

    def parse(raw: bytes, max_headers: int) -> head_parser.Head:
        parsed.append(raw)
        return parse_head(raw, max_headers)

    parse_head = head_parser.parse_head
    monkeypatch.setattr(head_parser, "parse_head", parse)
    bench = Bench()
    if b"chunked" in head:
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"" for piece in pieces]
        pieces[-1] += b"0\r\n\r\n"
    bench.feed(head + pieces[0])
    for piece in pieces[1:]:
        bench.feed(piece)
    bench.feed(GET)
    assert [each.body for each in bench.requests] == [b"body", b""]
    assert parsed == [head, GET]


def test_what_was_decided_about_a_head_is_there_for_the_next_request_with_it() -> None:
    bench = Bench()
    for body in (b"one", b"two", b"three"):
        bench.feed(POST % len(body) + body)
    bench.feed(GET)
    decisions = [each.decision for each in bench.requests]
    assert decisions[0] is not None
    assert decisions[0] is decisions[1] is decisions[2]
    assert decisions[3] is not decisions[0]


def test_a_repeated_head_with_another_length_may_come_in_pieces_and_with_more_behind_it() -> None:
    bench = Bench()
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    bench.feed(head % 3 + b"one")
    bench.feed(head % 5 + b"th")
    assert len(bench.requests) == 1
    bench.feed(b"ree")
    bench.feed(head % 4 + b"four" + GET)
    assert [each.body for each in bench.requests] == [b"one", b"three", b"four", b""]


def test_a_repeated_head_does_not_pass_the_limit_of_bodies() -> None:
    bench = Bench(max_body_size=10)
    bench.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789")
    bench.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0123456789x")
    assert len(bench.requests) == 1
    assert b"HTTP/1.1 413" in bench.wire.sent


def test_a_request_leaves_nothing_for_the_garbage_collector() -> None:
    bench = Bench(lambda request, responder: (responder.watch(lambda: str(responder)), responder.reply(200, b"")))
    for _ in range(10):  # what other tests left may take more than one look
        if not gc.collect():
            break
    for number in range(100):
        bench.feed(GET.replace(b"/a", b"/%d" % (number % 3)))
    assert gc.collect() < 100


def test_many_waiting_requests_are_answered_in_turns() -> None:
    bench = Bench()
    bench.feed(GET * BURST * 3)
    assert len(bench.requests) == BURST
    # What comes in between waits behind them, also if it looks like the last one.
    bench.feed(GET)
    bench.turns.run()
    assert len(bench.requests) == BURST * 3 + 1
    assert bench.engine_state.requests.held == 0


def test_reading_stops_while_much_waits_behind_the_request_in_hand() -> None:
    bench = keeping()
    bench.feed(GET)
    bench.feed(GET)
    assert bench.wire.reading
    bench.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n" + b"a" * MAX_WAITING)
    assert not bench.wire.reading
    bench.answers[0].reply(200, b"")
    bench.answers[1].reply(200, b"")
    assert bench.wire.reading


def test_nothing_is_answered_while_the_peer_does_not_read() -> None:
    bench = Bench()
    bench.feed(GET)
    bench.connection.pause_writing()
    bench.feed(GET)
    bench.feed(GET)
    assert len(bench.requests) == 1
    assert bench.turns.later == []
    bench.pass_time(200.0)
    assert b"408" not in bench.wire.sent
    bench.connection.resume_writing()
    assert len(bench.requests) == 3


def test_a_peer_that_takes_nothing_is_cut_and_one_that_takes_a_little_is_not() -> None:
    for takes, cut in ((0, True), (1, False)):
        bench = Bench(write_timeout=10.0)
        bench.feed(GET)
        bench.wire.backlog = 50
        for now in range(100, 130):
            bench.wire.backlog -= takes
            bench.connection.sweep(float(now))
        assert bench.wire.aborted is cut


def test_a_head_has_its_time_from_its_first_byte_on() -> None:
    bench = Bench(head_timeout=10.0)
    bench.feed(GET)
    bench.pass_time(150.0)
    for now in range(151, 160):
        bench.feed(b"G" if now == 151 else b"E")
        bench.pass_time(float(now))
    assert b"408" not in bench.wire.sent
    bench.pass_time(161.0)
    assert b"HTTP/1.1 408" in bench.wire.sent


def test_a_lost_peer_is_told_of_once_and_only_before_the_answer() -> None:
    bench, told = keeping(), []
    bench.feed(GET)
    bench.answers[0].watch(lambda: told.append("first"))
    bench.answers[0].watch(lambda: told.append("last"))
    bench.connection.connection_lost(None)
    assert told == ["last"]
    assert bench.answers[0].gone
    bench.answers[0].reply(200, b"")
    answered = keeping()
    answered.feed(GET)
    answered.answers[0].watch(lambda: told.append("never"))
    answered.answers[0].reply(200, b"")
    answered.connection.connection_lost(None)
    assert told == ["last"]


def test_nothing_is_run_after_the_last_request_whether_or_not_the_peer_ends_its_side() -> None:
    bench = keeping()
    bench.feed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + GET)
    assert bench.connection.eof_received()
    bench.answers[0].reply(200, b"")
    assert len(bench.requests) == 1
    assert bench.wire.closed


POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize(("size", "pieces"), [(256 * 1024, 1), (256 * 1024 + 1, 2), (600 * 1024, 3)])
def test_a_long_text_is_given_to_the_transport_in_pieces(size: int, pieces: int) -> None:
    body = b"".join(b"%08d" % number for number in range(size // 8 + 1))[:size]
    bench = Bench(lambda request, responder: responder.reply(200, b"", body))
    bench.feed(GET)
    assert bench.wire.writes == 1 + pieces
    assert bench.wire.sent.endswith(b"\r\n\r\n" + body)
    assert bench.connection.written == len(bench.wire.sent)


def test_a_large_body_is_not_copied_behind_its_head() -> None:
    for size, writes in ((LARGE - 1, 1), (LARGE, 2)):
        bench = keeping()
        bench.feed(GET)
        bench.answers[0].reply(200, b"", b"a" * size)
        assert bench.wire.writes == writes
        assert bench.wire.sent.endswith(b"content-length: %d\r\n\r\n" % size + b"a" * size)


def test_a_silent_connection_ends_after_its_idle_time_without_a_word() -> None:
    bench = Bench(idle_timeout=10.0, head_timeout=5.0)
    bench.feed(GET)
    sent = bench.wire.sent
    bench.pass_time(109.9)
    assert not bench.wire.closed
    bench.pass_time(110.0)
    assert bench.wire.closed
    assert bench.wire.sent == sent


def test_a_new_connection_that_says_nothing_is_told_why_it_ends() -> None:
    bench = Bench(head_timeout=5.0)
    bench.pass_time(104.9)
    assert bench.wire.sent == b""
    bench.pass_time(105.0)
    assert b"HTTP/1.1 408" in bench.wire.sent
    assert b"the request did not come in time" in bench.wire.sent


BODY_TIMES = {"body_timeout": 10.0, "max_body_time": 60.0, "min_body_rate": 100}


@pytest.mark.parametrize(
    ("came", "size", "until"),
    [
        ([], 0, 110.0),
        ([105.0], 200, 112.0),
        ([105.0], 2000, 115.0),
        ([float(now) for now in range(105, 160, 5)], 2000, 160.0),
    ],
    ids=["nothing", "a little", "enough", "for ever"],
)
def test_a_body_has_the_time_it_has_earned(came: list[float], size: int, until: float) -> None:
    """One second for each 100 bytes, at most 10 after the last of them, at most 60 in all."""
    bench = Bench(**BODY_TIMES)
    bench.feed(POST % 90_000)
    for now in came:
        bench.pass_time(now)
        bench.feed(b"a" * size)
    bench.pass_time(until - 0.1)
    assert bench.wire.sent == b""
    bench.pass_time(until)
    assert b"HTTP/1.1 408" in bench.wire.sent
    assert b"the body did not come in time" in bench.wire.sent


def test_what_means_nothing_is_not_counted_among_what_was_said() -> None:
    bench = keeping()
    bench.feed(GET)
    answer = bench.connection.answer
    assert answer is not None
    answer.begin(200, b"", b":")
    answer.write(b"hello")
    said = bench.connection.written
    assert answer.said == said
    answer.write(b":")
    assert answer.said == said
    assert bench.connection.written > said


def test_what_a_refused_peer_still_sends_is_thrown_away_for_a_while() -> None:
    bench = Bench()
    bench.feed(b"no HTTP\r\n\r\n")
    assert bench.wire.ended
    bench.pass_time(104.9)
    assert not bench.wire.closed
    bench.pass_time(105.0)
    assert bench.wire.closed
    assert bench.wire.sent.count(b"HTTP/1.1") == 1


def test_what_a_refused_peer_still_sends_is_thrown_away_up_to_a_size() -> None:
    bench = Bench()
    bench.feed(b"no HTTP\r\n\r\n")
    bench.feed(b"a" * LINGER_BYTES)
    assert not bench.wire.closed
    bench.feed(b"a")
    assert bench.wire.closed


@pytest.mark.parametrize("taken_before", [0, 50])
def test_a_peer_that_takes_nothing_is_cut_when_its_time_is_up(taken_before: int) -> None:
    bench = Bench(write_timeout=10.0)
    bench.feed(GET)
    bench.wire.backlog = len(bench.wire.sent) - taken_before
    bench.connection.sweep(101.0)
    bench.connection.sweep(110.9)
    assert not bench.wire.aborted
    bench.connection.sweep(111.0)
    assert bench.wire.aborted


def test_a_peer_that_waits_for_permission_gets_it_unless_its_body_comes_already() -> None:
    """RFC 9110 section 10.1.1."""
    head = POST[:-2] % 5 + b"Expect: 100-continue\r\n\r\n"
    for sent, told in ((head, True), (head + b"1", False)):
        bench = Bench()
        bench.feed(sent)
        assert bench.wire.sent.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") is told
        bench.feed(b"12345"[len(sent) - len(head) :])
        assert [each.body for each in bench.requests] == [b"12345"]


def test_permission_is_not_given_for_a_body_that_nobody_sends() -> None:
    """RFC 9110 section 10.1.1."""
    bench = Bench()
    bench.feed(GET[:-2] + b"Expect: 100-continue\r\n\r\n")
    assert len(bench.requests) == 1
    assert b"100 Continue" not in bench.wire.sent


def test_an_engine_that_is_stopping_takes_no_connection_and_lets_requests_end() -> None:
    bench = keeping()
    new = Bench()
    idle = Bench()
    idle.feed(GET)
    bench.feed(GET)
    for each in (bench, new, idle):
        each.connection.drain()
    assert new.wire.closed
    assert idle.wire.closed
    assert not bench.wire.closed
    bench.answers[0].reply(200, b"")
    assert b"connection: close\r\n" in bench.wire.sent
    assert bench.wire.closed
    late = Connection(bench.engine_state, bench.turns)  # type: ignore[arg-type]
    bench.engine_state.draining = True
    wire = Wire()
    late.connection_made(wire)
    assert wire.closed


def test_a_connection_that_is_usable_is_among_those_that_arrive_no_more() -> None:
    bench = Bench()
    late = Connection(bench.engine_state, bench.turns)  # type: ignore[arg-type]
    bench.engine_state.arriving.add(late)
    late.connection_made(Wire())
    assert bench.engine_state.arriving == set()
    assert late in bench.engine_state.connections


def test_a_connection_to_an_engine_that_sees_off_ends_with_its_first_answer() -> None:
    bench = Bench()
    bench.engine_state.leaving = True
    late = Connection(bench.engine_state, bench.turns)  # type: ignore[arg-type]
    wire = Wire()
    late.connection_made(wire)
    assert not wire.closed
    late.data_received(GET)
    assert b"connection: close\r\n" in wire.sent
    assert wire.closed


def test_a_peer_that_ends_its_side_before_a_request_is_whole_is_let_go() -> None:
    for begun in (b"", b"GET / HT", POST % 5 + b"12"):
        bench = Bench()
        bench.feed(begun)
        assert not bench.connection.eof_received()


def test_a_peer_that_ends_its_side_is_owed_the_answer_in_hand() -> None:
    bench = keeping()
    bench.feed(GET)
    assert bench.connection.eof_received()
    bench.answers[0].reply(200, b"", b"ok")
    assert b"connection: close\r\n" in bench.wire.sent
    assert bench.wire.closed


def test_a_peer_that_ended_its_side_is_looked_after_by_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = keeping()
    bench.feed(GET)
    bench.connection.eof_received()
    bench.pass_time(1000.0)
    assert not bench.wire.aborted
    assert bench.wire.sent == b""
    monkeypatch.setattr(engine_answer, "hung_up", lambda sock: True)
    bench.pass_time(1001.0)
    assert bench.wire.aborted


def test_requests_that_wait_for_their_turn_outlast_the_end_of_the_peers_side() -> None:
    bench = Bench()
    bench.feed(GET * (BURST + 1))
    assert bench.connection.eof_received()
    bench.turns.run()
    assert len(bench.requests) == BURST + 1
    assert bench.wire.closed


def test_somebody_who_fails_when_told_of_a_lost_peer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = keeping()
    bench.feed(GET)
    bench.answers[0].watch(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    bench.connection.connection_lost(None)
    assert "could not tell of a lost peer" in caplog.text
    assert bench.connection not in bench.engine_state.connections


class Successor:
    """A protocol that takes a connection over."""

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.data = b""
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert not self.ended
        self.data += data

    def eof_received(self) -> None:
        self.ended = True


def test_a_connection_is_handed_over_with_what_has_come_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, successor = keeping(), Successor()
    taken: list[object] = []
    monkeypatch.setattr(bench.wire, "set_protocol", taken.append)
    bench.feed(GET)
    bench.feed(b"early" + b"x" * MAX_WAITING)
    assert not bench.wire.reading
    bench.connection.hand_over(b"upgrade: x\r\n", successor)
    assert bench.wire.sent.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert bench.wire.sent.endswith(b"upgrade: x\r\n\r\n")
    assert bench.wire.reading
    assert taken == [successor]
    assert successor.transport is bench.wire
    assert successor.data == b"early" + b"x" * MAX_WAITING
    assert bench.engine_state.connections == {successor}
    assert bench.connection.state == CLOSED
    assert bench.engine_state.requests.held == 0
    assert not successor.ended
    bench.pass_time(1000.0)
    assert not bench.wire.closed


def test_who_takes_a_connection_over_learns_that_the_peer_has_ended_its_side(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, successor = keeping(), Successor()
    monkeypatch.setattr(bench.wire, "set_protocol", lambda protocol: None)
    bench.feed(GET + b"early")
    assert bench.connection.eof_received()
    assert bench.turns.timers
    bench.connection.hand_over(b"upgrade: x\r\n", successor)
    assert (successor.data, successor.ended) == (b"early", True)
    assert bench.wire.closed
    assert bench.turns.timers == []


@pytest.mark.parametrize(("begun", "delay"), [(True, 0.0), (False, engine_answer.DOUBT_AFTER)])
def test_a_peer_that_ended_its_side_is_looked_for_at_once_where_the_answer_has_begun(begun: bool, delay: float) -> None:
    bench = keeping()
    bench.feed(GET)
    (answer,) = bench.answers
    if begun:
        answer.begin(200, b"")
    assert bench.connection.eof_received()
    assert [after for after, _ in bench.turns.timers] == [delay]


def test_nothing_waits_for_the_peer_of_an_answer_that_was_given() -> None:
    bench = keeping()
    bench.feed(GET)
    (answer,) = bench.answers
    bench.wire.backlog = 1000
    assert answer.backlog == 1000
    answer.reply(200, b"", b"hello")
    assert answer.backlog == 0


def test_a_handler_that_fails_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: HttpRequest, responder: Responder) -> None:
        raise ValueError("on purpose")

    bench = Bench(fail)
    bench.feed(GET)
    assert bench.wire.sent.startswith(b"HTTP/1.1 500 ")
    (record,) = caplog.records
    assert record.getMessage() == "failed on GET /a"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "on purpose"


def test_an_answer_that_was_given_lets_go_of_who_watched_it() -> None:
    """Whoever watches often holds the answer: the two would wait for the garbage collector."""

    class Watcher:
        def lost(self) -> None: ...

    bench, watcher = keeping(), Watcher()
    bench.feed(GET)
    (answer,) = bench.answers
    answer.watch(watcher.lost)
    watching = weakref.ref(watcher)
    del watcher
    assert watching() is not None
    answer.reply(200, b"", b"hello")
    assert watching() is None


def test_what_waits_for_a_peer_is_not_counted_for_a_connection_that_was_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, successor = keeping(), Successor()
    monkeypatch.setattr(bench.wire, "set_protocol", lambda protocol: None)
    bench.feed(GET)
    bench.wire.backlog = 1000
    bench.connection.sweep(100.0)
    assert process.answers.held == 1000
    bench.connection.hand_over(b"upgrade: x\r\n", successor)
    assert process.answers.held == 0


def test_requests_that_wait_for_the_peer_to_read_outlast_the_end_of_its_side() -> None:
    bench = Bench()
    bench.feed(GET)
    bench.connection.pause_writing()
    bench.feed(GET)
    assert bench.connection.eof_received()
    assert not bench.wire.closed
    bench.connection.resume_writing()
    assert len(bench.requests) == 2
    assert bench.wire.closed


def careful(sent: bytes) -> bool:
    """Whether an answer tells browsers to be careful."""
    wanted = (b"x-content-type-options: nosniff", b"x-frame-options: DENY", b"content-security-policy: ", b"no-store")
    return all(each in sent for each in wanted)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"no HTTP\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 999999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nhost: here\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"BREW / HTTP/1.1\r\nhost: here\r\n\r\n", 501),
    ],
)
def test_what_is_refused_before_anybody_reads_it_is_told_as_carefully(said: bytes, status: int) -> None:
    """seed:HTTP-19."""
    bench = Bench()
    bench.feed(said)
    assert bench.wire.sent.startswith(b"HTTP/1.1 %d " % status)
    assert careful(bench.wire.sent)


def test_a_handler_that_fails_is_answered_for() -> None:
    def fail(request: HttpRequest, responder: Responder) -> None:
        raise ZeroDivisionError

    def fail_late(request: HttpRequest, responder: Responder) -> None:
        responder.begin(200, b"")
        raise ZeroDivisionError

    bench = Bench(fail)
    bench.feed(GET)
    assert bench.wire.sent.startswith(b"HTTP/1.1 500 ")
    assert careful(bench.wire.sent)
    late = Bench(fail_late)
    late.feed(GET)
    assert late.wire.aborted


def test_the_last_answer_is_not_taken_back_by_what_the_peer_still_sends() -> None:
    bench = Bench()
    bench.feed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nand more")
    assert bench.wire.ended
    assert not bench.wire.closed
    bench.feed(b"and more")
    bench.pass_time(200.0)
    assert bench.wire.closed
    assert len(bench.requests) == 1


def test_what_is_held_in_all_is_bounded() -> None:
    bench = Bench(max_buffered=20_000)
    bench.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n" + b"a" * 19_000)
    assert bench.engine_state.requests.held == 19_000
    bench.feed(b"a" * 2000)
    assert b"HTTP/1.1 503" in bench.wire.sent
    assert b"retry-after: 1\r\n" in bench.wire.sent
    assert bench.engine_state.requests.held == 0


def test_of_a_request_that_is_refused_nothing_is_held() -> None:
    bench = Bench(body_timeout=5.0)
    bench.feed(BODY + b"a" * 10_000)
    assert process.requests.held == 10_000
    bench.pass_time(200.0)
    assert b"HTTP/1.1 408" in bench.wire.sent
    assert process.requests.held == 0
    bench.feed(b"a" * 10_000)
    assert process.requests.held == 0


BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n"


def beside(bench: Bench) -> tuple[Connection, Wire]:
    """Return another connection of the same engine."""
    connection, wire = Connection(bench.engine_state, bench.turns), Wire()  # type: ignore[arg-type]
    connection.connection_made(wire)
    return connection, wire


def test_over_the_bound_whoever_holds_most_is_shed() -> None:
    """Large bodies that never end keep nobody out who sends less."""
    bench = Bench(max_buffered=50_000)
    bench.feed(BODY + b"a" * 30_000)
    other, wire = beside(bench)
    other.data_received(BODY + b"a" * 10_000)
    assert bench.engine_state.requests.held == 40_000
    other.data_received(b"a" * 12_000)
    assert b"HTTP/1.1 503" in bench.wire.sent
    assert (wire.sent, bench.engine_state.requests.held) == (b"", 22_000)
    other.connection_lost(None)
    assert (bench.engine_state.requests.held, process.requests.held) == (0, 0)


def test_what_waits_behind_a_request_in_hand_is_shed_without_harm_to_its_answer() -> None:
    bench = Bench(lambda request, responder: bench.answers.append(responder), max_buffered=50_000)
    bench.feed(GET)
    bench.feed(BODY + b"a" * 40_000)
    other, _ = beside(bench)
    other.data_received(BODY + b"a" * 20_000)
    assert (bench.wire.sent, bench.engine_state.requests.held) == (b"", 20_000)
    bench.answers[0].reply(200, b"", b"first")
    assert bench.wire.sent.endswith(b"first")
    assert b"connection: close" in bench.wire.sent
    assert bench.wire.closed
    other.connection_lost(None)


def test_a_request_that_is_handed_on_is_held_no_more() -> None:
    held: list[int] = []
    bench = Bench(lambda request, responder: held.append(process.requests.held))
    bench.feed(BODY + b"a" * 50_000)
    assert process.requests.held == 50_000
    bench.feed(b"a" * 40_000)
    assert (held, process.requests.held) == ([0], 0)


def test_the_beginning_of_a_small_request_is_on_no_account() -> None:
    bench = Bench()
    bench.feed(BODY + b"a" * UNCOUNTED)
    assert process.requests.held == 0
    bench.feed(b"a")
    assert process.requests.held == UNCOUNTED + 1
    bench.connection.connection_lost(None)
    assert process.requests.held == 0


def test_requests_of_other_carriers_leave_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.requests, "limit", 50_000)
    bench = Bench()
    assert process.requests.take(40_000)
    bench.feed(BODY + b"a" * 20_000)
    assert b"HTTP/1.1 503" in bench.wire.sent
    process.requests.give(40_000)
    assert process.requests.held == 0


# -- what is written and not taken


def test_what_a_congested_peer_has_not_taken_is_counted_until_it_has() -> None:
    bench = Bench(lambda request, responder: bench.answers.append(responder))
    bench.feed(GET)
    bench.answers[0].begin(200, b"")
    bench.answers[0].write(b"a" * 100)
    assert process.answers.held == 0
    bench.connection.pause_writing()
    bench.wire.backlog = 100_000
    bench.answers[0].write(b"a")
    assert process.answers.held == 100_000
    bench.wire.backlog = 70_000
    bench.connection.sweep(101.0)
    assert process.answers.held == 70_000
    bench.connection.resume_writing()
    assert process.answers.held == 0


def test_what_a_peer_that_is_gone_has_not_taken_is_counted_no_more() -> None:
    bench = Bench(lambda request, responder: bench.answers.append(responder))
    bench.feed(GET)
    bench.connection.pause_writing()
    bench.wire.backlog = 100_000
    bench.answers[0].reply(200, b"", b"a" * 10)
    assert process.answers.held == 100_000
    bench.connection.connection_lost(None)
    assert process.answers.held == 0


def test_small_rests_that_are_never_taken_are_counted_by_the_sweep() -> None:
    """Below the mark at which writing pauses; thousands of them are a lot."""
    bench = Bench()
    bench.wire.backlog = 1000
    bench.connection.sweep(101.0)
    assert process.answers.held == 1000
    bench.wire.backlog = 0
    bench.connection.sweep(102.0)
    assert process.answers.held == 0


def test_over_the_bound_the_connection_that_holds_most_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.answers, "limit", 1000)
    bench = Bench()
    other, wire = beside(bench)
    bench.wire.backlog, wire.backlog = 300, 600
    bench.connection.sweep(101.0)
    other.sweep(101.0)
    bench.wire.backlog = 500
    bench.connection.sweep(102.0)
    assert (bench.wire.aborted, wire.aborted) == (False, True)
    wire.backlog = 0
    other.connection_lost(None)
    bench.connection.connection_lost(None)
    assert process.answers.held == 0


def test_what_is_not_whole_when_the_peer_has_ended_is_waited_for_no_longer() -> None:
    bench = Bench()
    bench.feed(GET * (BURST + 1) + b"GET /half")
    assert bench.connection.eof_received()
    assert not bench.wire.closed
    bench.turns.run()
    assert len(bench.requests) == BURST + 1
    assert bench.wire.closed


def test_a_peer_that_reads_again_gets_no_more_time_for_its_body() -> None:
    bench = Bench(body_timeout=10.0, min_body_rate=1000)
    bench.feed(BODY + b"a" * 50_000)
    bench.connection.pause_writing()
    bench.pass_time(109.0)
    bench.connection.resume_writing()
    assert bench.wire.sent == b""
    bench.pass_time(111.0)
    assert b"HTTP/1.1 408" in bench.wire.sent


# -- another process has the connection


def give_away(bench: Bench) -> Transfer:
    """Let another process answer the request in hand."""
    answer = bench.answers[-1]
    assert isinstance(answer, Answer)
    transfer = answer.transfer(bench.requests[-1].body)
    assert transfer is not None
    return transfer


def leave(bench: Bench, heirs: list[Transfer]) -> None:
    """End the server that another one comes after."""
    bench.engine_state.heir = heirs.append
    bench.connection.drain()


@given(request=REQUESTS, rest=st.sampled_from([b"", b"GET", GET * 2]))
def test_a_connection_is_given_away_with_all_that_is_not_answered(request: list[bytes], rest: bytes) -> None:
    whole = keeping()
    whole.feed(request[0] + rest)
    transfer = give_away(whole)
    assert whole.wire.aborted
    assert whole.connection.state == CLOSED
    another = Bench(max_body_size=100_000)
    another.connection = Connection(another.engine_state, another.turns, transfer.received)  # type: ignore[arg-type]
    another.connection.connection_made(another.wire)
    assert another.connection.received == 0, "who read it has counted it"
    first, *others = another.requests
    assert (first.method, first.path, first.body) == _parts(whole.requests[0])
    assert len(others) == rest.count(GET)
    another.connection.data_received(b" /z HTTP/1.1\r\nHost: a\r\n\r\n" if rest == b"GET" else GET)
    assert len(another.requests) == len(others) + 2


def _parts(request: HttpRequest) -> tuple[str, str, bytes]:
    return (request.method, request.path, request.body)


def _no_descriptor(number: int) -> NoReturn:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(
    "why", ["not all is taken", "the peer has ended its side", "it wandered too often", "too much is open"]
)
def test_a_connection_that_cannot_be_given_away_is_answered_here(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = keeping()
    if why == "it wandered too often":
        bench.connection = Connection(bench.engine_state, bench.turns, b"", MOST_TRANSFERS)  # type: ignore[arg-type]
        bench.connection.connection_made(bench.wire)
    bench.connection.data_received(GET)
    if why == "not all is taken":
        bench.wire.backlog = 1
    elif why == "the peer has ended its side":
        bench.connection.eof_received()
    elif why == "too much is open":
        monkeypatch.setattr(socket, "dup", _no_descriptor)
    answer = bench.answers[0]
    assert isinstance(answer, Answer)
    assert answer.transfer(b"") is None
    answer.reply(200, b"")
    assert b"200 OK" in bench.wire.sent


def test_a_successor_gets_each_connection_after_what_it_asked_is_answered() -> None:
    heirs: list[Transfer] = []
    bench = keeping()
    bench.feed(GET)
    leave(bench, heirs)
    assert heirs == []
    bench.feed(GET)
    bench.answers[0].reply(200, b"")
    assert [each.received for each in heirs] == [GET]
    assert b"200 OK" in bench.wire.sent
    assert b"connection: close" not in bench.wire.sent


def test_a_client_that_ends_its_connection_is_not_left_to_a_successor() -> None:
    heirs: list[Transfer] = []
    bench = keeping()
    bench.feed(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    leave(bench, heirs)
    bench.answers[0].reply(200, b"")
    assert heirs == []
    assert bench.wire.closed


# -- the table of states


class Recorded(Event):
    """An event of the table that writes down each transition it makes."""

    def __init__(self, event: Event, seen: set[tuple[str, str]]) -> None:
        super().__init__(event.name, event)
        self.seen = seen

    def __getitem__(self, state: int) -> int:
        self.seen.add((self.name, STATES[state]))
        return super().__getitem__(state)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
RUBBISH = b"no HTTP\r\n\r\n"
UNFINISHED = {"IDLE": b"", "HEAD": b"GET", "BODY": POST % 5}


def in_state(name: str) -> Bench:
    """Return a connection that came to a state by what a peer did."""
    bench = keeping()
    if name == "NEW":
        pass
    elif name == "LINGER":
        bench.feed(RUBBISH)
    elif name == "CLOSED":
        bench.connection.drain()
    elif name == "BUSY":
        bench.feed(GET)
    else:
        bench.feed(GET)
        bench.answers[0].reply(200, b"")
        bench.feed(UNFINISHED[name])
    assert STATES[bench.connection.state] == name
    return bench


def answer_last(bench: Bench) -> None:
    """Let the answer in hand be the last, of a peer that sends on."""
    bench.connection.last = True
    bench.feed(b"more")
    bench.answers[-1].reply(200, b"")


def hand_over(bench: Bench) -> None:
    bench.wire.set_protocol = lambda successor: None  # type: ignore[method-assign]
    bench.connection.hand_over(b"", Successor())


def choose_http2(*pieces: bytes) -> None:
    """Begin a connection with the preface of HTTP/2."""
    bench = Bench()
    bench.engine_state.http2 = lambda engine_state, loop: Successor()
    bench.wire.set_protocol = lambda successor: None  # type: ignore[method-assign]
    for piece in pieces:
        bench.feed(piece)


def end_behind_a_burst(rest: bytes) -> Bench:
    """Return a connection whose peer ended its side before the last of many requests was whole."""
    bench = Bench()
    bench.feed(GET * (BURST + 1) + rest)
    bench.connection.eof_received()
    bench.turns.run()
    return bench


WHOLE = {"NEW": GET, "IDLE": GET, "HEAD": b" /a HTTP/1.1\r\nHost: a\r\n\r\n", "BODY": b"12345"}
BEGUN = {"NEW": POST % 5, "IDLE": POST % 5, "HEAD": b" /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"}


def drive_every_transition() -> None:
    """Do to connections what peers, handlers, time and the engine do to them."""
    for name in ("NEW", "IDLE"):
        in_state(name).feed(b"GET")
        in_state(name).connection.drain()
    for name, data in BEGUN.items():
        in_state(name).feed(data)
    for name, data in WHOLE.items():
        in_state(name).feed(data)
        in_state(name).pass_time(10_000.0)
    in_state("IDLE").feed(RUBBISH)
    in_state("BUSY").answers[0].reply(200, b"")
    answer_last(in_state("BUSY"))
    hand_over(in_state("BUSY"))
    choose_http2(PREFACE)
    choose_http2(PREFACE[:3], PREFACE[3:])
    in_state("LINGER").pass_time(10_000.0)
    give_away(in_state("BUSY"))
    for name in ("NEW", "IDLE", "HEAD"):
        leave(in_state(name), [])
    end_behind_a_burst(b"GET")
    end_behind_a_burst(POST % 5)
    for name in STATES:
        in_state(name).connection.connection_lost(None)


def test_real_connections_make_every_transition_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[tuple[str, str]] = set()
    for event in EVENTS:
        monkeypatch.setattr(engine_connection, event.name, Recorded(event, made))
    drive_every_transition()
    assert made == {(event.name, STATES[state]) for event in EVENTS for state in event}


def test_every_state_is_reached_and_every_state_ends() -> None:
    reached, closing = {NEW}, {CLOSED}
    for _ in STATES:
        for event in EVENTS:
            for state, following in event.items():
                if state in reached:
                    reached.add(following)
                if following in closing:
                    closing.add(state)
    assert reached == closing == set(range(len(STATES)))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_what_is_not_in_the_table_is_refused(event: Event) -> None:
    for state, name in enumerate(STATES):
        if state not in event:
            with pytest.raises(RuntimeError, match=f"^{event.name} cannot happen to a connection that is {name}: "):
                event[state]


@pytest.mark.parametrize("name", [name for name in STATES if name != "BUSY"])
def test_only_a_connection_that_owes_an_answer_can_be_answered_or_handed_over(name: str) -> None:
    bench = in_state(name)
    assert bench.connection.answer is None
    sent = bench.wire.sent
    with pytest.raises(RuntimeError, match=f"^ANSWERED cannot happen to a connection that is {name}: "):
        bench.connection.finished()
    with pytest.raises(RuntimeError, match=f"^HANDED_OVER cannot happen to a connection that is {name}: "):
        hand_over(bench)
    assert STATES[bench.connection.state] == name
    assert bench.wire.sent == sent
    assert bench.connection in bench.engine_state.connections


def test_a_connection_has_an_answer_while_it_is_busy() -> None:
    bench = in_state("BUSY")
    assert isinstance(bench.connection.answer, Answer)
    bench.answers[0].reply(200, b"")
    assert bench.connection.answer is None
