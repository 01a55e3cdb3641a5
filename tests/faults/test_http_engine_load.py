"""Peers that are slow, greedy, rude or many, at the HTTP engine in a process of its own; memory is read from /proc."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from pace import LONG, prompt
from raw_http import HONEST, EngineProcess, Peer, engine, until

from many_files import many_files

MIB = 1024 * 1024
POST = b"POST /open HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[EngineProcess]:
    with engine(head_timeout=60, body_timeout=60, write_timeout=60, idle_timeout=60) as process:
        yield process


@pytest.fixture(scope="module")
def hasty() -> Iterator[EngineProcess]:
    """An engine that soon loses patience."""
    with engine(head_timeout=1.0, body_timeout=1.0, write_timeout=1.0, idle_timeout=60) as process:
        yield process


def statuses(peers: list[Peer]) -> list[list[int]]:
    return [[response.status for response in peer.responses()] for peer in peers]


def close(peers: list[Peer]) -> None:
    for peer in peers:
        peer.socket.close()


def ask_all_the_while(server: EngineProcess, stop: threading.Event, times: list[float]) -> None:
    with server.peer() as peer:
        while not stop.is_set():
            began = time.perf_counter()
            peer.send(HONEST)
            peer.read_one()
            times.append(time.perf_counter() - began)
            time.sleep(0.005)


def test_htp_01_slow_senders_are_cut_and_bystanders_unaffected(hasty: EngineProcess) -> None:
    """The catalogue's times, divided by 10: one byte every 80 ms, cut within three seconds."""
    stop, times = threading.Event(), []
    bystander = threading.Thread(target=ask_all_the_while, args=(hasty, stop, times))
    bystander.start()
    heads = [hasty.peer() for _ in range(60)]
    bodies = [hasty.peer() for _ in range(60)]
    silent = [hasty.peer() for _ in range(30)]
    for peer in heads:
        peer.send(b"POST /open HTTP/1.1\r\nHost: a\r\nX: ")
    for peer in bodies:
        peer.send(POST + b"Content-Length: 1000\r\n\r\n")
    everyone = heads + bodies + silent
    began, cut = time.monotonic(), set()
    while len(cut) < len(everyone) and time.monotonic() - began < prompt(3.0):
        for peer in heads + bodies:
            if peer.socket not in cut:
                peer.send(b"a")
        time.sleep(0.08)
        cut.update(select.select([peer.socket for peer in everyone], [], [], 0)[0])
    stop.set()
    bystander.join()
    assert len(cut) == len(everyone)
    assert statuses(everyone) == [[408]] * len(everyone)
    assert sorted(times)[int(len(times) * 0.99)] < prompt(0.2)
    close(everyone)


def test_a_body_that_comes_steadily_has_the_time_it_needs() -> None:
    with engine(body_timeout=1.5, min_body_rate=100) as server, server.peer() as peer:
        peer.send(POST + b"Content-Length: 1200\r\n\r\n")
        for _ in range(12):
            time.sleep(0.15)
            peer.send(b"a" * 100)
        assert peer.read_one().body == b"POST /open? 1200"


def test_a_body_has_no_more_than_the_whole_time() -> None:
    with engine(body_timeout=0.6, max_body_time=0.6) as server, server.peer() as peer:
        peer.send(POST + b"Content-Length: 4000000\r\n\r\n")
        began = time.monotonic()
        while time.monotonic() - began < 30 and not select.select([peer.socket], [], [], 0.02)[0]:
            peer.send(b"a" * 2000)
        assert statuses([peer]) == [[408]]
        assert 0.5 < time.monotonic() - began < prompt(1.2)


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with engine(idle_timeout=0.3) as server, server.peer() as peer:
        began = time.monotonic()
        peer.send(HONEST)
        assert peer.read_one().status == 200
        assert peer.read_all() == b""
        assert 0.25 < time.monotonic() - began < prompt(1.0)


def test_htp_02_a_body_declared_too_long_is_refused_at_once(server: EngineProcess) -> None:
    for length in (4 * MIB + 1, 1024 * MIB, 10**18):
        began = time.monotonic()
        assert [one.status for one in server.say(POST + b"Content-Length: %d\r\n\r\n" % length)] == [413]
        assert time.monotonic() - began < prompt(0.3)


