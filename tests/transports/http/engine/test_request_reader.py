"""Requests taken out of what has come, with no connection around them."""

from __future__ import annotations

import pytest

from ferrule.budgets.allocator import allocator
from ferrule.budgets.bounds import FREE_UNFINISHED
from ferrule.transports.http.engine.head_parser import Head, Unacceptable
from ferrule.transports.http.engine.request_reader import MAX_BLANK_LINES, MAX_KEPT_HEAD, NO_HEAD, RequestReader
from ferrule.transports.http.engine.state import EngineState
from ferrule.transports.http.settings import EngineSettings

HEAD = b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


class Opened(RequestReader):
    """Takes requests as a connection does, all that have come whole."""

    __slots__ = ()

    def take(self, data: bytes) -> list[tuple[Head, bytes]]:
        self._buffer = self._buffer[self._at :] + data
        self._at = 0
        taken = []
        while (request := self._next()) is not None:
            self._body = None
            self._head = NO_HEAD
            self._keep(request[0])
            taken.append(request)
        return taken

    def _next(self) -> tuple[Head, bytes] | None:
        head = self._head if self._body is not None else self._read_head()
        if head is None:
            return None
        assert head is not NO_HEAD
        content = None if self._body is not None else self._whole_body(head)
        if content is None:
            if self._body is None:
                self._expect_body(head)
            content = self._read_body()
        return None if content is None else (head, content)


@pytest.fixture
def incoming() -> Opened:
    return Opened(EngineState(lambda request, answer: None, EngineSettings(), 64))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_requests_are_the_same_however_the_bytes_are_cut(incoming: Opened, size: int) -> None:
    sent = (HEAD + b"first") + (HEAD + b"other")
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    taken = [body for piece in pieces for _, body in incoming.take(piece)]
    assert taken == [b"first", b"other"]


def test_a_head_that_comes_again_is_the_same_object(incoming: Opened) -> None:
    (first, _), (second, _) = incoming.take((HEAD + b"first") + (HEAD + b"other"))
    assert first is second


def test_a_long_head_is_not_kept(incoming: Opened) -> None:
    long = HEAD[:-2] + b"X-Long: " + b"x" * MAX_KEPT_HEAD + b"\r\n\r\n"
    (first, _), (second, _) = incoming.take((long + b"first") + (long + b"other"))
    assert first is not second


def test_a_short_head_is_forgotten_once_a_long_one_has_come(incoming: Opened) -> None:
    long = HEAD[:-2] + b"X-Long: " + b"x" * MAX_KEPT_HEAD + b"\r\n\r\n"
    sent = (HEAD + b"first") + (long + b"other") + (HEAD + b"third")
    assert [body for _, body in incoming.take(sent)] == [b"first", b"other", b"third"]


def test_a_body_over_the_limit_is_refused_before_it_comes(incoming: Opened) -> None:
    with pytest.raises(Unacceptable, match="longer than 64 bytes"):
        incoming.take(HEAD.replace(b"5", b"65"))


def test_a_few_empty_lines_before_a_request_are_passed_over(incoming: Opened) -> None:
    assert MAX_BLANK_LINES == 4
    assert len(incoming.take(b"\r\n" * MAX_BLANK_LINES + HEAD + b"first")) == 1
    with pytest.raises(Unacceptable, match="empty lines") as refused:
        incoming.take(b"\r\n" * (MAX_BLANK_LINES + 1))
    assert refused.value.status == 400


def test_empty_lines_that_were_passed_over_are_not_counted_again(incoming: Opened) -> None:
    for _ in range(3):
        assert incoming.take(b"\r\n" * MAX_BLANK_LINES) == []
    assert len(incoming.take(HEAD + b"first")) == 1


def test_what_cannot_become_http_is_refused_at_its_first_byte(incoming: Opened) -> None:
    with pytest.raises(Unacceptable, match="this is not HTTP"):
        incoming.take(b"\0")


@pytest.mark.parametrize(("length", "told"), [(FREE_UNFINISHED, 0), (FREE_UNFINISHED + 1, 1)])
def test_the_memory_of_a_long_body_is_kept_for_the_next(
    incoming: Opened, monkeypatch: pytest.MonkeyPatch, length: int, told: int
) -> None:
    large: list[bool] = []
    monkeypatch.setattr(allocator, "large_message", lambda: large.append(True))
    incoming.engine_state.max_body_size = 2 * FREE_UNFINISHED
    head = HEAD.replace(b" 5\r", b" %d\r" % length)
    assert incoming.take(head + b"x") == []
    [(_, body)] = incoming.take(b"x" * (length - 1))
    assert len(body) == length
    assert len(large) == told
