"""Taking connections from a listening socket; what happens without descriptors is in tests/faults."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

from ferrule.testing import run_in_virtual_time
from ferrule.transports.sockets.accept import MAX_FAREWELLS, LingeringCloses, SocketAcceptor, turn_away


async def listen(backlog: int = 100) -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    listening.setblocking(False)
    return listening


def test_everyone_who_comes_is_taken_until_stopped() -> None:
    async def main() -> None:
        listening = await listen()
        taken: list[socket.socket] = []
        line = SocketAcceptor(listening, taken.append, bytes)
        files = len(os.listdir("/proc/self/fd"))
        line.start()
        address = listening.getsockname()
        peers = [socket.create_connection(address) for _ in range(100)]
        while len(taken) < 100:
            await asyncio.sleep(0)
        line.stop()
        for each in peers + taken:
            each.close()
        # The listening socket and the reserve are given back as well.
        assert len(os.listdir("/proc/self/fd")) == files - 2

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_crowd_is_taken_after_some_have_come_one_by_one() -> None:
    async def main() -> None:
        listening = await listen()
        taken: list[socket.socket] = []
        line = SocketAcceptor(listening, taken.append, bytes)
        line.start()
        address = listening.getsockname()
        peers: list[socket.socket] = []
        for several in (1, 1, 1, 90, 1, 2):
            for _ in range(several):
                peers.append(socket.create_connection(address))
            while len(taken) < len(peers):
                await asyncio.sleep(0)
        line.stop()
        # What was accepted is a socket like any other.
        assert {(each.family, each.type) for each in taken} == {(socket.AF_INET, socket.SOCK_STREAM)}
        assert {each.getpeername() for each in taken} == {each.getsockname() for each in peers}
        copy = taken[0].dup()
        for each in [*peers, *taken, copy]:
            each.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_socket_that_listens_no_more_is_reported_once() -> None:
    async def main() -> list[OSError]:
        listening = await listen()
        failed: list[OSError] = []
        line = SocketAcceptor(listening, lambda _: None, bytes, failed.append)
        line.start()
        listening.shutdown(socket.SHUT_RDWR)
        while not failed:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        line.stop()
        return failed

    [error] = asyncio.run(asyncio.wait_for(main(), 60))
    assert error.errno == errno.EINVAL


def test_a_peer_turned_away_reads_why_although_it_was_speaking() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"GET / HTTP/1.1\r\n\r\n")
    turn_away(ours, b"no room")
    assert theirs.recv(100) == b"no room"
    assert theirs.recv(100) == b""
    theirs.close()


def test_turning_away_a_peer_that_left_is_no_problem() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    turn_away(ours, b"no room")
    assert ours.fileno() == -1


def test_a_peer_told_to_go_is_closed_a_second_later() -> None:
    async def main() -> None:
        farewells = LingeringCloses(asyncio.get_running_loop())
        ours, theirs = socket.socketpair()
        farewells.turn_away(ours, b"no room")
        assert theirs.recv(100) == b"no room"
        await asyncio.sleep(0.9)
        assert ours.fileno() != -1
        await asyncio.sleep(0.2)
        assert ours.fileno() == -1
        theirs.close()

    run_in_virtual_time(main())


def test_only_so_many_wait_to_be_closed_and_an_end_closes_them_all() -> None:
    async def main() -> None:
        farewells = LingeringCloses(asyncio.get_running_loop())
        pairs = [socket.socketpair() for _ in range(MAX_FAREWELLS + 5)]
        for ours, _ in pairs:
            farewells.turn_away(ours, b"")
        assert [ours.fileno() == -1 for ours, _ in pairs] == [True] * 5 + [False] * MAX_FAREWELLS
        farewells.end()
        assert all(ours.fileno() == -1 for ours, _ in pairs)
        for _, theirs in pairs:
            theirs.close()

    run_in_virtual_time(main())