def test_htp_02_chunks_without_end_are_refused_before_they_fill_the_memory(server: EngineProcess) -> None:
    """always:HTP-02."""
    before = server.rss()
    server.forget_peak()
    peers = [server.peer() for _ in range(8)]
    chunk = b"10000\r\n" + b"a" * 65536 + b"\r\n"
    for peer in peers:
        peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    sent = 0
    while sent < 4 * MIB + 128 * 1024:
        for peer in peers:
            peer.send(chunk)
        sent += 65536
    assert statuses(peers) == [[413]] * 8
    close(peers)
    assert server.rss("VmHWM") - before <= 48
    server.count()


def test_htp_08_a_thousand_pipelined_requests_are_answered_in_order(server: EngineProcess) -> None:
    before = server.rss()
    requests = b"".join(b"GET /slow?%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(50))
    quick = b"".join(b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab" % n for n in range(1000))
    with server.peer(10) as peer:
        sender = threading.Thread(target=peer.send, args=(requests + quick + requests,))
        sender.start()
        bodies = [peer.read_one().body for _ in range(1100)]
        sender.join()
    assert bodies[:50] == bodies[-50:] == [b"slow %d" % n for n in range(50)]
    assert bodies[50:-50] == [b"POST /%d? 2" % n for n in range(1000)]
    assert server.count()["most"] == 1
    assert server.rss() - before < 8


def test_htp_08_pipelined_requests_are_all_answered_after_a_half_close(server: EngineProcess) -> None:
    with server.peer() as peer:
        peer.send(b"GET /open HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        peer.half_close()
        assert [one.status for one in peer.responses()] == [200] * 1000


def test_htp_08_a_flood_behind_a_request_in_hand_is_held_back_by_the_socket(server: EngineProcess) -> None:
    server.forget_peak()
    before = server.rss()
    with server.peer() as peer:
        peer.socket.setblocking(False)
        flood, sent = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" * 40_000, 0
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            try:
                sent += peer.socket.send(flood[sent % len(flood) :])
            except BlockingIOError:
                time.sleep(0.01)
    assert server.rss("VmHWM") - before < 4
    server.count()


def test_a_peer_that_asks_and_never_reads_is_cut(hasty: EngineProcess) -> None:
    hasty.forget_peak()
    before = hasty.rss()
    with hasty.peer() as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Sending ends because the connection was cut; had it only been held back, this would time out.
        while peer.send(b"GET /large?100000 HTTP/1.1\r\nHost: a\r\n\r\n" * 10):
            pass
    assert hasty.rss("VmHWM") - before < 16
    hasty.count()


def test_htp_13_rude_endings_leave_nothing_behind(server: EngineProcess) -> None:
    before = server.count()
    for turn in range(500):
        peer = server.peer()
        if turn % 4 == 0:
            peer.send(b"GET /large?3000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            peer.socket.recv(1000)
            peer.socket.close()
        elif turn % 4 == 1:
            peer.send(POST + b"Content-Length: 1000\r\n\r\nabc")
            peer.reset()
        elif turn % 4 == 2:
            peer.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            peer.reset()
        else:
            peer.send(b"GET /open HTTP/1.1\r\nHost: a\r\n\r\n")
            peer.half_close()
            assert [one.status for one in peer.responses()] == [200]
            peer.socket.close()
    for kind in ("files", "tasks"):
        assert until(lambda kind=kind: server.count()[kind] <= before[kind]), kind
    assert server.count()["lost"] >= 100
    assert "rror" not in server.logged()


def test_htp_13_a_half_closed_peer_gets_the_answer_that_takes_a_moment(server: EngineProcess) -> None:
    with server.peer() as peer:
        peer.send(b"GET /slow?1 HTTP/1.1\r\nHost: a\r\n\r\n")
        peer.half_close()
        assert [one.body for one in peer.responses()] == [b"slow 1"]


def test_htp_14_a_body_announced_and_never_sent_is_given_up(hasty: EngineProcess) -> None:
    with hasty.peer() as peer:
        peer.send(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert peer.read_one().status == 100
        assert [one.status for one in peer.responses()] == [408]


def test_htp_14_a_body_announced_is_asked_for_and_read(server: EngineProcess) -> None:
    for framing, body in (
        (b"Content-Length: 5", b"hello"),
        (b"Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n"),
    ):
        with server.peer() as peer:
            peer.send(POST + framing + b"\r\nExpect: 100-continue\r\n\r\n")
            assert peer.read_one().status == 100
            peer.send(body)
            assert peer.read_one().body == b"POST /open? 5"


def test_htp_14_a_body_too_long_is_refused_before_it_is_asked_for(server: EngineProcess) -> None:
    answers = server.say(POST + b"Expect: 100-continue\r\nContent-Length: 9999999\r\n\r\n")
    assert [one.status for one in answers] == [413]


def test_htp_14_what_follows_a_body_is_not_part_of_it(server: EngineProcess) -> None:
    answers = server.say(POST + b"Content-Length: 5\r\n\r\nhello, world")
    assert [(one.status, one.body[:13]) for one in answers] == [(200, b"POST /open? 5"), (400, answers[1].body[:13])]


def test_htp_14_after_an_early_answer_a_bounded_rest_is_thrown_away(server: EngineProcess) -> None:
    with server.peer() as peer:
        peer.send(POST + b"Content-Length: 99999999\r\n\r\n")
        assert peer.read_one().status == 413
        # The answer is readable although the body still comes, and the rest is taken only so far.
        sent = 0
        while peer.send(b"a" * 65536) and sent < 16 * MIB:
            sent += 65536
        assert sent < 16 * MIB


@pytest.mark.skipif(not LONG, reason="takes as long as the engine lingers")
def test_htp_14_a_peer_that_stays_after_an_early_answer_is_closed(server: EngineProcess) -> None:
    with server.peer(10) as peer:
        peer.send(POST + b"Content-Length: 99999999\r\n\r\n")
        assert peer.read_one().status == 413
        before = server.count()["files"]
        assert until(lambda: server.count()["files"] < before, 7)


def test_ovl_05_idle_connections_cost_little_and_keep_nobody_waiting() -> None:
    many, get = (9000 if LONG else 2000), b"GET /open HTTP/1.1\r\nHost: a\r\n\r\n"
    with many_files(many + 200), engine() as server:
        before = server.rss()
        waits = []
        for _ in range(many):
            began = time.perf_counter()
            peer = server.peer()
            peer.send(get)
            assert peer.read_one().status == 200
            waits.append(time.perf_counter() - began)
        assert (server.rss() - before) * 1024 / many <= 16
        for peer in server.peers[::100]:
            peer.send(get)
            assert peer.read_one().status == 200
        assert sorted(waits)[int(many * 0.99)] <= prompt(0.05)


def test_ovl_06_bodies_are_shed_before_memory_runs_out() -> None:
    with engine(max_buffered=32 * MIB) as server:
        before = server.rss()
        peers = [server.peer() for _ in range(40)]
        refused = set()
        for peer in peers:
            peer.send(POST + b"Content-Length: %d\r\n\r\n" % (4 * MIB))
        for _ in range(60):
            for number, peer in enumerate(peers):
                if number not in refused and not peer.send(b"a" * 65536):
                    refused.add(number)
        assert until(lambda: len(select.select([peer.socket for peer in peers], [], [], 0)[0]) >= 30)
        shed = next(peer for peer in peers if select.select([peer.socket], [], [], 0)[0])
        answers = shed.responses()
        assert [(one.status, one.headers["retry-after"]) for one in answers] == [(503, "1")]
        assert server.rss("VmHWM") - before < 64
        server.count()
        close(peers)
        # What was held is given back: a whole body is taken again.
        body = b"a" * 4 * MIB
        with server.peer() as peer:
            peer.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert peer.read_one().body == b"POST /open? %d" % len(body)


def test_connections_over_the_limit_are_told_so() -> None:
    with engine(max_connections=5) as server:
        peers = [server.peer() for _ in range(5)]
        for peer in peers:
            peer.send(HONEST)
            assert peer.read_one().status == 200
        for _ in range(100):
            answers = server.say(HONEST)
            assert [(one.status, one.headers["retry-after"]) for one in answers] == [(503, "1")]
        close(peers)
        assert until(lambda: server.say(b"GET / HTTP/1.0\r\n\r\n")[0].status == 200)
