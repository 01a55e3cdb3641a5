"""What a peer's system has acknowledged is known, byte for byte, also when the peer is lost."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator

import pytest

from ferrule.transports.http.engine.answer import unacknowledged

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    with ours, theirs:
        yield ours, theirs


def settled(ours: socket.socket, written: int, expected: int) -> bool:
    """Acknowledgements take a moment."""
    for _ in range(1000):
        if unacknowledged(ours, written) == expected:
            return True
        time.sleep(0.005)
    return False


def test_what_was_taken_counts_no_more(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    assert unacknowledged(ours, 0) == 0
    ours.sendall(b"x" * 1000)
    assert settled(ours, 1000, 0)
    assert unacknowledged(ours, 1500) == 500


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_it_is_known_after_the_peer_went_away(ends: tuple[socket.socket, socket.socket], reset: bool) -> None:
    ours, theirs = ends
    ours.sendall(b"x" * 1000)
    assert settled(ours, 1000, 0)
    if reset:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    assert settled(ours, 1000, 0)


def test_a_reader_that_takes_little_leaves_the_rest_in_doubt(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    ours.setblocking(False)
    written = 0
    try:
        while True:
            written += ours.send(b"x" * 65536)
    except BlockingIOError:
        pass
    left = unacknowledged(ours, written + 10_000)
    assert left is not None
    assert 10_000 < left <= written + 10_000


def test_nobody_can_tell_of_a_socket_that_is_none_or_closed_or_no_tcp() -> None:
    one, other = socket.socketpair()
    with other:
        assert unacknowledged(one, 5) is None
        one.close()
        assert unacknowledged(one, 5) is None
        assert unacknowledged(None, 5) is None


def test_a_socket_may_have_any_number() -> None:
    class First:
        """A socket with the number of the standard input, on a system that has just as many figures as are needed."""

        def fileno(self) -> int:
            return 0

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            return bytes(min(size, 128))

    assert unacknowledged(First(), 5) == 5


def test_an_old_kernel_tells_nothing() -> None:
    class Old:
        """A socket of a system that has fewer figures."""

        def fileno(self) -> int:
            return 1

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            return bytes(size - 8)

    assert unacknowledged(Old(), 5) is None
