"""A client's connection, fed by hand: whatever a server says, its reader hears one end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.http.client.connection import ConnectionCut, HttpConnection

WHOLE = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Twice: a\r\nx-twice: b\r\n"
    b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n'
)


class Wire:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str) -> None:
        return None


class Desk:
    """Reads an answer, and owns the connection it comes over."""

    def __init__(self) -> None:
        self.head: tuple[int, dict[bytes, bytes]] | None = None
        self.body = b""
        self.ends: list[Any] = []
        self.free = self.unwanted = 0
        self.wire = Wire()
        self.connection = HttpConnection(self)
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]
        self.connection.send(b"request", self)

    def head_received(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.head = (status, headers)

    def body_received(self, data: bytes) -> None:
        assert self.head is not None
        self.body += data

    def ended(self) -> None:
        self.ends.append("ended")

    def lost(self, error: Exception) -> None:
        self.ends.append(error)

    def let_go(self) -> None:
        self.unwanted += 1

    def freed(self, connection: HttpConnection) -> None:
        self.free += 1

    def gone(self, connection: HttpConnection) -> None: ...


def read(pieces: list[bytes], error: Exception | None = None) -> Desk:
    desk = Desk()
    for piece in pieces:
        desk.connection.data_received(piece)
    desk.connection.connection_lost(error)
    return desk


@given(st.lists(st.integers(0, len(WHOLE)), max_size=6))
def test_an_answer_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(WHOLE)]
    desk = read([WHOLE[start:end] for start, end in pairwise(places)])
    assert desk.head == (
        200,
        {b"content-type": b"application/json", b"x-twice": b"a, b", b"transfer-encoding": b"chunked"},
    )
    assert desk.body == b'{"a":1}'
    assert desk.ends == ["ended"]
    assert desk.free == 1


@given(st.lists(st.binary(max_size=60)), st.integers(0, len(WHOLE)), st.booleans())
def test_garbage_ends_once_and_harms_nothing(pieces: list[bytes], kept: int, broken: bool) -> None:
    desk = read([WHOLE[:kept], *pieces], ConnectionResetError("reset") if broken else None)
    assert len(desk.ends) == 1


@pytest.mark.parametrize("kept", [0, 1, 30, 100, len(WHOLE) - 1])
def test_a_cut_tells_whether_anything_had_come(kept: int) -> None:
    (error,) = read([WHOLE[:kept]] if kept else []).ends
    assert isinstance(error, ConnectionCut)
    assert error.begun == (kept > 0)
    assert not error.reused


def test_a_connection_that_served_before_says_so_when_it_is_cut() -> None:
    desk = Desk()
    desk.connection.data_received(WHOLE)
    desk.connection.send(b"request", desk)
    desk.connection.connection_lost(None)
    assert desk.ends[1].reused
    assert not desk.ends[1].begun


def test_what_comes_unasked_closes_the_connection() -> None:
    desk = Desk()
    desk.connection.data_received(WHOLE)
    assert desk.connection.usable
    desk.connection.data_received(b"HTTP/1.1 200 OK\r\n")
    assert not desk.connection.usable
    assert desk.wire.aborted


def test_an_aborted_connection_tells_its_reader_nothing() -> None:
    desk = Desk()
    desk.connection.abort()
    desk.connection.data_received(WHOLE)
    desk.connection.connection_lost(None)
    assert desk.ends == []
    assert desk.wire.aborted


def test_an_endless_head_is_cut_soon() -> None:
    desk = Desk()
    for _ in range(100):
        desk.connection.data_received(b"HTTP/1.1 100 Wait\r\n\r\n" * 200)
    assert isinstance(desk.ends[0], ConnectionCut)
