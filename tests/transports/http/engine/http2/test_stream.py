"""One request and its answer: what may be written when, and who waits for a slow reader."""

from __future__ import annotations

import asyncio

import pytest
from h2.errors import ErrorCodes

from ferrule.budgets import process
from http2_memory import in_memory
from http2_peer import request_fields

SHUT = {"INITIAL_WINDOW_SIZE": 0}


def test_an_answer_begins_once() -> None:
    with in_memory() as peer:
        number = peer.get("/")
        stream = peer.owed[0]
        stream.begin(200, b"")
        with pytest.raises(RuntimeError, match="has begun already"):
            stream.begin(200, b"")
        with pytest.raises(RuntimeError, match="has begun already"):
            stream.reply(200, b"")
        stream.finish()
        stream.begin(200, b"")
        stream.reply(200, b"")
        stream.write(b"late")
        stream.finish()
        peer.listen()
        assert (peer.answers[number].status, peer.answers[number].body) == (200, b"")
        assert peer.answers[number].whole


def test_an_answer_to_head_has_no_content_however_it_is_written() -> None:
    with in_memory() as peer:
        number = peer.ask(request_fields("HEAD", "/"))
        stream = peer.owed[0]
        stream.begin(200, b"x: y\r\n")
        stream.write(b"hello")
        stream.finish()
        peer.listen()
        assert peer.answers[number].headers["x"] == "y"
        assert peer.answers[number].body == b""
        assert peer.answers[number].whole


def test_a_head_is_sent_before_anything_is_written() -> None:
    with in_memory() as peer:
        number = peer.get("/")
        peer.owed[0].begin(200, b"")
        peer.listen()
        assert peer.answers[number].status == 200
        assert not peer.answers[number].whole


def test_who_writes_waits_from_one_mark_to_the_other() -> None:
    high, low = 64 * 1024, 16 * 1024
    with in_memory(client=SHUT) as peer:
        peer.acknowledge = False
        number = peer.get("/")
        stream = peer.owed[0]
        stream.begin(200, b"")
        stream.write(bytes(high + 1))
        peer.listen()
        waiting = peer.loop.create_task(stream.wait_writable())
        peer.turn()
        peer.client.increment_flow_control_window(high - low, number)
        peer.flush()
        peer.turn()
        assert not waiting.done()
        peer.client.increment_flow_control_window(1, number)
        peer.flush()
        peer.turn()
        assert waiting.done()
        stream.write(bytes(high - low))
        peer.loop.run_until_complete(asyncio.wait_for(stream.wait_writable(), 1))


def test_whose_reader_goes_waits_no_longer() -> None:
    with in_memory(client=SHUT) as peer:
        number = peer.get("/")
        stream = peer.owed[0]
        stream.begin(200, b"")
        stream.write(bytes(100_000))
        waiting = peer.loop.create_task(stream.wait_writable())
        peer.turn()
        assert not waiting.done()
        peer.client.reset_stream(number)
        peer.flush()
        peer.turn()
        assert waiting.done()
        assert stream.body == b""
        assert process.answers.held == 0


def test_the_stream_that_holds_most_is_cut_where_all_together_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_memory(client=SHUT) as peer:
        limit = process.answers.limit
        process.answers.limit = 10_000
        try:
            numbers = [peer.get("/"), peer.get("/")]
            for stream, size in zip(peer.owed, (6000, 5000), strict=True):
                stream.begin(200, b"")
                stream.write(bytes(size))
            peer.listen()
            assert peer.answers[numbers[0]].reset == ErrorCodes.ENHANCE_YOUR_CALM
            assert peer.answers[numbers[1]].reset is None
            assert process.answers.held == 5000
            peer.turn()
            assert peer.lost == 1
        finally:
            process.answers.limit = limit


def test_a_cut_or_an_abort_comes_too_late_for_a_stream_that_is_over() -> None:
    with in_memory() as peer:
        number = peer.get("/")
        stream = peer.owed[0]
        stream.reply(200, b"")
        stream.cut()
        stream.abort()
        peer.listen()
        assert peer.answers[number].whole
        assert peer.answers[number].reset is None


def test_a_request_says_that_it_came_over_http2() -> None:
    with in_memory() as peer:
        asked = []
        peer.connection.engine_state.handle = lambda request, responder: asked.append(request.http)
        peer.get("/")
        assert asked == ["2"]
